"""The least work that ONNX nodes ask for: FLOP of their operators, bytes in and out once.

A fused layer keeps what flows between its nodes on the chip: only tensors that enter or leave the
set of nodes count, each once. FLOP: MatMul and Gemm 2MNK; Softmax 5 an element (maximum,
difference, exponential, sum, quotient); LayerNormalization 8 (mean, difference, square, variance,
product, scale, shift, with the sums); elementwise and reductions 1 an element; moving data none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layerline.core.nodes import Node, NodeGraph

from .devices import Device

# dtype and dims of a tensor: ("float16", (1, 128, 768)).
Shapes = Mapping[str, tuple[str, Sequence[int]]]

_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
_TENSOR = {"float16": "fp16", "bfloat16": "bf16"}
_VIEWS = frozenset(
    [
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Identity",
        "Flatten",
        "Shape",
        "Constant",
        "ConstantOfShape",
    ]
)
# What reads no more of its first input than it writes.
_PARTS = frozenset(["Gather", "GatherElements", "GatherND", "Slice", "Split"])
_MOVES = (
    _VIEWS
    | _PARTS
    | frozenset(["Transpose", "Concat", "Cast", "Expand", "Pad", "Tile", "Where", "Range"])
)
_ELEMENTWISE = frozenset(
    [
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Sqrt",
        "Exp",
        "Log",
        "Tanh",
        "Erf",
        "Sigmoid",
        "Relu",
        "Neg",
        "Abs",
        "Reciprocal",
        "Max",
        "Min",
        "Not",
        "And",
        "Or",
        "Equal",
        "Greater",
        "Less",
        "GreaterOrEqual",
        "LessOrEqual",
        "IsNaN",
        "Sin",
        "Cos",
        "Gelu",
        "Softplus",
        "Clip",
        "Mod",
    ]
)
_REDUCTIONS = frozenset(["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"])
_PER_ELEMENT = {"Softmax": 5, "LogSoftmax": 6, "LayerNormalization": 8}


@dataclass(frozen=True)
class Floor:
    """FLOP and DRAM bytes that cannot be avoided; null where a shape or operator is unknown.

    `matmul` is the part of `flop` in matrix products, `dtype` what these are computed in.
    """

    flop: float | None
    bytes: float | None
    matmul: float | None = None
    dtype: str | None = None


def shapes_of(document: Any) -> dict[str, tuple[str, tuple[int, ...]]] | None:
    """``"tensors": {name: {"dtype", "shape"}}`` of a nodes.json; null where it has none.

    Tensors with an open dimension are left out.
    """
    tensors = document.get("tensors") if isinstance(document, dict) else None
    if not isinstance(tensors, dict):
        return None
    found = {}
    for name, what in tensors.items():
        shape = what.get("shape") if isinstance(what, dict) else None
        if isinstance(shape, list) and all(type(d) is int for d in shape):
            found[name] = (str(what.get("dtype")), tuple(shape))
    return found


def floor(names: Iterable[str] | None, graph: NodeGraph, shapes: Shapes | None) -> Floor | None:
    """The floor of the nodes named; null without nodes or shapes."""
    if names is None or shapes is None:
        return None
    nodes = [graph.by_name[n] for n in names if n in graph.by_name]
    if not nodes:
        return None
    parts = [flop(n, shapes) for n in nodes]
    products = [(p, n) for p, n in zip(parts, nodes, strict=True) if n.op in ("MatMul", "Gemm")]
    dtypes = {shapes[n.inputs[0]][0] for _, n in products if n.inputs[0] in shapes}
    return Floor(
        _sum(parts),
        _bytes(nodes, graph, shapes),
        _sum([p for p, _ in products]),
        dtypes.pop() if len(dtypes) == 1 else None,
    )


def flop(node: Node, shapes: Shapes) -> float | None:
    """FLOP of one node; null for an operator or a shape that is not known."""
    if node.op in _MOVES:
        return 0.0
    out = _elements(node.outputs[0], shapes) if node.outputs else None
    if node.op in ("MatMul", "Gemm"):
        return _product(node, shapes, out)
    if node.op in _ELEMENTWISE:
        return out
    if node.op in _REDUCTIONS:
        return _elements(node.inputs[0], shapes)
    if node.op in _PER_ELEMENT and out is not None:
        return _PER_ELEMENT[node.op] * out
    return None


def time_ns(work: Floor, device: Device) -> float | None:
    """The least time in ns: the slowest of matrix products, the other FLOP and memory.

    fp32 products count at the rate of the ordinary cores, unless tensor cores take TF32 and are
    faster: a floor is what the device could do.
    """
    if work.flop is None or work.bytes is None or work.matmul is None:
        return None
    if work.dtype in _TENSOR:
        rate = device.tensor.get(_TENSOR[work.dtype])
    else:
        rate = max(filter(None, (device.fp32, device.tensor.get("tf32"))), default=None)
    needs = [
        (work.matmul, rate),
        (work.flop - work.matmul, device.fp32),
        (work.bytes, device.bandwidth),
    ]
    if any(amount and not per_second for amount, per_second in needs):
        return None
    return max(amount / per_second * 1e9 for amount, per_second in needs if per_second)


def _product(node: Node, shapes: Shapes, out: float | None) -> float | None:
    first = shapes.get(node.inputs[0])
    if out is None or first is None or not first[1]:
        return None
    if node.op == "MatMul":
        return 2.0 * out * first[1][-1]
    # Gemm: A may be transposed, B as well, and the attributes are not known here. K is what A
    # has beside M, the rows of the output.
    rows = shapes[node.outputs[0]][1][0]
    total = math.prod(first[1])
    if not rows or total % rows:
        return None
    bias = out if len(node.inputs) > 2 and node.inputs[2] else 0.0
    return 2.0 * out * (total // rows) + bias


def _bytes(nodes: Sequence[Node], graph: NodeGraph, shapes: Shapes) -> float | None:
    inside = {n.name for n in nodes}
    if all(n.op in _VIEWS for n in nodes):
        return 0.0
    read: dict[str, float | None] = {}
    written: dict[str, float | None] = {}
    for node in nodes:
        for i, tensor in enumerate(node.inputs):
            producer = graph.producer.get(tensor)
            if not tensor or (producer is not None and producer.name in inside):
                continue
            whole = _size(tensor, shapes)
            if node.op in _PARTS and i == 0:
                sizes = [_size(t, shapes) for t in node.outputs if t]
                part = _sum(sizes)
                whole = part if whole is None or part is None else min(part, whole)
            # A shape or an axis: constants of a few bytes that live in the kernel's code.
            elif node.op in _VIEWS and i > 0:
                continue
            before = read.get(tensor)
            read[tensor] = whole if before is None or whole is None else max(before, whole)
        for tensor in filter(None, node.outputs):
            users = graph.consumers.get(tensor, ())
            if tensor in graph.outputs or any(u.name not in inside for u in users):
                written[tensor] = _size(tensor, shapes)
    return _sum([*read.values(), *written.values()])


def _elements(tensor: str, shapes: Shapes) -> float | None:
    known = shapes.get(tensor)
    return None if known is None else float(math.prod(known[1]))


def _size(tensor: str, shapes: Shapes) -> float | None:
    known = shapes.get(tensor)
    if known is None or known[0] not in _BYTES:
        return None
    return float(math.prod(known[1]) * _BYTES[known[0]])


def _sum(values: Sequence[float | None]) -> float | None:
    return None if any(v is None for v in values) else float(sum(v for v in values if v))
