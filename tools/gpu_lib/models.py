"""Three archives with random weights, exported by this Python's torch: products, convolutions, and a mixture of the rest."""

import torch
import torch.nn.functional as F
from models.families.blocks import VOCABULARY, Blocks
from torch import nn


class Residual(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        stride = 1 if inside == outside else 2
        self.one, self.two = nn.Conv2d(inside, outside, 3, stride, 1), nn.Conv2d(outside, outside, 3, 1, 1)
        self.norm1, self.norm2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.skip = nn.Identity() if inside == outside else nn.Conv2d(inside, outside, 1, stride)

    def forward(self, x):
        y = self.norm2(self.two(F.relu(self.norm1(self.one(x)))))
        return F.relu(y + self.skip(x))


class Convolutions(nn.Module):
    """A residual network with a pooled and an upsampled head."""

    def __init__(self):
        super().__init__()
        widths = [64, 64, 128, 128, 256, 256, 512, 512]
        self.stem = nn.Conv2d(3, 64, 7, 2, 3)
        self.body = nn.Sequential(*(Residual(a, b) for a, b in zip(widths, widths[1:])))
        self.classes, self.up = nn.Linear(512, 1000), nn.ConvTranspose2d(512, 16, 4, 2, 1)

    def forward(self, x):
        x = self.body(F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1))
        return self.classes(F.adaptive_avg_pool2d(x, 1).flatten(1)), F.interpolate(self.up(x), scale_factor=2.0, mode="bilinear")


class Mixture(nn.Module):
    """Operators whose order of sums a GPU may choose: cumulative sums, scatters, softmax over long rows, sorting."""

    def __init__(self, width=512, depth=12):
        super().__init__()
        self.embed, self.layers = nn.Embedding(4000, width), nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.mix = nn.Conv1d(width, width, 5, padding=2, groups=width)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = x + F.silu(layer(F.layer_norm(x, x.shape[-1:])))
        x = torch.cumsum(self.mix(x.transpose(1, 2)), 2)
        rows = torch.zeros(x.shape[0], x.shape[1], 7, dtype=x.dtype, device=x.device)
        rows = rows.scatter_add(2, (ids % 7).unsqueeze(1).expand(-1, x.shape[1], -1), torch.softmax(x, 1))
        return rows, torch.topk(x.flatten(1), 8, 1).values


def cases():
    """name -> (module, example input)"""
    return {
        "blocks_8x1024": (Blocks(1024, 8), (torch.arange(2 * 64) % VOCABULARY).view(2, 64)),
        "convolutions": (Convolutions(), torch.linspace(-1, 1, 2 * 3 * 160 * 160).view(2, 3, 160, 160)),
        "mixture": (Mixture(), (torch.arange(2 * 300) * 37 % 4000).view(2, 300)),
    }


def export_all(folder):
    """Writes NAME.pt2 and NAME.in.pt; returns name -> (archive, input). A model that cannot be exported is left out."""
    made, problems = {}, []
    for name, (module, example) in cases().items():
        archive, data = folder / f"{name}.pt2", folder / f"{name}.in.pt"
        try:
            torch.manual_seed(0)
            for parameter in module.parameters():
                nn.init.normal_(parameter, std=0.02)
            with torch.no_grad():
                torch.export.save(torch.export.export(module.eval(), (example,)), archive)
            torch.save(example, data)
            made[name] = (archive, data)
        except Exception as error:  # the other archives still tell something
            problems.append(f"{name} cannot be exported: {type(error).__name__}: {error}")
    return made, problems
