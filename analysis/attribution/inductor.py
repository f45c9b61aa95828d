"""Operations of a package of inductor: ranges of torch.profiler to kernels of the generated code.

With ``cpp.enable_kernel_profile`` every kernel and every extern call is an operator in the trace,
under the name that it has in the code; a kernel of the CPU with ``graph_0_`` before it, one of
Triton with ``kernels_.`` (torch/_inductor/codegen/cpp.py, cpp_wrapper_gpu.py, torch 2.13). The code
runs from top to bottom, so the host calls of one name come in the order of their places there. In
an iteration that has another number of calls of a name than the code has places, a branch was
taken or events were lost: which call is at which place is not known then, and no layer is given.

On a GPU a kernel belongs to the call that launched it, so its order on the device says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...core import tables
from ...engines.inductor_provenance import called
from ..readers.torch import trace
from ..readers.torch.events import DEVICE, OP, UNKNOWN, Ints, read_events
from ..readers.torch.nesting import nest, windows

_BEFORE = re.compile(r"^(graph_\d+_|kernels_\.)")


def operations(
    path: Path, layers: Sequence[Mapping[str, Any]], precision: str
) -> tuple[pa.Table, bool]:
    """The `ops` of a trace with layer, nodes, modules and rule; whether they are of a device.

    On the CPU a row, of kind node, is an operator that is in no other: what it calls is its own. On
    a device a row is an operation of it. Rows outside of iterations have none. InputError for what
    is no trace.
    """
    events = read_events(path)
    nesting = nest(events)
    outer = nesting.innermost(events.kind == OP, around=True)
    roots = np.flatnonzero((events.kind == OP) & (outer == UNKNOWN))
    iteration = windows(events, nesting)[1]
    names = [called(_BEFORE.sub("", name)) for name in events.names]
    places = _places(
        [names[code] for code in events.name[roots]],
        iteration[roots].tolist(),
        events.start[roots],
        layers,
    )
    launch, _ = trace.launches(events)
    on_device = np.flatnonzero(np.isin(events.kind, DEVICE))
    rows = on_device if len(on_device) else roots
    table = tables.table("ops", trace.columns(events, nesting, launch, rows))
    of_root = np.full(len(events), UNKNOWN, dtype=np.int64)
    of_root[roots] = places
    if len(on_device):
        root = _root(outer, nesting.operator, launch[rows])
        found = np.where(root == UNKNOWN, UNKNOWN, of_root[root])
        return _placed(table, found, layers, precision), True
    alone = {"kind": ["node"] * len(table), "self_ns": table["duration_ns"]}
    return _placed(tables.with_columns(table, alone), of_root[rows], layers, precision), False


def _root(outer: Ints, operator: Ints, calls: Ints) -> Ints:
    """The outermost operator around each call of the host."""
    root = np.where(calls == UNKNOWN, UNKNOWN, operator[calls])
    while True:
        further = np.where(root == UNKNOWN, UNKNOWN, outer[root])
        if (further == UNKNOWN).all():
            return root
        root = np.where(further == UNKNOWN, root, further)


def _places(
    names: Sequence[str],
    iterations: Sequence[int],
    starts: Ints,
    layers: Sequence[Mapping[str, Any]],
) -> list[int]:
    """The layer of each host call, -1 where it is not known."""
    by_name: dict[str, list[int]] = {}
    for i, layer in enumerate(layers):
        by_name.setdefault(called(layer["name"].rpartition(":")[0]), []).append(i)
    calls: dict[tuple[str, int], list[int]] = {}
    for call in np.argsort(starts, kind="stable").tolist():
        calls.setdefault((names[call], iterations[call]), []).append(call)
    found = [UNKNOWN] * len(names)
    for (name, number), members in calls.items():
        candidates = by_name.get(name, [])
        if number != UNKNOWN and len(members) == len(candidates):
            for call, place in zip(members, candidates, strict=True):
                found[call] = place
    return found


def _placed(
    ops: pa.Table, places: Ints, layers: Sequence[Mapping[str, Any]], precision: str
) -> pa.Table:
    of_row = [None if p == UNKNOWN else layers[p] for p in places.tolist()]
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
