"""All ranks together: from each rank's capture to what is told of the job.

Captures are asked for one at a time and only their communications are kept, so memory goes with
these, not with what ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core import tables
from ...core.errors import InputError
from ...core.intervals import Ints, union
from ...core.ranks.identity import spelled
from ..model.ranks import (
    PARTS,
    POINT_TO_POINT,
    STEPS,
    Bubble,
    Clock,
    Identity,
    Job,
    Picture,
    RankCapture,
)
from . import beside, identity, imbalance, picture, pipeline, summary
from .accounting import Ledger, ledger
from .bandwidth import bus
from .clocks import align
from .critical_path import critical_path
from .groups import told
from .matching import Matched, match, together
from .replay import recording, what_if
from .waits import Waits, repeated, waits
from .work import slower

# How to get a rank's capture; it is dropped again before the next is asked for.
Load = Callable[[int], RankCapture]
Steps = tuple[int | None, ...]


def reduce(
    identities: Sequence[Identity],
    collectives: Mapping[int, pa.Table],
    steps: Mapping[int, pa.Table],
    load: Load,
    left_out: Sequence[str] = (),
) -> Job:
    """The job of these ranks: `collectives` and `steps` of each, how to get all of one, and what
    was `left_out` before.

    InputError where they are not of one job and time.
    """
    missing, world = identity.settled(identities)
    ordered = sorted(identities, key=lambda one: one.rank or 0)
    ranks = [one.rank for one in ordered if one.rank is not None]
    sources = {one.rank: one.source for one in ordered if one.rank is not None}
    identity.same_time({sources[r]: _window(steps[r]) for r in ranks if len(steps[r])})
    common, notes = _common(steps, sources)
    groups = {g.key: g for one in ordered for g in one.groups}
    known = told(collectives, ordered)
    rows = together([(r, known[r]) for r in ranks])
    matched = match(rows, groups, ranks)
    hosts = {one.rank: one.host for one in ordered if one.rank is not None}
    reports = {one.rank: one.report for one in ordered if one.rank is not None}
    clocks = align(rows, matched, ranks, hosts, reports)
    waited = waits(rows, matched, clocks)
    ledgers: list[Ledger] = []
    bubbles: list[Bubble] = []
    work: dict[int, pa.Table] = {}
    slowed: dict[int, Mapping[int | None, beside.Figures]] = {}
    shown = picture.windows(steps, clocks, common)
    pictures: list[dict[int, list[int]]] = [{} for _ in shown]
    rank, sizes = rows["rank"].to_numpy(), rows["group_size"].to_pylist()
    messages = np.array([o in POINT_TO_POINT for o in rows["operation"].to_pylist()], dtype=bool)
    met: dict[int, set[int | None]] = {}
    for r in ranks:
        capture = _of_steps(load(r), common)
        mine = np.flatnonzero(rank == r)
        own, measures = ledger(capture, clocks[r], waited, mine, rows["issued"].take(mine))
        ledgers.append(own)
        for window, parts in zip(shown, pictures, strict=True):
            parts[r] = picture.pieces(measures, window)
        work[r] = capture.work.select(["name", "total_ns"])
        slowed[r] = beside.by_step(capture.work, common)
        own_messages = mine[messages[mine]]
        met[r] = {sizes[i] for i in own_messages.tolist()}
        moved = own_messages[waited.known[own_messages]]
        bubble = pipeline.bubble(capture, *_messages(waited, moved, clocks[r]))
        bubbles += [bubble] if bubble else []
    counted = _counted(rows, common)
    of_steps = rows if common != (None,) else _as_one_step(rows)
    blamed = imbalance.blame(of_steps, _only(matched, counted), waited, ledgers)
    step_ns = _mean_step(ledgers)
    worst = imbalance.straggler(blamed, ranks, common, step_ns)
    if worst is not None and worst.cause == "compute":
        worst = slower(worst, work)
    recorded = recording(rank, matched, waited, ledgers)
    table = _collectives(rows, matched, waited, clocks, ledgers, sources)
    return Job(
        identities=ordered,
        missing=missing,
        world=world,
        groups=groups,
        clocks=clocks,
        iterations=common,
        collectives=table,
        ranks=_ranks(ledgers, clocks, sources, slowed, blamed.unready),
        kinds=summary.kinds(table, counted, groups, ordered, len(common)),
        modules=summary.modules(table, counted, len(common), len(ranks)),
        waits={k: round(ns / len(common)) for k, ns in blamed.waits.items()},
        straggler=worst,
        what_if=what_if(recorded, worst) if len(ranks) > 1 else [],
        path={k: round(ns / len(common)) for k, ns in
              critical_path(waited, ledgers).items()},
        pictures=[
            Picture(*window, parts, ends)
            for window, parts, ends in zip(
                shown, pictures, picture.ends(matched, waited, shown), strict=True
            )
        ],
        bubbles=pipeline.with_ideal(bubbles, met, groups, not missing and world is not None),
        step_ns=step_ns,
        notes=(*left_out, *notes, *matched.notes, *_unaligned(clocks)),
    )  # fmt: skip


# --- which steps ----------------------------------------------------------------------------------


def _window(steps: pa.Table) -> tuple[int, int]:
    return pc.min(steps["start"]).as_py(), pc.max(steps["end"]).as_py()


def _common(steps: Mapping[int, pa.Table], sources: Mapping[int, str]) -> tuple[Steps, list[str]]:
    """The iterations that every rank has, and what is left out. (None,) where a rank marks none."""
    of_rank = {r: set(t["iteration"].to_pylist()) for r, t in steps.items()}
    unmarked = [r for r, numbers in of_rank.items() if None in numbers]
    if unmarked:
        if len(unmarked) == len(of_rank):
            return (None,), []
        told = f"ranks {spelled(unmarked)} mark no step: each capture counts as one step"
        return (None,), [told]
    common = set.intersection(*of_rank.values())
    if not common:
        a, b = (
            min(of_rank, key=lambda r: max(of_rank[r])),
            max(of_rank, key=lambda r: min(of_rank[r])),
        )
        raise InputError(
            f"has the steps {spelled(list(of_rank[b]))}, {sources[a]} has "
            f"{spelled(list(of_rank[a]))}: none in common",
            file=sources[b],
            fix="capture the same steps on every rank",
        )
    left = {r: sorted(n - common) for r, n in of_rank.items() if n - common}
    notes = [
        f"steps {spelled(numbers)} of rank {r} are left out: not every rank has them"
        for r, numbers in list(left.items())[:8]
    ]
    return tuple(sorted(common)), notes


def _of_steps(capture: RankCapture, common: Steps) -> RankCapture:
    """The capture with the common steps only."""
    if common == (None,):
        low, high = _window(capture.steps)
        host = (pc.min(capture.steps["host_start"]), pc.max(capture.steps["host_end"]))
        whole = [None, low, high, *(moment.as_py() for moment in host)]
        steps = pa.table([[value] for value in whole], schema=STEPS)
    else:
        steps = capture.steps.filter(pc.is_in(capture.steps["iteration"], pa.array(common)))
    return replace(capture, steps=steps)


def _counted(rows: pa.Table, common: Steps) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rows are of the common steps."""
    if common == (None,):
        return np.ones(len(rows), dtype=bool)
    mine = pc.is_in(rows["iteration"], pa.array(common, pa.int64()))
    result: np.ndarray[tuple[int], np.dtype[np.bool_]] = mine.to_numpy(zero_copy_only=False)
    return result


def _as_one_step(rows: pa.Table) -> pa.Table:
    """The rows where each capture counts as one step, also of ranks that mark steps."""
    at = rows.schema.get_field_index("iteration")
    return rows.set_column(at, rows.schema.field(at), pa.nulls(len(rows), pa.int64()))


def _only(matched: Matched, counted: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Matched:
    instance = np.where(counted, matched.instance, -1)
    return Matched(instance, matched.by, matched.complete, matched.notes)


def _mean_step(ledgers: Sequence[Ledger]) -> int:
    lengths = np.concatenate([x.step_end - x.step_start for x in ledgers])
    return round(float(lengths.mean())) if len(lengths) else 0


# --- pipelines ------------------------------------------------------------------------------------


def _messages(
    waited: Waits, chosen: Ints, clock: Clock
) -> tuple[pipeline.Intervals, pipeline.Intervals]:
    """The transfers and the waits of these sends and receives of a rank, on its own clock."""
    start, end = waited.start[chosen] + clock.offset, waited.end[chosen] + clock.offset
    latest = np.minimum(waited.latest[chosen] + clock.offset, end)
    return union(latest, end), union(start, latest)


# --- tables ---------------------------------------------------------------------------------------


def _collectives(
    rows: pa.Table,
    matched: Matched,
    waited: Waits,
    clocks: Mapping[int, Clock],
    ledgers: Sequence[Ledger],
    sources: Mapping[int, str],
) -> pa.Table:
    """The table `collectives`."""
    rank = rows["rank"].to_numpy()
    has = rows["start"].is_valid().to_numpy(zero_copy_only=False)
    exposed, once = np.zeros(len(rows), dtype=np.int64), has.copy()
    for one in ledgers:
        exposed[one.rows] = one.exposed
        once[one.rows] &= ~repeated(waited.start[one.rows], waited.end[one.rows])
    several = waited.known & (waited.late >= 0)
    operations, sizes, bytes_ = (rows[c].to_pylist() for c in ("operation", "group_size", "bytes"))
    # A transfer shorter than what the clocks leave open is not known to have a length.
    long = several & (waited.transfer > waited.uncertainty)
    bandwidth = [
        bus(o, b, n, t) if known else None
        for o, b, n, t, known in zip(
            operations, bytes_, sizes, waited.transfer.tolist(), long, strict=True
        )
    ]

    def known(values: Ints, where: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.Array:
        return pa.array(values, mask=~where)

    return tables.table(
        "collectives",
        {
            "source": [sources[int(r)] for r in rank],
            "rank": rank,
            **{name: rows[name] for name in ("group", "operation", "sequence", "iteration")},
            **{name: rows[name] for name in ("phase", "module", "bytes", "dtype", "group_size")},
            **{name: rows[name] for name in ("peer", "stream", "known_by")},
            "start_ns": known(waited.start, has),
            "duration_ns": known(waited.end - waited.start, has),
            "wait_ns": known(waited.wait, several),
            "transfer_ns": known(waited.transfer, several),
            "exposed_ns": known(exposed, once),
            "clock_uncertainty_ns": known(waited.uncertainty, several),
            "instance": known(matched.instance, matched.instance >= 0),
            "matched_by": [by or None for by in matched.by],
            "late_rank": known(waited.late, several),
            "bus_bandwidth": bandwidth,
        },
    )


def _ranks(
    ledgers: Sequence[Ledger],
    clocks: Mapping[int, Clock],
    sources: Mapping[int, str],
    slowed: Mapping[int, Mapping[int | None, beside.Figures]],
    unready: Mapping[tuple[int, int | None], int],
) -> pa.Table:
    """The table `ranks`."""
    rows = []
    for one in ledgers:
        clock = clocks[one.rank]
        for k, number in enumerate(one.iterations):
            parts = one.parts[k].tolist()
            rows.append(
                {
                    "source": sources[one.rank],
                    "rank": one.rank,
                    "iteration": number,
                    "start_ns": int(one.step_start[k]),
                    "duration_ns": int(one.step_end[k] - one.step_start[k]),
                    **{f"{name}_ns": parts[p] for p, name in enumerate((*PARTS, "data"))},
                    **slowed[one.rank].get(number, {}),
                    "unready_ns": None if one.host is None else unready.get((one.rank, number), 0),
                    "clock_offset_ns": clock.offset if clock.part is not None else None,
                    "clock_uncertainty_ns": clock.uncertainty,
                }
            )
    return tables.table("ranks", rows)


def _unaligned(clocks: Mapping[int, Clock]) -> list[str]:
    alone = [r for r, c in clocks.items() if c.part is None]
    if alone and len(clocks) > 1:
        return [
            f"the clocks of ranks {spelled(alone)} are not aligned: no collective joins them to "
            "another rank's capture"
        ]
    if len({c.part for c in clocks.values()}) > 1:
        return ["the clocks of some ranks cannot be compared: no communication joins their groups"]
    return []
