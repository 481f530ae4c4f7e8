"""Command line of tools/gpu_check."""

import argparse
import json
import sys
import time
from pathlib import Path

from . import build, carry, page
from .machine import Machine

ROOT = Path(__file__).resolve().parents[2]
USAGE, NO_DEVICE = 2, 5


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/gpu_check",
        description="Builds lowtide with this Python's PyTorch and measures it on the GPU: memory after jobs, equal bits at all"
        " caps, segments, page locks, results against the cpu, speed beside accelerate. Takes a few minutes; writes"
        " gpu_check.json and gpu_check.md. A section that fails does not stop the others. Exit codes: 0 all sections ran and"
        " hold, 1 some do not, 2 no torch, 5 no device.",
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or sim to try this script (default: %(default)s)")
    parser.add_argument("--build-dir", type=Path, help="use this build instead of building build/gpu")
    parser.add_argument("--carried", type=Path, default=ROOT / "build" / "carried",
                        help="folder with Debian's dependencies, used if it is there (default: build/carried)")
    parser.add_argument("--carry", action="store_true", help="fill that folder from this machine, and stop")
    parser.add_argument("--models", type=Path, default=ROOT / "models",
                        help="folder with further archives of tools/get_models, if it is there (default: models)")
    parser.add_argument("--out", type=Path, default=Path("gpu_check_out"), help="folder of the results (default: %(default)s)")
    parser.add_argument("--only", default="", help="letters of the sections to run, such as abd (default: all)")
    parser.add_argument("--configure-only", action="store_true", help="stop after configuring build/gpu")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if arguments.carry:
        print(f"gpu_check: {carry.fill(arguments.carried)}")
        return 0
    if arguments.device.startswith("cuda") and not arguments.configure_only:
        problem = build.gpu_problem()
        if problem:
            print(f"gpu_check: no GPU to check: {problem}", file=sys.stderr)
            return NO_DEVICE
    try:
        from . import sections  # late: needs torch
    except ModuleNotFoundError as error:
        print(f"gpu_check: error: {sys.executable}: {error}: start it with the Python that has PyTorch 2.11", file=sys.stderr)
        return USAGE

    started = time.time()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = {"schema": 1, "device": arguments.device, "sections": []}
    machine = Machine(arguments)
    try:
        machine.program = build.program(ROOT, arguments)
        if arguments.configure_only:
            print(f"gpu_check: configured {machine.program}")
            return 0
        results["sections"] = sections.run_all(machine, arguments.only, lambda done: write(arguments.out, results, done))
    except build.BuildFailed as error:
        results["sections"].append({"name": "build", "status": "failed", "remarks": [str(error)], "tables": []})
        write(arguments.out, results, results["sections"])
    results["seconds"] = round(time.time() - started, 1)
    write(arguments.out, results, results["sections"])
    print(f"gpu_check: {results['seconds']} s, see {arguments.out}/gpu_check.md")
    return 1 if any(section["status"] == "failed" for section in results["sections"]) else 0


def write(out, results, sections):
    """After every section: a run that is cut short leaves what it has."""
    results["sections"] = sections
    (out / "gpu_check.json").write_text(json.dumps(results, indent=1, default=str))
    (out / "gpu_check.md").write_text(page.markdown(results))


if __name__ == "__main__":
    sys.exit(main())
