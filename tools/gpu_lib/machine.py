"""The program under test and what the machine says of the GPU."""

import json
import os
import resource
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path


class Machine:
    """Runs `lowtide` in a temporary folder; knows nvidia-smi where there is one."""

    def __init__(self, arguments):
        self.device = arguments.device
        self.models = arguments.models
        self.program = None
        self._temporary = tempfile.TemporaryDirectory(prefix="gpu_check_")
        self.folder = Path(self._temporary.name)
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"))
        self._runs = 0

    @property
    def is_gpu(self):
        return self.device.startswith("cuda")

    def lowtide(self, *arguments, seconds=60, environment=None, lock_limit=None):
        """(exit code, stdout, last line of stderr). 124 for one that took too long."""
        def limit():
            if lock_limit is not None:
                resource.setrlimit(resource.RLIMIT_MEMLOCK, (lock_limit, lock_limit))

        try:
            done = subprocess.run([str(self.program), *map(str, arguments)], capture_output=True, text=True, timeout=seconds,
                                  env={**self.environment, **(environment or {})}, preexec_fn=limit)
        except subprocess.TimeoutExpired:
            return 124, "", f"not done after {seconds} s"
        lines = done.stderr.strip().splitlines()
        return done.returncode, done.stdout, lines[-1] if lines else ""

    def run(self, model, inputs, *options, device=None, **keywords):
        """`lowtide run` with a report: (report or None, output folder, error or None)."""
        self._runs += 1
        out, report = self.folder / f"out{self._runs}", self.folder / f"report{self._runs}.json"
        code, _, error = self.lowtide("run", model, *inputs, "--out", out, "--report", report, "--device",
                                      device or self.device, *options, **keywords)
        if not report.exists() or code != 0:
            return None, out, f"exit {code}: {error}"
        return json.loads(report.read_text()), out, None

    def plan(self, model, *options, **keywords):
        """The report of `lowtide plan`."""
        self._runs += 1
        report = self.folder / f"report{self._runs}.json"
        code, _, error = self.lowtide("plan", model, "--report", report, "--device", self.device, *options, **keywords)
        if code != 0:
            raise RuntimeError(f"plan of {model}: exit {code}: {error}")
        return json.loads(report.read_text())

    def smi_used_bytes(self):
        """Memory in use on the first device as nvidia-smi tells it; None without nvidia-smi."""
        if not self.is_gpu or not shutil.which("nvidia-smi"):
            return None
        index = self.device.partition(":")[2] or "0"
        try:
            done = subprocess.run(["nvidia-smi", "-i", index, "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                                  capture_output=True, text=True, timeout=10)
            return int(done.stdout.split()[0]) << 20
        except (subprocess.TimeoutExpired, ValueError, IndexError):
            return None

    def stream(self, arguments, on_line, seconds):
        """Runs `lowtide` and calls on_line(number, line) for each line of its progress as it comes; (exit code, last line)."""
        last = ""
        with subprocess.Popen([str(self.program), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True, env=self.environment) as process:
            timer = threading.Timer(seconds, process.kill)
            timer.start()
            for number, line in enumerate(process.stderr, 1):
                last = line.strip()
                on_line(number, last)
            process.wait()
            timer.cancel()
            return process.returncode, last
