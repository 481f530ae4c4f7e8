"""Silero VAD: is there speech in 32 ms of sound. Weights: a TorchScript file in a wheel; the network is written out here."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from ..case import AUTO, Case
from ..wheels import wheel_file

PACKAGE = "silero-vad"
CHANNELS = [(129, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1)]  # in, out, stride of the encoder's convolutions


class SpeechProbability(nn.Module):
    """Samples at 16 kHz [batch, 64 of context + 512], LSTM state [2, batch, 128] -> probability, new state."""

    def __init__(self):
        super().__init__()
        self.spectrum = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.encoder = nn.ModuleList(nn.Conv1d(i, o, 3, stride=s, padding=1) for i, o, s in CHANNELS)
        self.lstm = nn.LSTMCell(128, 128)
        self.last = nn.Conv1d(128, 1, 1)

    def forward(self, x, state):
        x = self.spectrum(F.pad(x, (0, 64), "reflect").unsqueeze(1))
        x = torch.sqrt(x[:, :129] ** 2 + x[:, 129:] ** 2)
        for convolution in self.encoder:
            x = F.relu(convolution(x))
        hidden, cell = self.lstm(x.squeeze(-1), (state[0], state[1]))
        p = torch.sigmoid(self.last(F.relu(hidden.unsqueeze(-1)))).squeeze(1).mean(1, keepdim=True)
        return p, torch.stack([hidden, cell])


def silero_vad():
    module = SpeechProbability()
    module.load_state_dict(_weights())

    def reference(args):
        import onnxruntime

        path = wheel_file(PACKAGE, "silero_vad/data/silero_vad_16k_op15.onnx")
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return session.run(None, {"input": args[0].numpy(), "state": args[1].numpy(), "sr": np.array(16000)})

    def call(batch):
        return torch.randn(batch, 576) * 0.1, torch.randn(2, batch, 128) * 0.1

    return Case(module, call(2), ({0: AUTO}, {1: AUTO}), [call(1)], reference)


def _weights():
    # The wheel's safetensors hold another, older set than the one its own interface uses.
    script = torch.jit.load(wheel_file(PACKAGE, "silero_vad/data/silero_vad.jit")).state_dict()
    weights = {"spectrum.weight": script["_model.stft.forward_basis_buffer"]}
    for kind in ("weight", "bias"):
        for i in range(len(CHANNELS)):
            weights[f"encoder.{i}.{kind}"] = script[f"_model.encoder.{i}.reparam_conv.{kind}"]
        for gate in ("ih", "hh"):
            weights[f"lstm.{kind}_{gate}"] = script[f"_model.decoder.rnn.{kind}_{gate}"]
        weights[f"last.{kind}"] = script[f"_model.decoder.decoder.2.{kind}"]
    return weights
