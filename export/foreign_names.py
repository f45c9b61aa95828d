"""The module that a node of somebody else's ONNX file tells: by its name, a weight, its output.

Optimisers and quantisers rename nodes and keep what they were made of in the name:
``/h.0/fc/MatMul/MatMulAddFusion``, ``/act/Mul/QuickGeluFusion/``, ``/conv/Conv_output_0_nchwc``
(ONNX Runtime), ``/conv/Conv_quant``, ``/act/Relu_output_0_QuantizeLinear`` (its quantiser). Where
the name tells nothing a weight does (``layer1.0.conv1.weight``), or the output's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from ..core.module_paths import common_parent
from ..core.resolve.operator_kinds import MOVEMENT, QUANTISING
from .naming import carried, neighbours

# What tools put after an operator, and as further parts of a name.
_AFTER = (
    r"(?:_\d+)*(?:_output_\d+)?"
    r"(?:_nchwc|_token_\d+|_quant|_(?:Q|Deq)uantizeLinear(?:_Output)?|_scale|_zero_point)*"
)
_FUSION = re.compile(r"\w*Fusion\w*")
_PARAMETER = re.compile(
    r"(\w+(?:\.\w+)*)\.(?:\w+_)?(?:weight|bias|gamma|beta|running_(?:mean|var))(?:_\w+)?"
)


def module(node: Any) -> str | None:
    """The module that a node of `onnx_ir` tells; None where it tells none."""
    found = by_name(node.name or "", node.op_type)
    if found is None:
        found = _by_weight(node)
    outputs = (by_name(v.name or "", node.op_type) for v in node.outputs)
    return next((m for m in outputs if m is not None), None) if found is None else found


def by_name(name: str, op: str) -> str | None:
    """The module in a name that is a path of modules and an operator, its own or the one that it
    was made of; None where it is no such name.

    >>> by_name("/net/net.0/Gemm_1", "Gemm"), by_name("h.0/Add", "Add"), by_name("Add_3", "Add")
    ('net.0', 'h.0', None)
    >>> by_name("/h.0/fc/MatMul/MatMulAddFusion", "Gemm")
    'h.0.fc'
    """
    *path, last = name.rstrip("/").split("/")
    while path and _FUSION.fullmatch(last) and len(path) > 1:
        *path, last = path
    operator = re.match(r"[A-Z][A-Za-z0-9]*", last)
    if not path or operator is None:
        return None
    if operator[0] != op and operator[0] not in _operators():
        return None
    if not re.fullmatch(_AFTER, last[operator.end() :]):
        return None
    modules: list[str] = []
    for part in filter(None, path):
        if modules and part.startswith(f"{modules[-1]}."):
            modules[-1] = part
        else:
            modules.append(part)
    return ".".join(modules)


@cache
def _operators() -> frozenset[str]:
    from onnx.defs import get_all_schemas

    return frozenset(schema.name for schema in get_all_schemas())


def _by_weight(node: Any) -> str | None:
    """The module of the first weight that this node alone reads, also through what converts it."""
    for value in node.inputs:
        if value is None or len(value.uses()) > 1:
            continue
        maker = value.producer()
        if maker is None:
            match = _PARAMETER.fullmatch(value.name or "") if value.is_initializer() else None
            found = match and match[1]
        else:
            converts = maker.op_type in MOVEMENT | QUANTISING
            fixed = all(v is None or v.is_initializer() for v in maker.inputs)
            found = _by_weight(maker) if converts and fixed else None
        if found:
            return found
    return None


def between(nodes: list[Any], known: Mapping[Any, str]) -> dict[Any, str]:
    """A module for every node that tells one, or else lies between such nodes in the dataflow.

    What only moves or converts data belongs to what reads it. Any other node lies in the module
    around those before it and those behind it; where there are none on one side, in the other's.
    """
    consumers, producers = neighbours(nodes)
    ahead = carried(nodes[::-1], known, consumers)
    behind = carried(nodes, known, producers)
    modules = dict(known)
    for node in nodes:
        found = [side[node] for side in (ahead, behind) if node in side]
        if node not in known and found:
            moves = node.op_type in MOVEMENT | QUANTISING
            modules[node] = found[0] if moves else common_parent(found)
    return modules
