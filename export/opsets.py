"""ONNX opsets: which are offered, which an engine's builder computes rightly, and the way from 18
down to 17.

torch's exporter writes 18 and newer; asked for less, it converts and, where that fails, quietly
keeps 18. ONNX's own converter has no way down for Split and leaves attributes that opset 17 does
not know, and it drops metadata. So nodes are named at opset 18 and changed here, one by one,
against the schemas of both opsets; what has no equal in 17 is refused.
Source of the formulas: onnx/docs/Changelog.md, version 18 of the default domain. What the builders
make of opsets: docs/engines/opsets.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from ..core.errors import InputError
from .naming import all_nodes

OFFERED = (17, 18, 20)
KNOWS_18 = 10  # the first TensorRT that reads what opset 18 changed
STRONGLY_TYPED_SINCE = 11  # of TensorRT
_NATIVE = 18  # the lowest that torch's exporter writes
# Changed in 18 by what was added only: without the additions the node means the same in 17.
_EXTENDED = {"Pad", "ScatterElements", "ScatterND"}


def check_offered(opset: int) -> None:
    """Raises InputError, with the reason, for an opset that cannot be written as asked."""
    if opset in OFFERED:
        return
    if opset < min(OFFERED):
        why = "layer normalisation has no operator before 17, so its nodes could not be named"
    elif opset > max(OFFERED):
        why = "torch's exporter has no translations of its own above 20 that were checked"
    else:
        why = "it was not checked against ONNX Runtime"
    raise InputError(
        f"opset {opset} is not offered: {why}",
        fix=f"choose from {', '.join(map(str, OFFERED))}",
    )


def computed_by(backend: str, version: str | None) -> tuple[int, ...]:
    """The opsets of `OFFERED` that a backend parses as ONNX means them, the best first.

    `version` of TensorRT; None is not known, and then the opset that all versions parse.
    """
    if backend == "tensorrt" and (version is None or major(version) < KNOWS_18):
        return (17,)
    return (18, 17, 20)


def typed_by_file(backend: str, version: str | None) -> bool:
    """Whether an engine's precision is that of the types in its ONNX file. TensorRT before 11
    builds every precision from fp32.onnx. `version` as above."""
    return backend != "tensorrt" or (version is not None and major(version) >= STRONGLY_TYPED_SINCE)


def major(version: str) -> int:
    """The first number of a version, 8 of 8.6.1; 0 where it begins with none."""
    first = version.partition(".")[0]
    return int(first) if first.isdecimal() else 0


def native(opset: int) -> int:
    """The opset to ask torch's exporter for."""
    return max(opset, _NATIVE)


def lower_to_17(model: Any) -> int:
    """Rewrite an `onnx_ir.Model` of opset 18 to 17, in place; gives the number of nodes changed.

    Names and order of the nodes stay. Raises InputError naming a node that 17 cannot express.
    """
    from onnx import defs

    changed = 0
    for node in all_nodes(model.graph):
        if node.domain not in ("", "ai.onnx"):
            continue
        new = defs.get_schema(node.op_type, 18, "")
        if not defs.has(node.op_type, max_inclusive_version=17):
            _refuse(node, "the operator is new in 18")
        old = defs.get_schema(node.op_type, 17, "")
        if new.since_version == old.since_version:
            continue
        if "axes" in old.attributes and "axes" not in new.attributes:
            _lower_reduction(node)
        elif node.op_type == "Split":
            _lower_split(node, model)
        elif node.op_type not in _EXTENDED:
            _refuse(node, "the operator changed in 18")
        for reason in _not_in(old, node):
            _refuse(node, reason)
        changed += 1
    model.graph.opset_imports[""] = 17
    return changed


def _refuse(node: Any, why: str) -> NoReturn:
    raise InputError(
        f"{node.name}: opset 17 has no {node.op_type} like this ({why})",
        fix="use --opset 18 with TensorRT 10 or newer, or ONNX Runtime",
    )


def _not_in(schema: Any, node: Any) -> Iterator[str]:
    if len(node.inputs) > schema.max_input:
        yield f"{len(node.inputs)} inputs"
    for name in node.attributes:
        if name not in schema.attributes:
            yield f"attribute {name}"
    reduction = node.attributes.get("reduction")
    if reduction is not None and reduction.as_string() in ("max", "min"):
        yield f"reduction {reduction.as_string()}"


def _constant(value: Any) -> list[int] | None:
    """A constant tensor of integers as a list; None when it is computed or absent."""
    tensor = None if value is None else value.const_value
    return None if tensor is None else [int(v) for v in tensor.numpy().reshape(-1)]


def _lower_reduction(node: Any) -> None:
    """The axes are an input in 18, an attribute in 17. No axes means all, or none by flag."""
    import onnx_ir as ir

    flag = node.attributes.pop("noop_with_empty_axes", None)
    given = len(node.inputs) > 1 and node.inputs[1] is not None
    axes = _constant(node.inputs[1]) if given else []
    if axes is None:
        _refuse(node, "its axes are computed")
    if not axes and flag is not None and flag.as_int():
        _refuse(node, "noop_with_empty_axes")
    node.resize_inputs(1)
    if axes:
        node.attributes["axes"] = ir.AttrInt64s("axes", axes)


def _lower_split(node: Any, model: Any) -> None:
    """18 has num_outputs, the last part smaller; 17 splits equally, or by sizes as an input."""
    import numpy as np
    import onnx_ir as ir

    count = node.attributes.pop("num_outputs", None)
    if count is None:
        return
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    shape = node.inputs[0].shape
    size = None if shape is None else shape[axis]
    if not isinstance(size, int):
        _refuse(node, "the size it splits is not known")
    parts = count.as_int()
    if size % parts == 0:
        return
    each = -(-size // parts)
    sizes = [each] * (parts - 1) + [size - each * (parts - 1)]
    name = f"{node.name}/split"
    value = ir.Value(name=name, const_value=ir.tensor(np.array(sizes, np.int64), name=name))
    value.shape, value.type = ir.Shape([parts]), ir.TensorType(ir.DataType.INT64)
    model.graph.initializers[name] = value
    node.resize_inputs(2)
    node.replace_input_with(1, value)
