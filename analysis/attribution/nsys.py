"""An engine's layers in an nsys capture: what each is, and the table of operations with that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...core import tables
from ...core.nodes import NodeGraph
from ...core.resolve import Kernel, Network, RawLayer, Resolution, resolve
from ..readers.nsys import ops as ops_
from ..readers.nsys.attribution import Attribution
from ..readers.nsys.capture import Capture
from ..readers.nsys.source import NULL
from .executions import joined
from .layer_info import LayerInfo
from .resolution import of_rows
from .tensorrt_ranges import Layer, Runs


def layers_in_info(capture: Runs, info: LayerInfo) -> list[int | None]:
    """Which of the layers of `info` each layer is; equal names of two engines are not two of one
    engine's."""
    return [
        m
        for engine in range(len(capture.engines))
        for m in _matches([x for x in capture.layers if x.engine == engine], info)
    ]


def _matches(layers: Sequence[Layer], info: LayerInfo) -> list[int | None]:
    """As `LayerInfo.matches`; what runs in a layer under no name of its own is none of them."""
    own = iter(info.matches([x.name for x in layers if not x.nameless]))
    return [None if x.nameless else next(own) for x in layers]


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
    recorded: Capture | None = None,
    info: LayerInfo | None = None,
) -> list[Resolution | None]:
    """What each layer is, in step with `capture.layers`; all None without a graph.

    `recorded`: the capture, while its export is open. `info`: the engine's own description of its
    layers.
    """
    if graph is None:
        return [None] * len(capture.layers)
    raw = raw_layers(capture, recorded, info)
    # Each engine by itself: a node that one runs may be in another one too.
    resolved: list[Resolution | None] = []
    for engine in range(len(capture.engines)):
        own = [r for r, x in zip(raw, capture.layers, strict=True) if x.engine == engine]
        resolved += resolve(own, graph, network)
    return resolved


def raw_layers(
    capture: Runs, recorded: Capture | None = None, info: LayerInfo | None = None
) -> list[RawLayer]:
    """What the resolver is given of each layer, in step with `capture.layers`."""
    kernels = {} if recorded is None else _kernels(capture, recorded)
    raw = [
        RawLayer(
            name=x.name,
            occurrence=x.occurrence,
            kernels=kernels.get(i, ()),
            nameless=x.nameless,
        )
        for i, x in enumerate(capture.layers)
    ]
    if info is None:
        return raw
    return [
        layer if i is None else replace(info.raw[i], kernels=layer.kernels)
        for layer, i in zip(raw, layers_in_info(capture, info), strict=True)
    ]


def _kernels(capture: Runs, recorded: Capture) -> dict[int, tuple[Kernel, ...]]:
    """The distinct kernels of each layer by name, each as it was first launched."""
    layer, name = capture.layer, joined([o.name for o in capture.operations], np.int32)
    start, count = joined([o.start for o in capture.operations], np.int64), len(recorded.names)
    known = np.flatnonzero(capture.kernel & (layer >= 0) & (name >= 0))
    pairs = layer[known].astype(np.int64) * count + name[known]
    distinct, first = np.unique(pairs, return_index=True)
    starts = start[known[first]].tolist()
    grids = {} if recorded.grids is None else recorded.grids([s for s in starts if s != NULL])
    kernels: dict[int, tuple[Kernel, ...]] = {}
    for pair, at in zip(distinct.tolist(), starts, strict=True):
        of, text = divmod(pair, count)
        kernel = Kernel(recorded.names[text], grids.get(at))
        kernels[of] = (*kernels.get(of, ()), kernel)
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
