"""The engine inspector's JSON as layers, for the resolver.

Format: TensorRT developer guide, "Engine Inspector". Detailed layers carry Inputs, Outputs and
Metadata (the ONNX nodes; empty for a ForeignNode of TensorRT 8). An engine that was not built with
detailed verbosity lists plain names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..core.resolve import RawLayer
from ..core.tensor_types import joined, precision_of
from .layers import EngineLayer


def _tensors(layer: Mapping[str, Any], side: str) -> list[Mapping[str, Any]]:
    return [t for t in layer.get(side) or [] if isinstance(t, Mapping)]


def _precision(tensors: list[Mapping[str, Any]]) -> str | None:
    return joined(precision_of(t.get("Format/Datatype") or t.get("Format")) for t in tensors)


def engine_layers(inspector: Mapping[str, Any]) -> list[EngineLayer]:
    """The layers in execution order. Compute precision is not told by the inspector: null."""
    seen: Counter[str] = Counter()
    layers = []
    for entry in inspector.get("Layers") or []:
        layer = {"Name": entry} if isinstance(entry, str) else entry
        name = str(layer.get("Name", ""))
        inputs, outputs = _tensors(layer, "Inputs"), _tensors(layer, "Outputs")
        detailed = "Inputs" in layer
        raw = RawLayer(
            name=name,
            op=layer.get("LayerType"),
            inputs=tuple(str(t.get("Name")) for t in inputs) if detailed else None,
            outputs=tuple(str(t.get("Name")) for t in outputs) if detailed else None,
            metadata=layer.get("Metadata") or None,
            occurrence=seen[name],
        )
        seen[name] += 1
        layers.append(
            EngineLayer(
                raw,
                precision_in=_precision(inputs),
                precision_out=_precision(outputs),
                tactic=layer.get("TacticName") or layer.get("TacticValue"),
            )
        )
    return layers
