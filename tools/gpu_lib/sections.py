"""What is measured, most informative first. A section gives tables and remarks; what does not hold is a failure."""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from . import models, tensors
from .page import mib

CAPS = 5
GPU_JOBS, SIMULATED_JOBS = 50, 6  # the simulated card computes on the cpu
OFFLOAD_SECONDS = 75


class Section:
    """Collects the tables, remarks and failures of one section."""

    def __init__(self, name):
        self.name, self.status, self.tables, self.remarks = name, "ok", [], []

    def table(self, head):
        rows = []
        self.tables.append((head, rows))
        return rows

    def fail(self, text):
        self.status = "failed"
        self.remarks.append(f"does not hold: {text}")

    def skip(self, text):
        self.status = "skipped"
        self.remarks.append(text)


class Checks:
    """The sections, on archives that all of them share."""

    def __init__(self, machine):
        self.machine = machine
        self.archives = {}
        self.capped = []  # (archive, cap, report) of section b, for c

    def a_machine(self, section):
        """Devices as doctor sees them; the archives"""
        machine = self.machine
        code, out, error = machine.lowtide("doctor")
        section.remarks.append(out.strip() or error)
        if code != 0:
            section.fail(f"doctor: exit {code}: {error}")

        section.remarks.append(f"Python {sys.version.split()[0]}, torch {torch.__version__}, {os.cpu_count()} cores")
        self.archives, problems = models.export_all(machine.folder)
        for name in ("minilm_l6", "ocr_v6_rec", "resnet50"):
            archive, data = machine.models / f"{name}.pt2", machine.models / f"{name}.in.safetensors"
            if archive.exists() and data.exists():
                self.archives[name] = (archive, data)
        section.remarks += problems
        section.remarks.append("archives: " + ", ".join(self.archives))
        if not self.archives:
            section.fail("there are no archives")

    def b_level(self, section):
        """Device memory after the first two jobs and the last: flat, and what nvidia-smi says"""
        machine = self.machine
        rows = section.table(["archive", "after a job", "job", "used after", "context + library + kept",
                              "nvidia-smi, whole device"])
        for name in list(self.archives)[:2]:
            for mode in ("keep", "release"):
                self._level(section, rows, name, mode, machine)

    def _level(self, section, rows, name, mode, machine):
        archive, data = self.archives[name]
        folder = machine.folder / f"level_{name}_{mode}"
        folder.mkdir()
        count = GPU_JOBS if machine.is_gpu else SIMULATED_JOBS
        jobs = folder / "jobs.jsonl"
        jobs.write_text("".join(
            f'{{"id": "{i}", "model": "{archive}", "inputs": "{data}", "output": "{i}.safetensors"}}\n' for i in range(count)))
        seen = {}

        def note(number, _line):
            if number in (1, 2, count):
                seen[number] = machine.smi_used_bytes()

        before = machine.smi_used_bytes()
        code, error = machine.stream(["run", "--jobs", jobs, "--out", folder / "out", "--report", folder / "report.json",
                                      "--device", machine.device, "--after-job", mode], note, 60)
        if code != 0:
            return section.fail(f"{name}, {mode}: exit {code}: {error}")
        report = load(folder / "report.json")
        measured = report["measured"]
        expected = sum(measured[key] or 0 for key in ("context_bytes", "library_bytes", "kept_bytes"))
        after = [job["used_after_bytes"] for job in report["jobs"]]
        for number in (1, 2, count):
            rows.append([name, mode, number, after[number - 1], expected, mib(seen.get(number))])
        if len(set(after[1:])) != 1:
            section.fail(f"{name}, {mode}: used after the second job on takes {len(set(after[1:]))} values")
        if after[-1] != expected:
            section.fail(f"{name}, {mode}: {after[-1]} bytes after the last job, expected {expected}")
        if before is not None:
            section.remarks.append(f"{name}, {mode}: nvidia-smi before {mib(before)}, after {mib(machine.smi_used_bytes())}; context "
                                   f"{mib(measured['context_bytes'])}, libraries {mib(measured['library_bytes'])}; driver allocations "
                                   f"a job, steady: {measured['device_allocs_steady']}")

    def c_caps(self, section):
        """The same bits at every cap, the smallest one included"""
        rows = section.table(["archive", "cap", "peak", "h2d", "seconds a job", "output"])
        for name, (archive, data) in list(self.archives.items())[:4]:
            plan = self.machine.plan(archive)["plan"]
            low, high = plan["min_cap_bytes"], plan["peak_bytes"]
            hashes = set()
            for step in range(CAPS):
                cap = low + (high - low) * step // (CAPS - 1)
                report, _, error = self.machine.run(archive, [data], "--vram-cap", cap)
                if error:
                    rows.append([name, mib(cap), None, None, None, error])
                    section.fail(f"{name} at {mib(cap)}: {error}")
                    continue
                measured = report["measured"]
                hashes.add(measured["output_sha256"])
                self.capped.append((name, cap, report))
                rows.append([name, mib(cap), mib(measured["peak_bytes"]), mib(measured["h2d_bytes"]),
                             report["jobs"][0]["wall_s"], measured["output_sha256"][:16]])
                beyond = measured["peak_bytes"] - cap
                if beyond > late_kernels(report):
                    section.fail(f"{name}: peak {measured['peak_bytes']} above the cap {cap}")
                elif beyond > 0:
                    section.remarks.append(f"{name} at {mib(cap)}: {mib(beyond)} above the cap, by kernels that libraries loaded later")
            if len(hashes) > 1:
                section.fail(f"{name}: {len(hashes)} different outputs")

    def d_segments(self, section):
        """Segments that the pool reserves, beside the plan and the cap"""
        rows = section.table(["archive", "cap", "plan's peak", "peak", "reserved peak", "reserved / cap", "expandable segments"])

        def row(name, cap, report, how):
            measured = report["measured"]
            rows.append([name, mib(cap), mib(report["plan"]["peak_bytes"]), mib(measured["peak_bytes"]),
                         mib(measured["reserved_peak_bytes"]), measured["reserved_peak_bytes"] / cap, how])
            if measured["reserved_peak_bytes"] - cap > late_kernels(report):
                section.fail(f"{name} at {mib(cap)}: the pool reserved more than the cap")

        for name, cap, report in self.capped:
            row(name, cap, report, "no")
        if not self.machine.is_gpu:
            return
        for name, cap in {(name, cap) for name, cap, _ in self.capped[::CAPS]}:
            archive, data = self.archives[name]
            report, _, error = self.machine.run(archive, [data], "--vram-cap", cap,
                                                environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
            if error:
                section.remarks.append(f"{name} at {mib(cap)} with expandable segments: {error}")
            else:
                row(name, cap, report, "yes")

    def e_locks(self, section):
        """Page-locked bytes against weights, also under a small `ulimit -l`"""
        rows = section.table(["archive", "ulimit -l", "weights", "page-locked", "seconds a job"])
        for name, (archive, data) in list(self.archives.items())[:2]:
            for limit in (None, 65536):
                report, _, error = self.machine.run(archive, [data], lock_limit=limit)
                if error:
                    section.fail(f"{name}, limit {limit}: {error}")
                    continue
                measured = report["measured"]
                weights, locked = measured["weight_bytes"], measured["pinned_bytes"]
                rows.append([name, limit or "as it is", weights, locked, report["jobs"][0]["wall_s"]])
                if limit is None and not weights <= locked <= 1.03 * weights + 65536:
                    section.fail(f"{name}: {locked} bytes are locked for {weights} of weights")

    def f_conformance(self, section):
        """The conformance suite of devices"""
        suite = Path(self.machine.program).parent / "conformance_test"
        if not suite.exists():
            return section.skip(f"there is no {suite.name} in this build")
        environment = dict(self.machine.environment, LOWTIDE_CONFORMANCE_DEVICES=self.machine.device.partition(":")[0])
        done = subprocess.run([str(suite)], capture_output=True, text=True, timeout=90, env=environment)
        section.remarks.append("\n".join((done.stdout + done.stderr).strip().splitlines()[-60:]))
        if done.returncode != 0:
            section.fail(f"exit {done.returncode}")

    def g_results(self, section):
        """Results against the cpu's: the largest difference, not bits"""
        rows = section.table(["archive", "largest difference", "largest value", "relative"])
        for name, (archive, data) in self.archives.items():
            outputs = []
            for device in (self.machine.device, "cpu"):
                report, out, error = self.machine.run(archive, [data], device=device)
                if error:
                    section.fail(f"{name} on {device}: {error}")
                    break
                outputs.append(next(out.glob("*.safetensors")))
            else:
                largest, scale = tensors.difference(*outputs)
                rows.append([name, largest, scale, largest / max(scale, 1e-30)])
                if not largest <= 1e-3 * max(1.0, scale):
                    section.fail(f"{name}: differs by {largest}")

    def h_speed(self, section):
        """Seconds a job beside PyTorch resident and accelerate's cpu_offload, same model"""
        rows = section.table(["way", "cap", "median s", "peak above context"])
        machine = self.machine
        name = "blocks_8x1024" if machine.is_gpu else "mixture"
        archive, data = self.archives[name]
        plan = machine.plan(archive)["plan"]
        low, high = plan["min_cap_bytes"], plan["peak_bytes"]
        file = machine.folder / "measure.json"
        for cap in sorted({low, (low + high) // 2, high}) if machine.is_gpu else [low]:
            code, _, error = machine.lowtide("measure", archive, data, "--runs", 15, "--vram-cap", cap, "--device", machine.device,
                                             "--report", file, "--quiet", seconds=60 if machine.is_gpu else 300)
            if code != 0:
                section.fail(f"lowtide at {mib(cap)}: exit {code}: {error}")
                continue
            report = load(file)
            measured = report["measured"]
            rows.append(["lowtide", mib(cap), statistics.median(job["wall_s"] for job in report["jobs"]),
                         mib(measured["peak_bytes"] - measured["context_bytes"] - (measured["library_bytes"] or 0))])
        if not machine.is_gpu:
            return section.remarks.append("PyTorch itself is measured on a GPU only")
        done = subprocess.run([sys.executable, "-m", "gpu_lib.offload", machine.device], capture_output=True, text=True,
                              timeout=OFFLOAD_SECONDS, cwd=Path(__file__).resolve().parents[1])
        for line in done.stdout.splitlines():
            way, seconds, peak = line.split("\t")
            rows.append([way, None, float(seconds), mib(int(peak))])
        if done.returncode != 0:
            section.remarks.append("PyTorch's side: " + "\n".join(done.stderr.strip().splitlines()[-5:]))


def late_kernels(report):
    """Bytes that libraries took after the plan was made, as far as the report tells: docs/cuda.md."""
    measured = report["measured"]
    planned = report["plan"]["context_bytes"] - measured["context_bytes"]  # with the room for segments
    return max(0, (measured["library_bytes"] or 0) - max(0, planned - (24 << 20)))


def load(path):
    return json.loads(path.read_text())


def run_all(machine, only, note):
    """Runs the sections one after the other; calls note(results so far) after each."""
    checks = Checks(machine)
    results = []
    for attribute in sorted(name for name in dir(checks) if name[1:2] == "_" and name[0] in "abcdefgh"):
        letter, check = attribute[0], getattr(checks, attribute)
        if only and letter not in only and letter != "a":  # a makes the archives
            continue
        section, started = Section(f"{letter}. {check.__doc__}"), time.time()
        try:
            check(section)
        except Exception as error:  # one section must not cost the others
            section.fail(f"{type(error).__name__}: {error}")
        results.append({"name": section.name, "status": section.status, "seconds": round(time.time() - started, 1),
                        "tables": section.tables, "remarks": section.remarks})
        print(f"gpu_check: {section.status:7} {results[-1]['seconds']:6.1f} s  {section.name}", flush=True)
        note(results)
    return results
