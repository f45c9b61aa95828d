"""An eager capture under nsys: the same rules on another tool's file, and whether the two agree.

PyTorch's NVTX ranges are ``aten::mm, seq = 12, op_id = 34`` (`core.torch_ranges`; no ``seq`` where
the operator has none). On backward's thread a node is two ranges,
``autograd::engine::evaluate_function: MmBackward0`` and in it ``MmBackward0, seq = 12``; the number
counts for both. So ranges and launches become the columns of a profiler trace
(`readers.torch.events.Events`), and `autograd` applies as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...core import torch_ranges
from ...core.own_ranges import PREFIX
from ...core.torch_ranges import EVALUATE
from ..readers.base import Artefact
from ..readers.nsys import schema, sqlite
from ..readers.nsys.capture import Calls, Capture, Operations, Ranges
from ..readers.nsys.load import load
from ..readers.nsys.source import NULL, Integers
from ..readers.torch.events import KERNEL, MEMCPY, MEMSET, OP, RANGE, RUNTIME, UNKNOWN, Events, Ints
from ..readers.torch.nesting import Nesting, nest
from .autograd import named
from .eager import of_events

_DEVICE = (KERNEL, MEMCPY, MEMSET)  # in the order of the reader's kinds


def read(path: Path, meta: Mapping[str, Any]) -> Artefact:
    """The `ops` of an export of a capture by `profile.eager.nsys`; as `eager.eager` gives them.

    The operators are those that NVTX names, with the profiler's own cost in their time: only the
    device's rows are to be compared. InputError where the file is no export of nsys.
    """
    as_events = of_capture(path)
    nesting = nest(as_events)
    as_events.forward_thread = _forward_threads(as_events, nesting)
    return of_events(as_events, meta, nesting)


def of_capture(path: Path) -> Events:
    """An export as the events of a trace. InputError where it is none of nsys."""
    with sqlite.source(path) as opened:
        capture = load(opened)
        calls = launch_calls(capture)
    return events(capture, calls, path)


def split(text: str) -> tuple[str, int]:
    """Name and sequence number of a range of PyTorch's; the number is `UNKNOWN` without one."""
    name, number = torch_ranges.split(text)
    return name, UNKNOWN if number is None else number


def launch_calls(capture: Capture) -> Calls:
    """Launches by name; all calls where an operation has none among them."""
    known = capture.calls
    wanted = [o.correlation for o in capture.operations]
    if capture.more_calls is None or all(np.isin(w, known.correlation).all() for w in wanted):
        return known
    more = capture.more_calls()
    threads = [*known.threads, *more.threads]
    return Calls(
        np.concatenate((more.start, known.start)),
        np.concatenate((more.correlation, known.correlation)),
        np.concatenate((more.thread + len(known.threads), known.thread)),
        threads,
    )


def _coded(places: dict[Any, int], values: list[int], codes: Any) -> Ints:
    """The codes in `places` of a column that is coded into `values`."""
    table = [places.setdefault(v, len(places)) for v in values]
    coded: Ints = np.array([*table, 0], dtype=np.int64)[np.asarray(codes, dtype=np.int64)]
    return coded


def _threads(places: dict[Any, int], threads: list[int], codes: Any) -> dict[str, Ints]:
    """The columns process and thread of a column of threads (globalTid)."""
    processes = [t >> schema.PROCESS_SHIFT for t in threads]
    return {
        "process": _coded(places, processes, codes),
        "thread": _coded(places, threads, codes),
    }


def _or_unknown(values: Any) -> Any:
    return np.where(values == NULL, UNKNOWN, values)


def events(capture: Capture, calls: Calls, path: Path) -> Events:
    """The push/pop ranges of the default domain, the launches and the operations as columns;
    forward threads are unknown."""
    places: dict[Any, int] = {}
    names: dict[str, int] = {}
    parts = [
        _ranges(capture.ranges, capture.names, names, places),
        _launches(calls, names, places),
        *(
            _operations(operations, capture.names, names, places)
            for operations in capture.operations
            if operations.kind < len(_DEVICE)
        ),
    ]
    columns: dict[str, Any] = {c: np.concatenate([p[c] for p in parts]) for c in _COLUMNS}
    unknown = np.full(len(columns["kind"]), UNKNOWN, dtype=np.int64)
    return Events(
        path=path,
        index=unknown,
        forward_thread=unknown,
        geometry=unknown.astype(np.int32),
        communication=unknown.astype(np.int32),
        number=unknown,
        names=list(names),
        places=list(places),
        head={},
        counts={},
        notes=list(capture.notes),
        **columns,
    )


_COLUMNS = (
    *("kind", "name", "start", "duration", "process", "thread"),
    *("correlation", "sequence", "stream", "device"),
)


def _columns(length: int, **known: Any) -> dict[str, Ints]:
    """Columns of `Events`: arrays, one number for all rows, or unknown where it is left out."""
    return {
        c: np.broadcast_to(np.asarray(known.get(c, UNKNOWN), np.int64), (length,)) for c in _COLUMNS
    }


def _ranges(
    ranges: Ranges, texts: list[str], names: dict[str, int], places: dict[Any, int]
) -> dict[str, Ints]:
    domains = np.array([*(d in (0, NULL) for d in ranges.domains), True], dtype=bool)
    kept = np.flatnonzero(
        ~ranges.loose & (ranges.end != NULL) & (ranges.name >= 0) & domains[ranges.domain]
    )
    # Only texts that are used: a capture has one for each call of each operator.
    used, code = np.unique(ranges.name[kept], return_inverse=True)
    described = [split(texts[c]) for c in used.tolist()]
    name = np.array([names.setdefault(n, len(names)) for n, _ in described] or [0])[code]
    own = np.array([texts[c].startswith(PREFIX) for c in used.tolist()] or [False])[code]
    sequence = np.array([s for _, s in described] or [UNKNOWN], dtype=np.int64)[code]
    thread = ranges.thread[kept]
    evaluating = np.array([n.startswith(EVALUATE) for n, _ in described] or [False])[code]
    sequence = _numbered(sequence, evaluating, thread, ranges.start[kept], ranges.end[kept])
    return _columns(
        len(kept),
        kind=np.where(own, RANGE, OP),
        name=name,
        start=ranges.start[kept],
        duration=ranges.end[kept] - ranges.start[kept],
        sequence=sequence,
        **_threads(places, ranges.threads, thread),
    )


def _numbered(sequence: Ints, evaluating: Any, thread: Any, start: Integers, end: Integers) -> Ints:
    """Sequence numbers; of an evaluated node that of its own range just inside, for the engine's
    range around it has none in PyTorch 2.11 (a profiler trace has it on both)."""
    order = np.lexsort((-end, start, thread))
    outer, inner = order[:-1], order[1:]
    chosen = evaluating[outer] & (sequence[outer] == UNKNOWN)
    chosen &= (thread[inner] == thread[outer]) & (end[inner] <= end[outer])
    numbered = sequence.copy()
    numbered[outer[chosen]] = sequence[inner[chosen]]
    return numbered


def _launches(calls: Calls, names: dict[str, int], places: dict[Any, int]) -> dict[str, Ints]:
    return _columns(
        len(calls),
        kind=RUNTIME,
        name=names.setdefault("launch", len(names)),
        start=calls.start,
        duration=0,
        correlation=_or_unknown(calls.correlation),
        **_threads(places, calls.threads, calls.thread),
    )


def _operations(
    operations: Operations, texts: list[str], names: dict[str, int], places: dict[Any, int]
) -> dict[str, Ints]:
    usable = np.flatnonzero(operations.start != NULL)
    start, end = operations.start[usable], operations.end[usable]
    used, code = np.unique(operations.name[usable], return_inverse=True)
    named = [texts[c] if c >= 0 else "unnamed" for c in used.tolist()]
    table = [names.setdefault(t, len(names)) for t in named]
    stream = np.array([*operations.streams, UNKNOWN], dtype=np.int64)[operations.stream[usable]]
    device = np.array([*operations.devices, UNKNOWN], dtype=np.int64)[operations.device[usable]]
    process = _coded(places, operations.processes, operations.process[usable])
    return _columns(
        len(usable),
        kind=_DEVICE[operations.kind],
        name=np.array(table, dtype=np.int64)[code],
        start=start,
        duration=np.where(end == NULL, UNKNOWN, end - start),
        process=process,
        thread=process,
        correlation=_or_unknown(operations.correlation[usable]),
        stream=_or_unknown(stream),
        device=_or_unknown(device),
    )


def _forward_threads(events: Events, nesting: Nesting) -> Ints:
    """1 for backward's nodes, as a profiler trace has it; NVTX does not say which thread it was.

    A node is the engine's range with a number, and the range of the node's name with the same
    number right in it; an operator with a number elsewhere is a forward one.
    """
    codes = {n: i for i, n in enumerate(events.names)}
    nodes = [codes.get(n.removeprefix(EVALUATE), UNKNOWN) for n in events.names]
    is_engine = named(events, EVALUATE, OP) & (events.sequence >= 0)
    around = np.maximum(nesting.parent, 0)
    is_inner = (
        (nesting.parent >= 0)
        & is_engine[around]
        & (events.sequence == events.sequence[around])
        & (events.name == np.array(nodes, dtype=np.int64)[events.name[around]])
    )
    return np.where(is_engine | is_inner, 1, UNKNOWN).astype(np.int64)
