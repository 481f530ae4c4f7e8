"""PyTorch's own operator database on the simulated card: the CPU's bits, shapes, strides and types, entry by entry.

    .venv/bin/python tests/python/op_database.py [ENTRY...] [--dtype NAME] [--verbose]

Every entry of torch.testing's op_db runs with its own samples (float32 where the operator takes it) on the CPU and on the card,
in normal mode and in inference mode, and in its in-place form where it has one. Left out are operators whose result is
uninitialised memory, those about sparse tensors, which the card does not hold, and those without a CPU kernel. Fails when an
entry differs that is not listed in UNREPRODUCIBLE, and when one listed there has become reproducible. Exit code 77: a package
it needs is missing.
"""

import argparse
import logging
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import torch
from torch.utils import _pytree as pytree

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import lowtide_sim  # noqa: E402

SKIPPED = 77
SEED = 1234

# Entry -> why it may differ. The CPU must differ from itself there, else the line is out of date.
UNREPRODUCIBLE = {
    "linalg.lstsq": "LAPACK's gelsy gives other last bits from call to call",
    "linalg.lstsq.grad_oriented": "the same",
}
REPEATS = 20

UNINITIALISED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


def entries():
    """The database, without what cannot be compared."""
    logging.disable(logging.WARNING)  # about a CUDA that is not there
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ModuleNotFoundError as error:
        print(f"skipped: {error}: pip install -r third_party/requirements-tests.txt into .venv")
        sys.exit(SKIPPED)
    return [op for op in op_db if op.name not in UNINITIALISED and "sparse" not in op.name]


def full_name(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def dtype_for(op):
    """float32, or what comes closest among the types that the operator takes on the CPU; None if it has no CPU kernel."""
    supported = op.supported_dtypes("cpu")
    wanted = [torch.float32, torch.int64, torch.bool, torch.complex64, torch.float64, torch.bfloat16, torch.float16]
    return next((dtype for dtype in wanted if dtype in supported), None)


def on_card(value):
    """A copy on the card of the same memory layout; a name of the device becomes the card's."""
    if isinstance(value, torch.Tensor):
        return _copy(value, lambda memory: memory.to("sim"))
    if isinstance(value, torch.device) and value.type == "cpu" or isinstance(value, str) and value == "cpu":
        return torch.device("sim")
    return value


def copied(value):
    """A copy on the CPU of the same memory layout, so that operators in place leave the sample alone."""
    return _copy(value, torch.clone) if isinstance(value, torch.Tensor) else value


def _copy(tensor, copy_memory):
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg() or tensor.numel() == 0:
        return copy_memory(tensor)
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())  # views may look beyond their own elements
    copy = copy_memory(whole).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return torch.nn.Parameter(copy, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else copy


def outcome(function, arguments, device):
    """What a call gives, and its arguments afterwards; an exception is an outcome, too."""
    args, kwargs = arguments
    torch.manual_seed(SEED)
    try:
        # Where neither tensors nor an argument name a device, the default decides.
        named = any(isinstance(leaf, (torch.Tensor, torch.device)) for leaf in pytree.tree_leaves(arguments))
        with nullcontext() if named else torch.device(device):
            return function(*args, **kwargs), arguments
    except Exception as error:  # noqa: BLE001: whatever it is, the other device must refuse, too
        return error, None


def first_line(error):
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:160]}"


def difference(expected, actual):
    """The first difference between the CPU's outcome and the card's as text, or None."""
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        if type(expected) is type(actual):
            return None
        if isinstance(expected, Exception) and isinstance(actual, Exception):
            return f"the cpu refuses with {first_line(expected)}, the card with {first_line(actual)}"
        which, error = ("cpu", expected) if isinstance(expected, Exception) else ("card", actual)
        return f"only the {which} refuses: {first_line(error)}"
    left, left_spec = pytree.tree_flatten(expected)
    right, right_spec = pytree.tree_flatten(actual)
    if left_spec != right_spec:
        return f"another structure: {left_spec} and {right_spec}"
    return next((text for pair in zip(left, right) if (text := value_difference(*pair))), None)


def value_difference(expected, actual):
    if not isinstance(expected, torch.Tensor):
        if isinstance(expected, torch.device):
            return None
        same = expected == actual or (expected != expected and actual != actual)
        return None if same else f"{expected!r} and {actual!r}"
    if not isinstance(actual, torch.Tensor):
        return f"a tensor and a {type(actual).__name__}"
    if actual.device.type != "sim":
        return f"the result is on {actual.device}"
    for what in ("dtype", "shape", "layout"):
        if getattr(expected, what) != getattr(actual, what):
            return f"{what} {getattr(expected, what)} and {getattr(actual, what)}"
    if expected.stride() != actual.stride():
        return f"strides {expected.stride()} and {actual.stride()} of shape {tuple(expected.shape)}"
    if (expected.is_conj(), expected.is_neg()) != (actual.is_conj(), actual.is_neg()):
        return "another conjugate or negative bit"
    return content_difference(expected.resolve_conj().resolve_neg(), actual.cpu().resolve_conj().resolve_neg())


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def content_difference(expected, actual):
    if expected.is_complex():
        expected, actual = torch.view_as_real(expected), torch.view_as_real(actual)
    expected, actual = expected.detach().contiguous(), actual.detach().contiguous()
    differs = expected.view(_BITS[expected.itemsize]) != actual.view(_BITS[expected.itemsize])
    if expected.is_floating_point():
        differs &= ~(expected.isnan() & actual.isnan())
    count = int(differs.sum())
    return f"{count} of {expected.numel()} elements of type {expected.dtype}" if count else None


def forms_of(op):
    yield "", op
    if op.inplace_variant is not None:
        yield "in place", op.inplace_variant


def samples_of(op, dtype):
    torch.manual_seed(SEED)
    for sample in op.sample_inputs("cpu", dtype):
        yield (sample.input, *sample.args), sample.kwargs


def check(op, dtype):
    """Differences of one entry: text -> samples that show it. None when the CPU refuses every sample."""
    found, ran = {}, False
    for number, arguments in enumerate(samples_of(op, dtype)):
        for form, function in forms_of(op):
            for inference in (False, True):
                with torch.inference_mode(inference):
                    expected = outcome(function, pytree.tree_map(copied, arguments), "cpu")
                    actual = outcome(function, pytree.tree_map(on_card, arguments), "sim")
                    text = difference(expected[0], actual[0]) or argument_difference(expected[1], actual[1])
                ran = ran or not isinstance(expected[0], Exception)
                if text:
                    modes = ", ".join(part for part in (form, "inference mode" if inference else "") if part)
                    found.setdefault(text + (f" ({modes})" if modes else ""), []).append(number)
    return found if ran else None


def reproducible(op, dtype):
    """Does the CPU give the same bits each time?"""
    for arguments in samples_of(op, dtype):
        results = [pytree.tree_leaves(outcome(op, pytree.tree_map(copied, arguments), "cpu")[0]) for _ in range(REPEATS)]
        for other in results[1:]:
            tensors = [pair for pair in zip(results[0], other) if isinstance(pair[0], torch.Tensor)]
            if any(content_difference(*pair) for pair in tensors):
                return False
    return True


def argument_difference(expected, actual):
    """Arguments as the call left them: what is written in place must be written on the card."""
    if expected is None:
        return None
    pairs = zip(pytree.tree_leaves(expected), pytree.tree_leaves(actual))
    tensors = [(left, right) for left, right in pairs if isinstance(left, torch.Tensor)]
    return next((f"afterwards an argument: {text}" for pair in tensors if (text := value_difference(*pair))), None)


class Tally:
    """Counts entries by what became of them, and prints those that need a person."""

    def __init__(self):
        self.equal = self.differing = self.excepted = self.outdated = self.left_out = 0

    def add(self, op, dtype):
        name = full_name(op)
        found = check(op, dtype)
        if found is None:
            self.left_out += 1
        elif name in UNREPRODUCIBLE:
            self.excepted += 1
            if not found and reproducible(op, dtype):
                self.outdated += 1
                print(f"{name}: listed as unreproducible ({UNREPRODUCIBLE[name]}), but equal each time", flush=True)
        elif found:
            self.differing += 1
            lines = [f"{text}; samples {_few(numbers)}" for text, numbers in found.items()]
            print(f"{name}: " + "\n    ".join(lines), flush=True)
        else:
            self.equal += 1

    def __str__(self):
        return f"{self.equal} equal, {self.differing} differ, {self.excepted} excepted, {self.left_out} not on the CPU"


def main():
    parser = argparse.ArgumentParser(description="PyTorch's operator database on the simulated card, against the CPU")
    parser.add_argument("names", nargs="*", metavar="ENTRY", help="entries to run (default: all)")
    parser.add_argument("--dtype", help="type of the samples, such as bfloat16; operators that do not take it are left out")
    parser.add_argument("--verbose", action="store_true", help="print each entry before it runs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    started = time.monotonic()
    lowtide_sim.open()
    tally = Tally()
    for op in entries():
        dtype = getattr(torch, options.dtype) if options.dtype else dtype_for(op)
        if options.names and not {full_name(op), op.name} & set(options.names) or dtype not in op.supported_dtypes("cpu"):
            continue
        if options.verbose:
            print(full_name(op), flush=True)
        tally.add(op, dtype)
    print(f"{tally}; {time.monotonic() - started:.0f} s")
    return 1 if tally.differing or tally.outdated else 0


def _few(numbers):
    return ", ".join(map(str, numbers[:5])) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")


if __name__ == "__main__":
    sys.exit(main())
