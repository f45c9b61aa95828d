"""Types and shapes of every tensor of an exported model, for nodes.json.

torch's exporter writes them on every value. A conversion to another opset leaves some out: these
come from ONNX's shape inference, which runs on the graph without its weights, so that a model
above 2 GB is no exception.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .naming import all_nodes


def of(model: Any) -> dict[str, dict[str, Any]]:
    """``{name: {"dtype": "float16", "shape": [1, 512, 768]}}`` of an `onnx_ir.Model`.

    Graph inputs, initializers and outputs of nodes, in this order. A dimension that is open is
    null; a tensor whose type or rank nobody knows is absent. Types have NumPy's names (bfloat16
    and narrower ones those of ml_dtypes). Shape inference completes the values of `model` where
    some are unknown.
    """
    if any(v.shape is None or v.dtype is None for v in _values(model)):
        from onnx_ir.passes.common import ShapeInferencePass

        ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
    return {
        v.name: {"dtype": v.dtype.numpy().name, "shape": [_size(d) for d in v.shape]}
        for v in _values(model)
        if v.shape is not None and v.dtype is not None
    }


def _values(model: Any) -> Iterator[Any]:
    """Every tensor that has a name."""
    yield from (v for v in model.graph.inputs if v.name)
    yield from model.graph.initializers.values()
    for node in all_nodes(model.graph):
        yield from (v for v in node.outputs if v.name)


def _size(dimension: Any) -> int | None:
    return dimension if isinstance(dimension, int) else None
