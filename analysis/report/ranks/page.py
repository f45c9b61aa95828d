"""report/ranks.html: one file that opens offline and sends nothing anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from ....core.ranks.identity import spelled
from ... import formatting
from ...model.ranks import PARTS, Job, Straggler
from ...ranks.replay import NO_STRAGGLER
from ..templates import css, environment, with_script
from . import beside
from .answer import PART_COLUMNS, Answer, named
from .text import FIELDS, HEAD, kind_rows, mean_steps

LABELS = {
    "compute": "compute", "transfer": "exposed transfer", "wait": "waiting for a peer",
    "communication": "communication, no partner known", "copy": "copy", "idle_host": "idle: host",
    "idle_dependency": "idle: dependency", "idle_launch": "idle: launch", "idle_unknown": "idle",
}  # fmt: skip
# Rows of the matrix of waits; beyond, only the ranks that wait or are waited for most.
MOST_IN_MATRIX = 24
MOST_MODULES = 60
Means = Mapping[int, Mapping[str, float]]  # of the steps of each rank
# From so many ranks on the steps are drawn as a map whose rows open.
MAP_FROM = 24


def render(job: Job, answer: Answer, title: str, trace: str | None = None) -> str:
    """The page. Every string is escaped, none is trusted."""
    worst, means, slowed = named(job), mean_steps(job), beside.of_ranks(job)
    drawn = data(job, means, slowed, None if worst is None else worst.rank)
    said = beside.line(slowed)
    return (
        environment()
        .get_template("ranks.html.j2")
        .render(
            title=title,
            about=_about(job),
            answer=answer,
            css=css("ranks.css"),
            **with_script(("page/time", "ranks"), drawn),
            head=HEAD,
            kinds=[[row[f] for f in FIELDS] for row in kind_rows(job.kinds)],
            steps=_steps(means, slowed),
            slowed=None if said is None else said[0].upper() + said[1:],
            labels=[LABELS[p] for p in PARTS],
            used=[
                {"name": p, "label": LABELS[p]}
                for p, column in zip(PARTS, PART_COLUMNS, strict=True)
                if any(of[column] for of in means.values())
            ],
            waits=_waits(job),
            what_if=_what_if(job, worst),
            path=_path(job),
            bubbles=job.bubbles,
            modules=_modules(job),
            clocks=_clocks(job),
            files=_files(job),
            unmatched=_unmatched(job),
            notes=list(job.notes),
            trace=trace,
        )
    )


def data(
    job: Job, means: Means, slowed: Mapping[int, beside.Slowed], worst: int | None
) -> dict[str, Any]:
    """What the page draws: the mean step of each rank, and its steps in pieces."""
    return {
        "parts": [{"name": p, "label": LABELS[p]} for p in PARTS],
        "worst": worst,
        "mapFrom": MAP_FROM,
        "ranks": [
            {
                "rank": r,
                "total": of["duration_ns"],
                "parts": [of[c] for c in PART_COLUMNS],
                "beside": asdict(slowed[r]) if r in slowed else None,
            }
            for r, of in means.items()
        ],
        "steps": [
            {
                "iteration": p.iteration,
                "length": p.high - p.low,
                "ends": [e - p.low for e in p.ends],
                "ranks": [{"rank": r, "runs": _runs(parts)} for r, parts in p.parts.items()],
            }
            for p in job.pictures
        ],
    }


def _runs(parts: Sequence[int]) -> list[int]:
    """Equal pieces that follow one another, as part, count, part, count ..."""
    return [x for part, run in groupby(parts) for x in (part, len(list(run)))]


def _about(job: Job) -> str:
    first = job.identities[0]
    hosts = {one.host for one in job.identities}
    words = [first.backend or first.tool]
    words.append(f"{len(job.identities)} ranks" if len(job.identities) != 1 else "1 rank")
    if None not in hosts:
        words[-1] += f" on {len(hosts)} host{'s' if len(hosts) > 1 else ''}"
    numbers = [n for n in job.iterations if n is not None]
    if len(numbers) == 1:
        words.append(f"step {numbers[0]}")
    elif numbers:
        words.append(f"steps {spelled(numbers)}")
    return " · ".join(words)


def _steps(means: Means, slowed: Mapping[int, beside.Slowed]) -> list[dict[str, Any]]:
    return [
        {"rank": r, "total": of["duration_ns"], "data": of["data_ns"], "beside": slowed.get(r),
         "parts": [of[c] for c in PART_COLUMNS]}
        for r, of in means.items()
    ]  # fmt: skip


def _waits(job: Job) -> dict[str, Any]:
    """The matrix of waits: who waits (rows) for whom (columns), a step."""
    total: dict[int, int] = {}
    for (waiter, late), ns in job.waits.items():
        total[waiter] = total.get(waiter, 0) + ns
        total[late] = total.get(late, 0) + ns
    ranks = sorted(total)
    if len(ranks) > MOST_IN_MATRIX:
        ranks = sorted(sorted(total, key=lambda r: -total[r])[:MOST_IN_MATRIX])
    most = max(job.waits.values(), default=0)
    rows = [
        {"rank": a, "cells": [(job.waits.get((a, b), 0), _level(job.waits.get((a, b), 0), most))
                              for b in ranks]}
        for a in ranks
    ]  # fmt: skip
    return {"ranks": ranks, "rows": rows, "of": len(total)}


def _level(ns: int, most: int) -> int:
    """0 to 9: how dark a cell is."""
    return round(9 * ns / most) if most else 0


def _what_if(job: Job, worst: Straggler | None) -> list[tuple[str, int, int]]:
    """Assumption, step and step as it was; of no straggler only where one is named."""
    which = "" if worst is None else f" (rank {worst.rank}{'' if worst.usual else '; mean step'})"
    return [
        (w.name + (which if w.name == NO_STRAGGLER else ""), w.step_ns, w.unchanged_ns)
        for w in job.what_if
        if worst is not None or w.name != NO_STRAGGLER
    ]


def _path(job: Job) -> list[tuple[int, str, int]]:
    every = sorted(job.path.items(), key=lambda x: -x[1])
    return [(rank, LABELS[part], ns) for (rank, part), ns in every[:20]]


def _modules(job: Job) -> list[Mapping[str, Any]]:
    rows = job.modules.to_pylist()[:MOST_MODULES] if len(job.modules) else []
    return [row | {"size": formatting.size(row["bytes"])} for row in rows]


def _clocks(job: Job) -> list[Mapping[str, Any]]:
    return [
        {"rank": r, "offset": None if c.part is None else c.offset, "by": c.by or "nothing",
         "sure": c.uncertainty}
        for r, c in job.clocks.items()
    ]  # fmt: skip


def _files(job: Job) -> list[Mapping[str, Any]]:
    return [
        {"rank": one.rank, "source": one.source, "tool": one.tool, "host": one.host,
         "notes": "; ".join(one.notes)}
        for one in job.identities
    ]  # fmt: skip


def _unmatched(job: Job) -> list[tuple[str, str, int]]:
    """Communications without a partner: operation, group, how many."""
    counts: dict[tuple[str, str], int] = {}
    rows = job.collectives.select(["operation", "group", "instance"]).to_pylist()
    for row in rows:
        if row["instance"] is None:
            key = (row["operation"], row["group"] or "unknown")
            counts[key] = counts.get(key, 0) + 1
    return [(o, formatting.visible(g), n) for (o, g), n in sorted(counts.items())]
