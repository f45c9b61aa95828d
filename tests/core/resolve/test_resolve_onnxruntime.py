"""What ONNX Runtime really makes of a graph, at every optimisation level, resolved again.

The models are written by hand here; ONNX Runtime optimises them and the optimised graph's nodes
(invented names, the model's tensors) are the layers.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from layerline.core.nodes import Node, NodeGraph
from layerline.core.resolve import RawLayer, node_status, resolve

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")


class Model:
    """A small ONNX model, written node by node: ``add("mlp.act", "Tanh", ["x"])``."""

    def __init__(self, dtype=np.float32):
        self.dtype, self.nodes, self.constants = dtype, [], {}

    def constant(self, *shape, value=None):
        name = f"w{len(self.constants)}"
        random = np.random.default_rng(len(self.constants)).standard_normal(shape)
        array = random.astype(self.dtype) if value is None else np.asarray(value)
        self.constants[name] = array.astype(self.dtype) if array.dtype.kind == "f" else array
        return name

    def add(self, module, op, inputs, outputs=1, **attributes):
        base = f"{module}/{op}"
        same = sum(n.name == base or n.name.startswith(base + "_") for n in self.nodes)
        name = base if not same else f"{base}_{same + 1}"
        made = [f"t{len(self.nodes)}" if outputs == 1 else f"t{len(self.nodes)}_{i}"
                for i in range(outputs)]  # fmt: skip
        self.nodes.append(onnx.helper.make_node(op, inputs, made, name=name, **attributes))
        return made[0] if outputs == 1 else made

    def graph(self, x_shape, y):
        return NodeGraph(
            nodes=tuple(
                Node(n.name, n.op_type, n.name.rpartition("/")[0], tuple(n.input), tuple(n.output))
                for n in self.nodes
            ),
            inputs=("x",),
            outputs=(y,),
            initializers=frozenset(self.constants),
        )

    def layers(self, level, x_shape, y, tmp_path):
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        proto = onnx.helper.make_model(
            onnx.helper.make_graph(
                self.nodes,
                "g",
                [onnx.helper.make_tensor_value_info("x", kind, x_shape)],
                [onnx.helper.make_tensor_value_info(y, kind, None)],
                [onnx.numpy_helper.from_array(a, n) for n, a in self.constants.items()],
            ),
            opset_imports=[onnx.helper.make_opsetid("", 18)],
            ir_version=9,
        )
        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        options.optimized_model_filepath = str(tmp_path / f"{level}.onnx")
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        optimised = onnx.load(tmp_path / f"{level}.onnx").graph
        return [
            RawLayer(n.name, n.op_type, tuple(n.input), tuple(n.output)) for n in optimised.node
        ]


def gelu_tanh(m, module, x):
    half = m.add(module, "Mul", [x, m.constant(value=0.5)])
    cube = m.add(module, "Pow", [x, m.constant(value=3.0)])
    cube = m.add(module, "Mul", [cube, m.constant(value=0.044715)])
    inner = m.add(module, "Add", [x, cube])
    inner = m.add(module, "Mul", [inner, m.constant(value=0.7978845608028654)])
    inner = m.add(module, "Tanh", [inner])
    inner = m.add(module, "Add", [inner, m.constant(value=1.0)])
    return m.add(module, "Mul", [half, inner])


def transformer_block(dtype=np.float32):
    """Linear layers as MatMul and Add, fused and unfused residuals, tanh-GELU, attention."""
    m = Model(dtype)
    x = "x"
    for b in range(2):
        p = f"h.{b}"
        ln = m.add(f"{p}.ln_1", "LayerNormalization", [x, m.constant(16), m.constant(16)])
        q = m.add(f"{p}.q", "Add", [m.add(f"{p}.q", "MatMul", [ln, m.constant(16, 16)]),
                                    m.constant(16)])  # fmt: skip
        k = m.add(f"{p}.k", "MatMul", [ln, m.constant(16, 16)])
        kt = m.add(f"{p}.attn", "Transpose", [k], perm=[0, 2, 1])
        s = m.add(f"{p}.attn", "MatMul", [q, kt])
        s = m.add(f"{p}.attn", "Div", [s, m.constant(value=4.0)])
        s = m.add(f"{p}.attn", "Softmax", [s], axis=-1)
        a = m.add(f"{p}.attn", "MatMul", [s, ln])
        x = m.add(p, "Add", [a, x])
        ln = m.add(f"{p}.ln_2", "LayerNormalization", [x, m.constant(16), m.constant(16)])
        f = m.add(f"{p}.mlp.fc", "MatMul", [ln, m.constant(16, 32)])
        f = m.add(f"{p}.mlp.fc", "Add", [m.constant(32), f])
        g = gelu_tanh(m, f"{p}.mlp.act", f)
        g = m.add(f"{p}.mlp.proj", "MatMul", [g, m.constant(32, 16)])
        x = m.add(p, "Add", [g, x])
    return m, [1, 4, 16], x


def other_activations(dtype=np.float32):
    """Erf-GELU with its bias, quick GELU, a normalisation spelled out, a product scaled."""
    m = Model(dtype)
    f = m.add("fc", "Add", [m.add("fc", "MatMul", ["x", m.constant(16, 32)]), m.constant(32)])
    e = m.add("act", "Div", [f, m.constant(value=1.4142135381698608)])
    e = m.add("act", "Add", [m.add("act", "Erf", [e]), m.constant(value=1.0)])
    e = m.add("act", "Mul", [m.add("act", "Mul", [f, e]), m.constant(value=0.5)])
    q = m.add("fc2", "MatMul", [e, m.constant(32, 16)])
    s = m.add("quick", "Sigmoid", [m.add("quick", "Mul", [q, m.constant(value=1.702)])])
    q = m.add("quick", "Mul", [q, s])
    axes = m.constant(value=np.array([-1], dtype=np.int64))
    d = m.add("norm", "Sub", [q, m.add("norm", "ReduceMean", [q, axes])])
    v = m.add("norm", "ReduceMean", [m.add("norm", "Pow", [d, m.constant(value=2.0)]), axes])
    v = m.add("norm", "Sqrt", [m.add("norm", "Add", [v, m.constant(value=1e-5)])])
    n = m.add("norm", "Mul", [m.add("norm", "Div", [d, v]), m.constant(16)])
    n = m.add("norm", "Add", [n, m.constant(16)])
    t = m.add("tail", "Transpose", [n], perm=[0, 2, 1])
    y = m.add("tail", "Relu", [m.add("tail", "MatMul", [m.constant(4, 4), m.add(
        "tail", "Identity", [m.add("tail", "Transpose", [t], perm=[0, 2, 1])])])])  # fmt: skip
    return m, [1, 4, 16], y


def convolutions(dtype=np.float32):
    """Convolution, batch normalisation and activation; residual; pooling; a Gemm with Relu."""
    m = Model(dtype)
    x = "x"
    for b in range(2):
        p = f"layer.{b}"
        c = m.add(f"{p}.conv", "Conv", [x, m.constant(16, 16, 3, 3)], pads=[1, 1, 1, 1])
        c = m.add(f"{p}.bn", "BatchNormalization",
                  [c, *(m.constant(16, value=np.ones(16)) for _ in range(4))])  # fmt: skip
        c = m.add(f"{p}.act", "Relu", [c])
        c = m.add(f"{p}.conv2", "Conv", [c, m.constant(16, 16, 1, 1)])
        x = m.add(f"{p}.act2", "Relu", [m.add(p, "Add", [c, x])])
    x = m.add("pool", "GlobalAveragePool", [x])
    x = m.add("flat", "Flatten", [x])
    x = m.add("head", "Gemm", [x, m.constant(16, 8), m.constant(8)])
    return m, [1, 16, 8, 8], m.add("head_act", "Relu", [x])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("make", [transformer_block, other_activations, convolutions])
def test_every_layer_of_an_optimised_graph_is_resolved(make, dtype, level, tmp_path):
    m, shape, y = make(dtype)
    graph = m.graph(shape, y)
    layers = m.layers(level, shape, y, tmp_path)
    found = resolve(layers, graph)
    assert [r.name for r in found if r.rule == "unresolved"] == []
    status = node_status(found, graph)
    assert [n for n, s in status.items() if s.status == "missing"] == []
    # Whatever a layer writes of the model's tensors, it computes the node that makes them.
    for layer, r in zip(layers, found, strict=True):
        made = {graph.producer[t].name for t in layer.outputs if t in graph.producer}
        if r.rule != "carrier":
            assert made <= set(r.nodes), layer


# --- names alone, as a profile has them ----------------------------------------------------------


def three_convolutions():
    m = Model()
    x = "x"
    for module, act in (("stem", "Relu"), ("body", "Sigmoid"), ("head", None)):
        weight = m.constant(16 if module != "head" else 8, 3 if module == "stem" else 16, 1, 1)
        x = m.add(module, "Conv", [x, weight])
        x = m.add("act", act, [x]) if act else x
    return m, x


def test_convolutions_in_blocked_layout_are_known_by_their_tensor(tmp_path):
    """The tensor is the activation's where the convolution applies it."""
    m, y = three_convolutions()
    layers = m.layers("ORT_ENABLE_ALL", [1, 3, 8, 8], y, tmp_path)
    blocked = [RawLayer(x.name) for x in layers if x.op == "Conv"]
    assert all("_nchwc" in x.name for x in blocked) and len(blocked) == 3
    found = resolve(blocked, m.graph([1, 3, 8, 8], y))
    assert [r.modules[0] for r in found] == ["stem", "body", "head"]


def test_a_blocked_convolution_of_a_residual_is_not_guessed():
    g = NodeGraph(
        nodes=(
            Node("a/Conv", "Conv", "a", ("x",), ("p",)),
            Node("b/Conv", "Conv", "b", ("x",), ("q",)),
            Node("Add", "Add", "", ("p", "q"), ("y",)),
            Node("Relu", "Relu", "", ("y",), ("z",)),
        ),
        inputs=("x",),
        outputs=("z",),
    )
    assert resolve([RawLayer("z_nchwc")], g)[0].nodes == ("Relu",)


def test_nodes_without_a_name_are_known_by_their_place_in_the_file(tmp_path):
    """ONNX Runtime calls them after operator and place; constants do not count."""
    session = pytest.importorskip("onnxruntime")
    made = [
        onnx.helper.make_node("Constant", [], ["c"], value_float=1.0),
        onnx.helper.make_node("MatMul", ["x", "x"], ["a"]),
        onnx.helper.make_node("Add", ["a", "c"], ["b"]),
        onnx.helper.make_node("Softmax", ["b"], ["s"]),
        onnx.helper.make_node("MatMul", ["s", "x"], ["y"]),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        made,
        "g",
        [value("x", onnx.TensorProto.FLOAT, [4, 4])],
        [value("y", onnx.TensorProto.FLOAT, [4, 4])],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    proto = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    options = session.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "p")
    options.graph_optimization_level = session.GraphOptimizationLevel.ORT_DISABLE_ALL
    running = session.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    running.run(None, {"x": np.zeros((4, 4), np.float32)})
    events = json.loads(Path(running.end_profiling()).read_text())
    names = [e["name"].removesuffix("_kernel_time") for e in events if e["cat"] == "Node"]
    nodes = tuple(
        Node(f"node_of_{n.output[0]}", n.op_type, n.output[0], tuple(n.input), tuple(n.output))
        for n in made
    )
    found = resolve([RawLayer(n) for n in names], NodeGraph(nodes, ("x",), ("y",)))
    assert [r.modules for r in found] == [("a",), ("b",), ("s",), ("y",)]
    # Another operator at that place, a node that has a name: it is another file's.
    other = NodeGraph((nodes[2], *nodes), ("x",), ("y",))
    assert resolve([RawLayer("MatMul_0")], other)[0].rule == "unresolved"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("fc/MatMul_quant", "fc"),
        ("fc_out_QuantizeLinear", "fc"),
        ("fc_out_DequantizeLinear_Output_token_3", "fc"),
        ("fc.weight_DequantizeLinear", "fc"),
        ("x_QuantizeLinear", "fc"),
    ],
)
def test_a_quantised_models_nodes_are_found_in_the_original_ones(name, module):
    g = NodeGraph(
        nodes=(
            Node("fc/MatMul", "MatMul", "fc", ("x", "fc.weight"), ("fc_out",)),
            Node("act/Relu", "Relu", "act", ("fc_out",), ("y",)),
        ),
        inputs=("x",),
        outputs=("y",),
        initializers=frozenset({"fc.weight"}),
    )
    found = resolve([RawLayer(name)], g)[0]
    assert found.modules == (module,)
    assert found.rule == ("name" if name.endswith("_quant") else "carrier")
