"""Job 3: a language model of 538 MB continues sentences under a cap of about a third of that."""

import numpy as np
from tokenizers import Tokenizer

from . import tensor_files
from lib.tables import text_table

MODEL = "smollm2_135m_prefill"
CHOICES = 3  # how many likely words to show
PROMPTS = [
    "The capital of France is",
    "One, two, three,",
    "The opposite of hot is",
    "Water freezes at zero degrees",
    "The largest planet in our solar system is",
    "Once upon a time, there was a little",
]


def run(lowtide, out):
    """Returns the outcome of the run and the text to show."""
    tokenizer = Tokenizer.from_file(str(lowtide.models / f"{MODEL}.tokenizer.json"))
    ids = {f"prompt_{number}": tokenizer.encode(prompt).ids for number, prompt in enumerate(PROMPTS, 1)}
    tensor_files.write_inputs(
        out / MODEL / "in", {stem: {"ids": np.array([tokens], np.int64)} for stem, tokens in ids.items()})
    cap = lowtide.third_of_weights(MODEL, ids=(1, max(map(len, ids.values()))))
    outcome = lowtide.run(MODEL, out / MODEL / "in", "--vram-cap", str(cap))

    logits = [tensor_files.read_output(lowtide.results(MODEL), stem)[0, -1] for stem in ids]
    rows = [(prompt, *likely_words(tokenizer, row)) for prompt, row in zip(PROMPTS, logits)]
    return outcome, text_table(["beginning", "most likely next", "second", "third"], rows)


def likely_words(tokenizer, logits):
    probability = np.exp(logits - logits.max(), dtype=np.float64)
    probability /= probability.sum()
    best = np.argsort(-probability)[:CHOICES]
    return [f"{tokenizer.decode([int(token)]).strip() or '(blank)'} {probability[token]:.0%}" for token in best]
