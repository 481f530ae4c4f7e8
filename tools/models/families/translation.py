"""Encoder and decoder in one pass: text model of the transformers library with random weights."""

import torch
from torch import nn
from transformers import T5Config, T5Model

from ..case import AUTO, Case


class EncoderDecoder(nn.Module):
    """Token ids with their mask, and the decoder's ids so far -> the decoder's last hidden state."""

    def __init__(self, core):
        super().__init__()
        self.core = core

    def forward(self, ids, mask, so_far):
        return self.core(input_ids=ids, attention_mask=mask, decoder_input_ids=so_far, use_cache=False).last_hidden_state


def t5_small():
    def call(batch, tokens, so_far):
        ids, decoded = (torch.randint(3, 32000, (batch, count)) for count in (tokens, so_far))
        return ids, torch.ones(batch, tokens, dtype=torch.long), decoded

    dynamic = {0: AUTO, 1: AUTO}
    return Case(EncoderDecoder(T5Model(T5Config())), call(2, 64, 32), (dynamic, dynamic, dynamic), [call(1, 20, 7)])
