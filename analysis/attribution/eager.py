"""Operators of an eager capture with phase, iteration and module: the eager side of every number.

`eager` reads a capture once and gives its `ops`, the phases that were marked, and notes. Rules and
rows: `autograd` and docs/eager.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core import tables
from ...core.documents import CompiledGraph
from ...core.intervals import covered, union
from ...core.own_ranges import ITERATION, MODULE, PHASE
from ...core.tables import OUTSIDE_OPERATORS
from ..readers.base import Artefact
from ..readers.torch.events import DEVICE, OP, RANGE, UNKNOWN, Events, Ints, read_events
from ..readers.torch.nesting import Nesting, iteration_number, nest
from ..readers.torch.trace import coded, columns, constant, facts, launches, masked
from . import compiled
from .autograd import (
    RANGE_RULE,
    RECOMPUTATION,
    ROWS,
    RULES,
    UNRESOLVED,
    Credit,
    backward_nodes,
    credit,
    named,
    path_of,
    recomputing,
)

KIND = "eager"
LAUNCH_MISSING = "launch not traced"


def eager(path: Path, meta: Mapping[str, Any]) -> Artefact:
    """Read a capture of `profile.eager`, inference or training, or any torch.profiler trace.

    `meta` is the capture's meta file (`precision` is used; may be empty). The table `ops` has one
    row for each CPU operator and device operation, and one for the time of each phase in which
    its process ran no operator (name and layer "outside operators", kind op). On the CPU the
    measure is `self_ns`, on a device `duration_ns`. `modules` is a list with one path, or null
    where a row of its own is charged, whose name is in `layer`; `rule` is unresolved where it is
    not known who should be charged.

    facts["phases"]: [{"iteration", "phase", "start_ns", "duration_ns", "operators_ns",
    "outside_ns", "before_launch_ns", "pieces"}] for every phase range; operators_ns is the time in
    which some operator of the process ran, outside_ns the rest, before_launch_ns the time until the
    first call in it that launched a device operation (None where none did); duration_ns is without
    phase ranges inside of it, which leave its `pieces` [(start, end)]. facts["steps"]:
    [{"iteration", "start_ns", "duration_ns"}]. facts["launched_ns"]: as of `launched`. Raises
    InputError as `readers.torch.trace.read` does.
    """
    return of_events(read_events(path), meta)


def of_events(
    events: Events,
    meta: Mapping[str, Any],
    nesting: Nesting | None = None,
    credited: Credit | None = None,
    graphs: Sequence[CompiledGraph] = (),
) -> Artefact:
    """`eager` for events that were read already; `nesting` and `credited` where that is known;
    `graphs`: those that were compiled, which make modules of compiled regions."""
    nesting = nesting or nest(events)
    launch, notes = launches(events)
    credited = credited or credit(events, nesting)
    rows = np.flatnonzero((events.kind == OP) | np.isin(events.kind, DEVICE))
    data = columns(events, nesting, launch, rows)
    data |= _charged(events, launch, rows, credited, data["layer"])
    if graphs:
        found = compiled.placed(events, nesting, launch, credited, graphs)
        data |= compiled.charged(data, events, launch, rows, found)
    ops = tables.table("ops", data)
    ops = _apart(ops, events, nesting, credited, rows)
    phases = phase_times(events, credited, launch)
    ops = pa.concat_tables([ops, _outside(events, phases)])
    precision = meta.get("precision")
    ops = tables.with_columns(ops, {"precision": constant(precision, len(ops))})
    about = facts(events)
    about["phases"] = phases
    about["launched_ns"] = launched(events, launch)
    about["steps"] = _steps(events)
    return Artefact(KIND, {"ops": ops}, about, [*events.notes, *notes, *_notes(events, graphs)])


def _charged(
    events: Events, launch: Ints, rows: Ints, credited: Credit, operator: pa.Array
) -> dict[str, pa.Array]:
    """Columns phase, iteration, layer, modules and rule of the rows."""
    device = events.kind[rows] != OP
    host = np.where(device, launch[rows], rows)
    linked = host != UNKNOWN
    at = np.where(linked, host, 0)
    module = np.where(linked, credited.module[at], UNKNOWN)
    row = np.where(linked, credited.row[at], len(ROWS))
    # A kernel in a module keeps the operator that launched it as its layer.
    own_row = coded(row, [*ROWS, LAUNCH_MISSING])
    layer = pc.coalesce(own_row, operator)
    other = tables.PHASES.index("other")
    paths = [[path_of(name)] for name in events.names]
    modules = pa.array(paths, pa.list_(pa.string())).take(pa.array(module, mask=module < 0))
    return {
        "phase": coded(np.where(linked, credited.phase[at], other), list(tables.PHASES)),
        "iteration": masked(np.where(linked, credited.iteration[at], UNKNOWN)),
        "layer": layer,
        "modules": modules,
        "rule": coded(np.where(linked, credited.rule[at], UNRESOLVED), list(RULES)),
    }


def _apart(
    ops: pa.Table, events: Events, nesting: Nesting, credited: Credit, rows: Ints
) -> pa.Table:
    """The operations, those of backward without what a checkpointed forward takes inside of them
    beside its own operators (Python, dispatch): that is a row of recomputation for each."""
    again = np.flatnonzero(recomputing(events) & (events.duration != UNKNOWN))
    around = nesting.innermost(events.kind == OP)[again]
    again, around = again[around >= 0], around[around >= 0]
    if not len(again):
        return ops
    of_range = nesting.innermost(recomputing(events))
    own = np.flatnonzero(of_range >= 0)
    inside = np.zeros(len(events), dtype=np.int64)
    np.add.at(inside, of_range[own], nesting.self_ns[own])
    apart = np.maximum(events.duration[again] - inside[again], 0)
    less = np.zeros(len(events), dtype=np.int64)
    np.add.at(less, around, apart)
    ops = tables.with_columns(ops, {"self_ns": pc.subtract(ops["self_ns"], pa.array(less[rows]))})
    made = tables.table(
        "ops",
        {
            "source": constant(events.path.name, len(again)),
            "phase": constant("recompute", len(again)),
            "iteration": masked(credited.iteration[again]),
            "kind": constant("op", len(again)),
            "name": coded(events.name[around], events.names),
            "start_ns": pa.array(events.start[again]),
            "self_ns": pa.array(apart),
            "layer": constant(ROWS[RECOMPUTATION], len(again)),
            "rule": constant(RULES[RANGE_RULE], len(again)),
        },
    )
    return pa.concat_tables([ops, made])


def _steps(events: Events) -> list[dict[str, Any]]:
    """The ranges of iterations, in order."""
    steps = [
        {
            "iteration": number,
            "start_ns": int(events.start[i]),
            "duration_ns": int(events.duration[i]),
        }
        for i in np.flatnonzero(named(events, ITERATION, RANGE)).tolist()
        if (number := iteration_number(events.names[events.name[i]])) is not None
        and events.duration[i] != UNKNOWN
    ]
    return sorted(steps, key=lambda s: s["start_ns"])


def phase_times(events: Events, credited: Credit, launch: Ints) -> list[dict[str, Any]]:
    """Every phase range with how much of it operators of its process filled, on any thread. What a
    range inside it takes (recompute, in backward) is that one's alone."""
    calls = np.unique(launch[launch != UNKNOWN])
    calls = calls[np.argsort(events.start[calls], kind="stable")]
    busy: dict[int, tuple[Ints, Ints]] = {}
    times = []
    ranges = [
        i
        for i in np.flatnonzero(named(events, PHASE, RANGE)).tolist()
        if _phase(events, i) in tables.PHASES and events.duration[i] != UNKNOWN
    ]
    pieces = _pieces(events, ranges)
    for i in ranges:
        process = int(events.process[i])
        if process not in busy:
            operators = (events.kind == OP) & (events.process == process)
            busy[process] = union(events.start[operators], events.end[operators])
        start, end = int(events.start[i]), int(events.end[i])
        own_ns = sum(until - since for since, until in pieces[i])
        covered_ns = sum(covered(*busy[process], *piece) for piece in pieces[i])
        iteration = int(credited.iteration[i])
        own_calls = calls[events.process[calls] == process]
        first = int(np.searchsorted(events.start[own_calls], start))
        launched = int(events.start[own_calls[first]]) if first < len(own_calls) else end
        times.append(
            {
                "iteration": None if iteration == UNKNOWN else iteration,
                "phase": _phase(events, i),
                "start_ns": start,
                "duration_ns": own_ns,
                "operators_ns": covered_ns,
                "outside_ns": own_ns - covered_ns,
                "before_launch_ns": launched - start if launched < end else None,
                "pieces": pieces[i],
            }
        )
    return sorted(times, key=lambda p: p["start_ns"])


def _phase(events: Events, at: int) -> str:
    return str(events.names[events.name[at]]).removeprefix(PHASE)


def _pieces(events: Events, ranges: list[int]) -> dict[int, list[tuple[int, int]]]:
    """What of each phase range lies in no phase range inside of it, as (start, end) in order."""
    places = [(int(events.start[i]), int(events.end[i]), int(events.process[i])) for i in ranges]
    by_start = sorted(range(len(ranges)), key=lambda at: (places[at][0], -places[at][1]))
    pieces: dict[int, list[tuple[int, int]]] = {i: [] for i in ranges}
    reached = {at: places[at][0] for at in by_start}
    open_: dict[int, list[int]] = {}  # of each process
    for at in by_start:
        start, end, process = places[at]
        around = open_.setdefault(process, [])
        while around and places[around[-1]][1] < end:
            around.pop()
        if around and reached[around[-1]] <= start:
            pieces[ranges[around[-1]]].append((reached[around[-1]], start))
            reached[around[-1]] = end
        around.append(at)
    for at in by_start:
        if reached[at] < places[at][1] or not pieces[ranges[at]]:
            pieces[ranges[at]].append((reached[at], places[at][1]))
    return pieces


def launched(events: Events, launch: Ints) -> dict[int, int]:
    """When the host launched each operation of the device, by its correlation."""
    rows = np.flatnonzero(np.isin(events.kind, DEVICE) & (launch != UNKNOWN))
    times = events.start[launch[rows]].tolist()
    return dict(zip(events.correlation[rows].tolist(), times, strict=True))


def _outside(events: Events, phases: list[dict[str, Any]]) -> pa.Table:
    return tables.table(
        "ops",
        [
            {
                "source": events.path.name,
                "phase": p["phase"],
                "iteration": p["iteration"],
                "kind": "op",
                "name": OUTSIDE_OPERATORS,
                "start_ns": p["start_ns"],
                "self_ns": p["outside_ns"],
                "range": PHASE + p["phase"],
                "range_path": [PHASE + p["phase"]],
                "layer": OUTSIDE_OPERATORS,
                "rule": "range",
            }
            for p in phases
        ],
    )


def _notes(events: Events, graphs: Sequence[CompiledGraph]) -> list[str]:
    notes = []
    if not graphs and not named(events, MODULE, RANGE).any():
        notes.append("no module ranges: operators cannot be given to modules")
    numbered = backward_nodes(events) & (events.sequence >= 0)
    if named(events, PHASE + "backward", RANGE).any() and not numbered.any():
        notes.append("no sequence numbers: backward operators cannot be given to modules")
    return notes
