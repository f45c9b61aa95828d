"""Modules and layers as spans of time, derived from the operations that belong to them.

A span reaches from the start of the first to the end of the last operation; it is no duration: a
gap, or work of another module in between, is inside it. What was spent is in its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ...core.module_paths import ancestors, depth, inside
from .operations import Operations, codes, combined, integers
from .tracks import NULL, About, Flows, Ints, Slices, Track, apart, lanes, nested, track_of

MODEL = "(model)"
MODULE_NOTE = "span from the first to the last operation of the module's subtree; not a duration"
LAYER_NOTE = "span from the first to the last operation of the layer; not a duration"
_THREADS = (
    "The table of operations tells the process, not the thread: of several threads one's operators "
    "may be drawn upon another's. Times are what was measured."
)
_OF_LAYER = ("layer", "nodes", "modules", "rule", "phase")
_REACH = [("start", "min"), ("end", "max")]


def modules(ops: Operations) -> Track | None:
    """The module tree as nested spans, one tree per phase; None where nothing has a module."""
    listed, lists = codes(ops.table["modules"])
    phase, phases = codes(ops.table["phase"])
    rows = pa.table(
        {
            "phase": phase,
            "listed": listed,
            "start": ops.slices.start,
            "end": ops.slices.end,
            "ns": ops.time,
        }
    ).group_by(["phase", "listed"])
    parts = []
    for row in rows.aggregate([*_REACH, ("ns", "sum"), ("ns", "count")]).to_pylist():
        named = set(lists[row["listed"]]) if row["listed"] >= 0 else set()
        for path in {a for p in named for a in ancestors(p)}:
            whole = all(inside(p, path) for p in named)
            parts.append(
                {
                    "phase": row["phase"],
                    "depth": depth(path),
                    "path": path,
                    "start": row["start_min"],
                    "end": row["end_max"],
                    "own": row["ns_sum"] if whole else 0,
                    "shared": 0 if whole else row["ns_sum"],
                    "count": row["ns_count"],
                }
            )
    if not parts:
        return None
    sums = [("own", "sum"), ("shared", "sum"), ("count", "sum")]
    keys = ["phase", "depth", "path"]
    spans = pa.Table.from_pylist(parts).group_by(keys).aggregate([*_REACH, *sums])
    # Outer modules first, so that of equal spans the outer one is drawn outside.
    spans = spans.sort_by([(k, "ascending") for k in keys])
    of_phase, paths = spans["phase"].to_pylist(), spans["path"].to_pylist()
    abouts: list[About] = [
        {"module": path or MODEL, "phase": phases[p] if p >= 0 else "unknown", "is": MODULE_NOTE}
        for p, path in zip(of_phase, paths, strict=True)
    ]
    start, end, depths, own, shared, count = (
        integers(spans[c])
        for c in ("start_min", "end_max", "depth", "own_sum", "shared_sum", "count_sum")
    )
    each = np.arange(len(spans))
    slices = Slices(
        start=start,
        end=end,
        name=each,
        names=[p or MODEL for p in paths],
        about=each,
        abouts=abouts,
        own={"span_ns": end - start, "own_ns": own, "shared_ns": shared, "operations": count},
    )

    def within(inner: int, outer: int) -> bool:
        return of_phase[inner] == of_phase[outer] and inside(paths[inner], paths[outer])

    return Track("modules", MODULE_NOTE, slices, lanes(start, end, within, depths))


def layers(ops: Operations, name: str, arrows: Ints) -> Track | None:
    """Engine layers (or eager operators) as spans of operations that follow one another.

    Operations in the order of their starts; a run of one label is one slice, so a layer whose
    operations another one interrupts is drawn in parts. `arrows`: the number of that which leads to
    each operation. None where no operation has a label.
    """
    label, labels = codes(ops.table["layer"])
    if not labels:
        return None
    begins = np.flatnonzero(np.diff(label, prepend=-2))
    kept = label[begins] >= 0
    first = begins[kept]
    ends = np.maximum.reduceat(ops.slices.end, begins)[kept]
    starts = ops.slices.start[first]
    busy = np.add.reduceat(ops.time, begins)[kept]
    counts = np.diff([*begins, len(label)])[kept]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    about, rows = combined([ops.slices.about[first], label[first]])
    part, parts = _parts(label[first])
    slices = Slices(
        start=starts,
        end=ends,
        name=label[first],
        names=labels,
        about=about,
        abouts=[
            {**{k: about[k] for k in _OF_LAYER if k in about}, "is": LAYER_NOTE}
            for about in (ops.slices.abouts[ops.slices.about[first[r]]] for r in rows)
        ],
        own={
            "span_ns": ends - starts,
            "busy_ns": busy,
            "operations": counts.astype(np.int64),
            "part": np.where(parts > 1, part + 1, NULL),
            "parts": np.where(parts > 1, parts, NULL),
        },
        opens=Flows(offsets, arrows[label >= 0]),
    )
    return Track(name, LAYER_NOTE, slices, lanes(starts, ends))


def _parts(label: Ints) -> tuple[Ints, Ints]:
    """Per slice: which one of its label it is, and how many the label has."""
    order = np.argsort(label, kind="stable")
    counts = np.bincount(label)
    part = np.empty(len(label), np.int64)
    part[order] = np.arange(len(label)) - np.repeat(np.cumsum(counts) - counts, counts)
    return part, counts[label]


def streams(ops: Operations, what: str, closes: Sequence[Ints] = ()) -> list[Track]:
    """The operations: those of a device per stream, others per process.

    `closes`: columns of the arrows that end in them.
    """
    names = ("device", "stream") if ops.on_device else ("process",)
    values = [integers(ops.table[n]) for n in names]
    # Codes in the order of the values.
    place, first = combined([np.unique(v, return_inverse=True)[1] for v in values])
    every = replace(ops.slices, closes=closes)
    within, note = (apart, "") if ops.on_device else (nested, _THREADS)
    tracks = []
    for code, row in enumerate(first.tolist()):
        where = zip(names, (int(v[row]) for v in values), strict=True)
        parts = (f"{n} {'unknown' if v == NULL else v}" for n, v in where)
        rows = np.flatnonzero(place == code)
        tracks.append(track_of(f"{what}, {' '.join(parts)}", note, every, rows, within))
    return tracks
