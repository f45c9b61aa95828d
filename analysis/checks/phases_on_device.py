"""Phases of an eager step on a GPU: the time each one has there, and whether it adds up.

The host runs ahead of the device, so a phase's range on the host says when its operations were
launched and not when they ran. What a pair of CUDA events around the phase would measure is its
window: from its beginning on the host, or the end of what came before where that is later, to the
end of what it launched, or to the end of its range on the host where that is later. Where the
device has done all that came before and the host has not begun the next phase yet, the time is
between phases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.intervals import covered, length, union
from ...core.tables import DEVICE_KINDS, of_kinds
from ..formatting import spoken_time as time
from ..model.comparison import Check, Wording
from . import closure


@dataclass(frozen=True)
class Window:
    """One phase of one iteration on the device, in ns: `operations` (sum of durations) -
    `overlaps` + `idle` = `length`, save for the time of operations `outside` the window. `between`:
    from the end of what came before (at first, of the step's beginning) to the window."""

    length: int
    operations: int
    overlaps: int
    idle: int
    outside: int
    between: int = 0

    def and_then(self, later: Window) -> Window:
        """Both together."""
        return Window(
            self.length + later.length,
            self.operations + later.operations,
            self.overlaps + later.overlaps,
            self.idle + later.idle,
            self.outside + later.outside,
            self.between + later.between,
        )


Windows = Mapping[str, Mapping[int, Window]]


def windows(
    ops: pa.Table,
    phases: Sequence[Mapping[str, Any]],
    steps: Sequence[Mapping[str, Any]],
    launched: Mapping[int, int] = MappingProxyType({}),
) -> dict[str, dict[int, Window]]:
    """The windows by phase and iteration.

    `ops`: with the device's operations, phase being that of the launch; `phases`, `steps` and
    `launched`: facts of `attribution.eager` (start_ns, duration_ns, pieces; of the host's ranges).
    A phase that has several ranges in an iteration (micro-batches, recomputation inside backward)
    has a window for each piece, and all together are its window.
    """
    device = _device(ops, launched)
    of_phase: dict[str, dict[int, Window]] = {}
    for step in steps:
        number, reached = step["iteration"], step["start_ns"]
        pieces = sorted(
            (start, end, p["phase"])
            for p in phases
            if p["iteration"] == number
            for start, end in p.get("pieces", [(p["start_ns"], p["start_ns"] + p["duration_ns"])])
        )
        mine = _of_pieces(device, number, pieces)
        for (begin, host, phase), (start, end) in zip(pieces, mine, strict=True):
            since = max(reached, begin)
            until = max([since, host, *end.tolist()])
            window = replace(_window(start, end, since, until), between=since - reached)
            before = of_phase.setdefault(phase, {}).get(number)
            of_phase[phase][number] = window if before is None else before.and_then(window)
            reached = until
    return of_phase


@dataclass(frozen=True)
class _Device:
    """Starts and ends of operations on the device, by start, and when the host launched them (0
    where that is not known)."""

    start: Any
    end: Any
    launched: Any


def _of_pieces(
    device: Mapping[tuple[str, int], _Device], number: int, pieces: Sequence[tuple[int, int, str]]
) -> list[tuple[Any, Any]]:
    """Starts and ends of the operations of each piece: of those of its phase that were launched
    since it began and before the phase's next piece."""
    found: list[tuple[Any, Any]] = []
    for begin, _end, phase in pieces:
        of = device.get((phase, number))
        if of is None:
            found.append((_NONE, _NONE))
            continue
        begins = np.array([start for start, _end, name in pieces if name == phase])
        piece = np.maximum(np.searchsorted(begins, of.launched, side="right") - 1, 0)
        mine = piece == np.searchsorted(begins, begin)
        found.append((of.start[mine], of.end[mine]))
    return found


_NONE = np.empty(0, dtype=np.int64)


def _device(ops: pa.Table, launched: Mapping[int, int]) -> dict[tuple[str, int], _Device]:
    """The operations on the device by phase and iteration."""
    rows = of_kinds(ops, DEVICE_KINDS, "duration_ns", "iteration").sort_by("start_ns")
    start = rows["start_ns"].to_numpy()
    end = start + rows["duration_ns"].to_numpy()
    calls = np.array([launched.get(c, 0) for c in rows["correlation"].to_pylist()], dtype=np.int64)
    places: dict[tuple[str, int], list[int]] = {}
    keys = zip(rows["phase"].to_pylist(), rows["iteration"].to_pylist(), strict=True)
    for at, key in enumerate(keys):
        places.setdefault(key, []).append(at)
    return {key: _Device(start[at], end[at], calls[at]) for key, at in places.items()}


def _window(start: Any, end: Any, low: int, high: int) -> Window:
    """`start` and `end` of the operations; the window is [low, high)."""
    busy, within = length(start, end), covered(*union(start, end), low, high)
    operations = int((end - start).sum())
    return Window(high - low, operations, operations - busy, high - low - within, busy - within)


def phase_against_events(
    of_iteration: Mapping[int, Window], events: Mapping[int, int], what: str
) -> Check:
    """Check (ii) of a phase whose operations outlast the host's range.

    Operations and idle time make up the window; operations that lie outside of it were launched by
    another phase, or given to the wrong one. `events`: what CUDA events around the same phase of
    the same iteration measured, empty where the capture does not have them. The larger of the two
    differences decides; the iteration whose difference is the median is shown.
    """
    residuals = []
    for i, window in of_iteration.items():
        beyond = [window.outside]
        if i in events:
            beyond.append(events[i] - window.length)
        residuals.append((max(beyond, key=abs), i))
    shown = closure.middle(residuals)
    if shown is None:
        return closure.unchecked("ii", f"the capture does not mark the {what} once in each step")
    residual, number = shown
    window = of_iteration[number]
    terms = [
        ("operations", window.operations),
        ("overlaps", -window.overlaps),
        ("gaps", window.idle),
        ("outside the phase", -window.outside),
        ("window on the device", window.length),
    ]
    good = f"Operations and gaps add up to the time that the {what} has on the device"
    if number in events:
        terms.append(("latency", events[number]))
        good += ", and CUDA events around it measure the same"
    return closure.judged(
        "ii",
        terms,
        residual,
        events.get(number, window.length),
        closure.SPAN_TOLERANCE,
        floor_ns=closure.SPAN_FLOOR_NS if number in events else 0,
        good=f"{good}.",
        bad=f"{time(residual)} of the {what} are not explained by its operations and gaps.",
    )


def step_on_device(of_phase: Windows, steps: Mapping[int, int]) -> Check:
    """Check (ii) of a step: the windows of its phases and the time between them add up to it,
    within 2 %.

    `steps`: wall time by iteration; the host waits for the device before a step ends. The terms
    say how long the device was busy and idle, and each phase's window. The step with the median
    difference is shown.
    """
    lengths = {p: {i: w.length for i, w in of.items()} for p, of in of_phase.items()}
    reached = {p: {i: w.between + w.length for i, w in of.items()} for p, of in of_phase.items()}
    shown = closure.beyond_phases(steps, reached)
    if shown is None:
        return closure.unchecked("ii", "the capture marks no steps or no phases")
    residual, number = shown
    mine = [of[number] for of in of_phase.values() if number in of]
    busy, between = sum(w.operations - w.overlaps for w in mine), sum(w.between for w in mine)
    terms = [
        ("operations", sum(w.operations for w in mine)),
        ("overlaps", -sum(w.overlaps for w in mine)),
        ("gaps", sum(w.idle for w in mine)),
        *((f"{p} on the device", of[number]) for p, of in lengths.items() if number in of),
        ("between phases", between),
        ("latency", steps[number]),
    ]
    shares = [ns / steps[number] if steps[number] else 0.0 for ns in (between, busy)]
    return closure.judged(
        "ii",
        terms,
        residual,
        steps[number],
        closure.PHASES_TOLERANCE,
        floor_ns=closure.SPAN_FLOOR_NS,
        good=Wording(
            "The phases, and {} of the step between them, add up to it; the device was busy for {} "
            "of it.",
            shares,
        ),
        bad=f"{time(residual)} of the step lie in no phase.",
    )
