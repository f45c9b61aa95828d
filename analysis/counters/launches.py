"""Counters of an Nsight Compute capture joined to engine layers, ONNX nodes and modules.

Every launch carries the NVTX ranges that were open; its `layer` is the innermost one (readers).
A capture holds no ids of ranges, so what nsys tells by identity is found here by order:

- launches one after the other in one range are one execution of a layer (split-K: two kernels);
- a capture that repeats itself at least twice is that many iterations (the smallest period of
  layer and kernel names), else it is one;
- equal names within an iteration are told apart by their occurrence (label ``name #2``), the
  same labels as those of an nsys capture (`readers.nsys.ops`).

Eager captures: ``layerline/module/PATH`` ranges are the module itself (rule ``range``), and
``layerline/phase/backward/PATH`` is backward's work of it, as a plan knows it (rule ``sequence``).

Durations in these tables (`gpu__time_duration.sum`) are of replayed, serialised kernels at the
clocks that ncu chose: they are metrics, and never latencies.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.nodes import NodeGraph
from ...core.own_ranges import NO_LAYER, PHASE, PREFIX, modules_of_range
from ...core.resolve import Network, RawLayer, resolve
from ...core.tables import SCHEMAS
from ..attribution.resolution import columns_of

_ENQUEUE = re.compile(r"ExecutionContext::(enqueue|execute)")


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `layer` is the label of the `layers` table; `iteration` counts from 0;
    `nodes`, `modules` and `rule` are None where no graph was given, or nothing is known."""

    launch: int
    kernel: str
    layer: str
    iteration: int
    nodes: tuple[str, ...] | None = None
    modules: tuple[str, ...] | None = None
    rule: str | None = None


def launches(
    counters: pa.Table, graph: NodeGraph | None = None, network: Network | None = None
) -> list[Launch]:
    """The launches of one capture in the order of their ids, resolved where a graph is given."""
    number = counters["launch"].to_numpy()
    ids, first = np.unique(number, return_index=True)
    rows = counters.select(["layer", "kernel"]).take(pa.array(first)).to_pylist()
    ranges = [_range(row["layer"]) for row in rows]
    kernels = [row["kernel"] or "" for row in rows]
    # Without engine ranges equal blocks of a model would look like iterations.
    named = any(r != NO_LAYER and not r.startswith(PREFIX) for r in ranges)
    period = repeats(list(zip(ranges, kernels, strict=True))) if named else len(ids)
    labelled, executions = _label(ids.tolist(), ranges, kernels, period)
    if graph is None:
        return [_eager(x) if modules_of_range(x.layer) else x for x in labelled]
    known = _resolved(executions, graph, network)
    return [replace(x, **known[x.layer]) if x.layer in known else _eager(x) for x in labelled]


def of_table(counters: pa.Table) -> list[Launch]:
    """The launches of a capture with what its table says already: of a joined one the layers,
    nodes and modules, of one that was only read the labels."""
    in_order = launches(counters)
    if not pc.any(pc.is_valid(counters["rule"])).as_py():
        return in_order
    _, first = np.unique(counters["launch"].to_numpy(), return_index=True)
    columns = ["launch", "layer", "nodes", "modules", "rule"]
    rows = {r["launch"]: r for r in counters.select(columns).take(pa.array(first)).to_pylist()}
    return [
        replace(
            x,
            layer=rows[x.launch]["layer"],
            nodes=_tuple(rows[x.launch]["nodes"]),
            modules=_tuple(rows[x.launch]["modules"]),
            rule=rows[x.launch]["rule"],
        )
        for x in in_order
    ]


def join(
    counters: pa.Table,
    graph: NodeGraph | None = None,
    network: Network | None = None,
    precision: str | None = None,
    engine: str | None = None,
) -> pa.Table:
    """The `counters` table of one capture with layer labels, nodes, modules and rule filled in.

    Rows and values stay as they are. `precision` and `engine` are written where given.
    """
    joined = launches(counters, graph, network)
    ids = np.asarray([x.launch for x in joined], np.int64)
    index = pa.array(np.searchsorted(ids, counters["launch"].to_numpy()))
    columns: dict[str, Any] = {
        "layer": [x.layer for x in joined],
        "nodes": [None if x.nodes is None else list(x.nodes) for x in joined],
        "modules": [None if x.modules is None else list(x.modules) for x in joined],
        "rule": [x.rule for x in joined],
    }
    schema = SCHEMAS["counters"]
    for name, values in columns.items():
        array = pa.array(values, schema.field(name).type).take(index)
        counters = _with(counters, name, array)
    for name, value in (("precision", precision), ("engine", engine)):
        if value is not None:
            counters = _with(counters, name, pa.repeat(pa.scalar(value), len(counters)))
    return counters.select(schema.names)


def repeats(sequence: Sequence[Any]) -> int:
    """The length of one iteration: the smallest p with which the whole sequence repeats itself
    (a last, unfinished iteration may be shorter), if it does so at least twice; else its length.
    """
    n = len(sequence)
    # The failure function of Knuth, Morris and Pratt: n - border is the smallest period.
    border = [0] * (n + 1)
    if n:
        border[0] = -1
    k = -1
    for i in range(n):
        while k >= 0 and sequence[k] != sequence[i]:
            k = border[k]
        k += 1
        border[i + 1] = k
    period = n - border[n] if n else 0
    return period if period and 2 * period <= n else n


def _range(name: str | None) -> str:
    return NO_LAYER if name is None or _ENQUEUE.match(name) else name.strip() or NO_LAYER


def _label(
    ids: list[int], ranges: list[str], kernels: list[str], period: int
) -> tuple[list[Launch], list[tuple[str, str, int]]]:
    """The launches, and (label, name, occurrence) of the layers in execution order."""
    own = {r for r in ranges if r.startswith(PREFIX) or r == NO_LAYER}
    seen: Counter[str] = Counter()
    places: list[tuple[str, int, int]] = []
    before: str | None = None
    for i, name in enumerate(ranges):
        if period and i % period == 0:
            seen.clear()
            before = None
        if name != before and name not in own:
            seen[name] += 1
        places.append((name, max(0, seen[name] - 1), i // period if period else 0))
        before = name
    several = {name for name, occurrence, _ in places if occurrence}
    labelled = []
    executions: dict[str, tuple[str, str, int]] = {}
    for number, kernel, (name, occurrence, iteration) in zip(ids, kernels, places, strict=True):
        label = f"{name} #{occurrence + 1}" if name in several else name
        labelled.append(Launch(number, kernel, label, iteration))
        if name not in own:
            executions.setdefault(label, (label, name, occurrence))
    return labelled, list(executions.values())


def _resolved(
    executions: list[tuple[str, str, int]], graph: NodeGraph, network: Network | None
) -> dict[str, dict[str, Any]]:
    raw = [RawLayer(name=name, occurrence=occurrence) for _, name, occurrence in executions]
    resolution_of = {}
    for (label, _, _), what in zip(executions, resolve(raw, graph, network), strict=True):
        row = columns_of(what)
        resolution_of[label] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return resolution_of


def _eager(launch: Launch) -> Launch:
    modules = modules_of_range(launch.layer)
    if modules:
        rule = "sequence" if launch.layer.startswith(PHASE) else "range"
        return replace(launch, modules=modules, rule=rule)
    return replace(launch, rule="unresolved")


def _tuple(values: list[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)


def _with(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    field = SCHEMAS["counters"].field(name)
    at = table.schema.get_field_index(name)
    values = values.cast(field.type)
    return table.append_column(field, values) if at < 0 else table.set_column(at, field, values)
