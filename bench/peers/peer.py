"""One way to run a model on the default simulated card; prints its figures as one JSON object.

    .venv/bin/python bench/peers/peer.py NAME MODEL INPUT.safetensors

NAME: see PEERS. MODEL: one of tools/get_models whose inputs are tensors. The figures are those of the second run. A run uploads the
inputs and downloads all outputs, as a job of lowtide does.
"""

import copy
import gc
import importlib
import json
import logging
import sys
import warnings
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils import _pytree as pytree

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tools")]
import lowtide_sim  # noqa: E402
from models.catalogue import MODELS  # noqa: E402

lowtide_sim.load()
DEVICE = torch.device("sim", 0)


def resident(model):
    return model.to(DEVICE)


def accelerate_cpu_offload(model):
    from accelerate import cpu_offload

    return cpu_offload(model, execution_device=DEVICE)


def diffusers_block(model):
    for part in _parts_with_blocks(model):
        _offload_groups(part, offload_type="block_level", num_blocks_per_group=1)
    return model


def diffusers_leaf(model):
    _offload_groups(model, offload_type="leaf_level", record_stream=True)
    return model


def _offload_groups(model, **options):
    from diffusers.hooks import apply_group_offloading

    apply_group_offloading(model, onload_device=DEVICE, offload_device=torch.device("cpu"), use_stream=True, **options)


def _parts_with_blocks(module):
    """The outermost modules that have lists of blocks among their children: diffusers looks no deeper than that."""
    children = list(module.children())
    if any(isinstance(child, (nn.ModuleList, nn.Sequential)) for child in children):
        return [module]
    return [part for child in children for part in _parts_with_blocks(child)]


PEERS = {call.__name__: call for call in (resident, accelerate_cpu_offload, diffusers_block, diffusers_leaf)}


def exported_module(name):
    """The module that tools/get_models exports under this name, with the same weights."""
    torch.manual_seed(0)
    family = importlib.import_module(f"models.families.{MODELS[name].family}")
    return getattr(family, name)().module.eval().requires_grad_(False)


def main():
    name, model_name, inputs = sys.argv[1:]
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    lowtide_sim.open("default")
    model = exported_module(model_name)
    arguments = [tensor for _, tensor in sorted(load_file(inputs).items())]
    weight_bytes = sum(weight.nbytes for weight in (*model.parameters(), *model.buffers()))
    with torch.no_grad():
        expected = pytree.tree_leaves(model(*arguments))
        offloaded = PEERS[name](copy.deepcopy(model))
        for warm_up in (True, False):
            gc.collect()  # what the first run left in cycles shall not count for the second
            lowtide_sim.reset()
            outputs = offloaded(*(argument.to(DEVICE) for argument in arguments))
            outputs = [output.cpu() for output in pytree.tree_leaves(outputs)]
    print(json.dumps({
        **lowtide_sim.stats(),
        "weight_bytes": weight_bytes,
        "same_bits": len(outputs) == len(expected) and all(map(torch.equal, outputs, expected)),
    }))


if __name__ == "__main__":
    main()
