"""The least work of a side's layers or ranges, from the shapes that the export left."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ...core import nodes as nodes_
from ...core.run import Run
from ..model.side import LayerFloor
from ..roofline import floor
from ..roofline.floor import device_of, in_precision, of_layers, of_ranges
from ..roofline.flop import Shapes
from ..rundir.files import optional
from .engine_ops import nodes_file


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


def _export(path: Path, precision: str) -> tuple[nodes_.NodeGraph, Shapes] | None:
    """The nodes of a nodes.json and their tensors in `precision`; null where it has no shapes."""
    document = optional(path)
    shapes = floor.shapes_of(document)
    if shapes is None:
        return None
    return nodes_.parse(document, path), in_precision(shapes, precision)
