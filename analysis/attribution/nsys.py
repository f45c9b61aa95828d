"""The tables of an engine's layers and operations, from a capture with its layers found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.nodes import NodeGraph
from ...core.resolve import Network, RawLayer, Resolution, resolve
from ..readers.nsys import ops as ops_
from ..readers.nsys.attribution import Attribution
from ..readers.nsys.columns import KERNEL
from .layer_info import LayerInfo
from .resolution import filled
from .tensorrt_ranges import Runs


def _matches(found: Runs, info: LayerInfo) -> list[int | None]:
    """Which of the layers of `info` each layer is; equal names of two engines are not two of one
    engine's."""
    return [
        m
        for engine in range(len(found.engines))
        for m in info.matches([x.name for x in found.layers if x.engine == engine])
    ]


def resolutions(
    found: Runs,
    graph: NodeGraph | None,
    network: Network | None,
    names: Sequence[str] = (),
    info: LayerInfo | None = None,
) -> list[Resolution | None]:
    """What each layer is, in step with `found.layers`; all null without a graph.

    `names`: the capture's, by the codes of its operations. `info`: what the engine says of its
    layers.
    """
    if graph is None:
        return [None] * len(found.layers)
    kernels = _kernels(found, names)
    raw = [
        RawLayer(name=x.name, occurrence=x.occurrence, kernels=kernels.get(i, ()))
        for i, x in enumerate(found.layers)
    ]
    if info is not None:
        matches = _matches(found, info)
        raw = [
            layer if i is None else replace(info.raw[i], kernels=layer.kernels)
            for layer, i in zip(raw, matches, strict=True)
        ]
    # Each engine by itself: a node that one runs may be in another one too.
    resolved: list[Resolution | None] = []
    for engine in range(len(found.engines)):
        own = [r for r, x in zip(raw, found.layers, strict=True) if x.engine == engine]
        resolved += resolve(own, graph, network)
    return resolved


def _kernels(found: Runs, names: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """The names of the kernels in each layer."""
    seen: dict[int, tuple[str, ...]] = {}
    for placed in found.placed:
        ops = placed.launched.operations
        known = (placed.layer >= 0) & (ops.name >= 0)
        if ops.kind != KERNEL or not names or not known.any():
            continue
        pairs = placed.layer[known].astype(np.int64) * len(names) + ops.name[known]
        for pair in np.unique(pairs).tolist():
            layer, name = divmod(pair, len(names))
            seen[layer] = (*seen.get(layer, ()), names[name])
    return seen


def operations(
    attribution: Attribution,
    found: Runs,
    resolved: Sequence[Resolution | None],
    path: Path,
    precision: str | None,
) -> pa.Table:
    """The `ops` table with iteration, layer, nodes, modules and rule of every operation."""
    ops = ops_.operations(attribution, path)
    layer = pa.array(_joined([p.layer for p in found.placed], np.int32))
    iteration = _joined([p.iteration for p in found.placed], np.int32)
    labels: list[str | None] = [x.label for x in found.layers]
    what = [_filled(r) for r in resolved]
    known = pa.array(iteration, mask=iteration < 0).cast(pa.int64())
    # No layer takes the last entry, which is null.
    index = pa.array(np.where(np.asarray(layer) < 0, len(labels), np.asarray(layer)))
    lists = pa.list_(pa.string())
    filled: dict[str, Any] = {
        "layer": pa.array([*labels, None], pa.string()).take(index),
        "nodes": pa.array([*(w["nodes"] for w in what), None], lists).take(index),
        "modules": pa.array([*(w["modules"] for w in what), None], lists).take(index),
        "rule": pa.array([*(w["rule"] for w in what), None], pa.string()).take(index),
        "iteration": known,
        "precision": pa.repeat(pa.scalar(precision, pa.string()), len(ops)),
        "phase": pa.array(["inference", None]).take(pa.array((iteration < 0).astype(np.int8))),
    }
    for name, values in filled.items():
        ops = ops.set_column(ops.schema.get_field_index(name), ops.schema.field(name), values)
    return ops


def _filled(what: Resolution | None) -> dict[str, Any]:
    return {"nodes": None, "modules": None, "rule": None} if what is None else filled(what)


def _joined(parts: list[Any], kind: Any) -> Any:
    return np.concatenate(parts) if parts else np.empty(0, kind)
