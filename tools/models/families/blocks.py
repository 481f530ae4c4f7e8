"""Plain transformer blocks with random weights: the workload of the speed figures."""

import torch
import torch.nn.functional as F
from torch import nn

from ..case import AUTO, Case

VOCABULARY = 1000
HEAD = 64  # width of one attention head


class Block(nn.Module):
    """Attention and feed-forward, each with its norm before it."""

    def __init__(self, width):
        super().__init__()
        self.heads = width // HEAD
        self.norm1, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, HEAD)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + self.out(attended)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Blocks(nn.Module):
    """Token ids -> logits and last hidden state."""

    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)), x


def blocks_12x64():
    return _case(64, 12, [(2, 64), (5, 33)])


def blocks_8x1024():
    return _case(1024, 8, [(2, 64), (2, 512), (1, 17)])


def blocks_27x1024():
    return _case(1024, 27, [(2, 4)])


def blocks_1333x64():
    return _case(64, 1333, [(2, 16)])


def _case(width, depth, sizes):
    calls = [((torch.arange(batch * tokens) % VOCABULARY).view(batch, tokens),) for batch, tokens in sizes]
    return Case(Blocks(width, depth), calls[0], {"ids": {0: AUTO, 1: AUTO}}, calls[1:])
