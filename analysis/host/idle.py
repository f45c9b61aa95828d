"""When the device idles, and what the host does meanwhile, in a capture by torch.profiler.

Host and device share a clock there. Of an iteration counts what passes from the end of the last
operation of the iteration before (of the first: from the begin of its step) to the end of its own
last: a device without work at the begin of a step is idle too. Each moment without an operation on
any stream is counted once, under the phase in which the host is at that moment; in "data" the
device waits for data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.intervals import Measure
from ...core.own_ranges import MODULE
from ...core.series import in_order
from ...core.stats import Estimate
from ...core.tables import PHASES, by_value
from ..model.waiting import Stretch
from ..readers.torch.events import DEVICE, UNKNOWN, Events, Ints
from .launch_bound import LAUNCH_BOUND
from .waits import Placed

SHOWN = 5  # stretches
Windows = Sequence[Mapping[str, Any]]  # of phases and steps, as `attribution.eager` gives them


class Idle(NamedTuple):
    """Idle time by phase, per iteration, and the longest stretches; both empty without a device."""

    by_phase: Mapping[str, Estimate]
    stretches: Sequence[Stretch]


def idle(events: Events, launch: Ints, placed: Placed, phases: Windows, steps: Windows) -> Idle:
    """Of the operations on devices whose launch is known (`readers.torch.trace.launches`);
    `phases`, `steps`: facts of the trace."""
    rows = np.flatnonzero(np.isin(events.kind, DEVICE) & (launch != UNKNOWN))
    rows = rows[placed.iteration[launch[rows]] != UNKNOWN]
    begins = {s["iteration"]: s["start_ns"] for s in steps}
    gaps: dict[int, list[tuple[int, int]]] = {}
    before: int | None = None
    parts = by_value(placed.iteration[launch[rows]])
    for number, at in parts:
        gaps[number], before = _gaps(events, rows[at], before, begins.get(number))
    windows = _windows(phases)
    by_phase = {n: _in_phases(own, windows) for n, own in gaps.items()}
    names = [*(p for p in PHASES if any(p in found for found in by_phase.values()))]
    estimates = {
        name: stat
        for name in names
        if (stat := in_order([by_phase[n].get(name, 0) for n in sorted(by_phase)])) is not None
    }
    if not parts:
        return Idle({}, ())
    totals = sorted(by_phase, key=lambda n: sum(by_phase[n].values()))
    middle = totals[(len(totals) - 1) // 2]
    own = rows[dict(parts)[middle]]
    return Idle(estimates, _stretches(events, launch, own, placed, middle))


def _windows(phases: Windows) -> list[tuple[int, int, str]]:
    """Begin, end and name of the phases in their order, without what lies inside of them; one ends
    where the next begins."""
    found = sorted((start, end, p["phase"]) for p in phases for start, end in pieces(p))
    following = [start for start, _, _ in found[1:]]
    return (
        [
            (start, min(end, after), name)
            for (start, end, name), after in zip(found, [*following, found[-1][1]], strict=True)
        ]
        if found
        else []
    )


def pieces(phase: Mapping[str, Any]) -> Sequence[tuple[int, int]]:
    """Begin and end of the parts of a phase's range in which no other phase runs."""
    whole = (phase["start_ns"], phase["start_ns"] + phase["duration_ns"])
    found: Sequence[tuple[int, int]] = phase.get("pieces", [whole])
    return found


def _gaps(
    events: Events, rows: Ints, before: int | None, begin: int | None
) -> tuple[list[tuple[int, int]], int]:
    """The moments without an operation, and the end of the last one."""
    order = rows[np.argsort(events.start[rows], kind="stable")]
    start, end = events.start[order], events.end[order]
    first = before if before is not None else begin
    done = np.maximum.accumulate(end)
    since = np.concatenate(([start[0] if first is None else first], done[:-1]))
    since = np.maximum.accumulate(since)
    found = [(int(a), int(b)) for a, b in zip(since, start, strict=True) if b > a]
    return found, int(done[-1])


def _in_phases(
    gaps: Sequence[tuple[int, int]], windows: Sequence[tuple[int, int, str]]
) -> dict[str, int]:
    """ns of the gaps by the phase of the host; what is in none is "other"."""
    low, high = np.array(gaps, dtype=np.int64).reshape(-1, 2).T
    found: dict[str, int] = {}
    for phase in dict.fromkeys(name for _, _, name in windows):
        own = np.array([(a, b) for a, b, name in windows if name == phase], dtype=np.int64)
        part = int(Measure(*own.T).between(low, high).sum())
        if part:
            found[phase] = part
    left = int((high - low).sum()) - sum(found.values())
    if left:
        found["other"] = found.get("other", 0) + left
    return found


def _stretches(
    events: Events, launch: Ints, rows: Ints, placed: Placed, number: int
) -> list[Stretch]:
    """The runs in which the device waits for the next launch in at least `LAUNCH_BOUND` of the
    time and that no more operations of the phase make longer, the most idle first."""
    order = rows[np.argsort(events.start[rows], kind="stable")]
    if len(order) < 2:
        return []
    done = np.maximum.accumulate(events.end[order])
    gap = np.maximum(events.start[order[1:]] - done[:-1], 0)
    waited = np.clip(events.end[launch[order[1:]]] - done[:-1], 0, gap)
    # Each score is of one operation and the gap before it; what differs in phase is apart.
    score = waited - LAUNCH_BOUND * np.diff(done)
    phase = placed.phase[launch[order[1:]]]
    borders = [0, *(np.flatnonzero(np.diff(phase)) + 1).tolist(), len(score)]
    found = []
    for begin, end in pairwise(borders):
        for low, high in longest(score[begin:end]):
            at = launch[order[begin + low + 1 : begin + high + 1]]
            code = int(phase[begin])
            found.append(
                Stretch(
                    iteration=number,
                    phase=PHASES[code] if code >= 0 else "other",
                    first=_module(events, placed, at),
                    last=_module(events, placed, at[::-1]),
                    operations=len(at),
                    time=int(done[begin + high] - done[begin + low]),
                    idle=int(waited[begin + low : begin + high].sum()),
                )
            )
    return sorted(found, key=lambda s: -s.idle)[:SHOWN]


def longest(scores: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    """All maximal runs with a positive sum, as [low, high): no part of one has a larger sum, and
    none can be made longer to have one (Ruzzo and Tompa, ISMB 1999)."""
    # Low, high, the sum before it and with it, and the place of the last run before it whose sum
    # before is smaller, so that no search looks at a run twice.
    runs: list[tuple[int, int, float, float, int]] = []
    total = 0.0
    for i, score in enumerate(scores.tolist()):
        before, total = total, total + score
        if score <= 0:
            continue
        low, high = i, i + 1
        while True:
            at = len(runs) - 1
            while at >= 0 and runs[at][2] >= before:
                at = runs[at][4]
            if at < 0 or runs[at][3] >= total:
                runs.append((low, high, before, total, at))
                break
            low, before = runs[at][0], runs[at][2]
            del runs[at:]
    return [(low, high) for low, high, *_ in runs]


def _module(events: Events, placed: Placed, at: Ints) -> str | None:
    """The module of the first of these that has one."""
    known = placed.module[at][placed.module[at] >= 0]
    return events.names[known[0]].removeprefix(MODULE) if len(known) else None
