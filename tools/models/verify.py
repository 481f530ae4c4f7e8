"""Checks an archive that was just made: against the eager outputs, and against another engine where there is one."""

import copy

import numpy as np
import torch

from .recorded_values import flatten


def compare(case, outputs, archive):
    """Remarks such as "reloaded: 0 to eager"; raises if the archive does not compute what the module does."""
    module = torch.export.load(archive).module()
    calls = list(zip(case.calls, outputs))
    worst = max(_difference(flatten(output), flatten(module(*copy.deepcopy(args)))) for args, output in calls)
    low_precision = any(p.dtype in (torch.bfloat16, torch.float16) for p in case.module.parameters())
    if worst > (5e-2 if low_precision else 1e-4):
        raise ValueError(f"the reloaded archive differs from eager by {worst:.1e}")
    remarks = [f"{worst:.0e} to eager"]
    if case.reference:
        worst = max(_difference(flatten(output), case.reference(args)) for args, output in calls)
        if worst > 1e-3:
            raise ValueError(f"the model differs from its reference engine by {worst:.1e}")
        remarks.append(f"{worst:.0e} to the reference engine")
    return remarks


def _difference(values, expected):
    """The largest difference of any output, relative to max(1, largest magnitude of that output)."""
    worst = 0.0
    for value, want in zip(values, expected, strict=True):
        if value is None or want is None:
            if value is not want:
                raise ValueError(f"{value} where {want} was expected")
            continue
        value, want = _array(value), _array(want)
        if value.shape != want.shape:
            # An output padded to a fixed length: compare what the reference has.
            value = value[tuple(slice(0, size) for size in want.shape)]
        if want.size:
            worst = max(worst, float(np.abs(value - want).max() / max(1.0, np.abs(want).max())))
    return worst


def _array(value):
    if isinstance(value, torch.Tensor):
        value = value.detach()
        value = (value if value.is_complex() else value.double()).numpy()
    value = np.asarray(value)
    return value if np.iscomplexobj(value) else value.astype(np.float64)
