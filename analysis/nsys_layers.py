"""The tables of an engine's layers and operations, from a capture with its layers found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..core import tables
from ..core.errors import InputError
from ..core.nodes import NodeGraph
from ..core.resolve import Network, RawLayer, Resolution, resolve
from ..core.stats import Stat
from .layer_sums import per_layer, summarise
from .layers_generic import filled
from .layers_info import PRECISIONS, LayerInfo
from .nsys_ops import Runs, runs
from .readers.nsys import ops as ops_
from .readers.nsys.attribution import Attribution, attribute
from .readers.nsys.columns import KERNEL
from .readers.nsys.load import load
from .readers.nsys.source import NULL, Source


def of_source(
    source: Source,
    graph: NodeGraph | None,
    network: Network | None,
    precision: str | None = None,
    iteration: str | None = None,
    info: LayerInfo | None = None,
) -> tuple[pa.Table, list[str], list[Stat | None]]:
    """The `layers` table of an nsys export, what to know about it, and per engine in it the time
    of its layers per iteration (null where a time is unknown). `info`: what the engine says of
    its layers."""
    # Names of kernels tell what a product applies; they take half the time of reading.
    attribution = attribute(load(source, described=graph is not None))
    found = runs(attribution, iteration)
    if not found.layers:
        asked = "no layer was found in the capture"
        if iteration is not None:
            asked = f"no GPU operation lies in a range named {iteration}"
        raise InputError(
            asked,
            file=source.path,
            fix="capture with nsys profile --trace=cuda,nvtx and detailed profiling verbosity",
        )
    resolved = resolutions(found, graph, network, attribution.capture.names, info)
    table = of_runs(found, resolved, source.path.name, precision, info)
    notes = [*ops_.notes(attribution), *found.notes, *_several(found), *_told(found, info)]
    return table, notes, per_iteration(found)


def _several(found: Runs) -> list[str]:
    """That a capture holds several engines, and how often each ran."""
    engines = found.engines
    if len(engines) == 1:
        return []
    parts = []
    for i, (count, process) in enumerate(zip(engines.iterations, engines.processes, strict=True)):
        own = [x.name for x in found.layers if x.engine == i]
        layers = f"{own[0]}" + (f" and {len(own) - 1} more layers" if len(own) > 1 else "")
        parts.append(f"engine {i + 1} ({layers}; process {process}) {count} enqueues")
    return [
        f"the capture holds {len(engines)} engines, told apart by their processes and layers: "
        + ", ".join(parts)
    ]


def _told(found: Runs, info: LayerInfo | None) -> list[str]:
    """How many layers `info` knows something of. A ForeignNode's ranges have names of their own,
    so that few is no fault."""
    if info is None:
        return []
    known = sum(i is not None for i in _matches(found, info))
    told = f"{info.source} describes {known} of the {len(found.layers)} layers of the capture"
    return [told, *info.notes]


def _matches(found: Runs, info: LayerInfo) -> list[int | None]:
    """Which of the layers of `info` each layer is; equal names of two engines are not two of one
    engine's."""
    return [
        m
        for engine in range(len(found.engines))
        for m in info.matches([x.name for x in found.layers if x.engine == engine])
    ]


def per_iteration(found: Runs) -> list[Stat | None]:
    """Per engine the ns of its layers together in one iteration; null where an operation's time
    is unknown."""
    total = np.zeros(found.iterations, np.int64)
    unknown = np.zeros(found.iterations, np.bool_)
    for placed in found.placed:
        inside = (placed.layer >= 0) & (placed.iteration >= 0)
        times = placed.duration[inside]
        unknown[placed.iteration[inside][times == NULL]] = True
        np.add.at(total, placed.iteration[inside], times)
    own = [found.engines.of == i for i in range(len(found.engines))]
    return [None if unknown[mine].any() else summarise(total[mine]) for mine in own]


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


def of_runs(
    found: Runs,
    resolved: Sequence[Resolution | None],
    source: str,
    precision: str | None,
    info: LayerInfo | None = None,
) -> pa.Table:
    """The `layers` table, the most expensive layer first.

    Times are those of GPU operations, the statistics over sums per iteration of the layer's own
    engine. A layer with an
    operation of unknown duration has unknown times.
    """
    layer = _joined([p.layer for p in found.placed], np.int32)
    iteration = _joined([p.iteration for p in found.placed], np.int32)
    duration = _joined([p.duration for p in found.placed], np.int64)
    n = len(found.layers)
    unknown = np.zeros(n, np.bool_)
    unknown[layer[(duration == NULL) & (layer >= 0)]] = True
    kernels = np.zeros(n, np.int64)
    for placed in found.placed:
        if placed.launched.operations.kind == KERNEL:
            inside = placed.layer[placed.layer >= 0]
            kernels += np.bincount(inside, minlength=n)
    rows = []
    matches = None if info is None else _matches(found, info)
    sums = per_layer(layer, iteration, duration, n, found.iterations)
    for i, samples in enumerate(sums):
        what = resolved[i]
        if len(found.engines) > 1:
            samples = samples[found.engines.of == found.layers[i].engine]
        stat = None if unknown[i] else summarise(samples)
        rows.append(
            {
                "source": source,
                "precision": precision,
                "engine": _engine(found, i),
                "layer": found.layers[i].label,
                **_filled(what),
                "kind": None if what is None else what.kind,
                "calls": int(found.calls[i]),
                "kernels": int(kernels[i]),
                "total_ns": None if unknown[i] else int(samples.sum()),
                "median_ns": stat and stat.median,
                "p90_ns": stat and stat.p90,
                "p99_ns": stat and stat.p99,
                "ci_low_ns": stat and stat.low,
                "ci_high_ns": stat and stat.high,
            }
        )
        known = None if info is None or matches is None else matches[i]
        if info is not None and known is not None:
            rows[-1].update({k: info.rows[known][k] for k in PRECISIONS})
    rows.sort(key=lambda r: (r["total_ns"] is None, -(r["total_ns"] or 0)))
    return tables.table("layers", rows)


def _engine(found: Runs, layer: int) -> str | None:
    if found.engine is None or len(found.engines) == 1:
        return found.engine
    return f"{found.engine} #{found.layers[layer].engine + 1}"


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
