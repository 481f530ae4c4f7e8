"""Job 2: sentences are ranked by how close they are in meaning to a question; --low-vram chooses the cap."""

import numpy as np
from tokenizers import Tokenizer

from . import tensor_files
from lib.tables import text_table

MODEL = "minilm_l6"
QUERY = "How can I save memory on my graphics card?"
SENTENCES = [
    "The weights of the network are kept in host memory and copied when a layer needs them.",
    "A graphics card with little memory can still run large models.",
    "The weather is lovely today.",
    "Close programs that use the GPU to free some of its memory.",
    "He drove to the stadium to see the match.",
    "My bank sent me a new credit card.",
    "Fresh bread is best on the day it was baked.",
]


def run(lowtide, out):
    """Returns the outcome of the run and the text to show."""
    tokenizer = Tokenizer.from_file(str(lowtide.models / f"{MODEL}.tokenizer.json"))
    tokenizer.no_padding()
    texts = {"query": QUERY, **{f"sentence_{number}": text for number, text in enumerate(SENTENCES, 1)}}
    tensor_files.write_inputs(out / MODEL / "in", {stem: tokens(tokenizer, text) for stem, text in texts.items()})
    outcome = lowtide.run(MODEL, out / MODEL / "in", "--low-vram")

    vectors = {stem: tensor_files.read_output(lowtide.results(MODEL), stem)[0] for stem in texts}
    query = vectors.pop("query")
    return outcome, show({texts[stem]: float(vector @ query) for stem, vector in vectors.items()})


def tokens(tokenizer, text):
    ids = np.array([tokenizer.encode(text).ids], np.int64)
    return {"ids": ids, "mask": np.ones_like(ids)}


def show(similarity):
    ranked = sorted(similarity.items(), key=lambda pair: -pair[1])
    rows = [(f"{value:.2f}".replace("-0.00", "0.00"), text) for text, value in ranked]
    return f'question: "{QUERY}"\n{text_table(["closeness", "sentence"], rows)}'
