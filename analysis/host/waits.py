"""For what the host waits in a capture by torch.profiler, cause by cause.

A call waits that synchronises by its name, copies without "Async", or allocates (which may wait
for all that was launched); and a copy that was asynchronous by name and returned only after the
device had done it, as copies from and to memory that is not pinned do. One from or to pinned
memory, or within the device, waits for nothing: a host that came late saw it done.

The cause is the outermost operator around a call, and the function of Python around that which is
neither PyTorch's nor the standard library's. PyTorch's profiler names a function by the line where
it begins.

Without a device nothing waits. Then operators are listed that would wait on one: they hand a
value, or a size that depends on values, to the host.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...core.documents import Synchronising
from ...core.own_ranges import MODULE
from ...core.series import in_order
from ...core.tables import PHASES
from ...core.torch_ranges import COPIES, EVALUATE, WOULD_WAIT
from ..model.waiting import Wait
from ..readers.torch.events import DEVICE, OP, PYTHON, RUNTIME, UNKNOWN, Events, Ints
from ..readers.torch.nesting import Nesting

_RUNTIME = r"(cuda|cu|hip|xpu|mtia|privateuse1)"
_SYNCHRONISES = re.compile(_RUNTIME + r"\w*Synchronize(_v\w+|_ptsz)?", re.I)
_COPIES = re.compile(_RUNTIME + r"Memcpy\w*", re.I)
_ALLOCATES = re.compile(
    _RUNTIME + r"(Malloc|MallocHost|HostAlloc|Free|FreeHost|MemAlloc|MemFree)(_v\d+)?", re.I
)
# What the device says of a copy that the host does not wait for: "Memcpy HtoD (Pinned -> Device)".
_ASYNCHRONOUS = re.compile(r"Pinned|Device -> Device|DtoD")
_FRAME = re.compile(r"(?P<file>.*\.py)\((?P<line>\d+)\): (?P<function>.*)", re.S)


_TORCH = re.compile(r"(^|/(site|dist)-packages/)torch/")


# Exact lines by phase, module and the operator around the call, and by function where that is
# known.
Lines = Mapping[tuple[str, str | None, str | None], Sequence[tuple[str | None, str]]]


class Placed(NamedTuple):
    """Where each event of a trace is (`attribution.autograd.Credit`): the code of its module's
    range, or -1; the index of its phase; its iteration."""

    module: Ints
    phase: Ints
    iteration: Ints


class _Cause(NamedTuple):
    cause: str
    call: str | None
    function: str | None
    module: str | None
    phase: str
    operator: str | None


def waits(
    events: Events,
    launch: Ints,
    nesting: Nesting,
    placed: Placed,
    steps: Mapping[int, int],
    lines: Lines | None = None,
) -> list[Wait]:
    """The causes, the longest wait first. `launch`: the call that launched each operation
    (`readers.torch.trace.launches`); `steps`: ns by iteration; `lines`: exact lines of Python."""
    on_device = bool(np.isin(events.kind, DEVICE).any())
    found: dict[_Cause, dict[int, list[int]]] = {}
    for i in waiting(events, launch) if on_device else _would_wait(events, nesting):
        number = int(placed.iteration[i])
        if number not in steps:
            continue
        cause = _cause(events, nesting, placed, i, on_device)
        found.setdefault(cause, {}).setdefault(number, []).append(int(events.duration[i]))
    whole = in_order([steps[n] for n in sorted(steps)])
    result = []
    for cause, by_iteration in found.items():
        samples = [sum(by_iteration.get(n, ())) for n in sorted(steps)]
        time = in_order(samples) if on_device else None
        share = time.median / whole.median if time and whole and whole.median else None
        count = sum(map(len, by_iteration.values())) / len(steps)
        exact = [
            line
            for function, line in (lines or {}).get((cause.phase, cause.module, cause.operator), ())
            if cause.function in (None, function)
        ]
        result.append(
            Wait(
                cause=cause.cause,
                call=cause.call,
                function=cause.function,
                lines=tuple(dict.fromkeys(exact)),
                module=cause.module,
                phase=cause.phase,
                count=count,
                time=time,
                share=share,
            )
        )
    return sorted(result, key=lambda w: (-(w.time.median or 0) if w.time else 0, -w.count, w.cause))


def waiting(events: Events, launch: Ints) -> Iterator[int]:
    """The calls in which the host waits; `launch` as of `waits`."""
    kinds = np.array([_kind(name) for name in events.names])[events.name]
    calls = (events.kind == RUNTIME) & (events.duration != UNKNOWN)
    done = np.full(len(events), np.iinfo(np.int64).max)
    device = np.flatnonzero(launch != UNKNOWN)
    done[launch[device]] = np.iinfo(np.int64).min
    np.maximum.at(done, launch[device], events.end[device])
    free = np.array([bool(_ASYNCHRONOUS.search(name)) for name in events.names], dtype=bool)
    asynchronous = np.zeros(len(events), dtype=bool)
    asynchronous[launch[device]] = free[events.name[device]]
    late = (kinds == "copies") & (done <= events.end) & ~asynchronous
    waits = (kinds == "waits") | late
    yield from np.flatnonzero(calls & waits).tolist()


def _kind(name: str) -> str:
    """What a call into the runtime does, by its name; empty for what never waits."""
    if _SYNCHRONISES.fullmatch(name) or _ALLOCATES.fullmatch(name):
        return "waits"
    if _COPIES.fullmatch(name):
        return "copies" if "async" in name.lower() else "waits"
    return ""


def _would_wait(events: Events, nesting: Nesting) -> Iterator[int]:
    """The operators that would wait on a device, the innermost of those in one another."""
    names = np.array([name in WOULD_WAIT for name in events.names], dtype=bool)
    chosen = np.flatnonzero(names[events.name] & (events.kind == OP))
    inside = {int(nesting.parent[i]) for i in chosen.tolist()}
    yield from (i for i in chosen.tolist() if i not in inside)


def _cause(events: Events, nesting: Nesting, placed: Placed, i: int, on_device: bool) -> _Cause:
    outermost, function, at = None, None, i
    while at >= 0 and function is None:
        name, kind = events.names[events.name[at]], events.kind[at]
        if kind == OP and not name.startswith(EVALUATE):
            outermost = name
        elif kind == PYTHON:
            function = written(name)
        at = int(nesting.parent[at])
        while at >= 0 and events.end[at] <= events.start[i]:  # a frame outlived it
            at = int(nesting.parent[at])
    module = int(placed.module[i])
    phase = int(placed.phase[i])
    call = events.names[events.name[i]] if on_device else None
    inner = int(nesting.operator[i])
    return _Cause(
        outermost or events.names[events.name[i]],
        call,
        function,
        None if module < 0 else events.names[module].removeprefix(MODULE),
        PHASES[phase] if phase >= 0 else "other",
        _operator(events.names[events.name[inner]]) if inner >= 0 else None,
    )


def _operator(name: str) -> str:
    """One name for copies, which are operators in one another."""
    return "copy" if name in COPIES else name


def lines_of(recorded: Synchronising) -> Lines:
    """The exact lines that `profile.eager.synchronising` recorded."""
    found: dict[tuple[str, str | None, str | None], list[tuple[str | None, str]]] = {}
    for row in recorded.rows:
        for frame in row.stack:
            function = written(f"{frame.file}({frame.begins}): {frame.function}")
            if function is not None:
                line = f"{frame.function} ({frame.file}:{frame.line})"
                of = found.setdefault((row.phase, row.module, _operator(row.operator)), [])
                of.append((function, line))
                break
    return found


@cache
def written(frame: str) -> str | None:
    """``helper (train.py:16)`` of a frame of Python that a user or a library of models wrote; None
    for what is PyTorch's own, the standard library's, or no function."""
    match = _FRAME.fullmatch(frame)
    if match is None:
        return None
    if _TORCH.search(match["file"]) or _standard(match["file"]):
        return None
    return f"{match['function']} ({match['file']}:{match['line']})"


def _standard(file: str) -> bool:
    """Whether a file is of the standard library: the profiler leaves out the folder."""
    folder = Path(sysconfig.get_path("stdlib"))
    inside = re.sub(r"^.*/python3\.\d+/(?!site-packages/|dist-packages/)", "", file)
    return not inside.startswith("/") and (folder / inside).is_file()
