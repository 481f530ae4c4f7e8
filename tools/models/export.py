"""Makes the files of one model: archive, inputs, expected outputs."""

import copy
import importlib
import shutil
import warnings

import torch

from . import recorded_values, stamps, verify


def make(entry, out, check):
    """Writes NAME.pt2, NAME[.CALL].in.safetensors and .out.safetensors into `out`; returns (bytes, remarks).

    With `check` the archive is loaded again and compared, see `verify`. Files appear in `out` only when all are complete.
    """
    torch.manual_seed(0)
    case = getattr(importlib.import_module(f".families.{entry.family}", __package__), entry.name)()
    case.module.eval()

    part = out / ".part" / entry.name
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries warn about their own use of torch.export
        outputs = _record_calls(case, part, entry.name)
        for suffix, content in case.side_files.items():
            (part / f"{entry.name}.{suffix}").write_bytes(content)
        archive = part / f"{entry.name}.pt2"
        _export(case, archive)
        remarks = verify.compare(case, outputs, archive) if check else []

    stamps.forget(out, entry)
    names = sorted(path.name for path in part.iterdir())
    for name in names:
        (part / name).replace(out / name)
    part.rmdir()
    stamps.remember(out, entry, names)
    return (out / archive.name).stat().st_size, remarks


def _record_calls(case, folder, name):
    """Runs the calls eagerly and writes their values; returns the outputs."""
    # A copy computes the outputs of a stateful module, so that the export starts from the initial state. Inputs are written
    # before the call and copied for it, since a model may change them.
    module = copy.deepcopy(case.module) if case.stateful else case.module
    outputs = []
    for number, args in enumerate(case.calls):
        stem = folder / (name if number == 0 else f"{name}.{number}")
        stem.with_name(stem.name + ".in.safetensors").write_bytes(
            recorded_values.to_bytes(recorded_values.flatten(args)))
        output = copy.deepcopy(module(*copy.deepcopy(args)))
        stem.with_name(stem.name + ".out.safetensors").write_bytes(
            recorded_values.to_bytes(recorded_values.flatten(output)))
        outputs.append(output)
    return outputs


def _export(case, archive):
    if case.functional:
        case.module.requires_grad_(False)  # else the rewrite traces a backward graph, too
    program = torch.export.export(case.module, case.args, dynamic_shapes=case.dynamic_shapes, strict=case.strict)
    if case.functional:
        program = program.run_decompositions({})
    torch.export.save(program, archive)
