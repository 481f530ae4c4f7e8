"""ONNX Runtime's side, one case a process: prints one line of JSON.

    python ort_worker.py live    MODEL.onnx on|off SHAPE            live bytes at their highest, from a counting allocator
    python ort_worker.py fixed   MODEL.onnx on|off STRATEGY SHAPE RUNS
    python ort_worker.py sizes   MODEL.onnx on|off STRATEGY SHAPE,SHAPE,... INDEX,INDEX,... (the order)
    python ort_worker.py output  MODEL.onnx INPUT.npy OUTPUT.npy    the first result, to compare
    python ort_worker.py save    MODEL.onnx OPTIMIZED.onnx          the graph that it runs
"""

import ctypes
import json
import resource
import sys

import ort_c_api


def floats(shape):
    """Values do not matter to memory."""
    count = 1
    for size in shape:
        count *= size
    return (ctypes.c_float * count)(*([0.5] * count))


def parse_shape(text):
    return tuple(map(int, text.split("x")))


def live(model, pattern, shape):
    """Two runs: with a pattern, the first is without."""
    session, shape = ort_c_api.Session(model, pattern == "on", counting=True), parse_shape(shape)
    values, counter, peaks = floats(shape), session.counter, []
    for _ in range(2):
        before, calls = counter.live, counter.calls
        counter.peak = before
        session.run(values, shape)
        peaks.append(counter.peak - before)
    return {"live_bytes": peaks[-1], "first_live_bytes": peaks[0], "calls": counter.calls - calls, "constants_bytes": before}


class Arena:
    """What the arena holds beyond what is in it after loading."""

    def __init__(self, model, pattern, strategy):
        self.session = ort_c_api.Session(model, pattern == "on", strategy)
        self.constants = self.session.arena()["InUse"]

    def run(self, values, shape):
        self.session.run(values, shape)
        counts = self.session.arena()
        return counts["TotalAllocated"] - self.constants, counts["NumAllocs"], counts["NumArenaExtensions"]


def fixed(model, pattern, strategy, shape, runs):
    arena, shape = Arena(model, pattern, strategy), parse_shape(shape)
    values = floats(shape)
    steps = [arena.run(values, shape) for _ in range(int(runs))]
    counts = arena.session.arena()
    return {
        "reserved_bytes": steps[-1][0],
        "first_reserved_bytes": steps[0][0],
        "max_in_use_bytes": counts["MaxInUse"] - arena.constants,
        "constants_bytes": arena.constants,
        "calls": steps[-1][1] - steps[-2][1],
        "extensions_steady": steps[-1][2] - steps[1][2] if len(steps) > 2 else None,
        "host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def sizes(model, pattern, strategy, shapes, order):
    arena, shapes = Arena(model, pattern, strategy), [parse_shape(text) for text in shapes.split(",")]
    values = [floats(shape) for shape in shapes]
    levels = []
    for index in map(int, order.split(",")):
        levels.append(arena.run(values[index], shapes[index])[0])
    # The highest level of each round.
    return {"levels": [levels[end - 1] for end in range(len(shapes), len(levels) + 1, len(shapes))]}


def output(model, source, target):
    import numpy as np

    image = np.load(source)
    session = ort_c_api.Session(model, True, "next-power-of-two")
    values = (ctypes.c_float * image.size).from_buffer_copy(np.ascontiguousarray(image).tobytes())
    np.save(target, np.frombuffer(session.run(values, image.shape), np.float32))
    return {"version": session.api.version}


def save(model, target):
    ort_c_api.Session(model, False, "next-power-of-two", optimized_model=target)
    return {}


if __name__ == "__main__":
    print(json.dumps({f.__name__: f for f in (live, fixed, sizes, output, save)}[sys.argv[1]](*sys.argv[2:])))
