"""Text models of the transformers library with random weights."""

import torch
from torch import nn
from transformers import (BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM, T5Config,
                          T5EncoderModel)

from ..case import AUTO, Case
from ..transformers_models import Logits, StaticCache, decoding_calls

BATCH_AND_TOKENS = {0: AUTO, 1: AUTO}


class Encoder(nn.Module):
    """Token ids and mask -> the model's tensors."""

    def __init__(self, core, outputs):
        super().__init__()
        self.core, self.outputs = core, outputs

    def forward(self, ids, mask):
        result = self.core(input_ids=ids, attention_mask=mask)
        values = tuple(result[name] for name in self.outputs)
        return values if len(values) > 1 else values[0]


def bert_base():
    def call(batch, tokens):
        mask = torch.ones(batch, tokens, dtype=torch.long)
        mask[0, tokens // 2 :] = 0
        return torch.randint(0, 30000, (batch, tokens)), mask

    core = BertModel(BertConfig(attn_implementation="sdpa"))
    module = Encoder(core, ["last_hidden_state", "pooler_output"])
    return Case(module, call(2, 32), (BATCH_AND_TOKENS, BATCH_AND_TOKENS), [call(3, 77)])


def t5_encoder():
    def call(batch, tokens):
        return torch.randint(3, 32000, (batch, tokens)), torch.ones(batch, tokens, dtype=torch.long)

    module = Encoder(T5EncoderModel(T5Config()), ["last_hidden_state"])
    return Case(module, call(2, 20), (BATCH_AND_TOKENS, BATCH_AND_TOKENS), [call(1, 50)])


def gpt2():
    calls = [(torch.randint(0, 50000, size),) for size in ((2, 16), (1, 40))]
    return Case(Logits(GPT2LMHeadModel(GPT2Config())), calls[0], (BATCH_AND_TOKENS,), calls[1:])


def qwen3_static():
    return _qwen3_with_cache()


def qwen3_static_bf16():
    return _qwen3_with_cache(torch.bfloat16)


def qwen3_static_strict():
    return _qwen3_with_cache(strict=True)


def qwen3_static_functional():
    return _qwen3_with_cache(strict=True, functional=True)


def _qwen3_with_cache(dtype=torch.float32, **how):
    vocabulary = 32000
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=512, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=8,
        num_key_value_heads=4, head_dim=64, max_position_embeddings=512, tie_word_embeddings=True)
    model = Qwen3ForCausalLM(config).to(dtype).eval()
    calls = decoding_calls(vocabulary)
    return Case(StaticCache(model), calls[0], ({1: AUTO}, {0: AUTO}), calls[1:], stateful=True, **how)
