"""Runs an ONNX graph as a torch.nn.Module that torch.export can trace with dynamic shapes.

Usual converters keep shapes as tensors, which the export then takes for values that depend on data. Here small integer
vectors (shapes and their parts) stay Python lists whose items may be symbolic, see `onnx_operators.Ints`.
"""

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from .onnx_operators import OPERATORS, Ints


class OnnxGraph(torch.nn.Module):
    """The part of an ONNX graph that `outputs` (default: the graph's own) need. Called with the graph's inputs in order."""

    def __init__(self, model, outputs=None):
        super().__init__()
        model = model if isinstance(model, onnx.ModelProto) else onnx.load(model)
        graph = model.graph
        self.opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        constants = graph_constants(graph)
        self.inputs = [i.name for i in graph.input if i.name not in constants]
        self.outputs = list(outputs or (o.name for o in graph.output))

        alias = {}  # output of an Identity -> its input
        self.nodes = []  # (operator, input names, output names, attributes)
        for node in _needed_nodes(graph, self.outputs, set(self.inputs) | set(constants)):
            inputs = [alias.get(name, name) for name in node.input]
            if node.op_type == "Identity":
                alias[node.output[0]] = inputs[0]
            elif node.op_type not in OPERATORS:
                raise NotImplementedError(f"ONNX operator {node.op_type}")
            else:
                attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
                self.nodes.append((node.op_type, inputs, list(node.output), attributes))
        self.outputs = [alias.get(name, name) for name in self.outputs]
        self._bind_constants(constants)

    def _bind_constants(self, constants):
        """Weights become parameters; what describes shapes or scalars becomes a Python value."""
        self.values, self.weight_names = {}, {}
        used = {name for _, inputs, _, _ in self.nodes for name in inputs}
        resize = {name for operator, inputs, _, _ in self.nodes if operator == "Resize" for name in inputs[1:]}
        for name in sorted(used & set(constants)):
            array = constants[name]
            if array.dtype.kind in "iub" and array.ndim <= 1 and array.size <= 64:
                self.values[name] = Ints([int(v) for v in array.reshape(-1)], scalar=array.ndim == 0)
            elif array.size == 1 and array.ndim <= 1:
                self.values[name] = float(array.reshape(()))
            elif array.size == 0 or name in resize:
                self.values[name] = array
            else:
                self.weight_names[name] = self._add_weight(name, torch.from_numpy(np.array(array)))

    def _add_weight(self, name, tensor):
        attribute = "w_" + "".join(c if c.isalnum() else "_" for c in name)
        while hasattr(self, attribute):
            attribute += "_"
        if tensor.is_floating_point():
            self.register_parameter(attribute, torch.nn.Parameter(tensor, requires_grad=False))
        else:
            self.register_buffer(attribute, tensor)
        return attribute

    def forward(self, *args):
        known = dict(zip(self.inputs, args))
        known.update(self.values)
        for name, attribute in self.weight_names.items():
            known[name] = getattr(self, attribute)
        for operator, inputs, outputs, attributes in self.nodes:
            arguments = [known[name] if name else None for name in inputs]
            results = OPERATORS[operator](arguments, attributes, opset=self.opset, outputs=len(outputs))
            known.update(zip(outputs, results if isinstance(results, (list, tuple)) else [results]))
        results = tuple(known[name] for name in self.outputs)
        return results[0] if len(results) == 1 else results


def graph_constants(graph):
    """Name -> array, of initializers and of nodes that hold a constant."""
    constants = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            attribute = node.attribute[0]
            constants[node.output[0]] = (
                numpy_helper.to_array(attribute.t)
                if attribute.name == "value"
                else np.asarray(onnx.helper.get_attribute_value(attribute))
            )
    return constants


def metadata(model, key):
    """A value of the file's own metadata, such as the class names."""
    model = onnx.load(model, load_external_data=False)
    return next(p.value for p in model.metadata_props if p.key == key)


def _needed_nodes(graph, outputs, given):
    """The nodes that `outputs` depend on, in graph order, without constants."""
    producer = {name: node for node in graph.node for name in node.output if name}
    seen, pending, needed = set(), list(outputs), set()
    while pending:
        name = pending.pop()
        if name in seen or name in given or name not in producer:
            continue
        seen.add(name)
        needed.add(id(producer[name]))
        pending.extend(i for i in producer[name].input if i)
    return [node for node in graph.node if id(node) in needed and node.op_type != "Constant"]
