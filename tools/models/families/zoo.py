"""Tiny modules, each with one feature of the archive format that a reader has to cope with."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from ..case import AUTO, Case


def module(forward, **tensors):
    """A module with this forward function; floating-point tensors become parameters, the others buffers."""
    class Tiny(nn.Module):
        def __init__(self):
            super().__init__()
            for name, value in tensors.items():
                if value.is_floating_point():
                    self.register_parameter(name, nn.Parameter(value, requires_grad=False))
                else:
                    self.register_buffer(name, value)

    Tiny.forward = forward  # on the class: torch.export reads the signature there
    return Tiny()


def zoo_cond():
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: F.linear(x, self.w).relu(), lambda x: F.linear(x, self.v).tanh(), (x,))

    tiny = module(forward, w=torch.randn(8, 8), v=torch.randn(8, 8))
    return Case(tiny, (torch.rand(3, 8),), ({0: AUTO},), [(-torch.rand(4, 8),)])


def zoo_symint_input():
    def forward(self, x, n):
        return F.linear(x, self.w).narrow(0, 0, n), torch.zeros(n * 2), n + 1

    tiny = module(forward, w=torch.randn(8, 8))
    return Case(tiny, (torch.rand(6, 8), 3), ({0: AUTO}, Dim.DYNAMIC), [(torch.rand(9, 8), 5)])


def zoo_scan():
    from torch._higher_order_ops.scan import scan

    def forward(self, h, xs):
        def step(h, x):
            h = torch.tanh(F.linear(x, self.w) + h)
            return h, h * 2

        return scan(step, h, xs, dim=0)

    tiny = module(forward, w=torch.randn(8, 8))
    return Case(tiny, (torch.zeros(3, 8), torch.rand(5, 3, 8)), None, [(torch.ones(3, 8), torch.rand(5, 3, 8))])


def zoo_while():
    from torch._higher_order_ops.while_loop import while_loop

    def forward(self, x, n):
        return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, F.linear(x, self.w).tanh()), (n, x))

    tiny = module(forward, w=torch.randn(8, 8))
    return Case(tiny, (torch.rand(3, 8), torch.tensor(0)), None, [(torch.rand(3, 8), torch.tensor(4))])


def zoo_mutate_input():
    """Changes its input and a counter, and returns an input as it is."""
    def forward(self, cache, x):
        cache[:, 1] = x
        self.count.add_(1)
        return cache.sum(), x, self.count + 0

    tiny = module(forward, count=torch.zeros((), dtype=torch.long))
    return Case(tiny, (torch.zeros(2, 3, 4), torch.rand(2, 4)), None, [(torch.ones(2, 3, 4), torch.rand(2, 4))],
                stateful=True)


def zoo_mutate_functional():
    case = zoo_mutate_input()
    case.functional = True
    return case


def zoo_nonzero():
    def forward(self, x, k):
        picked = torch.nonzero(x > 0.5).squeeze(1)
        n = k.item()
        torch._check(n >= 1)
        torch._check(n <= 4)
        return F.linear(x[picked].unsqueeze(1), self.w), torch.ones(n, 2), picked.shape[0], n * 2

    tiny = module(forward, w=torch.randn(2, 1))
    return Case(tiny, (torch.rand(10), torch.tensor(3)), ({0: AUTO}, None), [(torch.rand(7), torch.tensor(1))])


def zoo_complex():
    """Rotation by a complex product, as some position encodings do it, and a Fourier transform."""
    def forward(self, x):
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * self.rotation
        return torch.view_as_real(z).flatten(-2), torch.fft.rfft(x).abs(), z

    tiny = module(forward, rotation=torch.polar(torch.ones(6, 4), torch.rand(6, 4)))
    return Case(tiny, (torch.rand(2, 6, 8),), ({0: AUTO},), [(torch.rand(3, 6, 8),)])


def zoo_args():
    """Inputs: lists, dicts, None, int, bool, float. Outputs: a dict with tensors, a list, an int, a float, None."""
    def forward(self, xs, opt, n, flag, scale, d):
        a, b = xs
        y = torch.cat([a, b[:, : a.shape[1]]], 0) * scale
        if opt is not None:
            y = y + opt
        if flag:
            y = y[:, d["idx"]]
        y = F.layer_norm(y, (y.shape[-1],), None, None) + torch.arange(y.shape[1], dtype=torch.float32)
        return {"y": y.repeat(1, n), "rows": a.shape[0], "none": None, "parts": torch.split(y, 2, 1), "k": 3.5}

    args = ([torch.rand(2, 6), torch.rand(3, 8)], None, 2, True, 0.5, {"idx": torch.tensor([0, 2, 4, 5])})
    return Case(module(forward), args, ([{0: AUTO}, {0: AUTO}], None, None, None, None, {"idx": None}))


def zoo_dtypes():
    """Weights of eight types; a transposed and an offset view share the storage of `w`; one is empty; one is a constant."""
    def forward(self, x):
        c = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        y = F.linear(x, self.w) + F.linear(x, self.transposed) * c
        y = y + (x.to(torch.bfloat16) @ self.bf16).float() + (x.half() @ self.f16).float()
        y = y + (x.double() @ self.f64).float()
        y = torch.where(self.mask, y, -y) + self.i8.float() * 0.01 + self.f8.to(torch.float32)
        return y + self.empty.sum() + self.lower_half.sum()

    w = torch.randn(8, 8)
    tiny = module(
        forward, w=w, bf16=torch.randn(8, 8).bfloat16(), f16=torch.randn(8, 8).half(), f64=torch.randn(8, 8).double(),
        empty=torch.zeros(0, 4), mask=torch.rand(8) > 0.5, i8=torch.randint(-100, 100, (8,), dtype=torch.int8))
    tiny.register_buffer("transposed", w.t())
    tiny.register_buffer("lower_half", w[4:])
    tiny.register_buffer("f8", torch.randn(8).to(torch.float8_e4m3fn))
    return Case(tiny, (torch.rand(3, 8),), ({0: AUTO},), [(torch.rand(2, 8),)])
