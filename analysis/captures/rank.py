"""One rank's capture, from a profiler trace or an nsys export: what `analysis.ranks` works on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import InputError
from ...core.intervals import Measure, union
from ...core.own_ranges import ITERATION, PHASE
from ...core.tables import PHASES
from ..attribution import communications
from ..attribution.communication import Found
from ..host.waits import waiting
from ..model.ranks import (
    COLLECTIVES,
    COMMUNICATION,
    COMPUTE,
    COPY,
    OPERATIONS,
    SPANS,
    STEPS,
    WORK,
    Identity,
    RankCapture,
)
from ..ranks import identity as identity_
from ..ranks.exposed import NEVER, Activity, segments
from ..readers.torch.communication import is_named
from ..readers.torch.events import (
    DEVICE,
    KERNEL,
    OP,
    RANGE,
    UNKNOWN,
    Events,
    Ints,
    read_events,
)
from ..readers.torch.nesting import Nesting, iteration_number, nest, windows
from ..readers.torch.trace import launches

# Operators that wait, or only call others: no compute of their own.
_NO_COMPUTE = ("autograd::", "c10d::", "_c10d_functional::", "profiler::")
_DATA = re.compile(rf"{PHASE}data$|enumerate\(DataLoader\)")
# Schedules of torch.distributed.pipelining: PP:0F1 (stage, action, micro-batch); GPipe names
# neither the stage ("Forward 1").
_ACTION = re.compile(r"PP:(\d+)([FBIW])(\d+)$")
_PLAIN_ACTION = re.compile(r"(Forward|Backward) (\d+)$")
Flags = npt.NDArray[np.bool_]

_LATEST = 9 * 10**18  # a time beyond is no time: sums of two would overflow


def read(path: Path) -> RankCapture:
    """The capture of one rank in a profiler trace. InputError where it cannot be used."""
    return of_events(read_events(path), path)


def of_events(events: Events, path: Path, whose: Identity | None = None) -> RankCapture:
    """The capture in these events; `whose` where that is known from elsewhere."""
    nesting = nest(events)
    launch, notes = launches(events)
    phase, iteration = windows(events, nesting)
    on_device = bool((events.kind == KERNEL).any())
    if whose is None:
        whose = identity_.of_trace(path.name, events.head, device=on_device)
    records = communications.records_of(events, nesting, launch)
    mine = communications.is_communication(events, records)
    found = communications.found(events, nesting, records, mine, list(whose.groups))
    computes = (events.kind == KERNEL) & ~mine if on_device else _computes(events, nesting)
    activity = _activity(events, launch, found, mine if on_device else None, computes)
    if not len(activity.start):
        raise InputError(
            "holds no kernel and no operator that computes or communicates",
            file=path,
            fix="profile with ProfilerActivity.CPU or CUDA, around whole steps",
        )
    steps = _steps(events, activity)
    low, high = int(activity.start.min()), int(activity.end.max())
    if not steps:
        last = _last_call(activity)
        steps = [(None, low, high, None if last is None else low, last)]
        notes = [*notes, "no range marks an iteration: the whole capture counts as one step"]
    low, high = min(low, steps[0][1]), max(high, *(end for _, _, end, _, _ in steps))
    shift = _shift(events, high)
    if shift is None:
        notes = [*notes, "its base time is no time: moments are counted from another start"]
        shift = 0
    modules = communications.modules(events, nesting)
    rows = communications.rows(found, events, modules, phase, iteration)
    lacking = sum(row["start"] is None for row in rows)
    unknown = {g.name for g in whose.groups}
    more = {f.group.name: f.group for f in found if f.group and f.group.name not in unknown}
    identity = Identity(
        **{
            **{name: getattr(whose, name) for name in Identity.__struct_fields__},
            "groups": (*whose.groups, *more.values()),
            "notes": (*whose.notes, *events.notes, *notes),
            "collectives_without_interval": lacking,
        }
    )
    return _shifted(
        RankCapture(
            identity,
            pa.Table.from_pylist(rows, schema=COLLECTIVES),
            segments(activity, low, high),
            pa.table(list(zip(*steps, strict=True)), schema=STEPS),
            _spans(events, iteration, computes, launch if on_device else None, found),
            _work(
                events,
                nesting,
                computes,
                launch if on_device else None,
                modules,
                (phase, iteration),
            ),
            _operations(events, computes, launch if on_device else None, iteration),
        ),
        shift,
    )


def _shift(events: Events, high: int) -> int | None:
    """What is added to the trace's times to make them absolute; None where that is no time."""
    base = events.head.get("baseTimeNanoseconds", 0)
    if isinstance(base, bool) or not isinstance(base, int) or abs(base) + high > _LATEST:
        return None
    return base


def _shifted(capture: RankCapture, shift: int) -> RankCapture:
    def moved(table: pa.Table, *columns: str) -> pa.Table:
        for name in columns:
            at = table.schema.get_field_index(name)
            table = table.set_column(at, table.schema.field(at), pc.add(table[name], shift))
        return table

    return RankCapture(
        capture.identity,
        moved(capture.collectives, "issued", "start", "end"),
        moved(capture.segments, "start", "end"),
        moved(capture.steps, "start", "end", "host_start", "host_end"),
        moved(capture.spans, "start", "end"),
        capture.work,
        moved(capture.operations, "start", "end"),
    )


# --- what runs ------------------------------------------------------------------------------------


def _computes(events: Events, nesting: Nesting) -> Flags:
    """The operators of a CPU that compute: no callers of others, and none of a communication."""
    named = np.array(
        ["::" in n and not n.startswith(_NO_COMPUTE) and not is_named(n) for n in events.names]
        or [False]
    )
    within: list[bool] = []
    for outer, name in nesting.paths:
        within.append((outer >= 0 and within[outer]) or is_named(str(events.names[name])))
    in_communication = np.array([*within, False])[nesting.path]
    computes: Flags = (events.kind == OP) & named[events.name] & ~in_communication
    return computes


def _activity(
    events: Events, launch: Ints, found: list[Found], mine: Flags | None, computes: Flags
) -> Activity:
    """What runs: on the device, or what the CPU's operators do; and every communication. `mine`:
    which operations of the device are communication, None without a device."""
    on_device = mine is not None
    if mine is not None:
        rows = np.flatnonzero(np.isin(events.kind, DEVICE))
        kind = np.where(
            mine[rows], COMMUNICATION, np.where(events.kind[rows] == KERNEL, COMPUTE, COPY)
        )
        call = launch[rows]
        launched = np.where(call == UNKNOWN, NEVER, events.start[np.maximum(call, 0)])
    else:
        rows = np.flatnonzero(computes)
        kind = np.full(len(rows), COMPUTE)
        launched = np.full(len(rows), NEVER)
    # Ranges of a library on the host are no operations of the device.
    of_host = [
        f for f in found if f.start is not None and f.end is not None and f.stream == UNKNOWN
    ]
    of_host = [f for f in of_host if f.event == UNKNOWN or not on_device or f.known_by == "order"]
    starts = np.array([f.start for f in of_host], dtype=np.int64)
    ends = np.array([f.end for f in of_host], dtype=np.int64)
    return Activity(
        np.concatenate((events.start[rows], starts)),
        np.concatenate((events.end[rows], ends)),
        np.concatenate((kind, np.full(len(starts), COMMUNICATION))).astype(np.int8),
        np.concatenate((launched, np.full(len(starts), NEVER))) if on_device else None,
    )


Step = tuple[int | None, int, int, int | None, int | None]


def _steps(events: Events, activity: Activity) -> list[Step]:
    """The rows of `STEPS`. One begins when its range does and what was launched before has ended,
    and lasts until the next begins; the last, until all of it has ended."""
    numbers = [iteration_number(str(name)) for name in events.names]
    own = [n is not None and str(name).startswith(ITERATION)
           for n, name in zip(numbers, events.names, strict=True)]  # fmt: skip
    if any(own):
        numbers = [n if mine else None for n, mine in zip(numbers, own, strict=True)]
    marked = np.array([n is not None for n in numbers] or [False])
    at = np.flatnonzero((events.kind == RANGE) & marked[events.name])
    ranges: dict[int, tuple[int, int]] = {}
    for i in at.tolist():
        number = numbers[events.name[i]]
        assert number is not None
        start, end = int(events.start[i]), events.end_of(i)
        low, high = ranges.get(number, (start, end))
        ranges[number] = min(low, start), max(high, end)
    ordered = sorted(ranges.items(), key=lambda r: r[1])
    done = _done_before(activity)
    begins = [max(start, done(start)) for _, (start, _) in ordered]
    steps: list[Step] = []
    calls_known = _last_call(activity) is not None
    for k, (number, (start, end)) in enumerate(ordered):
        follows = k + 1 < len(ordered) and ordered[k + 1][0] == number + 1
        until = begins[k + 1] if follows else max(end, done(end))
        if until > begins[k]:
            host = (start, end) if calls_known else (None, None)
            steps.append((number, begins[k], until, *host))
    return steps


def _last_call(activity: Activity) -> int | None:
    """When the host last asked for something that ran; None where it computes itself, or nobody
    knows when it asked."""
    if activity.launched is None or not (known := activity.launched != NEVER).any():
        return None
    return int(activity.launched[known].max())


def _done_before(activity: Activity) -> Callable[[int], int]:
    """The moment at which all has ended that was launched before a moment; on a CPU the moment."""
    if activity.launched is None:
        return lambda moment: moment
    known = activity.launched != NEVER
    calls = np.where(known, activity.launched, activity.start)
    order = np.argsort(calls, kind="stable")
    calls, until = calls[order], np.maximum.accumulate(activity.end[order])

    def done(moment: int) -> int:
        at = int(np.searchsorted(calls, moment, side="left"))
        return int(until[at - 1]) if at else moment

    return done


# --- what was done in it --------------------------------------------------------------------------


def _spans(
    events: Events, iteration: Ints, computes: Flags, launch: Ints | None, found: Sequence[Found]
) -> pa.Table:
    """Loading of data, actions of a pipeline, and waits of the host; an action takes as long as
    what it computes on the device, where there is one (`launch`): its messages, which it may begin
    with, are none."""
    rows = [] if launch is None else list(_syncs(events, iteration, launch, found))
    kernels = np.empty(0, np.int64)
    if launch is not None:
        kernels = np.flatnonzero(computes & (launch != UNKNOWN))
        kernels = kernels[np.argsort(events.start[launch[kernels]], kind="stable")]
        calls = events.start[launch[kernels]]
    for code, name in enumerate(map(str, events.names)):
        action, plain = _ACTION.match(name), _PLAIN_ACTION.match(name)
        if not (action or plain or _DATA.match(name)):
            continue
        for i in np.flatnonzero((events.kind == RANGE) & (events.name == code)).tolist():
            number = int(iteration[i])
            row: dict[str, object] = {
                "kind": "data",
                "name": name,
                "start": int(events.start[i]),
                "end": events.end_of(i),
                "iteration": None if number == UNKNOWN else number,
            }
            if action:
                row |= {"kind": "B" if action[2] == "I" else action[2]}
                row |= {"stage": int(action[1]), "microbatch": int(action[3])}
            elif plain:
                row |= {"kind": plain[1][0], "microbatch": int(plain[2])}
            if (action or plain) and len(kernels):
                low, high = np.searchsorted(calls, (events.start[i], events.end_of(i)))
                if low == high:
                    continue
                mine = kernels[low:high]
                row["start"], row["end"] = (
                    int(events.start[mine].min()),
                    max(map(events.end_of, mine.tolist())),
                )
            rows.append(row)
    rows.sort(key=lambda row: int(str(row["start"])))
    return pa.Table.from_pylist(rows, schema=SPANS)


def _syncs(
    events: Events, iteration: Ints, launch: Ints, found: Sequence[Found]
) -> Iterator[dict[str, object]]:
    """When the host waits: calls that do, and communication that a library runs on the host."""
    for i in waiting(events, launch):
        number = int(iteration[i])
        yield {
            "kind": "sync",
            "name": str(events.names[events.name[i]]),
            "start": int(events.start[i]),
            "end": events.end_of(i),
            "iteration": None if number == UNKNOWN else number,
        }
    for f in found:
        if f.stream == UNKNOWN and f.start is not None and f.end is not None:
            yield {"kind": "sync", "name": f.operation, "start": f.start, "end": f.end}


def _work(
    events: Events,
    nesting: Nesting,
    computes: Flags,
    launch: Ints | None,
    modules: tuple[Ints, list[str]],
    placed: tuple[Ints, Ints],
) -> pa.Table:
    """Sums of compute by name, phase, module, grid and iteration; `modules`: what
    `communications.modules` says; `placed`: phase and iteration."""
    rows, (phase, iteration) = np.flatnonzero(computes), placed
    if launch is not None:
        host, time = launch[rows], np.maximum(events.duration[rows], 0)
    else:
        host, time = rows, nesting.self_ns[rows]
    linked = host != UNKNOWN
    at = np.maximum(host, 0)
    module, names = modules
    keys = {
        "name": events.name[rows].astype(np.int64),
        "phase": np.where(linked, phase[at], UNKNOWN),
        "module": np.where(linked, module[at], UNKNOWN),
        "grid": events.geometry[rows].astype(np.int64),
        "iteration": np.where(linked, iteration[at], UNKNOWN),
    }
    order = np.lexsort(tuple(keys.values()))
    keys = {name: of[order] for name, of in keys.items()}
    differ = np.any([of[1:] != of[:-1] for of in keys.values()], axis=0)
    first = np.flatnonzero(np.concatenate(([True], differ)))[: len(rows)]
    time, ends = time[order], np.append(first[1:], len(rows))[: len(first)]
    texts = {
        "name": events.names, "phase": PHASES, "module": names,
        "grid": ["x".join(map(str, g.grid)) for g in events.geometries],
    }  # fmt: skip
    columns: dict[str, Any] = {name: _coded(keys[name][first], of) for name, of in texts.items()}
    number = keys["iteration"][first]
    columns["iteration"] = pa.array(number, mask=number == UNKNOWN)
    columns["count"], columns["total_ns"] = ends - first, np.add.reduceat(time, first)
    if launch is not None:
        beside = _beside(events, computes, rows[order])
        before = np.concatenate(([0], np.cumsum(~beside))).astype(np.int32)
        columns["beside_count"] = np.add.reduceat(beside.astype(np.int64), first)
        columns["beside_ns"] = np.add.reduceat(np.where(beside, time, 0), first)
        columns["alone"] = pa.ListArray.from_arrays(
            np.append(before[first], before[-1]), time[~beside]
        )
    unknown = {f.name: pa.nulls(len(first), f.type) for f in WORK}
    return pa.table(list((unknown | columns).values()), schema=WORK)


def _coded(codes: npt.NDArray[Any], texts: Sequence[str]) -> pa.Array:
    """Texts by their codes, `UNKNOWN` as null."""
    indices = pa.array(codes.astype(np.int32), mask=codes == UNKNOWN)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))


def _beside(events: Events, computes: Flags, rows: Ints) -> Flags:
    """Which kernels run, if only in part, while a kernel of communication runs on their device."""
    others = (events.kind == KERNEL) & ~computes
    result = np.zeros(len(rows), dtype=bool)
    for device in np.unique(events.device[rows]).tolist():
        there = others & (events.device == device)
        busy = Measure(*union(events.start[there], events.end[there]))
        mine = events.device[rows] == device
        at = rows[mine]
        result[mine] = busy.between(events.start[at], events.end[at]) > 0
    return result


def _operations(events: Events, computes: Flags, launch: Ints | None, iteration: Ints) -> pa.Table:
    """The table `operations`, in order of start."""
    rows = np.flatnonzero(computes if launch is None else np.isin(events.kind, DEVICE))
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    host = rows if launch is None else launch[rows]
    number = np.where(host != UNKNOWN, iteration[np.maximum(host, 0)], UNKNOWN)
    thread = np.array(
        [p if isinstance(p, int) else UNKNOWN for p in events.places] or [UNKNOWN], dtype=np.int64
    )
    stream = thread[events.thread[rows]] if launch is None else events.stream[rows]
    columns = [
        _coded(events.name[rows], events.names),
        pa.array(events.start[rows]),
        pa.array(events.end[rows]),
        pa.array(stream, mask=stream == UNKNOWN),
        pa.array(number, mask=number == UNKNOWN),
    ]
    return pa.table(columns, schema=OPERATIONS)
