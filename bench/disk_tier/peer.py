"""accelerate's disk_offload, one forward pass per line on standard input; prints seconds and whether the outputs are right, as JSON.

    .venv/bin/python bench/disk_tier/peer.py cpu|sim MODEL INPUT.safetensors EXPECTED.safetensors FOLDER

Its files lie in FOLDER and are put out of the page cache before each pass, as the archive is for lowtide.
"""

import gc
import importlib
import json
import os
import sys
import time
import warnings
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.utils import _pytree as pytree

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tools")]
from models.catalogue import MODELS  # noqa: E402


def drop_from_cache(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def main():
    kind, name, inputs, expected, folder = sys.argv[1:]
    warnings.simplefilter("ignore")
    if kind == "sim":
        import lowtide_sim

        lowtide_sim.load()
        lowtide_sim.open("default")
        device = torch.device("sim", 0)
    else:
        device = torch.device("cpu")
    from accelerate import disk_offload

    torch.set_num_threads(1)  # as lowtide's runs: on a machine that does other things threads wait for each other
    torch.manual_seed(0)
    family = importlib.import_module(f"models.families.{MODELS[name].family}")
    model = getattr(family, name)().module.eval().requires_grad_(False)
    arguments = [tensor for _, tensor in sorted(load_file(inputs).items())]
    wanted = [tensor for _, tensor in sorted(load_file(expected).items())]
    model = disk_offload(model, folder, execution_device=device, offload_buffers=True)
    gc.collect()
    print("ready", flush=True)
    for _ in sys.stdin:
        for path in Path(folder).iterdir():
            drop_from_cache(path)
        start = time.perf_counter()
        with torch.no_grad():
            outputs = model(*(argument.to(device) for argument in arguments))
            outputs = [output.cpu() for output in pytree.tree_leaves(outputs)]
        seconds = time.perf_counter() - start
        right = len(outputs) == len(wanted) and all(torch.allclose(a, b, rtol=1e-3, atol=1e-3)
                                                    for a, b in zip(outputs, wanted))
        print(json.dumps({"seconds": seconds, "right": right}), flush=True)


if __name__ == "__main__":
    main()
