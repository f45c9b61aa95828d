"""Faults that are planted into ONNX files of a small Llama, Qwen3 and BERT, and where each lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

NORM, LINEAR, ATTENTION = (
    "model.layers.1.post_attention_layernorm",
    "model.layers.0.mlp.up_proj",
    "model.layers.0.self_attn",
)
Plant = Callable[[Any], None]


def nodes_of(model: Any, module: str, *ops: str) -> list[Any]:
    return [n for n in model.graph.node if n.op_type in ops and n.name.rpartition("/")[0] == module]


def weight_of(model: Any, module: str) -> Any:
    (product,) = nodes_of(model, module, "MatMul", "Gemm")
    (stored,) = [i for i in model.graph.initializer if i.name in product.input and len(i.dims) == 2]
    return stored


def through(model: Any, node: Any, at: int, *more: Any) -> None:
    """Let input `at` of a node go through other nodes first, which read "x" and write "y"."""
    before = list(model.graph.node)
    place = before.index(node)
    for n in more:
        n.input[:] = [node.input[at] if t == "x" else t for t in n.input]
        n.output[:] = [f"{node.name}.planted" if t == "y" else t for t in n.output]
    node.input[at] = f"{node.name}.planted"
    ordered = [*before[:place], *more, *before[place:]]
    copies = [type(n).FromString(n.SerializeToString()) for n in ordered]
    model.graph.ClearField("node")
    model.graph.node.extend(copies)


def axes_ignored(model: Any) -> None:
    """What TensorRT 8.6 makes of axes that are an input: the mean of everything."""
    (mean,) = nodes_of(model, NORM, "ReduceMean")
    del mean.attribute[:]
    mean.attribute.append(helper.make_attribute("keepdims", 1))


def weight_swapped(model: Any) -> None:
    stored = weight_of(model, LINEAR)
    values = numpy_helper.to_array(stored)
    stored.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values[::-1]), stored.name))


def not_a_number(model: Any) -> None:
    stored = weight_of(model, "model.layers.1.self_attn.v_proj")
    values = numpy_helper.to_array(stored).copy()
    values[3, 5] = np.nan
    stored.CopyFrom(numpy_helper.from_array(values, stored.name))


def all_masked(model: Any) -> None:
    (softmax,) = nodes_of(model, ATTENTION, "Softmax")
    kind = next(
        (v.type.tensor_type.elem_type for v in model.graph.value_info if v.name in softmax.input),
        TensorProto.FLOAT,
    )
    scalar = numpy_helper.from_array(
        np.array(-np.inf, helper.tensor_dtype_to_np_dtype(kind)), "planted.mask"
    )
    model.graph.initializer.append(scalar)
    through(model, softmax, 0, helper.make_node("Add", ["x", "planted.mask"], ["y"], "planted/Add"))


def overflow(model: Any) -> None:
    """Squares of activations of 2,000 and more in half precision, which ends at 65,504."""
    (mean,) = nodes_of(model, NORM, "ReduceMean")
    scale = numpy_helper.from_array(np.array(1e12, np.float32), "planted.scale")
    model.graph.initializer.append(scale)
    half = helper.make_node("Cast", ["a"], ["b"], "planted/Half", to=TensorProto.FLOAT16)
    whole = helper.make_node("Cast", ["b"], ["c"], "planted/Float", to=TensorProto.FLOAT)
    through(
        model, mean, 0,
        helper.make_node("Mul", ["x", "planted.scale"], ["a"], "planted/Mul"), half, whole,
        helper.make_node("Div", ["c", "planted.scale"], ["y"], "planted/Div"),
    )  # fmt: skip


def transposed(module: str) -> Plant:
    """A square weight the wrong way round. With random weights and few heads attention weighs all
    positions about alike, so the outputs hardly tell."""

    def plant(model: Any) -> None:
        stored = weight_of(model, module)
        values = numpy_helper.to_array(stored)
        assert values.shape[0] == values.shape[1]
        stored.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values.T), stored.name))

    return plant


QUERIES, BERT_QUERIES = "model.layers.1.self_attn.q_proj", "encoder.layer.1.attention.self.query"


def bert_weight_swapped(model: Any) -> None:
    stored = weight_of(model, "encoder.layer.1.intermediate.dense")
    values = numpy_helper.to_array(stored)
    stored.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values[:, ::-1]), stored.name))


# Model, precision, fault, module.
CASES: list[tuple[str, str, Plant, str]] = [
    ("llama", "fp32", axes_ignored, NORM),
    ("llama", "fp32", weight_swapped, LINEAR),
    ("llama", "fp16", weight_swapped, LINEAR),
    ("llama", "fp16", overflow, NORM),
    ("llama", "fp32", not_a_number, "model.layers.1.self_attn.v_proj"),
    ("llama", "fp32", all_masked, ATTENTION),
    ("bert", "fp32", bert_weight_swapped, "encoder.layer.1.intermediate.dense"),
    # Within the limits of the outputs: only the modules tell.
    ("llama", "fp16", axes_ignored, NORM),
    ("llama", "fp16", transposed(QUERIES), QUERIES),
    ("qwen3", "fp16", transposed(QUERIES), QUERIES),
    ("bert", "fp16", transposed(BERT_QUERIES), BERT_QUERIES),
]
