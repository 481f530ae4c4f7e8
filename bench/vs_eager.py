"""Time per run on the cpu, resident, of lowtide, PyTorch's nativert and Python eager, in turns, on the same archives.

    .venv/bin/python bench/vs_eager.py MODEL.pt2... [--rounds N] [--runs N] [--threads N]

Each round runs eager here and then lowtide and nativert in bench_vs_nativert, each `--runs` times; figures are medians over
all runs. Eager is `torch.export.load(MODEL).module()`, called as Python code.
"""

import argparse
import csv
import statistics
import subprocess
import time
import warnings

import torch
from figures import fail, input_of, need_archive, need_program, text_table, verdict
from safetensors.torch import load_file
from torch.utils import _pytree as pytree

WARM_UP_RUNS = 3
NATIVERT_LIMIT = 1.05
HEAD = ["model", "lowtide", "nativert", "eager", "lowtide / nativert", "limit", "", "lowtide / eager", "limit", "", "outputs"]


class Eager:
    """The exported program as a Python module, with its input."""

    def __init__(self, archive):
        with warnings.catch_warnings():  # about weights in a read-only buffer: nothing here writes them
            warnings.simplefilter("ignore", UserWarning)
            program = torch.export.load(archive)
        self.module = program.module()
        names = program.graph_signature.user_inputs
        flat = [None] * len(names)
        for name, tensor in load_file(input_of(archive)).items():
            flat[int(name) if name.isdigit() else names.index(name)] = tensor
        self.args, self.kwargs = pytree.tree_unflatten(flat, program.call_spec.in_spec)

    def times(self, runs):
        """Milliseconds of each run."""
        result = []
        with torch.inference_mode():
            for _ in range(runs):
                start = time.perf_counter()
                self.module(*self.args, **self.kwargs)
                result.append((time.perf_counter() - start) * 1e3)
        return result


def compiled_runs(archive, runs, threads):
    """A row for each run: milliseconds of lowtide and of nativert, and the difference of their outputs."""
    command = [need_program("bench_vs_nativert"), archive, "--csv", "--runs", runs, "--threads", threads]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if not done.stdout:
        fail(f"bench_vs_nativert: {archive.stem}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    if done.returncode != 0:
        fail(f"{archive.stem}: the outputs of lowtide are not those of {archive.stem}.out.safetensors")
    return list(csv.DictReader(done.stdout.splitlines()))


def row_of(archive, rounds, runs, threads):
    eager = Eager(archive)
    eager.times(WARM_UP_RUNS)
    times = {"lowtide": [], "nativert": [], "eager": []}
    apart = 0.0
    for _ in range(rounds):
        times["eager"] += eager.times(runs)
        for run in compiled_runs(archive, runs, threads):
            times["lowtide"].append(float(run["lowtide_ms"]))
            times["nativert"].append(float(run["nativert_ms"]))
            apart = max(apart, float(run["difference"]))
    medians = {name: statistics.median(values) for name, values in times.items()}
    cells = [archive.stem, *(f"{medians[name]:.3f} ms" for name in ("lowtide", "nativert", "eager"))]
    for other, limit in (("nativert", NATIVERT_LIMIT), ("eager", 1)):
        ratio = medians["lowtide"] / medians[other]
        cells += [f"{ratio:.3f}", f"{limit:.2f}", verdict(ratio, limit)]
    return [*cells, "equal bits" if apart == 0 else f"{apart:.1e} apart"]


def main():
    parser = argparse.ArgumentParser(description="lowtide, nativert and Python eager in turns, on the cpu")
    parser.add_argument("models", nargs="+", metavar="MODEL.pt2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=10, help="runs of each in a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    archives = [need_archive(model) for model in options.models]
    rows = [row_of(archive, options.rounds, options.runs, options.threads) for archive in archives]
    print(f"Medians of {options.rounds} rounds of {options.runs} runs, {options.threads} threads, cpu, weights resident\n")
    print(text_table(HEAD, rows))
    print("\noutputs: lowtide against nativert; those of lowtide are those of eager PyTorch in MODEL.out.safetensors, where that exists")


if __name__ == "__main__":
    main()
