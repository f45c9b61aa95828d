"""From the captures of a run to the groups of its timeline, one per capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.run import Run
from ..captures.captured import Captured
from ..formatting import counted, time
from ..readers.torch.events import Events
from ..rundir.files import plan_of
from . import counters as counters_
from . import geometry, host, spans
from .iteration import Chosen, choose, times
from .operations import Operations, integers, operations
from .tracks import NULL, Group, Ints, Track

_WHAT = {"node": "nodes", "op": "operators"}


@dataclass(frozen=True)
class Source:
    """One capture: its operations, the raw file (None where it is not at hand), its counters and
    the plan of these (``….ncu.plan.json``), and the `events` of a profiler trace (None: read from
    the file)."""

    key: str
    label: str
    ops: pa.Table
    engine: bool
    raw: Path | None = None
    counters: pa.Table | None = None
    plan: Mapping[str, Any] | None = None
    events: Events | None = None


def of_captured(
    captured: Captured, folder: Path, counters: Mapping[str, tuple[str, pa.Table]]
) -> Source:
    """The source of a capture whose raw file is in `folder`."""
    # Of training the last side is the whole step.
    side = captured.sides[-1].side
    engine = side.task == "engine"
    stem, table = counters.get(side.stem, (None, None))
    plan = None if stem is None else plan_of(folder, stem)
    raw = folder / side.source
    return Source(side.stem, side.label, captured.ops, engine, raw, table, plan, captured.events)


def group(source: Source, iteration: int | None = None, first_arrow: int = 1) -> Group:
    """The group of one capture: of the iteration `iteration`, else of the median one."""
    chosen = choose(source.ops, iteration)
    facts = _facts(source, chosen)
    notes = list(chosen.notes)
    table = chosen.measured()
    if not len(table):
        return Group(source.label, 0, (), facts, (*notes, "nothing can be drawn"))
    if chosen.kinds[0] == "kernel":
        drawn, tracks = _on_device(source, chosen, table, first_arrow, notes)
    else:
        drawn = operations(table, on_device=False)
        tracks = [spans.modules(drawn), *spans.streams(drawn, _WHAT[chosen.kinds[0]])]
    facts["drawn_ns"] = int(drawn.time.sum())
    zero = int(drawn.slices.start.min())
    return Group(source.label, zero, [t for t in tracks if t], facts, notes)


def _on_device(
    source: Source, chosen: Chosen, table: pa.Table, first_arrow: int, notes: list[str]
) -> tuple[Operations, list[Track | None]]:
    sizes = counted = None
    if source.raw is not None:
        start, correlation = integers(table["start_ns"]), integers(table["correlation"])
        sizes = geometry.read(source.raw, start, correlation, source.events)
    if source.counters is not None:
        counted = counters_.read(source.counters, table, source.plan)
    drawn = operations(table, on_device=True, extras=[sizes, counted])
    from_layer = np.arange(first_arrow, first_arrow + len(drawn))
    hosts, from_calls = _host(source, chosen, drawn, first_arrow + len(drawn))
    tracks = [
        spans.modules(drawn),
        spans.layers(drawn, "layers" if source.engine else "operators with kernels", from_layer),
        *spans.streams(drawn, "kernels", [from_layer, *from_calls]),
        None if counted is None else counters_.track(drawn, counted),
    ]
    # Host operators of a capture on a device: they launched the kernels.
    if len(operators := chosen.others()):
        tracks += spans.streams(operations(operators, on_device=False), "host operators")
    if not hosts:
        notes.append("no call that launched an operation is known: no host calls, no arrows")
    return drawn, [*tracks, *hosts]


def _host(
    source: Source, chosen: Chosen, drawn: Operations, first: int
) -> tuple[list[Track], list[Ints]]:
    """Tracks of the host, and the arrows (from the number `first`) that lead from its calls."""
    events = [] if source.raw is None else host.read(source.raw, source.events)
    launches = host.launches(events, drawn)
    if launches is None:
        return [], []
    since = next(iter(chosen.others()["start_ns"].to_pylist()), None)
    others = _elsewhere(source.ops, chosen.number)
    arrows = np.where(launches[1] >= 0, np.arange(first, first + len(drawn)), NULL)
    return host.tracks(events, launches, drawn, others, since, first), [arrows]


def _elsewhere(ops: pa.Table, number: int | None) -> Ints:
    """Correlation ids of operations that are not in the iteration."""
    if number is None:
        return np.empty(0, np.int64)
    here = integers(ops["iteration"]) == number
    ids = integers(ops["correlation"])
    return np.setdiff1d(ids[~here], np.append(ids[here], NULL))


def _facts(source: Source, chosen: Chosen) -> dict[str, Any]:
    """`KIND_ns` is what the tables add up: operators lie in one another, so it is less than the
    sum of their slices (`KIND_inclusive_ns`, where it is another)."""
    timed = chosen.drawn.append_column("time", times(chosen.drawn))
    sums = timed.group_by("kind").aggregate(
        [("time", "sum"), ("duration_ns", "sum"), ("duration_ns", "count")]
    )
    if chosen.number is None:
        how = "the capture marks no iteration: all of it"
    elif chosen.median:
        how = "the iteration with the median operation time"
    else:
        how = "the iteration that was asked for"
    facts: dict[str, Any] = {
        "side": source.label,
        "capture": source.raw.name if source.raw else source.key,
        **({} if chosen.number is None else {"iteration": chosen.number}),
        "iterations_in_capture": chosen.of,
        "chosen": how,
        "not_drawn": chosen.undrawn,
        "not_drawn_ns": chosen.undrawn_ns,
    }
    for row in sums.to_pylist():
        kind = row["kind"]
        facts[f"{kind}_count"], facts[f"{kind}_ns"] = row["duration_ns_count"], row["time_sum"]
        if row["duration_ns_sum"] != row["time_sum"]:
            facts[f"{kind}_inclusive_ns"] = row["duration_ns_sum"]
    for i, note in enumerate(chosen.notes):
        facts[f"note_{i + 1}"] = note
    return facts


def of_run(
    run: Run,
    captures: Sequence[Captured],
    counters: pa.Table | None,
    iteration: int | None = None,
) -> list[Group]:
    """The groups of a run's captures, as read; `counters` are its ncu captures', None for none.
    The arrows of each have numbers of their own."""
    from ..roofline.bound_inputs import by_name

    named, folder = by_name(counters), run.file("captures")
    groups, first_arrow = [], 1
    for captured in captures:
        source = of_captured(captured, folder, named)
        groups.append(group(source, iteration, first_arrow))
        first_arrow += 2 * len(source.ops) + 1
    return groups


def lines(group: Group) -> list[str]:
    """What was written of a side, for people, one line each."""
    facts = group.facts
    which = f"iteration {facts['iteration']}" if "iteration" in facts else "the whole capture"
    drawn = []
    for kind in (k.removesuffix("_count") for k in facts if k.endswith("_count")):
        own = " self time" if f"{kind}_inclusive_ns" in facts else ""
        how_many = counted(facts[f"{kind}_count"], kind)
        drawn.append(f"{how_many} ({time(facts[f'{kind}_ns'])}{own})")
    what = ", ".join(drawn) or "nothing"
    head = f"{group.label}: {which} of {facts['iterations_in_capture']}: {what}"
    return [head, *(f"{group.label}: {note}" for note in group.notes)]
