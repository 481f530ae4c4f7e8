"""Wrappers around models of the transformers library, shared by the families that export them."""

import torch
from torch import nn


class Logits(nn.Module):
    """Token ids -> logits, without a cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False).logits


class StaticCache(nn.Module):
    """Token ids and their positions -> logits; the key-value cache of fixed length is state inside the module."""

    def __init__(self, model, length=128):
        from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

        super().__init__()
        config = {"batch_size": 1, "max_cache_len": length, "device": "cpu"}
        model.generation_config.update(use_cache=True, cache_implementation="static", cache_config=config)
        self.model = TorchExportableModuleWithStaticCache(
            model, batch_size=1, max_cache_len=length, device=torch.device("cpu"))

    def forward(self, ids, pos):
        return self.model(input_ids=ids, cache_position=pos)


def decoding_calls(vocabulary, prompt=6, steps=3, tokens_per_step=2):
    """A prompt and some further steps of one sequence, with random tokens."""
    sizes = [prompt] + [tokens_per_step] * steps
    calls, position = [], 0
    for size in sizes:
        calls.append((torch.randint(5, vocabulary, (1, size)), torch.arange(position, position + size)))
        position += size
    return calls
