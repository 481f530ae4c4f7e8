"""A drawn page, as real content for the document models, and the way images become model inputs."""

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 1240, 1754  # A4 at 150 dots per inch

# (mean, standard deviation) of a channel, after scaling to 0..1
IMAGENET = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
HALF = np.array([0.5] * 3), np.array([0.5] * 3)


@dataclass
class Page:
    """An image, where its table and its first paragraph line are (left, top, right, bottom), and the text lines drawn."""

    image: Image.Image
    table: tuple
    line: tuple
    texts: list


def draw_page(title, first_paragraph, second_paragraph, rows=()):
    """A page: a title, a paragraph, a ruled table where there are rows, a paragraph. Paragraphs are lists of lines."""
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    _text(draw, (120, 100), title, 48)
    _paragraph(draw, 230, first_paragraph)
    left, top, width, height = 150, 760, 300, 70
    for r, row in enumerate(rows):
        for c, text in enumerate(row):
            x, y = left + c * width, top + r * height
            draw.rectangle((x, y, x + width, y + height), outline="black", width=3)
            _text(draw, (x + 20, y + 16), text, 34)
    _paragraph(draw, 1120, second_paragraph)
    columns = len(rows[0]) if rows else 0
    table = (left, top, left + columns * width, top + len(rows) * height)
    texts = [title, *first_paragraph, *second_paragraph]
    return Page(image, table, line=(120, 226, 1060, 266), texts=texts)


def sample_page():
    """The page whose parts are the real inputs among the recorded calls."""
    return draw_page(
        "Offloading Models to Host Memory",
        ["Weights stay in pinned memory and stream to the device on demand."] * 9,
        ["After every file the cache is emptied and the peak is compared."] * 9,
        [("Model", "Weights", "Peak"), ("layout", "7 MB", "210 MB"), ("detect", "10 MB", "300 MB"),
         ("recognise", "21 MB", "150 MB")],
    )


def to_input(image, normalisation=HALF):
    """Image -> float array [1, 3, height, width], channels in the order blue, green, red as these networks were trained."""
    mean, deviation = normalisation
    pixels = np.asarray(image.convert("RGB"), np.float32)[..., ::-1] / 255.0
    return np.ascontiguousarray(((pixels - mean) / deviation).transpose(2, 0, 1)[None], np.float32)


def _text(draw, position, text, size):
    draw.text(position, text, font=ImageFont.load_default(size=size), fill="black")


def _paragraph(draw, top, lines):
    for number, line in enumerate(lines):
        _text(draw, (120, top + 46 * number), line, 30)
