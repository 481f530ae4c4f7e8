"""lowtide beside its peers on the default simulated card: one table, and the same figures as JSON.

    .venv/bin/python bench/peers/table.py [--json FILE] [--program LOWTIDE]

bench/peers/run sets up what this needs. Nothing depends on a clock of this machine: two calls print the same.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from figures import LOWTIDE, MIB, ROOT, fail, input_of, need_archive, text_table  # noqa: E402
from safetensors import safe_open  # noqa: E402

ARCHIVE = ROOT / "models" / "blocks_8x1024.pt2"
CARD = ROOT / "configs" / "cards" / "default.json"
# Tokens of each of the two sequences -> the file that holds them, and lowtide's cap: the peak of diffusers' leaf groups.
SIZES = {64: ("", 37.5), 512: (".1", 76.0)}
PEERS = {
    "resident": "resident",
    "accelerate cpu_offload": "accelerate_cpu_offload",
    "diffusers block groups, stream": "diffusers_block",
    "diffusers leaf groups, stream": "diffusers_leaf",
}


def peer_figures(name, tokens):
    """The figures of one peer, from a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("peer.py")), name, str(tokens)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        fail(f"exit code {done.returncode} of: {' '.join(command)}")
    printed = json.loads(done.stdout.splitlines()[-1])
    if not printed["same_bits"]:
        fail(f"{name}, 2x{tokens} tokens: the outputs are not the CPU's bits")
    return {
        "modelled_s": printed["modelled_s"],
        "peak_bytes": printed["peak_bytes"] - card()["context_bytes"],
        "h2d_bytes": printed["h2d_bytes"],
        "stall_s": printed["stall_s"],
        "compute_s": printed["compute_s"],
        "weight_bytes": printed["weight_bytes"],
    }


def card():
    return json.loads(CARD.read_text())


class Program:
    """`lowtide run` on the default card; without memory of earlier runs, so that all plans rest on the same bounds."""

    def __init__(self, path, folder):
        self.path, self.folder, self.runs = path, folder, 0

    def report(self, tokens, jobs, options):
        """The report of so many equal jobs, and the file with the outputs of the last one."""
        self.runs += 1
        out = self.folder / f"run{self.runs}"
        out.mkdir()
        inputs = input_of(ARCHIVE).with_name(f"{ARCHIVE.stem}{SIZES[tokens][0]}.in.safetensors")
        job = {"model": str(ARCHIVE), "inputs": str(inputs)}
        lines = [json.dumps({"id": str(number), **job, "output": f"{number}.safetensors"}) for number in range(jobs)]
        (out / "jobs.jsonl").write_text("\n".join(lines) + "\n")
        command = [str(self.path), "run", "--jobs", str(out / "jobs.jsonl"), "--out", str(out), "--device", "sim", "--quiet"]
        command += [*options, "--report", str(out / "report.json")]
        environment = {**os.environ, "XDG_CACHE_HOME": str(out / "cache")}
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            fail(f"exit code {done.returncode} of: {' '.join(command)}\n{done.stderr.strip()}")
        return json.loads((out / "report.json").read_text()), out / f"{jobs - 1}.safetensors"

    def figures(self, tokens, *options):
        """Those of the last of three equal jobs; the stall of a job is what one more of them adds."""
        before, _ = self.report(tokens, 2, options)
        after, outputs = self.report(tokens, 3, options)
        if not same_tensors(outputs, ARCHIVE.with_name(f"{ARCHIVE.stem}{SIZES[tokens][0]}.out.safetensors")):
            fail(f"lowtide {' '.join(options)}, 2x{tokens} tokens: the outputs are not those of eager PyTorch on the CPU")
        return {
            "modelled_s": after["jobs"][-1]["modelled_s"],
            "peak_bytes": after["measured"]["peak_bytes"] - after["measured"]["context_bytes"],
            "h2d_bytes": after["jobs"][-1]["h2d_bytes"],
            "stall_s": after["measured"]["stall_s"] - before["measured"]["stall_s"],
            "cap_bytes": after["cap_bytes"],
        }


def same_tensors(left, right):
    """Equal bits of two safetensors files, whatever the names: tensors come in output order in both."""
    with safe_open(left, "np") as a, safe_open(right, "np") as b:
        mine, other = sorted(a.keys()), sorted(b.keys())
        return len(mine) == len(other) and all(
            a.get_tensor(x).tobytes() == b.get_tensor(y).tobytes() for x, y in zip(mine, other))


def measure(program):
    """Row -> tokens -> figures."""
    rows = {row: {tokens: peer_figures(name, tokens) for tokens in SIZES} for row, name in PEERS.items()}
    link = card()["link_pinned_bytes_per_s"]
    limit = {}
    for tokens in SIZES:
        base = rows["resident"][tokens]
        limit[tokens] = {"modelled_s": max(base["compute_s"], base["weight_bytes"] / link)}
    caps = " / ".join(f"{cap:g}" for _, cap in SIZES.values())
    rows["limit of one pass: max(compute, weights / link)"] = limit
    rows[f"lowtide, cap {caps} MiB"] = {
        tokens: program.figures(tokens, "--vram-cap", str(int(cap * MIB))) for tokens, (_, cap) in SIZES.items()}
    rows["lowtide, resident"] = {tokens: program.figures(tokens, "--after-job", "keep") for tokens in SIZES}
    for figures in rows.values():
        for tokens in SIZES:
            figures[tokens]["ratio_to_limit"] = figures[tokens]["modelled_s"] / limit[tokens]["modelled_s"]
    return rows


def cells(figures):
    def cell(key, scale):
        return f"{figures[key] * scale:.1f}" if key in figures else "-"

    return [cell("modelled_s", 1e3), cell("peak_bytes", 1 / MIB), cell("h2d_bytes", 1 / MIB), cell("stall_s", 1e3),
            f"{figures['ratio_to_limit']:.2f}"]


def main():
    parser = argparse.ArgumentParser(description="lowtide beside accelerate and diffusers on the simulated card")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "peers.json", metavar="FILE")
    parser.add_argument("--program", type=Path, default=LOWTIDE, metavar="LOWTIDE", help="(default: the release build's)")
    options = parser.parse_args()
    need_archive(ARCHIVE)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Program(options.program, Path(folder)))
    head = ["blocks_8x1024, default card"]
    for tokens in SIZES:
        head += [f"2x{tokens}: ms", "peak MiB", "h2d MiB", "stall ms", "x limit"]
    lines = [[row, *(cell for tokens in SIZES for cell in cells(figures[tokens]))] for row, figures in rows.items()]
    print(text_table(head, lines))
    print("\nOn the simulated card: times are what its clocks model, everything warm; peaks are above the context.")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    rows = {row: {f"2x{tokens}": values for tokens, values in figures.items()} for row, figures in rows.items()}
    options.json.write_text(json.dumps({"card": card(), "model": ARCHIVE.stem, "rows": rows}, indent=1) + "\n")
    print(f"Figures: {options.json}")


if __name__ == "__main__":
    main()
