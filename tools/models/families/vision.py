"""Image classifiers of torchvision with random weights."""

import torch
import torchvision

from ..case import AUTO, Case


def resnet50():
    return _case(torchvision.models.resnet50(weights=None), 5)


def vit_b_16():
    return _case(torchvision.models.vit_b_16(weights=None), 3)


def _case(module, second_batch):
    return Case(module, (torch.rand(2, 3, 224, 224),), ({0: AUTO},), [(torch.rand(second_batch, 3, 224, 224),)])
