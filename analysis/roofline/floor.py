"""Floors of an engine's layers: the least work of their nodes, and how far the measured time is.

The measured time is the layer's median of a capture; the floor's is the slowest of FLOP and DRAM
traffic at the device's peaks (`time_ns`). Layers that only move data for others
(rule carrier, copies) do none of their nodes' work and have no floor.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ...core import documents
from ...core import nodes as nodes_
from ...core.nodes import Node, NodeGraph
from ...core.own_ranges import MODULE
from ...engines.inductor_provenance import RULE as PROVENANCE
from ...engines.inductor_provenance import is_extern
from ..model.layer import MOVEMENT, Floor
from .devices import Device, of_attributes, of_name
from .flop import DATALESS, PARTS, PRODUCTS, VIEWS, Shapes, added, flop, product

# The names that `engines.workers.cuda_driver` gives the attributes, and CUDA's.
_ATTRIBUTES = {
    "capability_major": "compute_capability_major",
    "capability_minor": "compute_capability_minor",
    "multiprocessors": "multiprocessor_count",
    "clock_khz": "clock_rate",
    "memory_clock_khz": "memory_clock_rate",
    "memory_bus_bits": "global_memory_bus_width",
    "l2_bytes": "l2_cache_size",
}

_REDUCED = {"fp16": "float16", "bf16": "bfloat16"}


def of_ranges(graph: nodes_.NodeGraph, shapes: Shapes | None) -> dict[str, Floor]:
    """The floor of each module's own ONNX nodes, by the label of launches in the module's range."""
    own: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes:
        if node.module is not None:
            own[node.module].append(node.name)
    found = {}
    for module, names in own.items():
        least = floor(names, graph, shapes)
        if least is not None:
            found[MODULE + module] = least
    return found


def of_layers(
    layers: pa.Table, graph: nodes_.NodeGraph, shapes: Shapes, device: Device | None
) -> dict[str, Floor]:
    """Floors of the rows of a `layers` table by label, of those with nodes that compute."""
    rows = [r for r in layers.to_pylist() if r["kind"] != MOVEMENT and r["nodes"]]
    calls = _calls_of_products(rows, graph)
    found = {}
    for row in rows:
        least = _least(row, calls, graph, shapes)
        if least is not None and (least.flop is not None or least.bytes is not None):
            found[row["layer"]] = _against(least, row, device)
    return found


def _calls_of_products(rows: Iterable[Mapping[str, Any]], graph: NodeGraph) -> dict[str, str]:
    """Products (attention, too) that several of inductor's kernels list -> the one call into a
    library that computes it, the others prepare it; "" where it is computed in parts."""
    listing: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        for name in row["nodes"] if row["rule"] == PROVENANCE else ():
            if name in graph.by_name and graph.by_name[name].op in PRODUCTS:
                listing[name].append(row["layer"])
    calls = {n: [x for x in of if is_extern(x)] for n, of in listing.items() if len(of) > 1}
    return {name: of[0] if len(of) == 1 else "" for name, of in calls.items()}


def _least(
    row: Mapping[str, Any], calls: Mapping[str, str], graph: NodeGraph, shapes: Shapes
) -> Floor | None:
    """The least work of a layer, without products that another layer computes: a weight that is
    padded for one need not be. None where it computes a part of one: which is not known."""
    own = [n for n in row["nodes"] if calls.get(n, row["layer"]) in ("", row["layer"])]
    if any(calls.get(n) == "" for n in own):
        return None
    return floor(own, graph, shapes) if own else Floor(0.0, 0.0, 0.0)


def in_precision(shapes: Shapes, precision: str) -> Shapes:
    """The tensors as an engine of that precision may keep them: a weakly typed fp16 engine is
    built from an fp32 file."""
    wanted = _REDUCED.get(precision)
    if wanted is None:
        return shapes
    return {k: (wanted if d == "float32" else d, s) for k, (d, s) in shapes.items()}


def device_of(about: documents.Device) -> Device | None:
    """The device that a latency.json names, by its attributes where it has them; None on a CPU."""
    if about.name is None:
        return None
    attributes = {ours: getattr(about, theirs) for theirs, ours in _ATTRIBUTES.items()}
    if all(v or k.endswith("minor") for k, v in attributes.items()):
        return of_attributes(about.name, {k: float(v or 0) for k, v in attributes.items()})
    return of_name(about.name)


def _against(least: Floor, row: Mapping[str, Any], device: Device | None) -> Floor:
    """The floor with its time on the device, and the layer's measured time over that."""
    ns = None if device is None else time_ns(least, device, tf32=row["precision"] != "fp32")
    if device is None or ns is None:
        return least
    at_memory = None
    if least.bytes is not None and device.bandwidth:
        at_memory = least.bytes / device.bandwidth * 1e9
    measured = row["median_ns"]
    times = measured / ns if measured is not None and ns else None
    return replace(least, ns=ns, times=times, limit="bytes" if at_memory == ns else "FLOP")


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
