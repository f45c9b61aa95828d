"""ONNX Runtime's profile: one row per node execution, in the run that executed it.

The file is a JSON list of complete events (``ph`` X) in microseconds since the session started
(onnxruntime/core/common/profiler.cc). Category ``Node``: ``NAME_kernel_time`` with
``args.op_name`` and, since 1.1, ``args.provider``. Category ``Session``: ``model_run`` spans one
run; its nodes are those that start in it. ``Kernel``: kernels and copies of a CUDA session with
``enable_cuda_profiling`` (core/common/gpu_profiler_common.h, MergeEvents), on the host's clock,
with pid and tid -1. Such an event follows the one that launched it, whose name it has in
``args.parent_name``: a node, or a part of the session. ONNX Runtime matches the two by the
microsecond in which the parent began: of two that began in the same one, the last gets the kernels
of both. The quirks:

- times are whole microseconds: a duration of 0 is below one microsecond, no missing value; one
  that is missing or negative is unknown;
- older releases leave the name of a node empty that the model gives none: such nodes are called
  after their operator (newer ones write ``MatMul_4``, operator and place in the file);
- older releases write ``NAME_fence_before`` and ``_fence_after`` around each node: waiting,
  no execution, counted in the facts, not a row;
- at 1,000,000 events recording stops and the file says nothing of it: nodes after the last
  ``model_run`` belong to a run that was not finished, their iteration is unknown;
- a process that was killed leaves a file cut in the middle of an event; what is whole is read;
- names are written without escaping: an event that is no JSON because of it is counted and left
  out;
- nodes of a subgraph (If, Loop) lie inside the node that runs it; `self_ns` is without them.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from ....core.errors import InputError
from ....core.stats import summarise
from ....core.tables import schema, table
from ..base import Artefact, Head, int64
from ..bounded import open_text, valid_text
from .events import Args, Damage, Event, events_of

KIND = "onnxruntime-profile"
DESCRIPTION = "ONNX Runtime profile (enable_profiling)"

MAX_EVENTS = 1_000_000  # profiler.h: max_num_events_
MOST_EVENTS = 3 * MAX_EVENTS  # kernels of a GPU come on top
_CATEGORY = re.compile(r'"cat"\s*:\s*"(?:Session|Node)"')
_EVENT = re.compile(
    r'"(?:model_loading_\w+|session_initialization|model_run|\w+Executor::Execute'
    r'|[^"]*_kernel_time|[^"]*_fence_before)"'
)
_SUFFIX = "_kernel_time"
_FENCES = ("_fence_before", "_fence_after")
_SLACK_NS = 1_000  # ends are sums of two numbers that were rounded down

OPERATORS = schema("name text, op text, provider text, calls int, total_ns int")


def sniff(head: Head) -> bool:
    """A JSON list whose events have ONNX Runtime's categories and names."""
    text = head.json
    return text.startswith("[") and bool(_CATEGORY.search(text)) and bool(_EVENT.search(text))


def read(path: Path, warmup: int = 0) -> Artefact:
    """`ops` (one row per node execution), `operators` (sums by name) and `latency` (the runs).

    Iterations count the ``model_run`` events from 0 in the order of their start; the first
    `warmup` of them are warm-up, with a null iteration, and are not in `latency`. InputError for a
    file without any event.
    """
    events = _Events(damage=Damage(path))
    with open_text(path) as stream:
        for event in events_of(stream, events.damage):
            events.add(event)
            if events.count > MOST_EVENTS:
                raise InputError(f"holds more than {MOST_EVENTS:,} events", file=path)
    if not events.count:
        raise InputError("holds no profile event", file=path, fix="was the session closed?")
    rows = events.rows
    runs, notes = events.windows(warmup)
    starting_in = [runs.find(row.start, row.thread) for row in rows]
    # A kernel may run after the run that launched it: it is of its node's iteration.
    iterations = [
        own if row.parent is None else starting_in[row.parent]
        for row, own in zip(rows, starting_in, strict=True)
    ]
    ops = table(
        "ops",
        {
            "source": [path.name] * len(rows),
            "phase": ["inference"] * len(rows),
            "iteration": iterations,
            "kind": [row.kind for row in rows],
            "name": [row.name for row in rows],
            "start_ns": [row.start for row in rows],
            "duration_ns": [row.duration for row in rows],
            "self_ns": events.self_times(),
            "stream": [row.stream for row in rows],
            "process": [row.process for row in rows],
            # The node of each kernel that names one; a node is its own.
            "layer": [None if row.parent is None else rows[row.parent].name for row in rows],
        },
    )
    latency = table(
        "latency",
        [
            {"source": path.name, "iteration": i, "latency_ns": w[1] - w[0]}
            for w, i in zip(runs.spans, runs.numbers, strict=True)
            if i is not None
        ],
    )
    return Artefact(
        KIND,
        {"ops": ops, "operators": events.operators(), "latency": latency},
        _facts(events, runs, latency),
        notes + _notes(events, iterations, runs),
    )


class _Row(msgspec.Struct, gc=False):
    """A node execution or a kernel; times in ns. `parent`: number of the row of a kernel's node."""

    kind: str
    name: str
    op: str | None
    provider: str | None
    start: int | None
    duration: int | None
    stream: int | None
    process: int | None
    thread: int | None
    parent: int | None

    @property
    def span(self) -> tuple[int, int]:
        """Start and end of a row that has both."""
        start = self.start or 0
        return start, start + (self.duration or 0)


@dataclass
class _Events:
    """The rows, filled event by event."""

    damage: Damage
    count: int = 0
    rows: list[_Row] = field(default_factory=list)
    runs: dict[str, list[tuple[int, int, int | None]]] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)
    fences: int = 0
    fence_ns: int = 0
    nested: bool = False
    unnamed: int = 0
    _seen: dict[str, str] = field(default_factory=dict)
    _latest: dict[str, int] = field(default_factory=dict)  # row by the name of a node's event

    def add(self, event: Event) -> None:
        self.count += 1
        category, name = _text(event.cat), _text(event.name)
        if not isinstance(name, str):
            self.others[f"{category} without a name"] += 1
        elif category == "Node" and name.endswith(_SUFFIX):
            self._latest[name] = len(self.rows)
            self._row("node", name.removesuffix(_SUFFIX) or self._unnamed(event), event)
        elif category == "Kernel":
            self._row("kernel", name, event)
        elif category == "Node" and name.endswith(_FENCES):
            self.fences += 1
            self.fence_ns += _duration(event) or 0
        elif category == "Session" and (name == "model_run" or name.endswith("Executor::Execute")):
            start, duration = _ns(event.ts), _duration(event)
            if start is not None and duration is not None:
                kind = "model_run" if name == "model_run" else "executor"
                span = (start, start + duration, _integer(event.tid))
                self.runs.setdefault(kind, []).append(span)
        else:
            self.others[f"{category}: {name}" if category == "Session" else str(category)] += 1

    def _unnamed(self, event: Event) -> str:
        self.unnamed += 1
        op = _text(event.args.op_name) if event.args is not None else None
        return op if isinstance(op, str) and op else "unnamed"

    def _row(self, kind: str, name: str, event: Event) -> None:
        args = event.args or Args()
        parent = _text(args.parent_name) if kind == "kernel" else None
        self.rows.append(
            _Row(
                kind=kind,
                name=self._same(name),
                op=self._same(args.op_name),
                provider=self._same(args.provider),
                start=_ns(event.ts),
                duration=_duration(event),
                stream=_integer(args.stream),
                process=_integer(event.pid),
                thread=_integer(event.tid),
                parent=self._latest.get(parent) if isinstance(parent, str) else None,
            )
        )

    def _same(self, text: Any) -> Any:
        """One object for equal texts: names repeat in every run."""
        text = _text(text)
        return self._seen.setdefault(text, text) if isinstance(text, str) else None

    def windows(self, warmup: int) -> tuple[_Windows, list[str]]:
        """The runs; where no ``model_run`` was recorded, what the executor spanned."""
        spans = self.runs.get("model_run")
        if spans:
            return _Windows(sorted(spans, key=lambda s: s[:2]), warmup), []
        spans = sorted(self.runs.get("executor", ()), key=lambda s: (s[0], -s[1]))
        outer: list[tuple[int, int, int | None]] = []
        for span in spans:  # the executor of a subgraph runs inside another
            if not outer or span[0] >= outer[-1][1]:
                outer.append(span)
        if outer:
            return _Windows(outer, warmup), ["no model_run events: runs are the executor's spans"]
        return _Windows([], warmup), ["no run was recorded whole: iterations are unknown"]

    def self_times(self) -> list[int | None]:
        """Durations without those of nodes inside, by thread."""
        result = [row.duration for row in self.rows]
        lanes: dict[tuple[int | None, int | None], array[int]] = {}
        for i, row in enumerate(self.rows):
            if row.kind == "node" and row.start is not None and row.duration is not None:
                lanes.setdefault((row.process, row.thread), array("q")).append(i)
        spans = {i: self.rows[i].span for lane in lanes.values() for i in lane}
        for lane in lanes.values():
            open_nodes: list[int] = []
            for i in sorted(lane, key=lambda i: (spans[i][0], -spans[i][1])):
                start, end = spans[i]
                while open_nodes and start >= spans[open_nodes[-1]][1]:
                    open_nodes.pop()
                if open_nodes and end <= spans[open_nodes[-1]][1] and end > start:
                    self.nested = True
                    outer = open_nodes[-1]
                    result[outer] = (result[outer] or 0) - (end - start)
                open_nodes.append(i)
        return result

    def operators(self) -> pa.Table:
        """Calls and time by name, operator and provider, the longest first."""
        sums: dict[tuple[Any, ...], list[Any]] = {}
        for row in self.rows:
            if row.kind == "node":
                entry = sums.setdefault((row.name, row.op, row.provider), [0, 0])
                entry[0] += 1
                lacks = row.duration is None or entry[1] is None
                entry[1] = None if lacks else entry[1] + row.duration
        rows = [
            {"name": n, "op": o, "provider": p, "calls": calls, "total_ns": total}
            for (n, o, p), (calls, total) in sums.items()
        ]
        rows.sort(key=lambda r: -(r["total_ns"] or 0))
        return pa.Table.from_pylist(rows, schema=OPERATORS)


@dataclass
class _Windows:
    """The runs by start. `numbers` are their iterations, None for warm-up."""

    spans: list[tuple[int, int, int | None]]
    warmup: int

    def __post_init__(self) -> None:
        self._starts = [s[0] for s in self.spans]
        self.numbers = [i - self.warmup if i >= self.warmup else None for i in range(len(self))]
        pairs = zip(self.spans, self.spans[1:], strict=False)
        self.overlap = any(b[0] < a[1] for a, b in pairs)

    def __len__(self) -> int:
        return len(self.spans)

    def find(self, start: int | None, thread: int | None) -> int | None:
        """The iteration in which something starts; None outside all, or where two would fit."""
        if start is None or not self.spans:
            return None
        if self.overlap:
            fitting = [k for k, s in enumerate(self.spans) if s[0] <= start <= s[1]]
            own = [k for k in fitting if self.spans[k][2] == thread]
            chosen = own if len(own) == 1 else fitting
            return self.numbers[chosen[0]] if len(chosen) == 1 else None
        k = bisect_right(self._starts, start) - 1
        if k < 0 or start > self.spans[k][1] + _SLACK_NS:
            return None
        return self.numbers[k]


def _text(value: Any) -> Any:
    """A text that any table can hold (JSON may have halves of characters); other values as they
    are."""
    return valid_text(value) if isinstance(value, str) else value


def _ns(value: Any) -> int | None:
    """Microseconds to integer nanoseconds; None for what is no number, or no time."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not abs(value) < 2**53:
        return None
    return round(value * 1000)


def _duration(event: Event) -> int | None:
    """None for what is no duration: missing, negative."""
    ns = _ns(event.dur)
    return None if ns is None or ns < 0 else ns


def _integer(value: Any) -> int | None:
    return int64(int(value) if isinstance(value, str) and value.isdecimal() else value)


def _facts(events: _Events, windows: _Windows, latency: pa.Table) -> dict[str, Any]:
    stat = summarise(latency["latency_ns"].to_pylist())
    return {
        "events": events.count,
        "nodes": sum(row.kind == "node" for row in events.rows),
        "runs": len(windows),
        "warmup_runs": min(windows.warmup, len(windows)),
        "run_ns": None if stat is None else stat.as_dict(),
        "providers": sorted({row.provider for row in events.rows if row.provider}),
        "fences": events.fences,
        "fence_ns": events.fence_ns,
        "other_events": dict(sorted(events.others.items())),
        "truncated": events.damage.cut or events.damage.unclosed or events.count >= MAX_EVENTS,
    }


def _notes(events: _Events, iterations: list[int | None], windows: _Windows) -> list[str]:
    notes = []
    if events.count >= MAX_EVENTS:
        notes.append(
            f"ONNX Runtime stops recording at {MAX_EVENTS:,} events: the last runs are missing; "
            "profile fewer iterations"
        )
    if events.damage.cut:
        notes.append("the file is cut in the middle of an event; what is whole was read")
    elif events.damage.unclosed:
        notes.append("the file ends without closing its list: it may be cut short")
    if events.damage.events:
        notes.append(f"{events.damage.events} entries are not valid JSON events and were left out")
    if windows.spans:
        last = windows.spans[-1][1] + _SLACK_NS
        after = sum(
            row.start is not None and row.start > last and i is None
            for row, i in zip(events.rows, iterations, strict=True)
        )
        if after:
            notes.append(
                f"{after:,} node executions after the last whole run have no iteration: "
                "that run was not recorded to its end"
            )
        between = iterations.count(None) - after
        if between and not windows.warmup:
            notes.append(f"{between:,} node executions could not be assigned to one run")
    if events.fences:
        notes.append(
            f"{events.fences:,} fence events (waiting, {events.fence_ns:,} ns in all) are not rows"
        )
    notes += _kernel_notes(events)
    if events.nested:
        notes.append("nodes of subgraphs lie inside others: durations nest, self_ns does not")
    missing = sum(row.duration is None for row in events.rows)
    if missing:
        notes.append(f"{missing:,} node executions have no duration, or one below 0: it is unknown")
    if events.unnamed:
        notes.append(
            f"{events.unnamed:,} node executions have no name and are called after their operator"
        )
    if events.rows and not any(row.provider for row in events.rows):
        notes.append("no execution provider is recorded, as in the oldest releases")
    return notes


def _kernel_notes(events: _Events) -> list[str]:
    """What is to be known of the kernels and their nodes."""
    rows = events.rows
    kernels = [row for row in rows if row.kind == "kernel"]
    lost = [row for row in kernels if row.parent is None]
    notes = []
    if lost:
        ns = sum(row.duration or 0 for row in lost)
        notes.append(
            f"{len(lost):,} of {len(kernels):,} kernels ({ns:,} ns in all) name no node of the "
            "profile: each is a layer of its own name"
        )
    launching = {row.parent: rows[row.parent] for row in kernels if row.parent is not None}
    if launching:
        nodes = [row for row in rows if row.kind == "node"]
        names = {node.name for node in launching.values()}
        host = sum(node.duration or 0 for node in nodes if node.name in names)
        notes.append(
            f"nodes with kernels took {host:,} ns in all on the host, launching them: this is not "
            "added to the time of the kernels"
        )
        began = Counter(node.start for node in nodes)
        shared = sum(began[node.start] > 1 for node in launching.values())
        if shared:
            notes.append(
                f"{shared:,} of {len(launching):,} node executions with kernels began in the same "
                "microsecond as another, whose kernels ONNX Runtime may have given them"
            )
    return notes
