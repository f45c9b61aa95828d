"""Types and shapes of tensors in nodes.json: complete, open dimensions null, unknown absent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ir = pytest.importorskip("onnx_ir")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from layerline.export import onnx_export  # noqa: E402


def made(nodes: list[Any], x: list[Any], *constants: tuple[str, Any]) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, x)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(v, k) for k, v in constants],
    )
    return ir.from_proto(
        helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("elsewhere", 1)],
            ir_version=8,
        )
    )


def test_what_the_exporter_left_out_is_inferred_through_the_values_of_shapes() -> None:
    """768 columns by a weight of 768 x 3072, then a reshape whose target is a constant."""
    weight = ("w", np.zeros((768, 3072), np.float16))
    target = ("to", np.array([1, -1, 64], np.int64))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Reshape", ["m", "to"], ["r"]),
        helper.make_node("IsNaN", ["r"], ["y"]),
    ]
    model = made(nodes, [1, 512, 768], weight, target)
    assert onnx_export.tensors(model) == {
        "x": {"dtype": "float16", "shape": [1, 512, 768]},
        "w": {"dtype": "float16", "shape": [768, 3072]},
        "to": {"dtype": "int64", "shape": [3]},
        "m": {"dtype": "float16", "shape": [1, 512, 3072]},
        "r": {"dtype": "float16", "shape": [1, 512 * 3072 // 64, 64]},
        "y": {"dtype": "bool", "shape": [1, 512 * 3072 // 64, 64]},
    }
    # The weights are where they were.
    assert set(model.graph.initializers) == {"w", "to"}
    assert [v.name for v in model.graph.inputs] == ["x"]
    assert model.graph.initializers["w"].const_value.nbytes == 768 * 3072 * 2


def test_an_open_dimension_is_null_and_an_operator_of_another_domain_is_absent() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Strange", ["a"], ["y"], domain="elsewhere"),
    ]
    found = onnx_export.tensors(made(nodes, ["batch", 8]))
    assert found["a"] == {"dtype": "float16", "shape": [None, 8]}
    assert "y" not in found
