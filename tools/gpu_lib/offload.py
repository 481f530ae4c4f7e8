"""Times PyTorch itself on the blocks: weights on the device, and accelerate's cpu_offload. A line a way: name, seconds, peak bytes."""

import statistics
import sys
import time

import torch

from . import models

RUNS, WARM_UPS = 15, 5


def timed(name, call, device):
    with torch.no_grad():
        for _ in range(WARM_UPS):
            call()
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        seconds = []
        for _ in range(RUNS):
            started = time.perf_counter()
            call()
            torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - started)
    print(f"{name}\t{statistics.median(seconds)}\t{torch.cuda.max_memory_allocated(device)}", flush=True)


def main():
    device = torch.device(sys.argv[1])
    module, ids = models.cases()["blocks_8x1024"]
    module.eval()
    ids = ids.to(device)
    try:
        from accelerate import cpu_offload
    except ImportError:
        print("accelerate is not installed", file=sys.stderr)
    else:
        offloaded = cpu_offload(module, execution_device=device)
        timed("accelerate cpu_offload", lambda: [t.cpu() for t in offloaded(ids)], device)
        module, _ = models.cases()["blocks_8x1024"]
        module.eval()
    module.to(device)
    timed("PyTorch, resident", lambda: [t.cpu() for t in module(ids)], device)


if __name__ == "__main__":
    main()
