"""One step of all ranks for ui.perfetto.dev, on the clock of all: what each moment was, what ran,
its communications, with arrows from the last to begin to those that waited for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..model.ranks import Job, Picture
from .tracks import NULL, About, Flows, Group, Ints, Slices, Track, apart, lanes, track_of

# What ran on a rank, by rank: the table `operations` of `model.ranks`.
Operations = Callable[[int], pa.Table]


def groups(job: Job, operations: Operations, labels: Mapping[int, str]) -> list[Group]:
    """A group for each rank: the middle one of the steps that are drawn."""
    if not job.pictures:
        return []
    shown = job.pictures[len(job.pictures) // 2]
    rows = _shown(job.collectives, shown)
    arrows = {n: k + 1 for k, n in enumerate(sorted(set(rows["instance"].drop_null().to_pylist())))}
    result = []
    for one in job.identities:
        assert one.rank is not None
        mine = rows.filter(pc.equal(rows["rank"], one.rank))
        tracks = [
            _communications(mine, arrows),
            *_ran(operations(one.rank), shown, job.clocks[one.rank].offset),
        ]
        clock = job.clocks[one.rank]
        facts: dict[str, Any] = {
            "rank": one.rank,
            "capture": one.source,
            **({} if shown.iteration is None else {"iteration": shown.iteration}),
            "clock_offset_ns": clock.offset,
            "clock_by": clock.by or "not aligned",
        }
        if clock.uncertainty is not None:
            facts["clock_uncertainty_ns"] = clock.uncertainty
        label = labels.get(one.rank, f"rank {one.rank}")
        result.append(Group(label, shown.low, [t for t in tracks if t], facts))
    return result


def _shown(table: pa.Table, shown: Picture) -> pa.Table:
    table = table.filter(pc.is_valid(table["start_ns"]))
    end = pc.add(table["start_ns"], table["duration_ns"])
    inside = pc.and_(pc.less(table["start_ns"], shown.high), pc.greater(end, shown.low))
    return table.filter(inside)


def _communications(rows: pa.Table, arrows: Mapping[int, int]) -> Track | None:
    if not len(rows):
        return None
    start = rows["start_ns"].to_numpy()
    end = start + rows["duration_ns"].to_numpy()
    names: dict[str, int] = {}
    abouts: list[About] = []
    name = []
    opens: list[int] = []
    offsets = [0]
    closes = np.full(len(rows), NULL, dtype=np.int64)
    for i, row in enumerate(rows.to_pylist()):
        name.append(names.setdefault(_name(row), len(names)))
        abouts.append({k: v for k, v in row.items() if v is not None and k not in _NOT_TOLD})
        arrow = arrows.get(row["instance"])
        if arrow is not None and row["late_rank"] == row["rank"]:
            opens.append(arrow)
        elif arrow is not None and row["wait_ns"]:
            closes[i] = arrow
        offsets.append(len(opens))
    codes = np.arange(len(rows), dtype=np.int64)
    slices = Slices(
        start, end, np.array(name, dtype=np.int64), list(names), codes, abouts,
        opens=Flows(np.array(offsets, np.int64), np.array(opens, np.int64)), closes=[closes],
    )  # fmt: skip
    note = "an arrow leads from the rank that began last to those that waited for it"
    return Track("communication", note, slices, lanes(start, end, apart))


_NOT_TOLD = ("source", "rank", "start_ns", "duration_ns")


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['operation']} {row['module']}" if row["module"] else str(row["operation"])


def _ran(table: pa.Table, shown: Picture, offset: int) -> list[Track]:
    low, high = shown.low + offset, shown.high + offset
    inside = pc.and_(pc.less(table["start"], high), pc.greater(table["end"], low))
    table = table.filter(inside)
    if not len(table):
        return []
    coded = table["name"].combine_chunks()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.chunk(0)
    name: Ints = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    names: Sequence[str] = coded.dictionary.to_pylist()
    start, end = (table[c].to_numpy() - offset for c in ("start", "end"))
    nothing = np.zeros(len(table), dtype=np.int64)
    slices = Slices(start, end, name, names, nothing, [{}])
    stream = table["stream"].fill_null(-1).to_numpy()
    return [
        track_of(f"stream {s}", "", slices, np.flatnonzero(stream == s))
        for s in np.unique(stream).tolist()
    ]
