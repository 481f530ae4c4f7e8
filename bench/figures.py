"""What the scripts of this folder share: where things are, verdicts and tables. Standard library only."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from lib.tables import text_table  # noqa: E402,F401

BIN = ROOT / "build" / "release" / "bin"
LOWTIDE = BIN / "lowtide"
MIB = 1 << 20


def fail(message):
    sys.exit(f"bench/{Path(sys.argv[0]).name}: error: {message}")


def need_program(name):
    program = BIN / name
    if not program.is_file():
        fail(f"{program} is missing: run tools/build")
    return program


def need_archive(path):
    path = Path(path)
    if not path.is_file():
        fail(f"{path} is missing: make it with tools/get_models {path.stem}")
    return path


def input_of(archive):
    """The input file that tools/get_models puts beside each archive."""
    path = archive.with_suffix(".in.safetensors")
    if not path.is_file():
        fail(f"{path} is missing: tools/get_models {archive.stem} makes it with the archive")
    return path


def verdict(figure, limit):
    return "ok" if figure <= limit else "MISSED"


def mib(count):
    return f"{count / MIB:.1f} MiB"
