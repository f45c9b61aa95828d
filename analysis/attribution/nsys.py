"""An engine's layers in an nsys capture: what each is, and the table of operations with that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...core import tables
from ...core.nodes import NodeGraph
from ...core.resolve import Network, RawLayer, Resolution, resolve
from ..readers.nsys import ops as ops_
from ..readers.nsys.attribution import Attribution
from .layer_info import LayerInfo
from .resolution import of_rows
from .tensorrt_ranges import Runs, joined


def layers_in_info(capture: Runs, info: LayerInfo) -> list[int | None]:
    """Which of the layers of `info` each layer is; equal names of two engines are not two of one
    engine's."""
    return [
        m
        for engine in range(len(capture.engines))
        for m in info.matches([x.name for x in capture.layers if x.engine == engine])
    ]


def info_notes(capture: Runs, info: LayerInfo | None) -> list[str]:
    """How many layers `info` describes, and its own notes. The ranges of a ForeignNode have names
    of their own, so few described layers are no fault."""
    if info is None:
        return []
    known = sum(i is not None for i in layers_in_info(capture, info))
    text = f"{info.source} describes {known} of the {len(capture.layers)} layers of the capture"
    return [text, *info.notes]


def resolutions(
    capture: Runs,
    graph: NodeGraph | None,
    network: Network | None,
    names: Sequence[str] = (),
    info: LayerInfo | None = None,
) -> list[Resolution | None]:
    """What each layer is, in step with `capture.layers`; all None without a graph.

    `names`: the capture's, by the codes of its operations. `info`: the engine's own description
    of its layers.
    """
    if graph is None:
        return [None] * len(capture.layers)
    kernels = _kernels(capture, names)
    raw = [
        RawLayer(name=x.name, occurrence=x.occurrence, kernels=kernels.get(i, ()))
        for i, x in enumerate(capture.layers)
    ]
    if info is not None:
        raw = [
            layer if i is None else replace(info.raw[i], kernels=layer.kernels)
            for layer, i in zip(raw, layers_in_info(capture, info), strict=True)
        ]
    # Each engine by itself: a node that one runs may be in another one too.
    resolved: list[Resolution | None] = []
    for engine in range(len(capture.engines)):
        own = [r for r, x in zip(raw, capture.layers, strict=True) if x.engine == engine]
        resolved += resolve(own, graph, network)
    return resolved


def _kernels(capture: Runs, names: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """The names of the kernels in each layer."""
    kernels: dict[int, tuple[str, ...]] = {}
    if not names:
        return kernels
    layer, name = capture.layer, joined([o.name for o in capture.operations], np.int32)
    known = capture.kernel & (layer >= 0) & (name >= 0)
    for pair in np.unique(layer[known].astype(np.int64) * len(names) + name[known]).tolist():
        of, text = divmod(pair, len(names))
        kernels[of] = (*kernels.get(of, ()), names[text])
    return kernels


def operations(
    attribution: Attribution,
    capture: Runs,
    resolved: Sequence[Resolution | None],
    path: Path,
    precision: str | None,
) -> pa.Table:
    """The `ops` table with iteration, layer, nodes, modules and rule of every operation."""
    ops = ops_.operations(attribution, path)
    layer, iteration = capture.layer, capture.iteration
    index = pa.array(layer, mask=layer < 0)
    return tables.with_columns(
        ops,
        {
            "layer": pa.array([x.label for x in capture.layers], pa.string()).take(index),
            **of_rows(ops, resolved, index),
            "iteration": pa.array(iteration, mask=iteration < 0).cast(pa.int64()),
            "precision": pa.repeat(pa.scalar(precision, pa.string()), len(ops)),
            "phase": pa.array(["inference", None]).take(pa.array((iteration < 0).astype(np.int8))),
        },
    )
