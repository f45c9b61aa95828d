"""Operators of a compiled model to the kernels of its graphs: which modules each computes for.

A capture of `profile.eager` has of every graph that inductor compiled its kernels and extern calls
in the order of its code, with their modules (`core.documents.CompiledGraph`). In the trace Python's
call of a graph is an operator with the graph's key in its name, and what it calls are operators:
a kernel of a CPU as ``graph_N_NAME``, one of Triton by its name, an extern call as ``aten::mm``;
kernels that no operator launched count by their own name. The code runs from top to bottom, so in
each call of a graph the operators of one name come in the order of their places. Where they are
not as many as the code has places, none of that name gets one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from ...core import tables
from ...core.documents import CompiledGraph, CompiledKernel
from ...core.own_ranges import MODULE
from ...core.torch_ranges import CALL
from ...engines.inductor_provenance import RULE, called
from ..readers.torch.events import DEVICE, OP, RANGE, UNKNOWN, Events, Ints
from ..readers.torch.nesting import Nesting
from ..readers.torch.trace import coded
from .autograd import COMPILED, GUARDS, LOOKUP, ROWS, Credit, named, path_of

# What runs around the kernels of graphs whose kernels are known: Python, checks, views.
AROUND = "around compiled kernels"
_BEFORE = re.compile(r"^graph_\d+_")
_KEY = re.compile(re.escape(CALL) + r"(\S+) ##")


@dataclass(frozen=True)
class Kernels:
    """Of each event its place in `kernels`; -1 where it is of no graph, -2 where it is around the
    kernels of one, -3 where it is in a call of one and no kernel that is known, -4 where it is the
    check before one."""

    place: Ints
    kernels: Sequence[CompiledKernel]


_AROUND, _LOST, _GUARDS = -2, -3, -4


def placed(
    events: Events,
    nesting: Nesting,
    launch: Ints,
    credited: Credit,
    graphs: Sequence[CompiledGraph],
) -> Kernels:
    """Find the kernel of every host event in a call of a graph."""
    kernels: list[CompiledKernel] = []
    place = np.full(len(events), UNKNOWN, dtype=np.int64)
    regions = [name.startswith(COMPILED) for name in events.names]
    in_region = (credited.module >= 0) & np.array(regions, dtype=bool)[credited.module]
    calls = named(events, CALL, *range(OP + 1))
    call = nesting.innermost(calls)
    keys = [found[1] if (found := _KEY.match(name)) else None for name in events.names]
    known = {graph.key: graph for graph in graphs}
    begins: dict[tuple[str, str | None], int] = {}
    around = nesting.innermost(named(events, MODULE, RANGE))
    place[named(events, LOOKUP, OP) & ~in_region] = _GUARDS
    if not calls.any():
        return Kernels(place, kernels)
    place[in_region & (call < 0)] = _AROUND
    unit = _units(events, nesting, call)
    by_call: dict[int, list[int]] = {}
    for event in np.flatnonzero((unit == np.arange(len(events))) & (call >= 0)).tolist():
        by_call.setdefault(int(call[event]), []).append(event)
    of_unit = np.full(len(events), UNKNOWN, dtype=np.int64)
    names = _names(events, launch)
    for at in np.flatnonzero(calls).tolist():
        key = keys[events.name[at]]
        if key is None or key not in known:
            continue
        graph = known[key]
        of = _module_of(at, graph, events, credited, around)
        if (key, of) not in begins:
            begins[key, of] = len(kernels)
            kernels += _kernels(graph, of)
        start, listed = begins[key, of], graph.kernels
        inside = sorted(by_call.get(at, ()), key=lambda e: (events.start[e], e))
        positions = _in_order([names(e) for e in inside], [k.name for k in listed])
        for event, position in zip(inside, positions, strict=True):
            of_unit[event] = _LOST if position is None else start + position
        of_unit[at] = _AROUND
    inside_call = call >= 0
    place[inside_call] = of_unit[np.where(unit == UNKNOWN, call, unit)[inside_call]]
    return Kernels(place, kernels)


def _module_of(
    call: int, graph: CompiledGraph, events: Events, credited: Credit, around: Ints
) -> str | None:
    """Which of the modules that a graph may be of a call of it is of: the one whose forward Python
    was in, of backward that of its forward. None where the graph is of one, or nobody knows."""
    if not graph.any_of:
        return None
    ahead = int(credited.forward[call])
    within = int(around[ahead if ahead >= 0 else call])
    path = path_of(events.names[events.name[within]]) if within >= 0 else None
    return path if path in graph.any_of else None


def _kernels(graph: CompiledGraph, of: str | None) -> Sequence[CompiledKernel]:
    """The kernels of a graph with their modules, where it is of this module."""
    if not graph.any_of:
        return graph.kernels
    first = graph.any_of[0]
    made = []
    for kernel in graph.kernels:
        moved = [_moved(m, first, of) for m in kernel.modules]
        known = [m for m in moved if m is not None]
        made.append(structs.replace(kernel, modules=known if len(known) == len(moved) else []))
    return made


def _moved(module: str, first: str, of: str | None) -> str | None:
    """A module in `first`, in `of` instead; None where that is not known."""
    if first and module != first and not module.startswith(f"{first}."):
        return module
    rest = module.removeprefix(first).removeprefix(".")
    return None if of is None else ".".join(filter(None, (of, rest)))


def _units(events: Events, nesting: Nesting, call: Ints) -> Ints:
    """Of each event in a call the outermost operator inside of it, or the call of the runtime that
    is in none; the graph's call has -1."""
    outer = nesting.innermost(events.kind == OP, around=True)
    unit = np.where(call >= 0, np.arange(len(events)), UNKNOWN)
    unit[unit == call] = UNKNOWN
    while True:
        further = np.where(unit == UNKNOWN, UNKNOWN, outer[unit])
        inside = (further >= 0) & (further != call) & (call[further] == call)
        if not inside.any():
            return unit
        unit = np.where(inside, further, unit)


def _names(events: Events, launch: Ints) -> Callable[[int], str]:
    """What a call is of, as `called` has it: an operator, or the kernel that it launched."""
    device = np.flatnonzero(np.isin(events.kind, DEVICE) & (launch != UNKNOWN))
    launched = dict(zip(launch[device].tolist(), device.tolist(), strict=True))

    def name(event: int) -> str:
        own = event if events.kind[event] == OP else launched.get(event, event)
        return called(_BEFORE.sub("", events.names[events.name[own]]))

    return name


def _in_order(names: Sequence[str], places: Sequence[str]) -> list[int | None]:
    """The place of each call, by the names of calls and of places in their order."""
    wanted: dict[str, list[int]] = {}
    for i, place in enumerate(places):
        wanted.setdefault(called(place.rpartition(":")[0]), []).append(i)
    seen: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        seen.setdefault(name, []).append(i)
    found: list[int | None] = [None] * len(names)
    for name, calls in seen.items():
        if len(calls) == len(wanted.get(name, ())):
            for call, at in zip(calls, wanted[name], strict=True):
                found[call] = at
    return found


def charged(
    data: Mapping[str, pa.Array], events: Events, launch: Ints, rows: Ints, found: Kernels
) -> dict[str, pa.Array]:
    """The columns layer, modules and rule of the rows, by kernels where these are known."""
    device = np.isin(events.kind[rows], DEVICE)
    host = np.where(device, launch[rows], rows)
    place = np.where(host == UNKNOWN, UNKNOWN, found.place[np.where(host == UNKNOWN, 0, host)])
    kernels = found.kernels
    # Behind the kernels what is around them, what is lost, and the checks before them.
    at = np.where(place < UNKNOWN, len(kernels) + _AROUND - place, place)
    layers = [*(k.row or k.name for k in kernels), AROUND, None, ROWS[GUARDS]]
    modules = [*(k.modules or None for k in kernels), None, None, None]
    rules = [*(RULE if k.modules or k.row else tables.UNRESOLVED for k in kernels), "range"]
    rules += [tables.UNRESOLVED, "range"]
    own = pa.array(at != UNKNOWN)
    take = pa.array(at, mask=at == UNKNOWN)
    lists = pa.array(modules, pa.list_(pa.string())).take(take)
    layer = pa.array(layers, pa.string()).take(take)
    return {
        "layer": pc.coalesce(layer, data["layer"]),
        "modules": pc.if_else(own, lists, data["modules"]),
        "rule": pc.coalesce(coded(at, rules), data["rule"]),
    }
