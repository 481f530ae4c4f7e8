"""The least memory that an order of nodes needs: live bytes at their highest, where no storage is held longer than it is read.

A storage lives from the node that makes it to its last reader, outputs to the end. Views are free. A pointwise result
overwrites an operand of its size that dies there. Weights and constants cost nothing. Sizes are rounded up to 512 bytes. Nothing of
lowtide is used, so that a mistake there does not hide itself.

    python bound.py archive MODEL.pt2 SHAPE...     prints {"1x3x640x640": {"bytes": ..., "bytes_without_inputs": ...}, ...}
    python bound.py onnx MODEL.onnx SHAPE...       the same for the nodes of an ONNX graph, sizes from one run
"""

import json
import sys

ROUND = 512


def rounded(size):
    return -(-size // ROUND) * ROUND


class Lifetimes:
    """Storages by key, in steps. Steps come in order; `-1` is before the first."""

    def __init__(self):
        self.bytes, self.first, self.last = {}, {}, {}
        self.alias = {}  # key -> key of the storage that it is part of or overwrites
        self.inputs = set()

    def root(self, key):
        while key in self.alias:
            key = self.alias[key]
        return key

    def made(self, key, size, step):
        self.bytes[key], self.first[key], self.last[key] = rounded(size), step, step

    def read(self, key, step):
        self.last[self.root(key)] = max(self.last[self.root(key)], step)

    def known(self, key):
        return self.root(key) in self.bytes

    def overwrite(self, key, size, operand, step):
        """The result `key` of `step` takes the place of the operand."""
        self.alias[key] = self.root(operand)
        self.read(operand, step)
        assert self.bytes[self.root(key)] == rounded(size)

    def peak(self, steps, with_inputs):
        change = [0] * (steps + 2)
        for key, size in self.bytes.items():
            if key in self.inputs and not with_inputs:
                continue
            change[max(self.first[key], 0)] += size
            change[self.last[key] + 1] -= size
        most = live = 0
        for step in range(steps + 1):
            live += change[step]
            most = max(most, live)
        return most

    def figures(self, steps):
        return {"bytes": self.peak(steps, True), "bytes_without_inputs": self.peak(steps, False)}


def lay_out(steps, inputs, outputs):
    """Steps are (results, operands, pointwise): results [(key, bytes, size tag or None for a view, key viewed)], operands [keys].

    Two passes: an operand may be overwritten only where nothing reads it later.
    """
    last_reader = {}
    viewed = {result["key"]: result["view_of"] for step in steps for result in step["results"] if result["view_of"] is not None}

    def whole(key):
        while key in viewed:
            key = viewed[key]
        return key

    for number, step in enumerate(steps):
        for key in step["operands"]:
            last_reader[whole(key)] = number
        for result in step["results"]:
            last_reader.setdefault(whole(result["key"]), number)
    for key in outputs:
        last_reader[whole(key)] = len(steps)

    lives = Lifetimes()
    for key, size in inputs.items():
        lives.made(key, size, -1)
        lives.inputs.add(key)
    for number, step in enumerate(steps):
        operands = [key for key in step["operands"] if lives.known(whole(key))]
        for key in operands:
            lives.read(whole(key), number)
        for result in step["results"]:
            key, size = result["key"], result["bytes"]
            if result["view_of"] is not None or key in lives.bytes or key in lives.alias:
                continue
            dying = [k for k in operands if last_reader[whole(k)] == number and k not in viewed and step["pointwise"]
                     and lives.bytes[lives.root(k)] == rounded(size) and lives.root(k) not in lives.inputs]
            if dying:
                lives.overwrite(key, size, dying[0], number)
            else:
                lives.made(key, size, number)
            lives.read(key, min(last_reader.get(key, number), len(steps)))
    for key in outputs:
        if lives.known(whole(key)):
            lives.read(whole(key), len(steps))
    return lives.figures(len(steps))


def of_archive(path):
    """From the exported program: shape -> bound."""
    import torch

    program = torch.export.load(path)
    return lambda shape: _of_program(program, shape)


def _of_program(program, shape):
    """Runs each node on tensors without data, which share storages as real ones do."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    module, signature = program.graph_module, program.graph_signature
    user_inputs = set(signature.user_inputs)
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    constants = signature.inputs_to_lifted_tensor_constants
    steps, outputs, inputs = [], [], {}

    def storages(value):
        found = []
        torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: found.append(t), value)
        return [(t.untyped_storage()._cdata, t.untyped_storage().nbytes()) for t in found]

    class Recorder(torch.fx.Interpreter):
        def run_node(self, node):
            value = super().run_node(node)
            if node.op == "placeholder" and node.target in user_inputs:
                inputs.update(dict(storages(value)))
            elif node.op == "call_function":
                operands = [key for n in node.all_input_nodes for key, _ in storages(self.env[n])]
                tags = getattr(node.target, "tags", ())
                steps.append({"operands": operands, "pointwise": torch.Tag.pointwise in tags,
                              # Storages are compared whole, so a view has the key of what it views and makes nothing.
                              "results": [{"key": key, "bytes": size, "view_of": None} for key, size in storages(value)
                                          if key not in operands]})
            elif node.op == "output":
                outputs.extend(key for key, _ in storages(value))
            return value

    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        arguments = []
        for node in module.graph.nodes:
            if node.op != "placeholder":
                continue
            name = node.target
            if name in weights:
                arguments.append(mode.from_tensor(program.state_dict.get(weights[name], program.constants.get(weights[name]))))
            elif name in constants:
                arguments.append(mode.from_tensor(program.constants[constants[name]]))
            else:
                arguments.append(torch.empty(shape))
        # Kept to the end, so that no address of a storage is used twice.
        Recorder(module, garbage_collect_values=False).run(*arguments)
    return lay_out(steps, inputs, outputs)


VIEWS = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"}
POINTWISE = {"Abs", "Add", "Cast", "Ceil", "Clip", "Div", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "LeakyRelu", "Log",
             "Max", "Min", "Mul", "Neg", "PRelu", "Pow", "QuickGelu", "Reciprocal", "Relu", "Round", "Sigmoid", "Softplus", "Sqrt",
             "Sub", "Tanh", "Where"}


def of_onnx(path):
    """From an ONNX graph: shape -> bound. A run with every tensor as an output says what is how large."""
    import numpy as np
    import onnx
    import onnxruntime

    model = onnx.load(path)
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    image = next(i.name for i in graph.input if i.name not in constants)
    outputs = [o.name for o in graph.output]
    made = [name for node in graph.node for name in node.output if name]
    constants.update(name for node in graph.node if node.op_type == "Constant" for name in node.output)
    del graph.output[:]
    graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in made)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def bound(shape):
        zeros = np.zeros(shape, np.float32)
        sizes = dict(zip(made, (value.nbytes for value in session.run(made, {image: zeros}))))
        return lay_out(_onnx_steps(graph, constants, sizes), {image: zeros.nbytes}, outputs)

    return bound


def _onnx_steps(graph, constants, sizes):
    steps = []
    for node in graph.node:
        operands = [name for name in node.input if name and name not in constants]
        if node.op_type == "Constant":
            continue
        view = node.op_type in VIEWS and operands
        steps.append({"operands": operands, "pointwise": node.op_type in POINTWISE,
                      "results": [{"key": name, "bytes": sizes[name], "view_of": operands[0] if view and i == 0 else None}
                                  for i, name in enumerate(node.output) if name]})
    return steps


if __name__ == "__main__":
    kind, path, *shapes = sys.argv[1:]
    bound = {"archive": of_archive, "onnx": of_onnx}[kind](path)
    print(json.dumps({shape: bound(tuple(map(int, shape.split("x")))) for shape in shapes}))
