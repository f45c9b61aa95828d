"""Counters of an Nsight Compute capture joined to engine layers, ONNX nodes and modules.

Every launch carries the NVTX ranges that were open; its `layer` is the innermost one (readers).
A capture holds no ids of ranges, so what nsys tells by identity is found here by order:

- launches one after the other in one range are one execution of a layer (split-K: two kernels);
  but where Myelin marks its operations, what it launches outside of them in a ForeignNode is
  without a name, and each launch a layer of its own;
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

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.labels import labelled
from ...core.nodes import NodeGraph
from ...core.own_ranges import NO_LAYER, PHASE, PREFIX, modules_of_range
from ...core.resolve import Kernel, Network, RawLayer, resolve
from ...core.resolve.kernel_tokens import MYELIN
from ...core.resolve.spelling import foreign_range, is_enqueue, is_region
from ...core.tables import SCHEMAS, UNRESOLVED, with_columns
from ..attribution.resolution import columns_of


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
    rows = rows_of(counters, ["launch", "layer", "kernel"])
    ranges = [_range(row["layer"]) for row in rows]
    kernels = [row["kernel"] or "" for row in rows]
    # Without engine ranges equal blocks of a model would look like iterations.
    named = any(r != NO_LAYER and not r.startswith(PREFIX) for r in ranges)
    period = repeats(list(zip(ranges, kernels, strict=True))) if named else len(rows)
    launches, executions = _label([r["launch"] for r in rows], ranges, kernels, period)
    if graph is None:
        return [_eager(x) if modules_of_range(x.layer) else x for x in launches]
    # Of alike launches a capture may hold one, so others may have run between.
    resolutions = resolve(list(executions.values()), graph, network, whole=False)
    known = {k: _tuples(columns_of(r)) for k, r in zip(executions, resolutions, strict=True)}
    return [replace(x, **known[x.layer]) if x.layer in known else _eager(x) for x in launches]


def of_table(counters: pa.Table) -> list[Launch]:
    """The launches of a capture with what its table says already: of a joined one the layers,
    nodes and modules, of one that was only read the labels."""
    in_order = launches(counters)
    if counters["rule"].null_count == len(counters):
        return in_order
    rows = rows_of(counters, ["layer", "nodes", "modules", "rule"])
    return [replace(x, **_tuples(row)) for x, row in zip(in_order, rows, strict=True)]


def rows_of(counters: pa.Table, columns: list[str]) -> list[dict[str, Any]]:
    """A row per launch, in the order of their ids, of columns that are equal in all its rows."""
    _, first = np.unique(counters["launch"].to_numpy(), return_index=True)
    rows: list[dict[str, Any]] = counters.select(columns).take(pa.array(first)).to_pylist()
    return rows


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
    return _with(counters, launches(counters, graph, network), precision, engine)


def join_listed(
    counters: pa.Table,
    listed: Mapping[str, Mapping[str, Any]],
    precision: str | None,
    engine: str | None,
) -> pa.Table:
    """The same where each launch's layer is one of `listed`, by its name, which has its nodes and
    modules; any other layer is unresolved."""
    joined = [_listed(x, listed.get(x.layer)) for x in launches(counters)]
    return _with(counters, joined, precision, engine)


def _listed(launch: Launch, layer: Mapping[str, Any] | None) -> Launch:
    if layer is None or not layer["modules"]:
        return replace(launch, rule=UNRESOLVED)
    of = _tuples({name: layer[name] for name in ("nodes", "modules", "rule")})
    return replace(launch, **of)


def _with(
    counters: pa.Table, joined: Sequence[Launch], precision: str | None, engine: str | None
) -> pa.Table:
    ids = np.asarray([x.launch for x in joined], np.int64)
    index = pa.array(np.searchsorted(ids, counters["launch"].to_numpy()))
    schema = SCHEMAS["counters"]
    columns = {
        name: pa.array([getattr(x, name) for x in joined], schema.field(name).type).take(index)
        for name in ("layer", "nodes", "modules", "rule")
    }
    for name, value in (("precision", precision), ("engine", engine)):
        if value is not None:
            columns[name] = pa.repeat(value, len(counters))
    return with_columns(counters, columns).select(schema.names)


def repeats(sequence: Sequence[Any]) -> int:
    """The length of one iteration: the smallest p with which the whole sequence repeats itself
    (a last, unfinished iteration may be shorter), if it does so at least twice; else its length.
    """
    n = len(sequence)
    starts = (p for p in range(1, n // 2 + 1) if sequence[p] == sequence[0])
    return next((p for p in starts if sequence[p:] == sequence[:-p]), n)


def _range(name: str | None) -> str:
    return NO_LAYER if name is None or is_enqueue(name) else name.strip() or NO_LAYER


def _label(
    ids: list[int], ranges: list[str], kernels: list[str], period: int
) -> tuple[list[Launch], dict[str, RawLayer]]:
    """The launches, and by label the layers in execution order."""
    own = {r for r in ranges if r.startswith(PREFIX) or r == NO_LAYER}
    nameless = _nameless(ranges, kernels)
    seen: Counter[str] = Counter()
    occurrences: list[int] = []
    before: str | None = None
    for i, name in enumerate(ranges):
        if i % period == 0:
            seen.clear()
            before = None
        if (name != before or name in nameless) and name not in own:
            seen[name] += 1
        occurrences.append(max(0, seen[name] - 1))
        before = name
    several = {name for name, n in zip(ranges, occurrences, strict=True) if n}
    launches = []
    executions: dict[str, RawLayer] = {}
    ran: dict[str, dict[str, Kernel]] = {}
    for i, (name, occurrence) in enumerate(zip(ranges, occurrences, strict=True)):
        label = labelled(name, occurrence, name in several)
        launches.append(Launch(ids[i], kernels[i], label, i // period))
        if name not in own:
            raw = RawLayer(name=name, occurrence=occurrence, nameless=name in nameless)
            executions.setdefault(label, raw)
            ran.setdefault(label, {})[kernels[i]] = Kernel(kernels[i])
    for label, raw in executions.items():
        executions[label] = replace(raw, kernels=tuple(ran[label].values()))
    return launches, executions


def _nameless(ranges: list[str], kernels: list[str]) -> set[str]:
    """ForeignNodes in which Myelin marks operations: its own kernels lie in ranges inside."""
    pairs = zip(ranges, kernels, strict=True)
    if not any(MYELIN.match(k) and foreign_range(r) is None and r != NO_LAYER for r, k in pairs):
        return set()
    return {r for r in ranges if is_region(r)}


def _eager(launch: Launch) -> Launch:
    modules = modules_of_range(launch.layer)
    if modules:
        rule = "sequence" if launch.layer.startswith(PHASE) else "range"
        return replace(launch, modules=modules, rule=rule)
    return replace(launch, rule="unresolved")


def _tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
