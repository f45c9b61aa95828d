"""The least work that ONNX nodes ask for: FLOP of their operators, bytes in and out once.

FLOP: `roofline_flop`, of all nodes of a layer together; null where one is.

Bytes: each tensor that enters or leaves the set of nodes, weights included, once, in the type that
the ONNX file gives it. What flows between the layer's own nodes stays on the chip and does not
count, also where it takes the way of a view (Reshape, Squeeze, ...) that no layer was said to run.
Of a table that is looked up (Gather, Slice, Split) no more is read than is passed on. Several
layers may name one Split: each is charged with the parts that its own nodes read.

No kernel can do with less FLOP. Bytes may be served by the L2 cache, which keeps what an earlier
layer wrote: a layer whose tensors fit there can be faster than the time at DRAM's bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.nodes import Node, NodeGraph
from .devices import Device
from .roofline_flop import DATALESS, PARTS, PRODUCTS, VIEWS, Shapes, added, flop, product

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

    Tensors with an open dimension (null, or negative as some tools write it) are left out.
    """
    tensors = document.get("tensors") if isinstance(document, dict) else None
    if not isinstance(tensors, dict):
        return None
    found = {}
    for name, what in tensors.items():
        shape = what.get("shape") if isinstance(what, dict) else None
        if isinstance(shape, list) and all(type(d) is int and d >= 0 for d in shape):
            found[name] = (str(what.get("dtype")), tuple(shape))
    return found


def floor(names: Iterable[str] | None, graph: NodeGraph, shapes: Shapes | None) -> Floor | None:
    """The floor of the nodes named; null without nodes or shapes, or where one is not known."""
    if names is None or shapes is None:
        return None
    chosen = list(dict.fromkeys(names))
    if not chosen or any(n not in graph.by_name for n in chosen):
        return None
    nodes = [graph.by_name[n] for n in chosen]
    products = [n for n in nodes if n.op in PRODUCTS]
    dtypes = {shapes[n.inputs[0]][0] for n in products if n.inputs and n.inputs[0] in shapes}
    return Floor(
        added([flop(n, shapes) for n in nodes]),
        _Traffic(nodes, graph, shapes).bytes(),
        added([product(n, shapes) for n in products]),
        dtypes.pop() if len(dtypes) == 1 else None,
    )


def time_ns(work: Floor, device: Device, *, tf32: bool = True) -> float | None:
    """The least time in ns: the slowest of matrix products, the other FLOP and DRAM traffic.

    fp32 products count at the rate of the ordinary cores, unless tensor cores take TF32 (`tf32`:
    they may) and are faster: a floor is what the device could do.
    """
    if work.flop is None or work.bytes is None or work.matmul is None:
        return None
    if work.dtype in _TENSOR:
        rate = device.tensor.get(_TENSOR[work.dtype])
    else:
        also = device.tensor.get("tf32") if tf32 else None
        rate = max(filter(None, (device.fp32, also)), default=None)
    needs = [
        (work.matmul, rate),
        (work.flop - work.matmul, device.fp32),
        (work.bytes, device.bandwidth),
    ]
    if any(amount and not per_second for amount, per_second in needs):
        return None
    return max(amount / per_second * 1e9 for amount, per_second in needs if per_second)


class _Traffic:
    """What enters and leaves a set of nodes."""

    def __init__(self, nodes: Sequence[Node], graph: NodeGraph, shapes: Shapes) -> None:
        self._nodes, self._graph, self._shapes = nodes, graph, shapes
        self._inside = {n.name for n in nodes}

    def bytes(self) -> float | None:
        """Bytes of the tensors that cross the border, each once; null where one is unknown."""
        read: dict[str, float | None] = {}
        written: dict[str, float | None] = {}
        for node in self._nodes:
            if node.op in VIEWS or node.op in DATALESS:
                continue
            for tensor, size in self._inputs(node):
                if not self._made_inside(tensor):
                    before = read.get(tensor, 0.0)
                    read[tensor] = None if size is None or before is None else max(before, size)
            for tensor in self._taken(node):
                if self._leaves(tensor):
                    written[tensor] = self._size(tensor)
        return added([*read.values(), *written.values()])

    def _inputs(self, node: Node) -> Iterator[tuple[str, float | None]]:
        """Each input by the tensor behind its views, and the bytes that are read of it."""
        for i, tensor in enumerate(node.inputs):
            if not tensor:
                continue
            size = self._size(tensor)
            if node.op in PARTS and i == 0:
                part = added([self._size(t) for t in self._taken(node)])
                size = part if size is None or part is None else min(part, size)
            yield self._behind_views(tensor), size

    def _behind_views(self, tensor: str) -> str:
        """The tensor that this one is a view of, if not itself."""
        made = self._graph.producer.get(tensor)
        while made is not None and made.op in VIEWS and made.inputs and made.inputs[0]:
            tensor = made.inputs[0]
            made = self._graph.producer.get(tensor)
        return tensor

    def _made_inside(self, tensor: str) -> bool:
        made = self._graph.producer.get(tensor)
        return made is not None and (made.name in self._inside or made.op in DATALESS)

    def _taken(self, node: Node) -> list[str]:
        """The outputs of a node that this layer makes: of a Split those that its own nodes read,
        because other layers may run it for theirs."""
        outputs = [t for t in node.outputs if t]
        own = [t for t in outputs if self._used_inside(t)] if node.op == "Split" else []
        return own or outputs

    def _used_inside(self, tensor: str) -> bool:
        return any(
            u.name in self._inside
            or (
                u.op in VIEWS
                and u.inputs[0] == tensor
                and any(map(self._used_inside, u.outputs[:1]))
            )
            for u in self._users(tensor)
        )

    def _users(self, tensor: str) -> tuple[Node, ...]:
        return self._graph.consumers.get(tensor, ())

    def _leaves(self, tensor: str) -> bool:
        """Whether a tensor is needed outside: a view of it is, only if somebody reads that."""
        if tensor in self._graph.outputs:
            return True
        for user in self._users(tensor):
            if user.op in VIEWS:
                if user.inputs[0] == tensor and any(map(self._leaves, user.outputs[:1])):
                    return True
            elif user.name not in self._inside and user.op not in DATALESS:
                return True
        return False

    def _size(self, tensor: str) -> float | None:
        known = self._shapes.get(tensor)
        if known is None or known[0] not in _BYTES:
            return None
        return float(math.prod(known[1]) * _BYTES[known[0]])
