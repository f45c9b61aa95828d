"""Live memory over one step: what a page draws, and what a table says of each event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ...core import tables
from ...core.tables import Ints
from .categories import CATEGORIES, Told
from .peak import MODEL, NO_MODULE, Peak, lines_of

MOMENTS = 1200  # of a step, each the highest state of its stretch of events
BEFORE = "before"  # the action of what is older than the first event
ROWS = 4000  # of allocations with a life of their own


@dataclass(frozen=True)
class Group:
    """Allocations of one module, category and line that live from moment `begin` up to `end`,
    without it. `bytes`: asked for."""

    module: str
    category: str
    line: str
    begin: int
    end: int
    bytes: int
    count: int


@dataclass(frozen=True)
class Timeline:
    """`time_ns` and what was live, for each moment. `peak`: the number of the moment of the peak.
    `phases`: name, and the times between which it was the current one. `groups`: the largest;
    `left_out`: how many allocations are in none."""

    time_ns: list[int]
    categories: dict[str, list[int]]
    rounding: list[int]
    reserved: list[int] | None
    peak: int
    phases: list[tuple[str, int, int]]
    groups: list[Group]
    left_out: int

    def document(self) -> dict[str, Any]:
        """As JSON: times from the first moment on."""
        return {
            "time_ns": self.time_ns,
            "categories": self.categories,
            "rounding": self.rounding,
            "reserved": self.reserved,
            "peak": self.peak,
            "phases": [{"phase": p, "begin_ns": b, "end_ns": e} for p, b, e in self.phases],
            "alive": [vars(g) for g in self.groups],
            "left_out": self.left_out,
        }


def of_step(told: Told, peak: Peak) -> Timeline:
    """The step of a peak."""
    history = told.history
    begin, end = peak.step.begin, peak.step.end
    live = history.live()
    times = _times(told, begin, end)
    states = _moments(live[begin : end + 1], peak.state - begin) + begin
    categories = {}
    for code, name in enumerate(CATEGORIES):
        own = told.category == code
        if own.any():
            values = history.live(np.where(own, history.requested, 0))[states]
            if values.any():
                categories[name] = values.tolist()
    groups, left_out = _groups(told, states)
    return Timeline(
        time_ns=times[states - begin].tolist(),
        categories=categories,
        rounding=history.live(history.size - history.requested)[states].tolist(),
        reserved=None if history.reserved is None else history.reserved[states].tolist(),
        peak=int(np.searchsorted(states, peak.state)),
        phases=_phases(told, begin, end, times),
        groups=groups,
        left_out=left_out,
    )


def _times(told: Told, begin: int, end: int) -> Ints:
    """The time of each state of a step, from the first on; its number where times are unknown."""
    time = told.history.time_ns[begin:end]
    if not len(time) or np.any(time < 0):
        return np.arange(end - begin + 1, dtype=np.int64)
    time = np.maximum.accumulate(time)  # events of two threads may be swapped
    return np.concatenate([time[:1], time]) - int(time[0])


def _moments(live: Ints, peak: int) -> Ints:
    """States to draw: the highest of each stretch of events, the peak among them, the first and the
    last."""
    stretch = np.arange(len(live)) * MOMENTS // len(live)
    order = np.lexsort((-live, stretch))
    first = order[np.flatnonzero(np.diff(stretch[order], prepend=-1))]
    return np.unique(np.append(first, [0, len(live) - 1, peak])).astype(np.int64)


def _phases(told: Told, begin: int, end: int, times: Ints) -> list[tuple[str, int, int]]:
    phase = told.phase[begin:end]
    found: list[tuple[str, int, int]] = []
    edges = np.flatnonzero(np.diff(phase)) + 1
    for a, b in zip([0, *edges.tolist()], [*edges.tolist(), len(phase)], strict=True):
        if b > a and phase[a] >= 0 and told.phases[phase[a]] != "other":
            found.append((told.phases[phase[a]], int(times[a + 1]), int(times[b])))
    return found


def _groups(told: Told, states: Ints) -> tuple[list[Group], int]:
    """The largest groups of allocations that live at a moment, and how many are in the others."""
    history, n = told.history, len(states) + 1
    first = np.searchsorted(states, history.born + 1)
    last = np.searchsorted(states, history.freed, side="right")
    own = np.flatnonzero(first < last)
    line, lines = lines_of(told)
    sizes = (len(told.modules) + 1, len(CATEGORIES), max(len(lines), 1), n, n)
    parts = (told.module[own] + 1, told.category[own], line[own], first[own], last[own])
    keys, inverse, count = np.unique(
        np.ravel_multi_index(parts, sizes), return_inverse=True, return_counts=True
    )
    asked = np.bincount(inverse, history.requested[own], len(keys)).astype(np.int64)
    largest = np.argsort(-asked, kind="stable")[:ROWS]
    groups = []
    for k in largest.tolist():
        module, category, at, begin, end = (int(i) for i in np.unravel_index(keys[k], sizes))
        groups.append(
            Group(
                module=(told.modules[module - 1] or MODEL) if module else NO_MODULE,
                category=CATEGORIES[category],
                line=lines[at],
                begin=begin,
                end=end,
                bytes=int(asked[k]),
                count=int(count[k]),
            )
        )
    return groups, int(count.sum() - count[largest].sum())


def table(told: Told, source: str, rank: int | None) -> pa.Table:
    """The table `memory`: what was there before, and one row per event."""
    history, n = told.history, told.history.events
    before = np.flatnonzero(history.born < 0)
    owner = np.full(n, -1, np.int64)
    for events in (history.freed, history.born):
        inside = (events >= 0) & (events < n)
        owner[events[inside]] = np.flatnonzero(inside)
    completed = np.flatnonzero(history.of_action("free_completed"))
    requested = completed - 1  # right before it, where no stream is waited for
    same = (requested >= 0) & (history.event_address[requested] == history.event_address[completed])
    owner[completed[same]] = owner[requested[same]]
    iteration = np.full(n, -1, np.int64)
    for step in told.steps:
        if step.number is not None:
            iteration[step.begin : step.end] = step.number
    owner = np.concatenate([before, owner])
    none = np.full(len(before), -1, np.int64)
    earlier = np.full(len(before), len(history.names), np.int64)
    columns = {
        "source": pa.repeat(pa.scalar(source), len(owner)),
        "rank": pa.repeat(pa.scalar(rank, pa.int64()), len(owner)),
        "iteration": _known(np.concatenate([none, iteration])),
        "phase": _named(np.concatenate([none, told.phase]), told.phases),
        "time_ns": _known(np.concatenate([none, history.time_ns])),
        "action": _named(np.concatenate([earlier, history.action]), [*history.names, BEFORE]),
        "bytes": pa.array(np.concatenate([history.requested[before], history.event_size])),
        "address": _known(np.concatenate([history.address[before], history.event_address])),
        "category": _named(np.append(told.category, -1)[owner], list(CATEGORIES)),
        "module": _named(np.append(told.module, -1)[owner], told.modules),
        "frames": _coded(
            np.concatenate([history.stack[before], history.event_stack]), history.stacks
        ),
    }
    return tables.table("memory", columns)


def _known(values: Ints) -> pa.Array:
    return pa.array(values, mask=values < 0)


def _coded(codes: Ints, names: list[str]) -> pa.DictionaryArray:
    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


def _named(codes: Ints, names: list[str]) -> pa.Array:
    return _coded(codes, names).cast(pa.string())
