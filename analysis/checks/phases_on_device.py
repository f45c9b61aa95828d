"""Phases of an eager step on a GPU: the time each one has there, and whether it adds up.

The host runs ahead of the device, so a phase's range on the host says when its operations were
launched and not when they ran. What a pair of CUDA events around the phase would measure is its
window: from the end of what came before to the end of what it launched, or to the end of its range
on the host where that is later. The windows of a step follow one another without a hole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    `overlaps` + `idle` = `length`, save for the time of operations `outside` the window."""

    length: int
    operations: int
    overlaps: int
    idle: int
    outside: int


Windows = Mapping[str, Mapping[int, Window]]


def windows(
    ops: pa.Table, phases: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]]
) -> dict[str, dict[int, Window]]:
    """The windows by phase and iteration.

    `ops`: with the device's operations, phase being that of the launch; `phases` and `steps`: facts
    of `attribution.eager` (start_ns, duration_ns; of the host's ranges). A phase that has several
    ranges in an iteration has no window.
    """
    device = _device(ops)
    of_phase: dict[str, dict[int, Window]] = {}
    for step in steps:
        number, reached = step["iteration"], step["start_ns"]
        mine = [p for p in phases if p["iteration"] == number]
        if len({p["phase"] for p in mine}) < len(mine):
            continue
        for phase in mine:
            start, end = device.get((phase["phase"], number), (_NONE, _NONE))
            host = phase["start_ns"] + phase["duration_ns"]
            until = max([reached, host, *end.tolist()])
            of_phase.setdefault(phase["phase"], {})[number] = _window(start, end, reached, until)
            reached = until
    return of_phase


_NONE = np.empty(0, dtype=np.int64)


def _device(ops: pa.Table) -> dict[tuple[str, int], tuple[Any, Any]]:
    """(phase, iteration) -> starts and ends of its operations on the device, by start."""
    rows = of_kinds(ops, DEVICE_KINDS, "duration_ns", "iteration").sort_by("start_ns")
    start = rows["start_ns"].to_numpy()
    end = start + rows["duration_ns"].to_numpy()
    places: dict[tuple[str, int], list[int]] = {}
    keys = zip(rows["phase"].to_pylist(), rows["iteration"].to_pylist(), strict=True)
    for at, key in enumerate(keys):
        places.setdefault(key, []).append(at)
    return {key: (start[at], end[at]) for key, at in places.items()}


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
    """Check (ii) of a step: the windows of its phases add up to it, within 2 %.

    `steps`: wall time by iteration; the host waits for the device before a step ends. The terms
    say how long the device was busy and idle, and each phase's window. The step with the median
    difference is shown.
    """
    lengths = {p: {i: w.length for i, w in of.items()} for p, of in of_phase.items()}
    shown = closure.beyond_phases(steps, lengths)
    if shown is None:
        return closure.unchecked("ii", "the capture marks no steps or no phases")
    residual, number = shown
    mine = [of[number] for of in of_phase.values() if number in of]
    busy = sum(w.operations - w.overlaps for w in mine)
    terms = [
        ("operations", sum(w.operations for w in mine)),
        ("overlaps", -sum(w.overlaps for w in mine)),
        ("gaps", sum(w.idle for w in mine)),
        *((f"{p} on the device", of[number]) for p, of in lengths.items() if number in of),
        ("latency", steps[number]),
    ]
    share = busy / steps[number] if steps[number] else 0.0
    return closure.judged(
        "ii",
        terms,
        residual,
        steps[number],
        closure.PHASES_TOLERANCE,
        floor_ns=closure.SPAN_FLOOR_NS,
        good=Wording("The phases add up to the step; the device was busy for {} of it.", [share]),
        bad=f"{time(residual)} of the step lie in no phase.",
    )
