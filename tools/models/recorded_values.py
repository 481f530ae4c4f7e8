"""Inputs and outputs of a call as safetensors: keys are 4-digit positions among the flattened values.

None is left out, int, float and bool become 0-d tensors, complex tensors become pairs of real numbers; the metadata says
which value was what.
"""

import torch
from safetensors.torch import save
from torch.utils import _pytree as pytree


def flatten(value):
    """The leaves of nested tuples, lists and dicts, in torch.export's order."""
    return pytree.tree_leaves(value)


def to_bytes(values):
    """The safetensors file that holds the flattened `values`."""
    tensors, metadata = {}, {"count": str(len(values))}
    for position, value in enumerate(values):
        key = f"{position:04d}"
        if value is None:
            metadata[key] = "None"
            continue
        if not isinstance(value, torch.Tensor):
            metadata[key] = type(value).__name__
            value = torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
        if value.is_complex():
            metadata[key] = f"{value.dtype} as real pairs".removeprefix("torch.")
            value = torch.view_as_real(value)
        tensors[key] = value.detach().contiguous().clone()
    return save(tensors, metadata)
