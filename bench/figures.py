"""What the scripts of this folder share: where things are, verdicts, tables, times of commands. Standard library only."""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from lib.tables import text_table  # noqa: E402,F401

BIN = ROOT / "build" / "release" / "bin"
LOWTIDE = BIN / "lowtide"
MIB = 1 << 20


class Wrong(Exception):
    """What no table may show as a figure: results that differ, a cap that was not kept, a program that failed."""


class Failed(Wrong):
    """A program that failed."""

    def __init__(self, command, exit_code, message=""):
        super().__init__("\n".join([f"exit code {exit_code} of: {' '.join(command)}", message.strip()]).strip())
        self.exit_code = exit_code


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


def command_seconds(command, processes=3, env=None):
    """Medians over fresh processes of the whole command, process start included: wall seconds, and those of the CPU (user + system)."""
    walls, cpus = [], []
    for _ in range(processes):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        walls.append(time.perf_counter() - start)
        cpus.append(usage.ru_utime + usage.ru_stime)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise Failed(command, process.returncode)
    return statistics.median(walls), statistics.median(cpus)
