"""Prints what the disk tier reaches beside its peers, all in one run. See bench/README.md."""

import argparse
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from figures import LOWTIDE, MIB, ROOT, Wrong, fail, input_of, need_archive, need_program, text_table, verdict  # noqa: E402

MODEL = "blocks_27x1024"
CAP_SHARE = 4  # the model is so many times the RAM cap
WAVE = 8
PIECE = 8 * MIB
READS = 3  # in a round, each between two plain ones
CARD = ["--device", "sim", "--vram-cap", "200MiB"]  # a small card, else all of the model would stay on it
LIMITS = {"bandwidth": 0.85, "alone": 0.7, "wave": 0.25}


def drop_from_cache(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def plain_read(path):
    """Bytes per second of one thread that reads the file from front to end, past the page cache."""
    buffer = mmap.mmap(-1, PIECE)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    done, start = 0, time.perf_counter()
    while True:
        got = os.preadv(descriptor, [buffer], done)
        done += got
        if got < PIECE:
            break
    seconds = time.perf_counter() - start
    os.close(descriptor)
    return done / seconds


class Peer:
    """accelerate in a process of its own, asked for one pass at a time."""

    def __init__(self, kind, archive, folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [sys.executable, "-B", str(Path(__file__).with_name("peer.py")), kind, MODEL, str(input_of(archive)),
                   str(archive.with_suffix(".out.safetensors")), str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline().strip() != "ready":
            raise Wrong(f"accelerate did not start: {' '.join(command)}")

    def run(self):
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if not answer["right"]:
            raise Wrong("accelerate's outputs are wrong")
        return answer["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def lowtide(archive, cap, jobs, options, scratch):
    """The report of a run over equal jobs, the archive cold."""
    drop_from_cache(archive)
    inputs = []
    for number in range(jobs):
        path = scratch / f"{number}.safetensors"
        shutil.copyfile(input_of(archive), path)
        inputs.append(str(path))
    report = scratch / "report.json"
    command = [str(LOWTIDE), "run", str(archive), *inputs, "--out", str(scratch / "out"), "--ram-cap", str(cap),
               "--report", str(report), "--quiet", "--threads", "1", *options]
    subprocess.run(command, check=True, env={**os.environ, "XDG_CACHE_HOME": str(scratch / "cache")})
    from safetensors.torch import load_file
    import torch

    wanted = [tensor for _, tensor in sorted(load_file(archive.with_suffix(".out.safetensors")).items())]
    for path in (scratch / "out").glob("*.safetensors"):
        got = sorted(load_file(path).items())
        by_shape = {tuple(tensor.shape): tensor for _, tensor in got}
        for tensor in wanted:
            if not torch.allclose(by_shape[tuple(tensor.shape)], tensor, rtol=1e-3, atol=1e-3):
                raise Wrong(f"lowtide's outputs are wrong: {' '.join(command)}")
    return json.loads(report.read_text())


def measure(archive, rounds, work):
    weights = json.loads(subprocess.run([str(LOWTIDE), "plan", str(archive), "--report", "/dev/stdout", "--quiet"],
                                        check=True, capture_output=True, text=True).stdout)["models"][0]["weight_bytes"]
    cap = weights // CAP_SHARE
    rows = {"plain": [], "bandwidth": [], "alone": [], "peer_cpu": [], "alone_sim": [], "wave": [], "peer_sim": []}
    peers = {kind: Peer(kind, archive, work / f"offload_{kind}") for kind in ("cpu", "sim")}
    try:
        for number in range(rounds):
            with tempfile.TemporaryDirectory(dir=work) as scratch:
                scratch = Path(scratch)
                for name in "alone", "alone_sim", "wave":
                    (scratch / name).mkdir()
                alone = []
                plain = plain_read(archive)
                for _ in range(READS):
                    report = lowtide(archive, cap, 1, ["--device", "cpu"], scratch / "alone")
                    alone.append(sum(job["wall_s"] for job in report["jobs"]))
                    before, plain = plain, plain_read(archive)
                    rows["plain"].append((before + plain) / 2)
                    rows["bandwidth"].append(report["measured"]["disk_read_bytes"] / alone[-1])
                rows["alone"].append(statistics.median(alone))
                rows["peer_cpu"].append(peers["cpu"].run())
                report = lowtide(archive, cap, 1, CARD, scratch / "alone_sim")
                rows["alone_sim"].append(sum(job["wall_s"] for job in report["jobs"]))
                report = lowtide(archive, cap, WAVE, [*CARD, "--wave", str(WAVE)], scratch / "wave")
                rows["wave"].append(sum(job["wall_s"] for job in report["jobs"]) / WAVE)
                rows["peer_sim"].append(peers["sim"].run())
                print(f"round {number + 1} of {rounds}: " + ", ".join(f"{key} {value[-1]:.4g}" for key, value in rows.items()),
                      file=sys.stderr, flush=True)
    finally:
        for peer in peers.values():
            peer.close()
    return {"weights": weights, "cap": cap, "rows": rows}


def median_ratio(a, b):
    return statistics.median(x / y for x, y in zip(a, b))


def table(result):
    rows = result["rows"]
    middle = {key: statistics.median(values) for key, values in rows.items()}
    bandwidth = median_ratio(rows["bandwidth"], rows["plain"])
    figures = [
        ("read bandwidth, one job on the cpu", f"{middle['bandwidth'] / 1e6:.0f} MB/s",
         f"plain O_DIRECT read {middle['plain'] / 1e6:.0f} MB/s", f"{bandwidth:.2f}", f">= {LIMITS['bandwidth']}",
         "ok" if bandwidth >= LIMITS["bandwidth"] else "MISSED")]
    for label, mine, peer, limit in (
            ("one job, cpu", "alone", "peer_cpu", "alone"),
            ("one job, through the simulated card", "alone_sim", "peer_sim", "alone"),
            (f"a job of a wave of {WAVE}, through the simulated card", "wave", "peer_sim", "wave")):
        ratio = median_ratio(rows[mine], rows[peer])
        figures.append((label, f"{middle[mine]:.2f} s", f"accelerate disk_offload {middle[peer]:.2f} s", f"{ratio:.2f}",
                        f"<= {LIMITS[limit]}", verdict(ratio, LIMITS[limit])))
    head = f"{MODEL}: {result['weights'] / MIB:.0f} MiB of weights, RAM cap {result['cap'] / MIB:.0f} MiB, 2x4 tokens, medians\n"
    return head + text_table(("", "lowtide", "peer", "ratio", "limit", ""), figures)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "disk_tier.json")
    parser.add_argument("--models", type=Path, default=ROOT / "models")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    need_program("lowtide")
    archive = need_archive(arguments.models / f"{MODEL}.pt2")
    work = ROOT / "build" / "disk_tier"
    work.mkdir(parents=True, exist_ok=True)
    try:
        result = measure(archive, arguments.rounds, work)
    except (Wrong, subprocess.CalledProcessError) as error:
        fail(error)
    finally:
        for kind in "cpu", "sim":
            shutil.rmtree(work / f"offload_{kind}", ignore_errors=True)
    print(table(result))
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
