"""Modules and layers as spans of time, derived from the operations that belong to them.

A span reaches from the start of the first to the end of the last operation; it is no duration: a
gap, or work of another module in between, is inside it. What was spent is in its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...core.module_paths import ancestors, depth, inside
from .operations import Operations, codes, combined, integers
from .tracks import NULL, About, Flows, Ints, Slices, Track, apart, lanes, nested

MODEL = "(model)"
MODULE_NOTE = "span from the first to the last operation of the module's subtree; not a duration"
LAYER_NOTE = "span from the first to the last operation of the layer; not a duration"


@dataclass
class _Span:
    start: int
    end: int
    count: int = 0
    own: int = 0
    shared: int = 0

    def add(self, start: int, end: int, count: int, ns: int, whole: bool) -> None:
        self.start, self.end = min(self.start, start), max(self.end, end)
        self.count += count
        if whole:
            self.own += ns
        else:
            self.shared += ns


def modules(ops: Operations) -> Track | None:
    """The module tree as nested spans, one tree per phase; None where nothing has a module."""
    listed, lists = codes(ops.table["modules"])
    phase, phases = codes(ops.table["phase"])
    group, first = combined([phase, listed])
    starts = np.full(len(first), np.iinfo(np.int64).max)
    ends = np.full(len(first), np.iinfo(np.int64).min)
    busy, count = np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
    np.minimum.at(starts, group, ops.start)
    np.maximum.at(ends, group, ops.end)
    np.add.at(busy, group, ops.time)
    np.add.at(count, group, 1)
    spans_of: dict[tuple[int, str], _Span] = {}
    for g, row in enumerate(first.tolist()):
        named = set(lists[listed[row]]) if listed[row] >= 0 else set()
        place = int(starts[g]), int(ends[g])
        for path in {a for p in named for a in ancestors(p)}:
            whole = all(inside(p, path) for p in named)
            span = spans_of.setdefault((int(phase[row]), path), _Span(*place))
            span.add(*place, int(count[g]), int(busy[g]), whole)
    if not spans_of:
        return None
    # Outer modules first, so that of equal spans the outer one is drawn outside.
    keys = sorted(spans_of, key=lambda k: (k[0], k[1].count("."), k[1]))
    spans = [spans_of[k] for k in keys]
    paths = [path for _, path in keys]
    abouts: list[About] = [
        {"module": path or MODEL, "phase": phases[p] if p >= 0 else "unknown", "is": MODULE_NOTE}
        for p, path in keys
    ]
    slices = _slices(spans, [p or MODEL for p in paths], abouts)
    depths = np.asarray([depth(p) for p in paths], np.int64)

    def within(inner: int, outer: int) -> bool:
        return keys[inner][0] == keys[outer][0] and inside(paths[inner], paths[outer])

    return Track("modules", MODULE_NOTE, slices, lanes(slices.start, slices.end, within, depths))


def _slices(spans: list[_Span], names: list[str], abouts: list[About]) -> Slices:
    columns = {
        "span_ns": [s.end - s.start for s in spans],
        "own_ns": [s.own for s in spans],
        "shared_ns": [s.shared for s in spans],
        "operations": [s.count for s in spans],
    }
    each = np.arange(len(spans))
    return Slices(
        start=np.asarray([s.start for s in spans], np.int64),
        end=np.asarray([s.end for s in spans], np.int64),
        name=each,
        names=names,
        about=each,
        abouts=abouts,
        own={k: np.asarray(v, np.int64) for k, v in columns.items()},
    )


def layers(ops: Operations, name: str) -> Track | None:
    """Engine layers (or eager operators) as spans of operations that follow one another.

    Operations in the order of their starts; a run of one label is one slice, so a layer whose
    operations another one interrupts is drawn in parts. None where no operation has a label.
    """
    label, labels = codes(ops.table["layer"])
    if not labels:
        return None
    new = np.ones(len(label), bool)
    new[1:] = label[1:] != label[:-1]
    run = np.cumsum(new) - 1
    begins = np.flatnonzero(new)
    kept = label[begins] >= 0
    first = begins[kept]
    ends = np.maximum.reduceat(ops.end, begins)[kept]
    starts = ops.start[first]
    busy = np.add.reduceat(ops.time, begins)[kept]
    counts = np.diff([*begins, len(label)])[kept]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids = ops.arrow_from_layer[kept[run]]
    about, rows = combined([ops.about[first], label[first]])
    part, parts = _parts(label[first])
    slices = Slices(
        start=starts,
        end=ends,
        name=label[first],
        names=labels,
        about=about,
        abouts=[_layer_about(ops, int(first[r])) for r in rows],
        own={
            "span_ns": ends - starts,
            "busy_ns": busy,
            "operations": counts.astype(np.int64),
            "part": np.where(parts > 1, part + 1, NULL),
            "parts": np.where(parts > 1, parts, NULL),
        },
        opens=Flows(offsets, ids),
    )
    return Track(name, LAYER_NOTE, slices, lanes(starts, ends))


def _layer_about(ops: Operations, row: int) -> About:
    kept = ("layer", "nodes", "modules", "rule", "phase")
    about = ops.abouts[int(ops.about[row])]
    return {**{k: about[k] for k in kept if k in about}, "is": LAYER_NOTE}


def _parts(label: Ints) -> tuple[Ints, Ints]:
    """Per slice: which one of its label it is, and how many the label has."""
    order = np.argsort(label, kind="stable")
    _, begins, counts = np.unique(label[order], return_index=True, return_counts=True)
    part, parts = np.empty(len(label), np.int64), np.empty(len(label), np.int64)
    part[order] = np.arange(len(label)) - np.repeat(begins, counts)
    parts[order] = np.repeat(counts, counts)
    return part, parts


def streams(ops: Operations, closes: Sequence[Ints] = ()) -> list[Track]:
    """The operations: those of a device per stream, others per process.

    `closes`: columns of the arrows that end in them.
    """
    names = ("device", "stream") if ops.on_device else ("process",)
    place, first = combined([codes(ops.table[n])[0] for n in names])
    values = [integers(ops.table[n]) for n in names]
    every = replace(ops.slices(), closes=closes)
    tracks = []
    for code, row in enumerate(first.tolist()):
        chosen = np.flatnonzero(place == code)
        where = tuple(int(v[row]) for v in values)
        parts = (f"{n} {'unknown' if v == NULL else v}" for n, v in zip(names, where, strict=True))
        within = apart if ops.on_device else nested
        placed = lanes(ops.start[chosen], ops.end[chosen], within)
        name = f"{ops.what}, {' '.join(parts)}"
        tracks.append((where, Track(name, ops.note, every, [chosen[lane] for lane in placed])))
    return [track for _, track in sorted(tracks, key=lambda f: f[0])]
