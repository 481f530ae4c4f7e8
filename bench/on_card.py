"""lowtide and its peers on the default simulated card: runs, checked against what eager PyTorch gave. Standard library only."""

import functools
import json
import os
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from figures import ROOT, Failed, Wrong

MODELS = ROOT / "models"
PEERS = {  # name in tables -> in peers/peer.py
    "resident": "resident",
    "accelerate cpu_offload": "accelerate_cpu_offload",
    "diffusers block groups, stream": "diffusers_block",
    "diffusers leaf groups, stream": "diffusers_leaf",
}


@functools.cache
def card():
    return json.loads((ROOT / "configs" / "cards" / "default.json").read_text())


@dataclass(frozen=True)
class Call:
    """One of the calls that tools/get_models records beside an archive."""

    archive: Path
    number: int = 0

    def _file(self, kind):
        stem = f"{self.archive.stem}.{self.number}" if self.number else self.archive.stem
        return self.archive.with_name(f"{stem}.{kind}.safetensors")

    @property
    def inputs(self):
        return self._file("in")

    @property
    def outputs(self):
        return self._file("out")

    def __str__(self):
        return self.inputs.name


def peer_figures(name, call):
    """The figures of one peer, a key of PEERS, from a process of its own."""
    command = [sys.executable, str(ROOT / "bench" / "peers" / "peer.py"), PEERS[name], call.archive.stem, str(call.inputs)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed(command, done.returncode)
    printed = json.loads(done.stdout.splitlines()[-1])
    if not printed["same_bits"]:
        raise Wrong(f"{name}, {call}: the outputs are not the CPU's bits")
    return {
        "modelled_s": printed["modelled_s"],
        "peak_bytes": printed["peak_bytes"] - card()["context_bytes"],
        "h2d_bytes": printed["h2d_bytes"],
        "stall_s": printed["stall_s"],
        "compute_s": printed["compute_s"],
        "weight_bytes": printed["weight_bytes"],
    }


def one_pass_limit(resident):
    """Seconds below which no pass over all weights can be, from a resident run's figures: max(compute, weights / link)."""
    return max(resident["compute_s"], resident["weight_bytes"] / card()["link_pinned_bytes_per_s"])


@dataclass(frozen=True)
class Run:
    """Equal jobs in one process of lowtide: its report, the outputs of each job, what it has measured for later runs."""

    call: Call
    command: list
    report: dict
    outputs: list
    cache: Path

    @property
    def peak_bytes(self):
        """Above the context."""
        return self.report["measured"]["peak_bytes"] - self.report["measured"]["context_bytes"]

    @property
    def last_job_s(self):
        return self.report["jobs"][-1]["modelled_s"]

    @property
    def mean_job_s(self):
        return sum(job["modelled_s"] for job in self.report["jobs"]) / len(self.report["jobs"])

    def checked(self):
        """This run, if it kept its cap and every job gave the bits of eager PyTorch on the CPU."""
        if self.report["measured"]["peak_bytes"] > self.report["cap_bytes"]:
            raise Wrong(f"the peak {self.report['measured']['peak_bytes']} exceeds the cap of: {' '.join(self.command)}")
        if not all(same_tensors(path, self.call.outputs) for path in self.outputs):
            raise Wrong(f"the outputs are not those of eager PyTorch on the CPU: {' '.join(self.command)}")
        return self


class Program:
    """`lowtide run` on the default card. Runs know nothing of each other, unless one is given what another has measured."""

    def __init__(self, path, folder):
        self.path, self.folder, self.folders = path, folder, 0

    def new_folder(self):
        self.folders += 1
        folder = self.folder / f"run{self.folders}"
        folder.mkdir()
        return folder

    def run(self, call, jobs, *options, known=None):
        """So many equal jobs; `known` is an earlier run whose measured peaks the plan may rest on."""
        out = self.new_folder()
        job = {"model": str(call.archive.resolve()), "inputs": str(call.inputs.resolve())}
        lines = [json.dumps({"id": str(number), **job, "output": f"{number}.safetensors"}) for number in range(jobs)]
        (out / "jobs.jsonl").write_text("\n".join(lines) + "\n")
        command = [str(self.path), "run", "--jobs", str(out / "jobs.jsonl"), "--out", str(out), "--device", "sim", "--quiet"]
        command += [*options, "--report", str(out / "report.json")]
        done = subprocess.run(command, env=environment(out / "cache", known), stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise Failed(command, done.returncode, done.stderr)
        report = json.loads((out / "report.json").read_text())
        return Run(call, command, report, [out / f"{number}.safetensors" for number in range(jobs)], out / "cache")

    @functools.cache
    def plain(self, call):
        """One job without a cap: the run that others learn from."""
        return self.run(call, 1).checked()


def environment(cache, known=None):
    """The environment of a program that keeps what it measures in the folder `cache`, which starts with that of `known`."""
    if known:
        shutil.copytree(known.cache, cache)
    return {**os.environ, "XDG_CACHE_HOME": str(cache)}


def same_tensors(left, right):
    """Equal shapes and bits of two safetensors files, whatever the names: tensors come in output order in both."""
    return list(_tensors(left)) == list(_tensors(right))


def _tensors(path):
    """(type, shape, bytes) of each tensor of a safetensors file, in the order of their names."""
    content = path.read_bytes()
    start = 8 + struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:start])
    for name in sorted(header.keys() - {"__metadata__"}):
        entry = header[name]
        begin, end = entry["data_offsets"]
        yield entry["dtype"], entry["shape"], content[start + begin : start + end]
