"""The least work of a side's layers or ranges, from the shapes that the export left."""

from __future__ import annotations

import pyarrow as pa

from ..model.layer import Floor
from ..roofline.floor import device_of, in_precision, of_layers, of_ranges
from .files import EngineFiles, Exported


def of_engine(files: EngineFiles, layers: pa.Table) -> dict[str, Floor]:
    """Floors by layer label; empty where the export has no shapes (an older one)."""
    export = files.exported
    if export is None or export.shapes is None:
        return {}
    shapes = in_precision(export.shapes, files.precision)
    device = None if files.latency is None else device_of(files.latency.facts.device)
    return of_layers(layers, export.graph, shapes, device)


def of_eager(export: Exported | None, precision: str) -> dict[str, Floor]:
    """Floors of an eager inference by the label of launches in a module's range: FLOP and bytes of
    the module's own ONNX nodes. Empty where the export has no shapes."""
    if export is None or export.shapes is None:
        return {}
    return of_ranges(export.graph, in_precision(export.shapes, precision))
