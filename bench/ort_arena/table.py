"""ONNX Runtime's arena beside lowtide's memory on the same nets and shapes, in one run: tables, and the same figures as JSON.

    .venv/bin/python bench/ort_arena/table.py [--out FILE] [--quick] [--program LOWTIDE] [--only NET] [--processes N]

bench/ort_arena/run sets up what this needs. No figure is of this machine's clock.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from figures import LOWTIDE, ROOT, Failed, Wrong, fail, text_table  # noqa: E402
from lowtide_runs import KNOWN, Lowtide, first_output  # noqa: E402
from nets import NETS, order, shape_text  # noqa: E402
from verdicts import judge  # noqa: E402

OTHERS = {"orders": 2, "rounds": 3, "runs": 3}
PATTERNS, STRATEGIES = ("on", "off"), ("next-power-of-two", "same-as-requested")
LARGEST_DIFFERENCE = 1e-3  # of the first output, to its largest value: another net would be far beyond
NOTES = """
MB = 10^6 bytes, of one run of this program. Bound: the least that the order of nodes needs (bench/README.md); weights are in no column.
ONNX Runtime: the CPU, one thread, its arena's own counts less what is in it after loading; fused is the bound of the graph that it
makes of the net, whose blocked copies are tensors too. lowtide: the simulated card, which does not fragment, less context and weights;
reserved includes the input and what operators take inside (scratch: what the plan adds for that, once measured).
Live: bytes asked for, at their highest; lowtide: with each tensor allocated by itself. Fragmentation: 1 - live / reserved.
Calls: of ONNX Runtime to its arena, of lowtide to the card (after the first job of a shape).
""".strip()


def worker(script, *arguments):
    command = [sys.executable, "-B", "-W", "ignore", str(HERE / script), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed(command, done.returncode, done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


class Measurement:
    def __init__(self, options, folder):
        self.folder, self.lowtide = folder, Lowtide(options.program.resolve(), folder)
        self.runs, self.orders, self.rounds = (3, 2, 3) if options.quick else (10, 5, 20)
        self.rounds_off = 3  # ONNX Runtime without patterns: flat from the second round on
        self.nets = [net for net in NETS if options.only in net.name]
        self.processes = options.processes

    def tasks(self):
        """(where its figures go, what makes them), independent of each other; long ones first."""
        for net in self.nets:
            for setting, options in self.lowtide.settings.items():
                for seed in range(self.orders_of(setting) if net.sizes else 0):
                    yield (net.name, "sizes", "lowtide", setting, seed), lambda a=(net, seed, setting, options): self.our_sizes(*a)
        for net in self.nets:
            for seed in range(self.orders if net.sizes else 0):
                for pattern in PATTERNS:
                    for strategy in STRATEGIES:
                        yield ((net.name, "sizes", "ort", f"pattern {pattern}, {strategy}", seed),
                               lambda a=(net, seed, pattern, strategy): self.ort_sizes(*a))
        for net in self.nets:
            yield (net.name, "fixed", "lowtide"), lambda net=net: self.our_fixed(net)
            yield (net.name, "fixed", "ort"), lambda net=net: self.ort_fixed(net)
            yield (net.name, "bounds"), lambda net=net: self.bounds(net)

    def is_default(self, setting):
        return setting == next(iter(self.lowtide.settings))

    def orders_of(self, setting):
        """Other settings than the default are there to be seen beside it: a few runs do."""
        return self.orders if self.is_default(setting) else min(self.orders, OTHERS["orders"])

    def our_sizes(self, net, seed, setting, options):
        indices = order(net, seed, self.rounds if self.is_default(setting) else min(self.rounds, OTHERS["rounds"]))
        report = self.lowtide.run(f"{net.name}-{setting}-{seed}".replace(" ", "_"), net, [net.sizes[i] for i in indices], options)
        peaks, count = report.job_peaks(), len(net.sizes)
        highest = [max(peaks[: end]) for end in range(count, len(peaks) + 1, count)]
        largest = [peak for peak, index in zip(peaks, indices) if index == count - 1]
        return {**report.figures(), "levels": highest, "largest_peaks": largest, "expected_hits": len(indices) - count}

    def ort_sizes(self, net, seed, pattern, strategy):
        indices = order(net, seed, self.rounds if pattern == "on" else self.rounds_off)
        shapes = ",".join(map(shape_text, net.sizes))
        found = worker("ort_worker.py", "sizes", net.onnx, pattern, strategy, shapes, ",".join(map(str, indices)))
        return {"reserved_bytes": found["levels"][-1], "levels": found["levels"]}

    def our_fixed(self, net):
        """Each setting from nothing, and by a second process that knows what the first has measured."""
        rows = {}
        for setting, options in self.lowtide.settings.items():
            count = OTHERS["runs"]  # steady from the second on
            shapes = [net.shape] * (2 * count if self.is_default(setting) and self.runs > count else count)
            name = f"{net.name}-{setting}-fixed".replace(" ", "_")
            first = self.lowtide.run(name, net, shapes, options)
            again = self.lowtide.run(f"{name}-known", net, shapes, options, known=first)
            rows[setting] = first.figures()
            rows[setting + KNOWN] = again.figures()
        live = {}
        for shape in map(shape_text, {net.shape, *net.sizes[-1:]}):
            shapes = [tuple(map(int, shape.split("x")))] * 2
            live[shape] = self.lowtide.run(f"{net.name}-live-{shape}", net, shapes, self.lowtide.one_by_one).peak_bytes
        self.compare(net, first_output(first.folder))
        return {"rows": rows, "live": live}

    def compare(self, net, ours):
        """The same net gives the same results, or nothing here may be set side by side."""
        import numpy as np

        source, target = self.folder / f"{net.name}.npy", self.folder / f"{net.name}-out.npy"
        np.save(source, self.lowtide.input_of(net.shape)[1])
        worker("ort_worker.py", "output", net.onnx, source, target)
        theirs = np.load(target)
        if theirs.size != ours.size or not np.abs(theirs - ours.reshape(-1)).max() <= LARGEST_DIFFERENCE * np.abs(theirs).max():
            raise Wrong(f"{net.name}: the first output of ONNX Runtime and of lowtide are not the same")

    def ort_fixed(self, net):
        shape = shape_text(net.shape)
        rows = {f"pattern {pattern}, {strategy}": worker("ort_worker.py", "fixed", net.onnx, pattern, strategy, shape, self.runs)
                for pattern in PATTERNS for strategy in STRATEGIES}
        live = {shape_text(shape): {f"pattern {pattern}": worker("ort_worker.py", "live", net.onnx, pattern, shape_text(shape))
                                    for pattern in PATTERNS} for shape in {net.shape, *net.sizes[-1:]}}
        return {"rows": rows, "live": live}

    def bounds(self, net):
        optimized = self.folder / f"{net.name}.onnx"
        worker("ort_worker.py", "save", net.onnx, optimized)
        shapes = [shape_text(shape) for shape in {net.shape, *net.sizes[-1:]}]
        graphs = {"archive": ("archive", net.archive), "onnx": ("onnx", net.onnx), "fused": ("onnx", optimized)}
        found = {name: worker("bound.py", *graph, *shapes) for name, graph in graphs.items()}
        if found["archive"] != found["onnx"]:  # the archive was made of that graph, node by node
            print(f"note: {net.name}: the bounds of the archive and of the ONNX file differ", file=sys.stderr)
        return {shape: {name: found[name][shape] for name in graphs} for shape in shapes}

    def measure(self):
        results, wrong, tasks = {}, [], list(self.tasks())
        for net in self.nets:  # files that several tasks need, made once
            net.onnx, [self.lowtide.input_of(shape) for shape in {net.shape, *net.sizes}]

        def one(task):
            key, make = task
            started = time.time()
            try:
                found = make()
            except Wrong as error:
                wrong.append(f"{' '.join(map(str, key))}: {error}")
                found = None
            print(f"measured: {' '.join(map(str, key))} ({time.time() - started:.0f} s)", file=sys.stderr, flush=True)
            return key, found

        with ThreadPoolExecutor(self.processes) as pool:
            for key, found in pool.map(one, tasks):
                if found is not None:
                    place = results
                    for part in key[:-1]:
                        place = place.setdefault(part, {})
                    place[key[-1]] = found
        return results, wrong


def mb(count):
    return "-" if count is None else f"{count / 1e6:.1f}"


def ratio(part, whole):
    return "-" if not whole or part is None else f"{part / whole:.2f}"


def plain(value):
    return "-" if value is None else str(value)


def fixed_table(results):
    head = ["net", "shape", "engine", "setting", "bound MB", "fused MB", "live MB", "scratch MB", "reserved MB", "reserved/bound",
            "fragmentation", "calls a run", "planned hits/misses"]
    rows = []
    for net in NETS:
        found, shape = results.get(net.name, {}), shape_text(net.shape)
        if "bounds" not in found:
            continue
        bounds = found["bounds"][shape]
        for engine in ("ort", "lowtide"):
            for setting, row in found.get("fixed", {}).get(engine, {"rows": {}})["rows"].items():
                ort = engine == "ort"
                bound = bounds["onnx"]["bytes_without_inputs"] if ort else bounds["archive"]["bytes"]
                live = found["fixed"][engine]["live"][shape]
                live = live[setting.split(",")[0]]["live_bytes"] if ort else live
                row.update(bound_bytes=bound, live_bytes=live)
                rows.append([net.name, shape, "ONNX Runtime" if ort else "lowtide", setting, mb(bound),
                             mb(bounds["fused"]["bytes_without_inputs"]) if ort else "-", mb(live),
                             mb(row["workspace_bytes"]) if row.get("workspace_state") == "learned" else "-", mb(row["reserved_bytes"]),
                             ratio(row["reserved_bytes"], bound), ratio(row["reserved_bytes"] - live, row["reserved_bytes"]),
                             plain(row["calls"] if ort else row["device_allocs_steady"]),
                             "-" if ort else f"{plain(row['plan_hits'])}/{plain(row['plan_misses'])}"])
    return text_table(head, rows)


def last_growth(levels):
    """The round in which the level last rose."""
    return max((i + 1 for i in range(1, len(levels)) if levels[i] > levels[i - 1]), default=1)


def summary(found, live, bound):
    """Ten sizes in several orders: the level that each reaches."""
    levels = [one["reserved_bytes"] for one in found.values()]
    grew = [last_growth(one["levels"]) for one in found.values()]
    middle = statistics.median(levels)
    return {"min_bytes": min(levels), "median_bytes": middle, "max_bytes": max(levels), "live_bytes": live, "bound_bytes": bound,
            "fragmentation": 1 - live / middle, "worst_fragmentation": 1 - live / max(levels), "last_round_that_grew": max(grew),
            "rounds": len(next(iter(found.values()))["levels"]), "orders": len(levels)}


def sizes_table(results):
    head = ["net", "engine", "setting", "orders x rounds", "reserved min/median/max MB", "max/min", "last round that grew",
            "live of largest MB", "fragmentation", "bound of largest MB", "max/bound"]
    rows = []
    for net in NETS:
        found = results.get(net.name, {})
        if not found.get("sizes") or "bounds" not in found:
            continue
        largest = shape_text(net.sizes[-1])
        bounds, summaries = found["bounds"][largest], found.setdefault("sizes_summary", {})
        for engine in ("ort", "lowtide"):
            for setting, orders in found["sizes"].get(engine, {}).items():
                live = found["fixed"][engine]["live"][largest]
                live = live[setting.split(",")[0]]["live_bytes"] if engine == "ort" else live
                bound = bounds["onnx"]["bytes_without_inputs"] if engine == "ort" else bounds["archive"]["bytes"]
                row = summaries.setdefault(engine, {})[setting] = summary(orders, live, bound)
                rows.append([net.name, "ONNX Runtime" if engine == "ort" else "lowtide", setting, f"{row['orders']} x {row['rounds']}",
                             " / ".join(mb(row[key]) for key in ("min_bytes", "median_bytes", "max_bytes")),
                             ratio(row["max_bytes"], row["min_bytes"]), row["last_round_that_grew"], mb(live),
                             f"{row['fragmentation']:.2f}", mb(bound), ratio(row["max_bytes"], bound)])
    return text_table(head, rows)


def version_of_ort():
    import importlib.metadata

    return importlib.metadata.version("onnxruntime")


def main():
    parser = argparse.ArgumentParser(prog="bench/ort_arena/run", description="ONNX Runtime's arena beside lowtide on the same nets")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "ort_arena.json", metavar="FILE", help="(default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="2 orders, 3 rounds, 3 runs at a fixed shape, instead of 5, 20, 10")
    parser.add_argument("--program", type=Path, default=LOWTIDE, metavar="LOWTIDE", help="(default: the release build's)")
    parser.add_argument("--only", default="", metavar="NET", help=", ".join(net.name for net in NETS))
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 4), metavar="N",
                        help="cases at a time, one thread each (default: %(default)s)")
    options = parser.parse_args()
    if not any(options.only in net.name for net in NETS):
        fail(f"no net named {options.only}: there are " + ", ".join(net.name for net in NETS))
    started = time.time()
    with tempfile.TemporaryDirectory() as folder:
        measurement = Measurement(options, Path(folder))
        results, wrong = measurement.measure()
    print(f"ONNX Runtime {version_of_ort()} (CPU) beside lowtide (simulated card)\n")
    print(f"One shape, {measurement.runs} runs of ONNX Runtime\n{fixed_table(results)}\n")
    print(f"Ten sizes, each round all of them in another order\n{sizes_table(results)}\n\n{NOTES}\n")
    figures = judge(results)
    for figure in figures:
        print("\n  ".join([f"{figure['figure']}: {figure['verdict']}", *figure["numbers"]]))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"onnxruntime": version_of_ort(), "quick": options.quick, "seconds": round(time.time() - started),
                                       "nets": results, "figures": figures, "wrong": wrong}, indent=1) + "\n")
    print(f"Figures: {options.out}")
    for message in wrong:
        print(f"bench/ort_arena/run: error: {message}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
