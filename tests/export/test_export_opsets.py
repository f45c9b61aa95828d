"""The way down to opset 17: the same results, the same names, or a refusal that says why."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from layerline.core.errors import InputError
from layerline.export import opsets


def made(nodes: list[Any], outputs: list[str], **constants: list[int]) -> ir.Model:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 7])],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return ir.from_proto(onnx.shape_inference.infer_shapes(model))


def run(model: ir.Model) -> list[Any]:
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.arange(14, dtype=np.float32).reshape(2, 7) - 3
    return list(session.run(None, {"x": x}))


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_split_into_a_number_of_parts_uneven_ones_included(parts: int) -> None:
    names = [f"y{i}" for i in range(parts)]
    node = helper.make_node("Split", ["x"], names, name="a.b/Split", axis=1, num_outputs=parts)
    model = made([node], names)
    before = run(model)
    assert opsets.lower_to_17(model) == 1
    after = run(model)
    assert model.opset_imports[""] == 17
    assert [n.name for n in model.graph] == ["a.b/Split"]
    for left, right in zip(before, after, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax", "ReduceL2"])
@pytest.mark.parametrize("axes", [None, [-1], [0, 1]])
def test_axes_of_a_reduction_become_an_attribute(op: str, axes: list[int] | None) -> None:
    inputs, constants = (["x"], {}) if axes is None else (["x", "axes"], {"axes": axes})
    node = helper.make_node(op, inputs, ["y"], name="m/R", keepdims=1, noop_with_empty_axes=0)
    model = made([node], ["y"], **constants)
    before = run(model)
    opsets.lower_to_17(model)
    np.testing.assert_array_equal(before[0], run(model)[0])


def test_an_operator_that_did_not_change_is_left_alone() -> None:
    model = made([helper.make_node("Relu", ["x"], ["y"], name="m/Relu")], ["y"])
    assert opsets.lower_to_17(model) == 0
    assert run(model)[0].min() == 0


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (helper.make_node("Mish", ["x"], ["y"], name="m/Mish"), "m/Mish.*new in 18"),
        (
            helper.make_node("ReduceMax", ["x"], ["y"], name="m/R", noop_with_empty_axes=1),
            "m/R.*noop_with_empty_axes",
        ),
        (
            helper.make_node("LpPool", ["x"], ["y"], name="m/P", kernel_shape=[2]),
            "m/P.*changed in 18",
        ),
    ],
)
def test_what_17_cannot_express_is_refused_by_name(node: Any, said: str) -> None:
    model = made([node], ["y"]) if node.op_type != "LpPool" else _unchecked(node)
    with pytest.raises(InputError, match=said):
        opsets.lower_to_17(model)


def _unchecked(node: Any) -> ir.Model:
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 7])],
        [helper.make_empty_tensor_value_info("y")],
    )
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))


@pytest.mark.parametrize("opset", [9, 15, 16, 19, 21, 99])
def test_an_opset_that_would_not_be_written_as_asked_is_refused(opset: int) -> None:
    with pytest.raises(InputError, match=f"opset {opset} is not offered.*17, 18, 20"):
        opsets.check_offered(opset)


@pytest.mark.parametrize("opset", opsets.OFFERED)
def test_the_offered_opsets_are_accepted(opset: int) -> None:
    opsets.check_offered(opset)
    assert opsets.native(opset) >= 18
