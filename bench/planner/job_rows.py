"""Rows of jobs under a cap, each beside its limit, its peers and what it must reach."""

import functools
import json
import subprocess
from dataclasses import dataclass

from figures import MIB, Failed
from on_card import MODELS, PEERS, Call, environment, one_pass_limit, peer_figures

BLOCKS_2X64 = Call(MODELS / "blocks_8x1024.pt2")
BLOCKS_2X512 = Call(MODELS / "blocks_8x1024.pt2", 1)
STREAMING_PEERS = [name for name in PEERS if name != "resident"]


@dataclass(frozen=True)
class Case:
    """Equal jobs and what their time must be: `must_s`, or so many times the limit and not more than the best peer."""

    name: str
    call: Call
    cap_bytes: int | None = None
    cap_share: float | None = None  # of the peak without a cap; with neither, --low-vram picks the cap
    wave_of: int = 0  # so many jobs with --wave auto; 0: single jobs, of which the third counts
    must_s: float | None = None
    must_ratio: float | None = None

    @property
    def low_vram(self):
        return self.cap_bytes is None and self.cap_share is None

    def options(self, resident_peak):
        cap = self.cap_bytes or int((self.cap_share or 0) * resident_peak)
        place = ["--low-vram"] if self.low_vram else ["--vram-cap", str(cap)]
        return [*place, "--wave", "auto"] if self.wave_of else place


CASES = [
    Case("blocks_8x1024, job of 2x512", BLOCKS_2X512, cap_bytes=76 * MIB, must_s=22e-3),
    Case("blocks_8x1024, job of 2x64", BLOCKS_2X64, cap_bytes=int(37.5 * MIB), must_s=18e-3),
    Case("blocks_8x1024, 16 jobs of 2x64, a job", BLOCKS_2X64, cap_bytes=60 * MIB, wave_of=16, must_s=3.2e-3),
    Case("blocks_8x1024, 16 jobs of 2x512, a job", BLOCKS_2X512, cap_share=0.4, wave_of=16, must_ratio=1.03),
    *(Case(f"{name}, --low-vram", Call(MODELS / f"{name}.pt2"), must_ratio=1.10)
      for name in ("resnet50", "t5_small", "unet_small", "blocks_12x64")),
]


@functools.cache
def peers_of(call):
    return {name: peer_figures(name, call) for name in PEERS}


def best_peer(peers, peak_bytes):
    """The fastest of the peers that take no more memory than that; where none does, the fastest of all."""
    offers = [{"name": name, **peers[name], "fits": peers[name]["peak_bytes"] <= peak_bytes} for name in STREAMING_PEERS]
    return min(offers, key=lambda peer: (not peer["fits"], peer["modelled_s"]))


def prefix_seconds(program, call, caps, known, *options):
    """Cap -> predicted time of a job with "prefix residency, one-ahead prefetch".

    Without the caps that are too small for it, and empty where bench_policies is not built.
    """
    policies = program.path.with_name("bench_policies")
    if not policies.is_file():
        return {}
    command = [str(policies), *options, str(call.archive), str(call.inputs), *map(str, caps)]
    done = subprocess.run(command, env=environment(program.new_folder() / "cache", known), stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed(command, done.returncode)
    return {int(cap): times["prefix_s"] for cap, times in json.loads(done.stdout).items() if times}


def measure(program, case):
    """One row. The plan rests on measured peaks: a run without a cap comes first."""
    peers = peers_of(case.call)
    resident = peers["resident"]
    learned = program.plain(case.call)
    run = program.run(case.call, case.wave_of or 3, *case.options(learned.peak_bytes), known=learned).checked()
    cap = run.report["cap_bytes"]
    limit = resident["modelled_s"] if case.wave_of else one_pass_limit(resident)
    peer = best_peer(peers, run.peak_bytes)
    must = case.must_s or case.must_ratio * limit
    if case.low_vram:  # nobody who moves weights is faster than who has them
        must = case.must_ratio * max(limit, resident["modelled_s"])
        if peer["fits"]:
            must = min(must, peer["modelled_s"])
    release = ["--release"] if case.low_vram else []
    prefix = {} if case.wave_of else prefix_seconds(program, case.call, [cap], learned, *release)
    return {
        "case": case.name,
        "cap_bytes": cap,
        "limit_s": limit,
        "resident_s": resident["modelled_s"],
        "peer": peer,
        "prefix_s": prefix.get(cap),
        "lowtide_s": run.mean_job_s if case.wave_of else run.last_job_s,
        "peak_bytes": run.peak_bytes,
        "must_s": must,
        "wave": run.report["plan"]["wave"],
    }
