"""What a family says about one model: the module, the calls to record, and how to export it."""

from dataclasses import dataclass, field
from typing import Callable

from torch import nn
from torch.export import Dim

AUTO = Dim.AUTO  # this dimension may change from call to call


@dataclass
class Case:
    """A model to export, with the calls whose inputs and outputs are written beside it.

    Sample sizes of a dimension marked AUTO must differ from 1: torch.export fixes those of 1.
    """

    module: nn.Module
    args: tuple
    dynamic_shapes: object = None  # as torch.export.export takes it
    further_calls: list = field(default_factory=list)  # argument tuples: other shapes, or the next steps of one sequence
    reference: Callable | None = None  # args -> arrays computed by another engine, for --verify
    stateful: bool = False  # the module changes its buffers: the calls form one sequence
    strict: bool = False  # trace in strict mode
    functional: bool = False  # rewrite to operators without in-place effects; mutations go into the signature
    side_files: dict = field(default_factory=dict)  # suffix -> bytes, written as NAME.SUFFIX (tokenizer, alphabet)

    @property
    def calls(self):
        return [self.args, *self.further_calls]
