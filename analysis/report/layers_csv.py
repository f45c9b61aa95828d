"""report/layers.csv: every engine layer, one per line, nothing shortened.

UTF-8, comma, ``\\n``; lists are JSON, unknown is an empty field, times are integer nanoseconds.
Names are written as they are, also those that begin with ``=``, ``+``, ``-`` or ``@``: this file
is for joining with the nodes and the profiles, where a changed name finds nothing. Import it into
a spreadsheet as text. Only a lone surrogate, which UTF-8 cannot hold, is written as its escape.
"""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

from ..model.comparison import Comparison

COLUMNS = (
    "side",
    "source",
    "precision",
    "engine",
    "layer",
    "kind",
    "nodes",
    "modules",
    "rule",
    "calls",
    "kernels",
    "median_ns",
    "ci_low_ns",
    "ci_high_ns",
    "n",
    "share",
    "precision_in",
    "precision_out",
    "compute_precision",
    "tactic",
    "floor_flop",
    "floor_bytes",
    "floor_ns",
    "over_floor",
)


def render(view: Comparison) -> str:
    """The layers of a view as CSV. `engine` is the side's backend, `n` the iterations."""
    sides = {s.key: s for s in view.sides}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for r in view.layers:
        side = sides.get(r.side)
        row: dict[str, Any] = {
            **vars(r),
            "source": side.source if side else None,
            "precision": side.precision if side else None,
            "engine": side.backend if side else None,
            "median_ns": r.time.median,
            "ci_low_ns": r.time.low,
            "ci_high_ns": r.time.high,
            "n": r.time.n,
            "floor_flop": r.floor and r.floor.flop,
            "floor_bytes": r.floor and r.floor.bytes,
            "floor_ns": r.floor and r.floor.ns,
            "over_floor": r.floor and r.floor.times,
        }
        writer.writerow([field(row[c]) for c in COLUMNS])
    return out.getvalue().encode("utf-8", "backslashreplace").decode("utf-8")


def field(value: Any) -> Any:
    """A value as a cell: unknown is empty, a list is JSON."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, (list, tuple)):
        return json.dumps(list(value), ensure_ascii=False)
    return value
