"""lowtide's side, on the simulated card without a cap: all weights stay, so what is left of the card's memory is activations.

Each figure is of one process of `lowtide run --jobs`. Options that this build of the program does not list are left out.
"""

import functools
import json
import subprocess

from figures import Failed, Wrong
from on_card import environment

DEFAULT_WITHOUT_PATTERN = "default, one by one"
KNOWN = ", known"  # appended to the row of a process that starts with what another has measured


class Lowtide:
    def __init__(self, program, folder):
        self.program, self.folder, self.inputs = program, folder, {}
        self.help = subprocess.run([str(program), "run", "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout

    def has(self, option):
        return option in self.help

    @functools.cached_property
    def settings(self):
        """Name of a row -> options; the first is the program's default."""
        default = "default, pattern on" if self.has("--pattern") else DEFAULT_WITHOUT_PATTERN
        settings = {default: []}
        if self.has("--pattern"):
            settings["pattern off"] = ["--pattern", "off"]
        if self.has("--arena"):
            settings.update({f"arena {strategy}": ["--arena", strategy] for strategy in ("next-power-of-two", "same-as-requested")})
        return settings

    @property
    def one_by_one(self):
        """Options with which each tensor is allocated by itself: what is then used at the highest is what is alive."""
        return ["--pattern", "off"] if self.has("--pattern") else []

    def input_of(self, shape):
        """A file of seeded normals of that shape, and the array."""
        if shape not in self.inputs:
            import numpy as np
            from safetensors.numpy import save_file

            array = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
            path = self.folder / f"{'x'.join(map(str, shape))}.safetensors"
            save_file({"0000": array}, path)
            self.inputs[shape] = path, array
        return self.inputs[shape]

    def run(self, name, net, shapes, options, known=None):
        """One process with one job for each of `shapes`; `known` is an earlier run's report, whose measurements it may use."""
        out = self.folder / name
        out.mkdir()
        lines = [json.dumps({"id": str(number), "model": str(net.archive), "inputs": str(self.input_of(shape)[0]),
                             "output": f"{number}.safetensors"}) for number, shape in enumerate(shapes)]
        (out / "jobs.jsonl").write_text("\n".join(lines) + "\n")
        command = [str(self.program), "run", "--jobs", str(out / "jobs.jsonl"), "--out", str(out), "--device", "sim", "--threads", "1",
                   "--quiet", *options, "--report", str(out / "report.json")]
        done = subprocess.run(command, env=environment(out / "cache", known), stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise Failed(command, done.returncode, done.stderr)
        for path in sorted(out.glob("*.safetensors"))[1:]:
            path.unlink()
        return Report(json.loads((out / "report.json").read_text()), out)


class Report:
    """Bytes of activations alone: what the card says, less the context and the weights that stay."""

    def __init__(self, report, folder):
        self.folder, self.measured, self.plan, self.jobs = folder, report["measured"], report["plan"], report["jobs"]
        if any(plan["streamed_bytes_per_pass"] for plan in report["plans"]):
            raise Wrong("weights were streamed although the card has room for all: activations cannot be told from slots")
        self.beside = (self.measured["context_bytes"] or 0) + (self.measured["library_bytes"] or 0) + self.measured["kept_bytes"]

    @property
    def cache(self):
        """Where the program kept what it measured."""
        return self.folder / "cache"

    @property
    def reserved_bytes(self):
        return self.measured["reserved_peak_bytes"] - self.beside

    @property
    def peak_bytes(self):
        return self.measured["peak_bytes"] - self.beside

    def job_peaks(self):
        return [job["peak_bytes"] - self.beside for job in self.jobs]

    def used_after(self):
        return {job["used_after_bytes"] - (self.measured["context_bytes"] or 0) for job in self.jobs}

    def figures(self):
        kept = ("plan_hits", "plan_misses", "device_allocs_steady", "fragmentation")
        plan = ("activation_bytes", "activation_lower_bound_bytes", "workspace_bytes", "workspace_state")
        return {"reserved_bytes": self.reserved_bytes, "peak_bytes": self.peak_bytes, "jobs": len(self.jobs),
                "used_after_values": len(self.used_after()), **{key: self.measured[key] for key in kept},
                **{key: self.plan[key] for key in plan}}


def first_output(folder):
    from safetensors.numpy import load_file

    tensors = load_file(next(iter(sorted(folder.glob("*.safetensors")))))
    return tensors[min(tensors)]
