"""The captures of the ranks in an nsys export: one for each process that used a GPU.

NCCL describes its calls in an NVTX domain of its own (src/include/nvtx.h): ranges whose payload has
the communicator, the message's size, the peer. Its place and form are told by the schema number,
2**24 + the call's number; the values are in `NVTX_EVENTS.binaryData`, behind a header of 32 bytes
(domain, schema, size, offset), which is there where it was exported with --include-blobs=true.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import InputError
from ..attribution import eager_nsys
from ..model.ranks import Group, Identity, RankCapture
from ..ranks.identity import Contradiction, rank_in_name
from ..readers.nsys import host, nccl, schema, sqlite
from ..readers.nsys.capture import Capture
from ..readers.nsys.load import load
from ..readers.torch.communication import Arguments
from ..readers.torch.events import (
    DEVICE,
    KERNEL,
    OP,
    RANGE,
    RUNTIME,
    UNKNOWN,
    Events,
    Geometry,
)
from . import rank

# Ranges that PyTorch and libraries open around operators, and which no operator is.
_RANGES = re.compile(r"FSDP::|PP:|ProfilerStep#|(Forward|Backward) \d+$|enumerate\(DataLoader\)")


def read(path: Path) -> list[RankCapture]:
    """One capture for each process with operations on a GPU. InputError where there is none."""
    with sqlite.source(path) as opened:
        capture = load(opened)
        calls = eager_nsys.launch_calls(capture)
        told = nccl.read(opened)
        made = host.load(opened, (host.CUDA,)).calls.get(host.CUDA)
        events = _with_grids(eager_nsys.events(capture, calls, path), capture)
    ranges = np.array([_RANGES.match(str(n)) is not None for n in events.names] or [False])
    events.kind = np.where(ranges[events.name] & (events.kind == OP), RANGE, events.kind)
    processes = np.unique(events.process[np.isin(events.kind, DEVICE)])
    if not len(processes):
        raise InputError(
            "holds no operation of a GPU", file=path, fix="capture with --trace=cuda,nvtx"
        )
    result = []
    for order, code in enumerate(processes.tolist()):
        mine = events.of_rows(np.flatnonzero(events.process == code))
        devices = np.unique(mine.device[np.isin(mine.kind, DEVICE)]).tolist()
        process = int(events.places[code])
        whose = _whose(path, told, process, order, len(processes), devices)
        mine = _with_syncs(_with_calls(mine, told, process, code), made, process, code)
        result.append(rank.of_events(mine, path, whose))
    return result


def _with_grids(events: Events, capture: Capture) -> Events:
    """The events with the grids of kernels; of what else a launch has nothing is read."""
    kernels = np.flatnonzero(events.kind == KERNEL)
    found = {} if capture.grids is None else capture.grids(events.start[kernels].tolist())
    codes = {grid: code for code, grid in enumerate(dict.fromkeys(found.values()))}
    grids = [found.get(start) for start in events.start[kernels].tolist()]
    events.geometry[kernels] = [UNKNOWN if g is None else codes[g] for g in grids]
    events.geometries = [Geometry(grid, (), None, None) for grid in codes]
    return events


def _whose(
    path: Path, told: nccl.Told, process: int, order: int, processes: int, devices: list[int]
) -> Identity:
    """The rank of a process: by the largest communicator that it made, else by the file's name,
    else (several processes) by its GPU."""
    own = told.rank(process)
    named = rank_in_name(path.name) if processes == 1 else None
    notes: list[str] = []
    if not told.calls:
        notes.append("holds no call of NCCL with its arguments: export with --include-blobs=true")
    number = named
    if own is not None:
        number = own.rank
        if named is not None and named != number:
            raise Contradiction(
                f"is named rank {named}, but is rank {number} of {own.size} in its communicator",
                file=path,
                fix="give it its own name back, or take the rank out of it",
            )
    elif processes > 1:
        number = devices[0] if len(devices) == 1 and devices[0] >= 0 else order
        notes.append(
            f"no communicator was made within the capture: rank {number} is the process on GPU "
            f"{number}"
        )
    return Identity(
        source=path.name if processes == 1 else f"{path.name}, process {process & 0xFFFFFF}",
        tool="nsys",
        rank=number,
        world=None if own is None else own.size,
        backend="nccl" if told.calls else None,
        device=True,
        groups=tuple(_groups(told, process)),
        notes=tuple(notes),
        report=path.name if processes > 1 else None,
    )


def _groups(told: nccl.Told, process: int) -> list[Group]:
    """The communicators of a process: their number in the order in which it made them. Of one with
    as many ranks as the largest, these are known."""
    own = {c: m for (p, c), m in told.members.items() if p == process}
    most = max((m.size for m in own.values()), default=0)
    return [
        Group(str(n), "communicator", tuple(range(most)) if m.size == most else None)
        for n, m in enumerate(own.values())
    ]


def _with_calls(events: Events, told: nccl.Told, process: int, code: int) -> Events:
    """The events, and NCCL's calls as ranges that say what they are of. A communicator that was
    made before the capture is its number, a hash of its id: the same on all its ranks."""
    calls = [c for c in told.calls if c.process == process]
    if not calls:
        return events
    own = [c for p, c in told.members if p == process]
    numbers = {communicator: str(n) for n, communicator in enumerate(own)}
    sizes = {c: m.size for (p, c), m in told.members.items() if p == process}
    arguments = [
        Arguments(
            operation=c.operation,
            group=numbers.get(c.communicator, f"{c.communicator:016x}"),
            group_size=sizes.get(c.communicator),
            elements_in=c.bytes,
            elements_out=c.bytes,
            dtype="byte",
            source=c.peer,
            target=c.peer,
        )
        for c in calls
    ]
    names = [*events.names, *dict.fromkeys(f"nccl:{c.operation}" for c in calls)]
    codes = {n: k for k, n in enumerate(names)}
    thread, places = _threads(events, [c.thread for c in calls])
    columns = {
        "kind": [RANGE] * len(calls),
        "name": [codes[f"nccl:{c.operation}"] for c in calls],
        "start": [c.start for c in calls],
        "duration": [c.end - c.start for c in calls],
        "process": [code] * len(calls),
        "thread": thread,
        "communication": range(len(calls)),
    }
    return events.with_rows(columns, names=names, places=places, communications=arguments)


def _with_syncs(events: Events, made: host.HostCalls | None, process: int, code: int) -> Events:
    """The events, and of the calls that the process `made` into CUDA those that synchronise."""
    if made is None:
        return events
    named = np.array(["ynchronize" in name for name in made.names] or [False])
    kept = np.flatnonzero(named[made.name] & (made.thread >> schema.PROCESS_SHIFT == process))
    used, name = np.unique(made.name[kept], return_inverse=True)
    thread, places = _threads(events, made.thread[kept].tolist())
    columns: dict[str, Any] = {
        "kind": [RUNTIME] * len(kept),
        "name": name + len(events.names),
        "start": made.start[kept],
        "duration": made.end[kept] - made.start[kept],
        "process": [code] * len(kept),
        "thread": thread,
    }
    names = [*events.names, *(made.names[n] for n in used.tolist())]
    return events.with_rows(columns, names=names, places=places)


def _threads(events: Events, numbers: Sequence[int]) -> tuple[list[int], list[Any]]:
    """The code of each thread, by its number, and the places with those that were not there."""
    codes = {t: k for k, t in enumerate(events.places) if isinstance(t, int)}
    new = [t for t in dict.fromkeys(numbers) if t not in codes]
    codes |= {t: k for k, t in enumerate(new, len(events.places))}
    return [codes[t] for t in numbers], [*events.places, *new]
