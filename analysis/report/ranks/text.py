"""The ranks of a job for a terminal: the answer, each rank's step, the communications."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ....core.cli.columns import aligned
from ... import formatting
from ...model.ranks import Job
from . import beside
from .answer import PART_COLUMNS, Answer

MOST_RANKS = 16
MOST_KINDS = 12
_SHORT = {
    "compute_ns": "compute", "transfer_ns": "transfer", "wait_ns": "wait",
    "communication_ns": "unmatched", "copy_ns": "copy", "idle_host_ns": "host",
    "idle_dependency_ns": "dependency", "idle_launch_ns": "launch", "idle_unknown_ns": "unknown",
}  # fmt: skip


def lines(job: Job, answer: Answer) -> Iterator[str]:
    """All lines, the answer first."""
    yield f"{answer.heading} {answer.stress}"
    yield answer.line
    yield "  ".join(f"{c.sign} {c.text}" for c in answer.chips)
    yield ""
    yield from _ranks(job)
    if (slowed := beside.line(beside.of_ranks(job))) is not None:
        yield slowed
    if len(job.kinds):
        yield ""
        yield from _kinds(job.kinds)
    if job.bubbles:
        yield ""
        yield from _bubbles(job)
    for note in dict.fromkeys([*job.notes, *_of_files(job)]):
        yield f"note: {note}"


def _of_files(job: Job) -> Iterator[str]:
    for one in job.identities:
        for note in one.notes:
            yield f"{one.source}: {note}"


def mean_steps(job: Job) -> dict[int, dict[str, float]]:
    """The mean step of each rank: its parts and `duration_ns`."""
    sums: dict[int, dict[str, float]] = {}
    counts: dict[int, int] = {}
    for row in job.ranks.select(["rank", "duration_ns", "data_ns", *PART_COLUMNS]).to_pylist():
        rank = row.pop("rank")
        counts[rank] = counts.get(rank, 0) + 1
        of = sums.setdefault(rank, dict.fromkeys(row, 0.0))
        for name, value in row.items():
            of[name] += value
    return {r: {k: v / counts[r] for k, v in of.items()} for r, of in sums.items()}


def _ranks(job: Job) -> Iterator[str]:
    steps = mean_steps(job)
    shown = list(steps)
    if len(shown) > MOST_RANKS:
        worst = job.straggler.rank if job.straggler else None
        shown = sorted({*shown[: MOST_RANKS - 1], *([worst] if worst is not None else [])})
    used = [c for c in PART_COLUMNS if any(of[c] for of in steps.values())]
    rows = [
        [str(r), formatting.time(steps[r]["duration_ns"]),
         *(formatting.percent(steps[r][c] / steps[r]["duration_ns"]) for c in used)]
        for r in shown
    ]  # fmt: skip
    head = ["rank", "mean step", *(_SHORT[c] for c in used)]
    yield from aligned(head, rows, right=range(len(head)))
    if len(shown) < len(steps):
        yield f"… {len(steps) - len(shown)} more ranks: all of them on the page"


def kind_rows(table: pa.Table) -> Iterator[Mapping[str, Any]]:
    """The rows of `Job.kinds` with texts for figures."""
    for row in table.to_pylist():
        group = row["group"]
        moved = row["bus_bandwidth"]
        bus = None if moved is None else f"{formatting.number(moved / 1e9)} GB/s"
        yield row | {
            "name": " · ".join(p for p in (row["operation"], row["module"]) if p),
            "of": "unknown" if group is None else group.partition(":")[2] or group,
            "each": formatting.number(round(row["per_step"], 2)),
            "size": formatting.size(row["bytes"]),
            "transfer": formatting.time(row["transfer_ns"]),
            "wait": _wait(row),
            "exposed": formatting.time(row["exposed_ns"]),
            "bus": bus or formatting.UNKNOWN,
        }


def _wait(row: Mapping[str, Any]) -> str:
    if row["wait_ns"] is None:
        return formatting.UNKNOWN
    return f"{formatting.time(row['wait_ns'])} (rank {row['wait_rank']})"


HEAD = ("collective", "group", "per step", "bytes of a rank", "transfer", "wait, worst rank",
        "exposed a step", "bus bandwidth")  # fmt: skip
FIELDS = ("name", "of", "each", "size", "transfer", "wait", "exposed", "bus")


def _kinds(table: pa.Table) -> Iterator[str]:
    rows: Sequence[Mapping[str, Any]] = list(kind_rows(table))
    cells = [[str(row[f]) for f in FIELDS] for row in rows[:MOST_KINDS]]
    yield from aligned(list(HEAD), cells, right=range(2, len(HEAD)))
    if len(rows) > MOST_KINDS:
        yield f"… {len(rows) - MOST_KINDS} more kinds: all of them on the page"


def _bubbles(job: Job) -> Iterator[str]:
    rows = [
        [str(b.rank), ", ".join(map(str, b.stages)) or "–", formatting.percent(b.share),
         *(formatting.time(ns) for ns in (b.warmup_ns, b.steady_ns, b.drain_ns)),
         str(b.microbatches), formatting.percent(b.ideal), formatting.time(b.beyond_ns)]
        for b in job.bubbles
    ]  # fmt: skip
    head = ["rank", "stage", "bubble", "warm-up", "steady", "drain", "micro-batches",
            "ideal schedule", "beyond it"]  # fmt: skip
    yield from aligned(head, rows, right=range(len(head)))
