"""Small nets of random structure and random weights: many shapes of the planner's problem, each drawn from a seed.

Layers long and short beside each other, weights used again in the same pass, tied and viewed weights, one giant layer, tables,
convolutions beside products, and branches that keep activations alive.
"""

import random

import torch
import torch.nn.functional as F
from torch import nn

from ..case import AUTO, Case

VOCABULARY = 3000


class Mixed(nn.Module):
    """Token ids -> a vector for each token and one for the whole."""

    def __init__(self, seed):
        super().__init__()
        draw = random.Random(seed)
        self.width = draw.choice([64, 96, 128, 192])
        self.embed = nn.Embedding(VOCABULARY, self.width)
        kinds = ["short", "short", "long", "again", "viewed", "convolution", "branch", "norm"]
        self.plan = [draw.choice(kinds) for _ in range(draw.randint(6, 14))]
        self.layers = nn.ModuleList(self._layer(kind, draw) for kind in self.plan)
        if seed % 4 == 0:  # one giant layer among small ones
            self.plan.insert(len(self.plan) // 2, "long")
            self.layers.insert(len(self.layers) // 2, self._pair(24 * self.width))
        self.tied = seed % 3 == 0
        self.head = None if self.tied else nn.Linear(self.width, draw.choice([10, 700]))

    def _pair(self, inner):
        return nn.Sequential(nn.Linear(self.width, inner), nn.GELU(), nn.Linear(inner, self.width))

    def _layer(self, kind, draw):
        if kind == "long":
            return self._pair(self.width * draw.choice([6, 10]))
        if kind == "convolution":
            return nn.Conv1d(self.width, self.width, kernel_size=draw.choice([3, 5]), padding="same")
        if kind == "norm":
            return nn.LayerNorm(self.width)
        return nn.Linear(self.width, self.width)

    def forward(self, ids):
        x = self.embed(ids)
        kept = x
        for kind, layer in zip(self.plan, self.layers):
            if kind == "convolution":
                x = x + layer(x.transpose(1, 2)).transpose(1, 2)
            elif kind == "again":  # the same weight twice, with work between
                x = torch.tanh(layer(F.gelu(layer(x))))
            elif kind == "viewed":  # a view of the weight lives for several steps
                half = layer.weight[: self.width // 2]
                x = x + torch.cat([x @ half.T, torch.sin(x @ half.T)], dim=-1)
            elif kind == "branch":
                kept = torch.tanh(layer(x) + kept)
                x = x + kept
            elif kind == "norm":
                x = layer(x)
            else:
                x = x + layer(x)
        tokens = x @ self.embed.weight.T if self.tied else self.head(x)
        return tokens, (x + kept).mean(dim=1)


def case(seed):
    torch.manual_seed(seed)
    calls = [((torch.arange(batch * tokens) * 7 % VOCABULARY).view(batch, tokens),) for batch, tokens in [(2, 24), (3, 9)]]
    return Case(Mixed(seed), calls[0], {"ids": {0: AUTO, 1: AUTO}}, calls[1:])


def __getattr__(name):
    """mixed_00, mixed_01, ...: one case a seed."""
    if name.startswith("mixed_") and name[6:].isdigit():
        return lambda: case(int(name[6:]))
    raise AttributeError(name)


class Giant(nn.Module):
    """One weight of 16 MiB among small ones."""

    def __init__(self, giant):
        super().__init__()
        self.first, self.giant, self.last = nn.Linear(256, 512), giant, nn.Linear(64, 10)

    def forward(self, x):
        y = torch.relu(self.giant(torch.relu(self.first(x)).unsqueeze(-1)).squeeze(-1) if isinstance(self.giant, nn.Conv1d)
                       else self.giant(torch.relu(self.first(x))))
        return self.last(y.unflatten(-1, (-1, 64)).sum(dim=-2))


def giant_linear():
    return _giant(nn.Linear(512, 8192))


def giant_convolution():
    return _giant(nn.Conv1d(512, 8192, kernel_size=1))


def _giant(layer):
    calls = [(torch.linspace(-1, 1, rows * 256).view(rows, 256),) for rows in (6, 3)]
    return Case(Giant(layer), calls[0], {"x": {0: AUTO}}, calls[1:])
