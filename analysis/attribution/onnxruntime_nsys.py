"""Kernels of ONNX Runtime's CUDA provider to the nodes that launched them.

ONNX Runtime's wheels push no NVTX ranges, but its own profile, taken in the same process, says on
the host's clock when each node ran, and nsys when each kernel was launched. The worker reads the
clock before and after calls of cuEventRecord that nsys records too. Each of these bounds the
distance between the two clocks; all of them together leave about a microsecond. A kernel belongs
to the node in which its launch lies for every distance within the bounds; where two fit, or none,
it has no node. Nothing is joined by order or by name of a kernel.

Where the readings contradict each other, or are not there, no kernel has a node.
"""

from __future__ import annotations

import contextlib
import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...core import tables
from ...core.documents import Trace
from ..readers.nsys import ops as ops_
from ..readers.nsys import sqlite
from ..readers.nsys.attribution import attribute
from ..readers.nsys.load import load
from ..readers.nsys.source import NULL
from ..readers.onnxruntime import profile as profile_
from .executions import joined
from .onnxruntime import join

RECORD = "cuEventRecord"
# Starts and durations in ONNX Runtime's profile are whole microseconds, rounded down.
ROUNDED_NS = 1_000


@dataclass(frozen=True)
class Distance:
    """What to add to a time of nsys for the profile's clock lies in [low, high] (ns)."""

    low: int
    high: int


@dataclass(frozen=True)
class Span:
    """A node's execution on the profile's clock; `end` includes what rounding may have cut off."""

    start: int
    end: int
    name: str
    iteration: int | None


def distance(
    calls: Sequence[tuple[int, int]], readings: Sequence[Sequence[int]]
) -> Distance | None:
    """The distance of the clocks from calls as nsys has them, (start, end), and the readings
    (before, after) of the other clock around them; None where they contradict each other.

    before <= start + distance and end + distance <= after, for every call.
    """
    if not calls or len(calls) != len(readings):
        return None
    low = max(before - start for (start, _), (before, _) in zip(calls, readings, strict=True))
    high = min(after - end for (_, end), (_, after) in zip(calls, readings, strict=True))
    return Distance(low, high) if low <= high else None


def read_calls(calls: Sequence[tuple[int, int]], read: int, iterations: int) -> list[Any]:
    """Of all calls of cuEventRecord in a capture those that were read: as many at the beginning
    and at the end; between them each iteration has two. Empty where their number is another."""
    if not read or read % 2 or len(calls) != read + 2 * iterations:
        return []
    return [*calls[: read // 2], *calls[len(calls) - read // 2 :]]


class Spans:
    """Executions of nodes, to be looked up by the moment of a launch."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans = sorted(spans, key=lambda s: (s.start, -s.end))
        self._starts = [s.start for s in self._spans]
        # The latest end of all spans up to each: how far back a search has to go.
        self._reach = np.maximum.accumulate([s.end for s in self._spans] or [0]).tolist()

    def at(self, low: int, high: int) -> Span | None:
        """The innermost span that may hold a moment in [low, high]; None where there is
        none, or two that do not lie in one another."""
        holding: list[Span] = []
        i = bisect_right(self._starts, high) - 1
        while i >= 0 and self._reach[i] >= low:
            if self._spans[i].end >= low:
                holding.append(self._spans[i])
            i -= 1
        if not holding:
            return None
        inner = min(holding, key=lambda s: s.end - s.start)
        around = all(s.start <= inner.start and inner.end <= s.end for s in holding)
        return inner if around else None


def operations(
    capture: Path,
    profile: Path,
    meta: Trace,
    layers: Sequence[Mapping[str, Any]],
    precision: str,
) -> tuple[pa.Table, Distance | None]:
    """The `ops` of a capture with their node as layer, and the distance of the clocks; None where
    they could not be joined, and then no operation has a node.

    `meta`: the trace.meta.json. Operations without a node have the rule unresolved; those outside
    the captured runs no iteration.
    """
    with sqlite.source(capture) as source:
        attribution = attribute(load(source))
    ops = ops_.operations(attribution, capture)
    launched = joined([x.call_start for x in attribution.launched], np.int64).tolist()
    about, iterations, readings = meta.facts, len(meta.latency_ns), meta.facts.clock_readings
    clocks = distance(read_calls(_recorded(capture), len(readings), iterations), readings)
    zero = about.profiling_start_ns
    if clocks is None or zero is None or not profile.exists():
        none = [None] * len(ops)
        only = [0] * len(ops) if iterations == 1 else none
        return _placed(ops, none, only, layers, precision), None
    nodes, runs = (
        [None if at == NULL else spans.at(at + clocks.low, at + clocks.high) for at in launched]
        for spans in map(Spans, _spans(profile, about.runs_before or 0, zero))
    )
    names = [None if node is None else node.name for node in nodes]
    numbers = [None if run is None else run.iteration for run in runs]
    return _placed(ops, names, numbers, layers, precision), clocks


def _recorded(capture: Path) -> list[tuple[int, int]]:
    """(start, end) of the calls of cuEventRecord, by start; none where nsys recorded none."""
    query = (
        'SELECT r.start, r."end" FROM CUPTI_ACTIVITY_KIND_RUNTIME r '
        "JOIN StringIds s ON s.id = r.nameId "
        "WHERE (s.value = ? OR s.value LIKE ? ESCAPE '\\') "
        'AND r."end" IS NOT NULL ORDER BY r.start'
    )
    uri = f"{capture.resolve().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
        names = {n for (n,) in database.execute("SELECT name FROM sqlite_master")}
        if not {"CUPTI_ACTIVITY_KIND_RUNTIME", "StringIds"} <= names:
            return []
        # Newer drivers have versions of a call: cuEventRecord_ptsz.
        return database.execute(query, (RECORD, f"{RECORD}\\_%")).fetchall()


def _spans(profile: Path, before: int, zero: int) -> tuple[list[Span], list[Span]]:
    """Executions of nodes, and each captured run from its first node to its last, on the
    profile's clock since its epoch."""
    main = profile_.read(profile, before).main
    rows = tables.of_kinds(main, ["node"], "start_ns", "duration_ns")
    columns = (rows[c].to_pylist() for c in ("name", "start_ns", "duration_ns", "iteration"))
    nodes = [
        Span(zero + start, zero + start + duration + 2 * ROUNDED_NS, name, iteration)
        for name, start, duration, iteration in zip(*columns, strict=True)
    ]
    runs: dict[int, Span] = {}
    for node in nodes:
        if node.iteration is not None:
            run = runs.get(node.iteration, node)
            start, end = min(run.start, node.start), max(run.end, node.end)
            runs[node.iteration] = Span(start, end, "", node.iteration)
    return nodes, list(runs.values())


def _placed(
    ops: pa.Table,
    nodes: Sequence[str | None],
    iterations: Sequence[int | None],
    layers: Sequence[Mapping[str, Any]],
    precision: str,
) -> pa.Table:
    """`ops` with iteration, layer, nodes, modules, rule, precision and phase."""
    # Joined by the node's name, as rows of the engine's own profile are.
    by_node = tables.with_columns(ops, {"iteration": iterations, "name": nodes})
    phase = ["inference" if i is not None else None for i in iterations]
    return tables.with_columns(
        join(by_node, layers, precision), {"name": ops["name"], "phase": phase}
    )
