"""Command line of tools/get_models."""

import argparse
import gc
import os
import sys
import time
from pathlib import Path

from . import catalogue, stamps


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/get_models",
        description="Makes model archives (NAME.pt2) with inputs and expected outputs (NAME.in/.out.safetensors; further"
        " calls NAME.1.in ...). What is there already and up to date is skipped.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to make, see --list")
    parser.add_argument("--set", choices=catalogue.SETS, help="a set of models (default without names: fast)")
    parser.add_argument("--out", type=Path, default=Path("models"), help="folder (default: %(default)s)")
    parser.add_argument("--verify", action="store_true", help="load each new archive again and compare its outputs")
    parser.add_argument("--list", action="store_true", help="list the models and stop")
    parser.add_argument("--requirements", action="store_true", help=argparse.SUPPRESS)  # for the script around this
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in catalogue.MODELS]
    if unknown:
        parser.error(f"no model named {', '.join(unknown)}: --list shows the names")
    return arguments


def wanted_entries(arguments):
    names = list(arguments.names)
    if arguments.set or not names:
        names += catalogue.names_in(arguments.set or "fast")
    return [catalogue.MODELS[name] for name in dict.fromkeys(names)]


# The scripts of tools/ share one clock, see steps.sh.
STARTED = float(os.environ.get("LOWTIDE_TOOLS_STARTED", time.time()))


def say(text):
    print(f"[{time.time() - STARTED:6.1f} s] {text}", flush=True)


def make_all(entries, out, check):
    """Makes the models one after the other; returns the number of those that failed."""
    import torch  # late: listing and skipping need no LibTorch

    from . import export

    torch.set_num_threads(os.cpu_count() or 1)
    failed = 0
    for number, entry in enumerate(entries, 1):
        started = time.time()
        try:
            size, remarks = export.make(entry, out, check)
            details = ", ".join([f"{size / 1e6:.1f} MB", f"{time.time() - started:.1f} s", *remarks])
            say(f"model {number}/{len(entries)} {entry.name}: {details}")
        except Exception as error:  # one model that cannot be made does not stop the others
            failed += 1
            say(f"model {number}/{len(entries)} {entry.name}: failed: {type(error).__name__}: {error}")
        gc.collect()
    return failed


def main():
    arguments = parse_arguments()
    if arguments.list:
        for entry in catalogue.MODELS.values():
            print(f"{entry.name:24} {'/'.join(entry.sets) or '-':10} {entry.about}")
        return 0
    entries = wanted_entries(arguments)
    missing = [entry for entry in entries if not stamps.is_current(arguments.out, entry)]
    if arguments.requirements:
        needed = {catalogue.ALL} if arguments.verify and missing else {entry.requirements for entry in missing}
        print(catalogue.ALL if catalogue.ALL in needed else catalogue.SMALL if needed else "")
        return 0
    say(f"models: {len(entries) - len(missing)} of {len(entries)} up to date in {arguments.out}")
    if not missing:
        return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    return 1 if make_all(missing, arguments.out, arguments.verify) else 0


if __name__ == "__main__":
    sys.exit(main())
