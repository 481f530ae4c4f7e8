"""Job 1: a page is drawn and cut into lines; the text recogniser reads them."""

import numpy as np
from PIL import Image
from models.page_image import draw_page, to_input

from . import tensor_files
from lib.tables import text_table

MODEL = "ocr_v6_rec"
HEIGHT, STEP = 48, 8  # the network takes lines 48 high whose width is a multiple of 8
DARK = 128

PAGE = draw_page(
    "The Tide Goes Out",
    [
        "Twice a day the sea draws back and leaves the flats to the birds.",
        "What the water carried in it takes away again, and the sand keeps",
        "nothing but its ripples. At 6:42 the first boats lie on their keels;",
        "by noon one can walk to the island, 3 km across, with dry shoes.",
    ],
    [
        "A graphics card can be used like that shore. The weights of a model",
        "come in when a layer needs them and leave when it is done, so that",
        "a network of 538 MB runs on a card that has a third of it to spare.",
    ],
)


def run(lowtide, out):
    """Returns the outcome of the run and the text to show."""
    PAGE.image.save(out / "page.png")
    lines = cut_lines(PAGE.image)
    jobs = {f"line_{number:02d}": {"args_0": to_input(line)} for number, line in enumerate(lines, 1)}
    tensor_files.write_inputs(out / MODEL / "in", jobs)
    widest = max((job["args_0"].shape for job in jobs.values()), key=lambda shape: shape[3])
    cap = lowtide.third_of_weights(MODEL, args_0=widest)
    outcome = lowtide.run(MODEL, out / MODEL / "in", "--vram-cap", str(cap))

    alphabet = (lowtide.models / f"{MODEL}.characters.txt").read_text().split("\n")
    read = [decode(tensor_files.read_output(lowtide.results(MODEL), stem)[0], alphabet) for stem in jobs]
    (out / "page.txt").write_text("\n".join(read) + "\n")
    return outcome, compare(read, PAGE.texts)


def cut_lines(image):
    """The lines of text of a page, top to bottom, scaled to the network's height and padded with white."""
    dark = np.asarray(image.convert("L")) < DARK
    lines = []
    for top, bottom in runs(dark.any(axis=1)):
        columns = np.flatnonzero(dark[top:bottom].any(axis=0))
        margin = (bottom - top) // 4
        line = image.crop((columns[0] - margin, top - margin, columns[-1] + margin, bottom + margin))
        width = round(line.width * HEIGHT / line.height)
        strip = Image.new("RGB", (-(-width // STEP) * STEP, HEIGHT), "white")
        strip.paste(line.resize((width, HEIGHT)))
        lines.append(strip)
    return lines


def runs(flags):
    """(begin, end) of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return list(zip(edges[::2], edges[1::2]))


def decode(scores, alphabet):
    """Best class of each column; repeats count once; class 0 is "no character", the one after the alphabet a blank."""
    best = scores.argmax(axis=1)
    changed = np.concatenate([[True], best[1:] != best[:-1]])
    return "".join(alphabet[c - 1] if c <= len(alphabet) else " " for c in best[changed] if c != 0)


def compare(read, drawn):
    rows = [(text, "same" if text == want else f"drawn: {want}") for text, want in zip(read, drawn, strict=True)]
    equal = sum(text == want for text, want in zip(read, drawn))
    return f"{text_table(['read from the image', 'against what was drawn'], rows)}\n{equal} of {len(drawn)} lines letter for letter"
