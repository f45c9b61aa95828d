"""Operations of a package of inductor, in a trace of torch.profiler or a capture of nsys.

Every kernel and extern call of the package has a range, an operator in a trace and a range of NVTX
under nsys (``torch.autograd.profiler.emit_nvtx``); `engines.inductor_places` says which place in
the code each is. On a GPU an operation belongs to the call that launched it, so its order on the
device says nothing. What an extern call calls is its own: the outermost range counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...core import tables
from ...engines.inductor_places import places
from ..readers.torch import trace
from ..readers.torch.events import DEVICE, OP, UNKNOWN, Events, Ints, read_events
from ..readers.torch.nesting import Nesting, nest, windows
from .eager_nsys import of_capture

Layers = Sequence[Mapping[str, Any]]


def operations(path: Path, layers: Layers, precision: str) -> tuple[pa.Table, bool]:
    """The `ops` of a trace with layer, nodes, modules and rule; whether they are of a device.

    On the CPU a row, of kind node, is an operator that is in no other: what it calls is its own. On
    a device a row is an operation of it. Rows outside of iterations have none. InputError for what
    is no trace.
    """
    events = read_events(path)
    if np.isin(events.kind, DEVICE).any():
        return _of_device(events, layers, precision), True
    nesting = nest(events)
    roots, _ = _roots(events, nesting)
    launch, _ = trace.launches(events)
    table = tables.table("ops", trace.columns(events, nesting, launch, roots))
    alone = {"kind": ["node"] * len(table), "self_ns": table["duration_ns"]}
    found = _places(events, nesting, roots, layers)[roots]
    return _placed(tables.with_columns(table, alone), found, layers, precision), False


def of_nsys(path: Path, layers: Layers, precision: str) -> pa.Table:
    """The same of a capture by nsys, exported to SQLite: a row for each operation of the device.
    InputError for what is no export."""
    return _of_device(of_capture(path), layers, precision)


def _of_device(events: Events, layers: Layers, precision: str) -> pa.Table:
    nesting = nest(events)
    roots, outer = _roots(events, nesting)
    launch, _ = trace.launches(events)
    rows = np.flatnonzero(np.isin(events.kind, DEVICE))
    root = _root(outer, nesting.operator, launch[rows])
    of_root = _places(events, nesting, roots, layers)
    table = tables.table("ops", trace.columns(events, nesting, launch, rows))
    found = np.where(root == UNKNOWN, UNKNOWN, of_root[root])
    return _placed(table, found, layers, precision)


def _roots(events: Events, nesting: Nesting) -> tuple[Ints, Ints]:
    """The operators that are in no other, and of each event the operator around it."""
    outer = nesting.innermost(events.kind == OP, around=True)
    return np.flatnonzero((events.kind == OP) & (outer == UNKNOWN)), outer


def _root(outer: Ints, operator: Ints, calls: Ints) -> Ints:
    """The outermost operator around each call of the host."""
    root = np.where(calls == UNKNOWN, UNKNOWN, operator[calls])
    while True:
        further = np.where(root == UNKNOWN, UNKNOWN, outer[root])
        if (further == UNKNOWN).all():
            return root
        root = np.where(further == UNKNOWN, root, further)


def _places(events: Events, nesting: Nesting, roots: Ints, layers: Layers) -> Ints:
    """Of each event the layer that it is a call of, -1 for none and outside of iterations."""
    listed = [str(layer["name"]) for layer in layers]
    iteration = windows(events, nesting)[1]
    ordered = roots[np.argsort(events.start[roots], kind="stable")]
    found = np.full(len(events), UNKNOWN, dtype=np.int64)
    for number in np.unique(iteration[ordered]).tolist():
        if number == UNKNOWN:
            continue
        calls = ordered[iteration[ordered] == number]
        of_calls = places([events.names[code] for code in events.name[calls]], listed)
        found[calls] = [UNKNOWN if place is None else place for place in of_calls]
    return found


def _placed(ops: pa.Table, found: Ints, layers: Layers, precision: str) -> pa.Table:
    of_row = [None if p == UNKNOWN else layers[p] for p in found.tolist()]
    names = ops["name"].to_pylist()
    known = [None if x is None or not x["modules"] else x for x in of_row]
    phase = [None if i is None else "inference" for i in ops["iteration"].to_pylist()]
    return tables.with_columns(
        ops,
        {
            "layer": [n if x is None else x["name"] for n, x in zip(names, of_row, strict=True)],
            "nodes": [None if x is None else x["nodes"] for x in known],
            "modules": [None if x is None else x["modules"] for x in known],
            "rule": [tables.UNRESOLVED if x is None else x["rule"] for x in known],
            "precision": [precision] * len(names),
            "phase": phase,
        },
    )
