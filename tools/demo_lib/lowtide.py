"""Calls the built program and reads its reports."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROGRAM = Path("build/release/bin/lowtide")
MIB = 1 << 20
NO_SUCH_DEVICE = 5  # exit code


@dataclass
class Outcome:
    """A finished run, as its report tells it."""

    report: dict

    @property
    def cap(self):
        return self.report["cap_bytes"]

    @property
    def measured(self):
        return self.report["measured"]

    @property
    def left_after(self):
        """The most device memory, in bytes, that any job left in use."""
        return max(job["used_after_bytes"] for job in self.report["jobs"])


class Lowtide:
    """Runs the program on one device: the GPU if there is one, else the simulated card."""

    def __init__(self, models, out):
        self.models, self.out = models, out
        self.device = "cuda" if _has_gpu() else "sim"

    def third_of_weights(self, model, **shapes):
        """A cap of a third of the model's weights or, where that is less than it needs, the smallest that works.

        Asks `lowtide plan`, which computes the need for these input shapes without touching the device.
        """
        report_file = self._folder(model) / "plan.json"
        arguments = [f"--shape={name}={'x'.join(map(str, sizes))}" for name, sizes in shapes.items()]
        self._call("plan", self._archive(model), *arguments, "--report", report_file, show=False)
        report = json.loads(report_file.read_text())
        weights = next(m["weight_bytes"] for m in report["models"])
        return -(-max(weights // 3, report["plan"]["min_cap_bytes"]) // MIB) * MIB

    def run(self, model, inputs, *options):
        """Runs `model` over the folder `inputs`; the outputs lie in `self.results(model)` afterwards."""
        report_file = self._folder(model) / "report.json"
        self._call("run", self._archive(model), inputs, "--out", self.results(model), *options, "--report", report_file)
        outcome = Outcome(json.loads(report_file.read_text()))
        if outcome.measured["peak_bytes"] > outcome.cap:
            sys.exit(f"tools/demo: error: {model}: the peak {outcome.measured['peak_bytes']} exceeds the cap {outcome.cap}")
        return outcome

    def results(self, model):
        return self._folder(model) / "out"

    def _archive(self, model):
        return self.models / f"{model}.pt2"

    def _folder(self, model):
        folder = self.out / model
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _call(self, *arguments, show=True):
        command = [str(a) for a in (PROGRAM, *arguments, "--device", self.device)]
        if show:
            print("$", " ".join(command), flush=True)
        # What the program reports on the way is for the user, what `plan` prints is not: its report is read instead.
        status = subprocess.run(command, stdout=None if show else subprocess.DEVNULL).returncode
        if status == NO_SUCH_DEVICE and self.device != "sim":
            print(f"device {self.device} cannot be used, going on with the simulated card", flush=True)
            self.device = "sim"
            self._call(*arguments, show=show)
        elif status != 0:
            sys.exit(f"tools/demo: error: exit code {status} of: {' '.join(command)}")


def _has_gpu():
    return bool(shutil.which("nvidia-smi")) and subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode == 0
