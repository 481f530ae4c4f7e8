"""One way to run the model on the default simulated card; prints its figures as one JSON object.

    .venv/bin/python bench/peers/peer.py NAME TOKENS      names: see PEERS

The figures are those of the second run. A run uploads 2 x TOKENS ids and downloads both outputs, as a job of lowtide does.
"""

import copy
import gc
import json
import logging
import sys
import warnings
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tools")]
import lowtide_sim  # noqa: E402
from models.families import blocks  # noqa: E402

lowtide_sim.load()
DEVICE = torch.device("sim", 0)


def resident(model):
    return model.to(DEVICE)


def accelerate_cpu_offload(model):
    from accelerate import cpu_offload

    return cpu_offload(model, execution_device=DEVICE)


def diffusers_block(model):
    return _group_offloading(model, offload_type="block_level", num_blocks_per_group=1)


def diffusers_leaf(model):
    return _group_offloading(model, offload_type="leaf_level", record_stream=True)


def _group_offloading(model, **options):
    from diffusers.hooks import apply_group_offloading

    apply_group_offloading(model, onload_device=DEVICE, offload_device=torch.device("cpu"), use_stream=True, **options)
    return model


PEERS = {call.__name__: call for call in (resident, accelerate_cpu_offload, diffusers_block, diffusers_leaf)}


def exported_model():
    """The module that tools/get_models exports as blocks_8x1024, with the same weights."""
    torch.manual_seed(0)
    return blocks.blocks_8x1024().module.eval().requires_grad_(False)


def token_ids(tokens):
    return (torch.arange(2 * tokens) % blocks.VOCABULARY).view(2, tokens)


def main():
    name, tokens = sys.argv[1], int(sys.argv[2])
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    lowtide_sim.open("default")
    model = exported_model()
    ids = token_ids(tokens)
    weight_bytes = sum(parameter.nbytes for parameter in model.parameters())
    with torch.no_grad():
        expected = model(ids)
        offloaded = PEERS[name](copy.deepcopy(model))
        for warm_up in (True, False):
            gc.collect()  # what the first run left in cycles shall not count for the second
            lowtide_sim.reset()
            outputs = [output.cpu() for output in offloaded(ids.to(DEVICE))]
    print(json.dumps({
        **lowtide_sim.stats(),
        "weight_bytes": weight_bytes,
        "same_bits": all(map(torch.equal, outputs, expected)),
    }))


if __name__ == "__main__":
    main()
