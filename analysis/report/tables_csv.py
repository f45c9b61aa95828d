"""report/layers.csv and report/counters.csv: one row per line, nothing shortened.

UTF-8, comma, ``\\n``; lists are JSON, unknown is an empty field, times are integer nanoseconds.
Names are written as they are, also those that begin with ``=``, ``+``, ``-`` or ``@``: these files
are for joining with the nodes and the profiles, where a changed name finds nothing. Import them
into a spreadsheet as text. Only a lone surrogate, which UTF-8 cannot hold, is written as its
escape.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from ..model.comparison import Comparison, LayerRow, ModuleRow, Side
from ..model.counters import CountedRow, CountedSide
from . import cells

# `engine` is the side's backend, `n` the iterations.
LAYERS: Mapping[str, Callable[[LayerRow, Side | None], Any]] = {
    "side": lambda r, s: r.side,
    "source": lambda r, s: s and s.source,
    "precision": lambda r, s: s and s.precision,
    "engine": lambda r, s: s and s.backend,
    "layer": lambda r, s: r.layer,
    "kind": lambda r, s: r.kind,
    "nodes": lambda r, s: r.nodes,
    "modules": lambda r, s: r.modules,
    "rule": lambda r, s: r.rule,
    "calls": lambda r, s: r.calls,
    "kernels": lambda r, s: r.kernels,
    "median_ns": lambda r, s: r.time.median,
    "ci_low_ns": lambda r, s: r.time.low,
    "ci_high_ns": lambda r, s: r.time.high,
    "n": lambda r, s: r.time.n,
    "share": lambda r, s: r.share,
    "precision_in": lambda r, s: r.precision_in,
    "precision_out": lambda r, s: r.precision_out,
    "compute_precision": lambda r, s: r.compute_precision,
    "tactic": lambda r, s: r.tactic,
    "floor_flop": lambda r, s: r.floor and r.floor.flop,
    "floor_bytes": lambda r, s: r.floor and r.floor.bytes,
    "floor_ns": lambda r, s: r.floor and r.floor.ns,
    "over_floor": lambda r, s: r.floor and r.floor.times,
}
# `replay_ns` is ncu's duration of kernels that were replayed alone: it is no latency. Amounts are
# per iteration; `floor_...` is the least that the ONNX nodes ask for.
COUNTERS: Mapping[str, Callable[[CountedRow, CountedSide], Any]] = {
    "side": lambda r, s: s.key,
    "sources": lambda r, s: s.sources,
    "kind": lambda r, s: r.kind,
    "name": lambda r, s: r.name,
    "parent": lambda r, s: r.parent,
    "modules": lambda r, s: r.modules,
    "share_of_time": lambda r, s: r.share,
    "bound": lambda r, s: r.bound,
    "why": lambda r, s: r.why,
    "share_tensor": lambda r, s: r.shares["tensor"],
    "share_fp32": lambda r, s: r.shares["fp32"],
    "share_memory": lambda r, s: r.shares["memory"],
    "intensity": lambda r, s: r.intensity,
    "flop_per_second": lambda r, s: r.flop_per_second,
    "flop": lambda r, s: r.flop,
    "floor_flop": lambda r, s: r.floor and r.floor.flop,
    "over_floor_flop": lambda r, s: r.times_flop,
    "bytes": lambda r, s: r.bytes,
    "floor_bytes": lambda r, s: r.floor and r.floor.bytes,
    "over_floor_bytes": lambda r, s: r.times_bytes,
    "launches": lambda r, s: r.launches,
    "measured": lambda r, s: r.measured,
    "iterations": lambda r, s: s.iterations,
    "spread": lambda r, s: r.spread and r.spread.relative,
    "spread_metric": lambda r, s: r.spread and r.spread.metric,
    "replay_ns": lambda r, s: r.replay_ns,
    "clock_hz": lambda r, s: r.clock_hz,
    "ipc": lambda r, s: r.metrics["ipc"],
    "issue_busy": lambda r, s: r.metrics["issue_busy"],
    "sm_busy": lambda r, s: r.metrics["sm_busy"],
    "occupancy": lambda r, s: r.metrics["occupancy"],
    "dram": lambda r, s: r.metrics["dram"],
    "pipes": lambda r, s: [f"{name} {value:.3g} %" for name, value in r.pipes.items()],
    "text": lambda r, s: r.text,
}


# Of the row of the tree in which a layer is (`modules`, with what is fused with them): what it
# takes more than on another side, and how many times as fast it is. Both ends are the same where
# no layer is shared. A side that computes something else is compared with nothing.
CHANGES: Mapping[str, Callable[[cells.Change], Any]] = {
    "difference_low_ns from {}": lambda c: c.least,
    "difference_high_ns from {}": lambda c: c.most,
    "ratio_low to {}": lambda c: c.low,
    "ratio_high to {}": lambda c: c.high,
}


def layers(comparison: Comparison) -> str:
    """Every engine layer, and how its modules compare with every other side."""
    sides = {s.key: s for s in comparison.sides}
    right = [s.key for s in comparison.sides if not s.wrong]
    places = _places(comparison)
    columns: dict[str, Callable[..., Any]] = {
        **LAYERS,
        "compared_modules": lambda r, s: _members(places.get(r.id)),
    }
    for key in right:
        for name, value in CHANGES.items():
            columns[name.format(key)] = partial(_changed, key, right, places, value)
    return _written(columns, ((r, sides.get(r.side)) for r in comparison.layers))


def _places(comparison: Comparison) -> dict[str, ModuleRow]:
    """The smallest row of the tree that holds all of a layer, by the layer's id."""
    modules = {r.id: set(r.modules) for r in comparison.layers}
    found: dict[str, ModuleRow] = {}
    for row in comparison.modules:
        members = _members(row) or []
        for layer in row.layers:
            before = _members(found.get(layer))
            if modules.get(layer, set()) <= {*members} and (
                before is None or len(members) < len(before)
            ):
                found[layer] = row
    return found


def _members(row: ModuleRow | None) -> list[str] | None:
    return None if row is None else list(row.members) or [row.path]


def _changed(
    key: str,
    right: Collection[str],
    places: Mapping[str, ModuleRow],
    value: Callable[[cells.Change], Any],
    row: LayerRow,
    _side: Side | None,
) -> Any:
    place = places.get(row.id)
    if place is None or row.side == key or row.side not in right:
        return None
    change = cells.change_ends(place.costs.get(key), place.costs.get(row.side))
    return None if change is None else value(change)


def counters(comparison: Comparison) -> str:
    """Every module, layer and kernel with counters; the heading alone where there are none (then
    the report has no such file)."""
    sides = comparison.counters.sides if comparison.counters else ()
    return _written(COUNTERS, ((r, s) for s in sides for r in s.rows))


def _written(columns: Mapping[str, Callable[..., Any]], rows: Iterable[tuple[Any, ...]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_field(value(*row)) for value in columns.values()] for row in rows)
    return out.getvalue().encode("utf-8", "backslashreplace").decode("utf-8")


def _field(value: Any) -> Any:
    """A value as a cell: unknown is empty, a list is JSON."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, (list, tuple)):
        return json.dumps(list(value), ensure_ascii=False)
    return value
