"""What the scripts of this folder share: where things are, verdicts and tables. Standard library only."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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


def text_table(head, rows):
    """Aligned columns; those that start with a digit in every row to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    right = [all(row[i][:1].isdigit() for row in rows) for i in range(len(head))]

    def line(cells):
        return "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right)).rstrip()

    return "\n".join([line(head), line(["-" * w for w in widths]), *map(line, rows)])
