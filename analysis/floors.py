"""Floors of an engine's layers: the least work of their nodes, and how far the measured time is.

The measured time is the layer's median of a capture; the floor's is the slowest of FLOP and DRAM
traffic at the device's peaks (`roofline_floor.time_ns`). Layers that only move data for others
(rule carrier, copies) do none of their nodes' work and have no floor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..core import nodes as nodes_
from ..core.own_ranges import MODULE
from ..core.run import Run
from . import roofline_floor
from .devices import Device, of_attributes, of_name
from .engine_captures import nodes_file
from .layers import MOVEMENT
from .roofline_flop import Shapes
from .run_files import optional

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


@dataclass(frozen=True)
class LayerFloor:
    """Least FLOP, bytes and ns of a layer, and its measured median over the ns; null is unknown.

    `limit`: what the least time is of, "FLOP" or "bytes".
    """

    flop: float | None
    bytes: float | None
    ns: float | None
    times: float | None
    limit: str | None


def of_engine(run: Run, precision: str, backend: str, layers: pa.Table) -> dict[str, LayerFloor]:
    """Floors by layer label; empty where the export has no shapes (an older one)."""
    name = f"{precision}.{backend}"
    path = nodes_file(run, name, precision)
    export = _export(path, precision)
    if export is None:
        return {}
    device = device_of(optional(run.file("captures", f"{name}.latency.json")))
    return of_layers(layers, *export, device)


def of_eager(run: Run, precision: str) -> dict[str, LayerFloor]:
    """Floors of an eager inference by the label of launches in a module's range: FLOP and bytes of
    the module's own ONNX nodes. Empty where the export has no shapes."""
    export = _export(run.file("export", "nodes.json"), precision)
    if export is None:
        return {}
    return {
        name: LayerFloor(least.flop, least.bytes, None, None, None)
        for name, least in of_ranges(*export).items()
    }


def of_ranges(graph: nodes_.NodeGraph, shapes: Shapes | None) -> dict[str, roofline_floor.Floor]:
    """The floor of each module's own ONNX nodes, by the label of launches in the module's range."""
    own: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes:
        if node.module is not None:
            own[node.module].append(node.name)
    found = {}
    for module, names in own.items():
        least = roofline_floor.floor(names, graph, shapes)
        if least is not None:
            found[MODULE + module] = least
    return found


def _export(path: Path, precision: str) -> tuple[nodes_.NodeGraph, Shapes] | None:
    """The nodes of a nodes.json and their tensors in `precision`; null where it has no shapes."""
    document = optional(path)
    shapes = roofline_floor.shapes_of(document)
    if shapes is None:
        return None
    return nodes_.parse(document, path), in_precision(shapes, precision)


def of_layers(
    layers: pa.Table, graph: nodes_.NodeGraph, shapes: Shapes, device: Device | None
) -> dict[str, LayerFloor]:
    """Floors of the rows of a `layers` table by label, of those with nodes that compute."""
    found = {}
    for row in layers.to_pylist():
        if row["kind"] == MOVEMENT or not row["nodes"]:
            continue
        least = roofline_floor.floor(row["nodes"], graph, shapes)
        if least is not None and (least.flop is not None or least.bytes is not None):
            found[row["layer"]] = _against(least, row, device)
    return found


def in_precision(shapes: Shapes, precision: str) -> Shapes:
    """The tensors as an engine of that precision may keep them: a weakly typed fp16 engine is
    built from an fp32 file."""
    wanted = _REDUCED.get(precision)
    if wanted is None:
        return shapes
    return {k: (wanted if d == "float32" else d, s) for k, (d, s) in shapes.items()}


def device_of(latency: Mapping[str, Any]) -> Device | None:
    """The device that a latency.json names, by its attributes where it has them; null on a CPU."""
    about = (latency.get("facts") or {}).get("device")
    if not isinstance(about, Mapping) or not isinstance(about.get("name"), str):
        return None
    known = {ours: about.get(theirs) for theirs, ours in _ATTRIBUTES.items()}
    if all((isinstance(v, int) and v > 0) or k.endswith("minor") for k, v in known.items()):
        return of_attributes(about["name"], {k: float(v or 0) for k, v in known.items()})
    return of_name(about["name"])


def _against(
    least: roofline_floor.Floor, row: Mapping[str, Any], device: Device | None
) -> LayerFloor:
    if device is None:
        return LayerFloor(least.flop, least.bytes, None, None, None)
    ns = roofline_floor.time_ns(least, device, tf32=row["precision"] != "fp32")
    at_memory = None
    if least.bytes is not None and device.bandwidth:
        at_memory = least.bytes / device.bandwidth * 1e9
    limit = None if ns is None else "bytes" if at_memory == ns else "FLOP"
    measured = row["median_ns"]
    times = measured / ns if measured is not None and ns else None
    return LayerFloor(least.flop, least.bytes, ns, times, limit)
