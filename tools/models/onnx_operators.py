"""The ONNX operators that the catalogue's models use, as functions on torch values.

A function takes the inputs (None where one is left out), the attributes, the opset and the number of outputs.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F

OPERATORS = {}
INT_MAX = 2**31 - 1
DTYPES = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool, 10: torch.float16, 11: torch.float64}


class Ints:
    """A 0-d or 1-d integer value that Python knows; its items may be symbolic."""

    def __init__(self, items, scalar=False):
        self.items, self.scalar = list(items), scalar


def operator(name):
    """Registers a function of (inputs, attributes) under an ONNX name; it may also ask for `opset` or `outputs`."""

    def register(function):
        wanted = function.__code__.co_varnames[2 : function.__code__.co_argcount]
        OPERATORS[name] = lambda x, a, **extra: function(x, a, **{key: extra[key] for key in wanted})
        return function

    return register


def as_list(value):
    if isinstance(value, Ints):
        return value.items
    if isinstance(value, (int, torch.SymInt)):
        return [value]
    raise TypeError(f"expected a shape, got {type(value).__name__}")


def optional(x, position):
    return x[position] if len(x) > position else None


# --- element-wise


def beside(value, other):
    """`value` in a form that combines with the tensor `other`."""
    if not isinstance(value, Ints):
        return value
    return value.items[0] if len(value.items) == 1 else torch.tensor(value.items, device=getattr(other, "device", None))


def binary(on_tensors, on_ints=None):
    def run(x, a):
        left, right = x
        if isinstance(left, Ints) and isinstance(right, Ints):
            size = max(len(left.items), len(right.items))
            pairs = zip(*(v.items * size if len(v.items) == 1 else v.items for v in x))
            return Ints([(on_ints or on_tensors)(p, q) for p, q in pairs], left.scalar and right.scalar)
        return on_tensors(beside(left, right), beside(right, left))

    return run


operator("Add")(binary(lambda p, q: p + q))
operator("Sub")(binary(lambda p, q: p - q))
operator("Mul")(binary(lambda p, q: p * q))
operator("Div")(binary(lambda p, q: p / q, lambda p, q: p // q))
operator("Pow")(binary(lambda p, q: p**q))

operator("Sqrt")(lambda x, a: torch.sqrt(x[0]) if isinstance(x[0], torch.Tensor) else math.sqrt(x[0]))
operator("Relu")(lambda x, a: F.relu(x[0]))
operator("Sigmoid")(lambda x, a: torch.sigmoid(x[0]))
operator("Tanh")(lambda x, a: torch.tanh(x[0]))
operator("Erf")(lambda x, a: torch.erf(x[0]))
operator("Exp")(lambda x, a: torch.exp(x[0]))
operator("HardSwish")(lambda x, a: F.hardswish(x[0]))
operator("HardSigmoid")(lambda x, a: torch.clamp(x[0] * a.get("alpha", 0.2) + a.get("beta", 0.5), 0, 1))


@operator("Clip")
def clip(x, a):
    low, high = optional(x, 1), optional(x, 2)
    return torch.clamp(x[0], a.get("min") if low is None else low, a.get("max") if high is None else high)


@operator("Cast")
def cast(x, a):
    value, dtype = x[0], DTYPES[a["to"]]
    if isinstance(value, Ints):
        if not dtype.is_floating_point:
            return value
        return float(value.items[0]) if len(value.items) == 1 else torch.tensor(value.items).to(dtype)
    if isinstance(value, float):
        return value if dtype.is_floating_point else Ints([int(value)], scalar=True)
    return value.to(dtype)


# --- layers


def padded(value, a, kernel, fill=0.0):
    """The input and the symmetric padding to use; padding that is not symmetric is applied to the input."""
    dims = len(kernel)
    pads = a.get("pads", [0] * 2 * dims)
    if a.get("auto_pad") in (b"SAME_UPPER", b"SAME_LOWER"):
        strides, dilations = a.get("strides", [1] * dims), a.get("dilations", [1] * dims)
        total = []
        for size, k, stride, dilation in zip(value.shape[2:], kernel, strides, dilations):
            reach = (k - 1) * dilation
            total.append(reach if stride == 1 else max((-(-size // stride) - 1) * stride + reach + 1 - size, 0))
        small, big = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = small + big if a["auto_pad"] == b"SAME_UPPER" else big + small
    if list(pads[:dims]) == list(pads[dims:]):
        return value, pads[:dims]
    both_sides = [p for i in reversed(range(dims)) for p in (pads[i], pads[dims + i])]  # last dimension first
    return F.pad(value, both_sides, value=fill), [0] * dims


@operator("Conv")
def conv(x, a):
    dims = x[1].dim() - 2
    value, padding = padded(x[0], a, x[1].shape[2:])
    function = F.conv1d if dims == 1 else F.conv2d
    strides, dilations = a.get("strides", [1] * dims), a.get("dilations", [1] * dims)
    return function(value, x[1], optional(x, 2), strides, padding, dilations, a.get("group", 1))


@operator("ConvTranspose")
def conv_transpose(x, a):
    pads, strides, dilations = a.get("pads", [0] * 4), a.get("strides", [1, 1]), a.get("dilations", [1, 1])
    if list(pads[:2]) != list(pads[2:]):
        raise NotImplementedError("ConvTranspose with padding that is not symmetric")
    extra = a.get("output_padding", [0, 0])
    return F.conv_transpose2d(x[0], x[1], optional(x, 2), strides, pads[:2], extra, a.get("group", 1), dilations)


@operator("BatchNormalization")
def batch_normalization(x, a):
    return F.batch_norm(x[0], x[3], x[4], x[1], x[2], False, 0.0, a.get("epsilon", 1e-5))


@operator("MaxPool")
def max_pool(x, a):
    kernel = a["kernel_shape"]
    value, padding = padded(x[0], a, kernel, fill=-math.inf)
    strides = a.get("strides", [1] * len(kernel))
    return F.max_pool2d(value, kernel, strides, padding, a.get("dilations", 1), bool(a.get("ceil_mode", 0)))


@operator("AveragePool")
def average_pool(x, a):
    kernel = a["kernel_shape"]
    value, padding = padded(x[0], a, kernel)
    if value is not x[0]:
        raise NotImplementedError("AveragePool with padding that is not symmetric")
    flags = bool(a.get("ceil_mode", 0)), bool(a.get("count_include_pad", 0))
    return F.avg_pool2d(value, kernel, a.get("strides", [1] * len(kernel)), padding, *flags)


operator("GlobalAveragePool")(lambda x, a: F.adaptive_avg_pool2d(x[0], 1))
operator("MatMul")(lambda x, a: torch.matmul(x[0], x[1]))


@operator("Gemm")
def gemm(x, a):
    if a.get("alpha", 1.0) != 1.0 or a.get("beta", 1.0) != 1.0 or a.get("transA", 0):
        raise NotImplementedError(f"Gemm with {a}")
    return F.linear(x[0], x[1] if a.get("transB", 0) else x[1].t(), optional(x, 2))


@operator("Softmax")
def softmax(x, a, opset):
    value, axis = x[0], a.get("axis", -1 if opset >= 13 else 1)
    if opset < 13 and axis % value.dim() != value.dim() - 1:  # old rule: over all the dimensions from `axis` on
        return torch.softmax(value.flatten(axis % value.dim()), -1).reshape(value.shape)
    return torch.softmax(value, axis)


@operator("Resize")
def resize(x, a):
    value, mode = x[0], a.get("mode", b"nearest").decode()
    transformation = a.get("coordinate_transformation_mode", b"half_pixel").decode()
    if optional(x, 3) is not None:
        size = as_list(x[3])[2:]
    else:
        scales = [float(f) for f in np.asarray(x[2] if len(x) > 2 else x[1])[2:]]
        # A whole factor is kept an int: symbolic sizes multiply with ints only.
        size = [s * int(f) if f.is_integer() else math.floor(s * f) for s, f in zip(value.shape[2:], scales)]
    if mode != "nearest":
        return F.interpolate(value, size=size, mode="bilinear", align_corners=transformation == "align_corners")
    floor = transformation == "asymmetric" and a.get("nearest_mode", b"").decode() in ("floor", "")
    if not floor and transformation != "half_pixel":
        raise NotImplementedError(f"Resize with {a}")
    return F.interpolate(value, size=size, mode="nearest")


# --- reductions


def axes_of(x, a):
    if optional(x, 1) is not None:
        return as_list(x[1])
    return list(a["axes"]) if "axes" in a else None


@operator("ReduceMean")
def reduce_mean(x, a):
    axes = axes_of(x, a)
    return x[0].mean(list(range(x[0].dim())) if axes is None else axes, keepdim=bool(a.get("keepdims", 1)))


operator("ReduceProd")(lambda x, a: Ints([math.prod(x[0].items)], scalar=not a.get("keepdims", 1)))

# --- shapes

operator("Shape")(lambda x, a: Ints(x[0].shape))
operator("Flatten")(lambda x, a: x[0].flatten(a.get("axis", 1)))
operator("Transpose")(lambda x, a: x[0].permute(a.get("perm", list(reversed(range(x[0].dim()))))))
operator("Expand")(lambda x, a: x[0].expand(as_list(x[1])))


@operator("Reshape")
def reshape(x, a):
    target = as_list(x[1])
    if isinstance(x[0], Ints):
        return Ints(x[0].items, scalar=not target)
    # 0 means: as it was
    return x[0].reshape([x[0].shape[i] if isinstance(t, int) and t == 0 else t for i, t in enumerate(target)])


@operator("Concat")
def concat(x, a):
    if all(isinstance(v, Ints) for v in x):
        return Ints([item for v in x for item in v.items])
    return torch.cat(x, a["axis"])


@operator("Gather")
def gather(x, a):
    data, index, axis = x[0], x[1], a.get("axis", 0)
    if isinstance(data, Ints):
        return Ints([data.items[k] for k in index.items], index.scalar)
    if isinstance(index, Ints):
        if index.scalar:
            return data.select(axis, index.items[0])
        index = torch.tensor(index.items)
    if axis == 0 and data.dim() == 2:
        return F.embedding(index, data)
    picked = torch.index_select(data, axis, index.reshape(-1))
    return picked.reshape(*data.shape[:axis], *index.shape, *data.shape[axis + 1 :])


@operator("Unsqueeze")
def unsqueeze(x, a):
    value, axes = x[0], axes_of(x, a)
    if isinstance(value, Ints):
        return Ints(value.items)
    for axis in sorted(k % (value.dim() + len(axes)) for k in axes):
        value = value.unsqueeze(axis)
    return value


@operator("Squeeze")
def squeeze(x, a):
    axes = axes_of(x, a)
    if isinstance(x[0], Ints):
        return Ints(x[0].items, scalar=True)
    return x[0].squeeze() if axes is None else x[0].squeeze(tuple(axes))


@operator("Slice")
def slice_(x, a):
    if "starts" in a:
        starts, ends, axes, steps = a["starts"], a["ends"], a.get("axes"), None
    else:
        starts, ends = as_list(x[1]), as_list(x[2])
        axes, steps = (None if optional(x, i) is None else as_list(x[i]) for i in (3, 4))
    axes, steps = axes or range(len(starts)), steps or [1] * len(starts)
    ends = [None if isinstance(end, int) and end >= INT_MAX else end for end in ends]
    if isinstance(x[0], Ints):
        return Ints(x[0].items[slice(starts[0], ends[0], steps[0])])
    index = [slice(None)] * x[0].dim()
    for start, end, axis, step in zip(starts, ends, axes, steps):
        index[axis] = slice(start, end, step)
    return x[0][tuple(index)]


@operator("Split")
def split(x, a, outputs):
    axis = a.get("axis", 0)
    sizes = as_list(x[1]) if optional(x, 1) is not None else a.get("split")
    return list(torch.split(x[0], list(sizes), axis) if sizes else torch.chunk(x[0], outputs, axis))
