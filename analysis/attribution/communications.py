"""The communications of one rank, out of the events of its profiler trace."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...core.own_ranges import MODULE
from ...core.tables import PHASES
from ..model.ranks import GROUPED, POINT_TO_POINT, Group
from ..readers.torch.communication import (
    KERNELS,
    RECORD,
    Arguments,
    element_bytes,
    elements,
    operation_of,
)
from ..readers.torch.events import DEVICE, KERNEL, UNKNOWN, Events, Ints
from ..readers.torch.nesting import Nesting
from . import gloo
from .autograd import backward_nodes, forward_of
from .communication import Found, arguments_of

Flags = npt.NDArray[np.bool_]

GROUP_RANGE = "nccl:coalesced"
_FSDP = re.compile(r"FSDP::\w+ \((.*?)\)|FSDP::\w+_prefetch for (.+?)(?: \[pg=\d+\])?$")


def found(
    events: Events, nesting: Nesting, records: Ints, mine: Flags, groups: list[Group]
) -> list[Found]:
    """All communications of the trace, in the order of the host's calls where these are known.
    `records` and `mine`: what `records_of` and `is_communication` say."""
    every = _of_device(events, nesting, records, mine) + gloo.found(events, groups)
    known = {g.name: g for g in groups}
    every = [replace(f, group=f.group or _group(f.arguments, known)) for f in every]
    return sorted(every, key=lambda f: (_issued(events, f), f.start or 0))


def rows(
    every: list[Found],
    events: Events,
    of_modules: tuple[Ints, list[str]],
    phase: Ints,
    iteration: Ints,
) -> list[dict[str, object]]:
    """The rows of `model.ranks.COLLECTIVES`; `of_modules`: what `modules` says."""
    module, names = of_modules
    result: list[dict[str, object]] = []
    for f in every:
        a, at = f.arguments, f.event
        placed = at != UNKNOWN
        result.append(
            {
                "group": f.group.key if f.group else None,
                "operation": f.operation,
                "phase": PHASES[phase[at]] if placed and phase[at] != UNKNOWN else None,
                "module": names[module[at]] if placed and module[at] != UNKNOWN else None,
                "dtype": a.dtype,
                "known_by": f.known_by,
                "sequence": None if f.number == UNKNOWN else f.number,
                "iteration": int(iteration[at]) if placed and iteration[at] != UNKNOWN else None,
                "issued": int(events.start[at]) if placed else None,
                "start": f.start,
                "end": f.end,
                "bytes": _bytes(f),
                "peer": _peer(f),
                "group_size": len(f.group.ranks) if f.group and f.group.ranks else a.group_size,
                "stream": next((s for s in (f.stream, f.thread) if s != UNKNOWN), None),
            }
        )
    return result


def is_communication(events: Events, records: Ints) -> Flags:
    """Which device operations are communication: those that a record launched or whose own
    arguments say so, copies included, and kernels of that name."""
    device = np.flatnonzero(np.isin(events.kind, DEVICE))
    named = np.array([KERNELS.search(n) is not None for n in events.names] or [False])
    mine = np.zeros(len(events), dtype=bool)
    mine[device] = (
        (records[device] != UNKNOWN)
        | (events.communication[device] != UNKNOWN)
        | (named[events.name[device]] & (events.kind[device] == KERNEL))
    )
    return mine


# --- on a device ----------------------------------------------------------------------------------


def records_of(events: Events, nesting: Nesting, launch: Ints) -> Ints:
    """The record around the launch of each device operation: a range `nccl:…` that says what it is
    of, else `record_param_comms`, else any such range; UNKNOWN for none. In a report of nsys the
    first is NCCL's own call, within PyTorch's ranges, which say nothing there."""
    is_record = np.array([n == RECORD for n in events.names] or [False])
    is_range = np.array([n.startswith("nccl:") for n in events.names] or [False])
    host = np.zeros(len(events), dtype=bool)
    host[nesting.order] = True
    result = np.full(len(events), UNKNOWN, dtype=np.int64)
    linked = np.flatnonzero(launch != UNKNOWN)
    says = np.array([*(a.operation is not None for a in events.communications), False])
    calls = is_range[events.name] & says[events.communication]  # the last is UNKNOWN's
    for flags in (is_range[events.name], is_record[events.name], calls):
        around = nesting.innermost(flags & host)
        here = around[launch[linked]]
        result[linked] = np.where(here != UNKNOWN, here, result[linked])
    # The range of a group is open until nobody holds its work: what is computed meanwhile is in it.
    of_group = np.array([*(n == GROUP_RANGE for n in events.names), False])
    held = linked[of_group[events.name[result[linked]]] & (result[linked] != UNKNOWN)]
    named = np.array([KERNELS.search(n) is not None for n in events.names] or [False])
    result[held[~named[events.name[held]]]] = UNKNOWN
    return result


def _of_device(events: Events, nesting: Nesting, records: Ints, mine: Flags) -> list[Found]:
    device = np.flatnonzero(mine)
    of_record: dict[int, list[int]] = {}
    alone: list[Found] = []
    for i in device[np.argsort(events.start[device], kind="stable")].tolist():
        if records[i] != UNKNOWN:
            of_record.setdefault(int(records[i]), []).append(i)
        else:
            alone.append(_kernel(events, i))
    ranges = _ranges_inside(events, nesting)
    every = [_record(events, at, parts, ranges) for at, parts in of_record.items()]
    return alone + _grouped(events, nesting, every)


def _kernel(events: Events, i: int) -> Found:
    """A kernel without a record: by its own arguments, else by its name."""
    arguments = arguments_of(events, i)
    told = arguments.operation is not None
    operation = operation_of(arguments.operation or str(events.names[events.name[i]]))
    if operation == events.names[events.name[i]]:
        operation = "unknown"
    start, end = int(events.start[i]), events.end_of(i)
    by = "record" if told else "name"
    number = int(events.number[i])
    return Found(UNKNOWN, operation, arguments, start, end, by, int(events.stream[i]), number)


def _record(events: Events, at: int, parts: list[int], ranges: dict[int, int]) -> Found:
    arguments = arguments_of(events, at)
    number = int(events.number[at])
    for i in parts:  # the kernels have what the record lacks
        code = int(events.communication[i])
        if arguments.operation is None and code != UNKNOWN:
            arguments = events.communications[code]
        number = int(events.number[i]) if number == UNKNOWN else number
    inner = ranges.get(at, at)
    if arguments.elements_in is None and inner != at:
        shape = arguments_of(events, inner)  # the record's own are those of its list of tensors
        arguments = replace(arguments, dims=shape.dims, types=shape.types)
    name = arguments.operation or str(events.names[events.name[inner]])
    start, end = int(events.start[parts].min()), max(map(events.end_of, parts))
    stream = int(events.stream[parts[0]])
    return Found(at, operation_of(name), arguments, start, end, "record", stream, number)


def _ranges_inside(events: Events, nesting: Nesting) -> dict[int, int]:
    """The range ``nccl:…`` inside each record, by the record."""
    is_range = np.array([n.startswith("nccl:") for n in events.names] or [False])
    at = np.flatnonzero(is_range[events.name] & (nesting.parent != UNKNOWN))
    return dict(zip(nesting.parent[at].tolist(), at.tolist(), strict=True))


def _grouped(events: Events, nesting: Nesting, every: list[Found]) -> list[Found]:
    """`every`, with the sends and receives that were issued as a group in place of the record that
    ends it. NCCL launches one kernel for all of a group when it ends, so that the kernel is linked
    to ``nccl:coalesced`` (ProcessGroupNCCL::endCoalescing), which says neither what it is of nor of
    which group, while the records that do say it launched nothing. Each is given the kernel's
    interval. An end without any of them stays, of an unknown group."""
    ends: dict[int, list[Found]] = {}
    for f in sorted(every, key=lambda f: _issued(events, f)):
        if f.operation == GROUPED:
            ends.setdefault(int(events.thread[f.event]), []).append(f)
    if not ends:
        return every
    starts = {thread: [_issued(events, f) for f in of] for thread, of in ends.items()}
    launched = {f.event for f in every if f.operation != GROUPED}

    def has_its_own(i: int) -> bool:
        """Whether it launched something, or PyTorch's record around a call of NCCL did."""
        while i != UNKNOWN and i not in launched:
            i = int(nesting.parent[i])
        return i != UNKNOWN

    says = np.array([operation_of(a.operation or "") in POINT_TO_POINT
                     for a in events.communications] + [False])  # fmt: skip
    rows = np.flatnonzero(says[events.communication] & ~np.isin(events.kind, DEVICE))
    members: list[Found] = []
    of: set[int] = set()
    for i in rows.tolist():
        thread = int(events.thread[i])
        at = bisect_left(starts.get(thread, []), int(events.start[i]))
        if at == len(starts.get(thread, [])) or has_its_own(i):
            continue
        end, arguments = ends[thread][at], events.communications[events.communication[i]]
        of.add(end.event)
        members.append(replace(end, event=i, arguments=arguments, number=int(events.number[i]),
                               operation=operation_of(arguments.operation or "")))  # fmt: skip
    return [f for f in every if f.event not in of] + members


# --- what is known of one -------------------------------------------------------------------------


def _issued(events: Events, f: Found) -> int:
    return int(events.start[f.event]) if f.event != UNKNOWN else f.start or 0


def _group(arguments: Arguments, known: dict[str, Group]) -> Group | None:
    if arguments.group is None:
        return None
    given = known.get(arguments.group)
    if given is not None:
        return given
    return Group(arguments.group, arguments.group_about or "", arguments.ranks)


def _bytes(f: Found) -> int | None:
    """Bytes of this rank; see `model.ranks.COLLECTIVES`."""
    a = f.arguments
    if f.operation == "barrier":
        return None
    outside = f.operation in ("reduce-scatter", "recv")
    count = a.elements_out if outside else a.elements_in
    dtype = a.dtype
    if count is None and a.dims:
        sizes = [elements(d) for d in a.dims]
        known = [s for s in sizes if s is not None]
        # Calls with a result and an input name the result first; the smaller is a rank's part.
        part = f.operation in ("all-gather", "reduce-scatter")
        count = (min(known) if part else known[0]) if known else None
        dtype = next((t for t in a.types if element_bytes(t)), None)
    size = element_bytes(dtype)
    return None if count is None or size is None else count * size


def _peer(f: Found) -> int | None:
    if f.operation not in POINT_TO_POINT:
        return None
    a = f.arguments
    peer = a.target if f.operation == "send" else a.source
    if peer is None and len(a.inputs) > 2 and re.fullmatch(r"\d{1,9}", a.inputs[2]):
        peer = int(a.inputs[2])
    ranks = f.group.ranks if f.group else None
    if peer is None or ranks is None:
        return peer
    return ranks[peer] if 0 <= peer < len(ranks) else None


def modules(events: Events, nesting: Nesting) -> tuple[Ints, list[str]]:
    """The module of each event as a code, `UNKNOWN` for none, and the modules by their codes: the
    innermost that a range around the event names, ours or FSDP's; where there is none, in backward,
    that of the forward operator whose node it is in."""
    codes: dict[str, int] = {}
    of_path: list[int] = []
    for outer, name in nesting.paths:
        text = str(events.names[name])
        code = of_path[outer] if outer >= 0 else UNKNOWN
        module = text.removeprefix(MODULE) if text.startswith(MODULE) else None
        if module is None and (match := _FSDP.match(text)):
            module = match[1] if match[1] is not None else match[2]
        of_path.append(code if module is None else codes.setdefault(module, len(codes)))
    result = np.array([*of_path, UNKNOWN], dtype=np.int64)[nesting.path]
    nodes = backward_nodes(events)
    node = nesting.innermost(nodes)
    forward = np.where(node >= 0, forward_of(events, nodes)[node], UNKNOWN)
    untold = (result == UNKNOWN) & (forward >= 0)
    result[untold] = result[forward[untold]]
    return result, list(codes)
