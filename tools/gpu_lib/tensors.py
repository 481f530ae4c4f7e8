"""Reads the .safetensors files that lowtide writes, without the package of that name."""

import json

import torch

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
         "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}


def read(path):
    """name -> tensor"""
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8:8 + length]))
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        kind, shape = TYPES[entry["dtype"]], entry["shape"]
        part = data[8 + length + begin:8 + length + end]
        tensors[name] = torch.frombuffer(part, dtype=kind).reshape(shape) if part else torch.empty(shape, dtype=kind)
    return tensors


def difference(one, other):
    """(largest absolute difference, largest absolute value) over all tensors of two files."""
    first, second = read(one), read(other)
    if {name: (t.shape, t.dtype) for name, t in first.items()} != {name: (t.shape, t.dtype) for name, t in second.items()}:
        raise RuntimeError("names, shapes or types of the outputs differ")
    largest = scale = 0.0
    for name, tensor in first.items():
        if tensor.numel():
            a, b = tensor.double(), second[name].double()
            largest, scale = max(largest, (a - b).abs().max().item()), max(scale, b.abs().max().item())
    return largest, scale
