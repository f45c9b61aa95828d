"""report/counters.csv: every module, layer and kernel with counters, one per line.

UTF-8, comma, ``\\n``; lists are JSON, unknown is an empty field. `replay_ns` is ncu's duration of
kernels that were replayed alone: it is no latency. Amounts are per iteration; `floor_…` is the
least that the ONNX nodes ask for. Names as they are, like in layers.csv.
"""

from __future__ import annotations

import csv
import io
from typing import Any

from ..model.comparison import Comparison
from ..model.counters import CountedRow, CountedSide
from .layers_csv import field

SHARES = ("tensor", "fp32", "memory")
METRICS = ("ipc", "issue_busy", "sm_busy", "occupancy", "dram")
COLUMNS = (
    "side",
    "sources",
    "kind",
    "name",
    "parent",
    "modules",
    "share_of_time",
    "bound",
    "why",
    *(f"share_{k}" for k in SHARES),
    "intensity",
    "flop_per_second",
    "flop",
    "floor_flop",
    "over_floor_flop",
    "bytes",
    "floor_bytes",
    "over_floor_bytes",
    "launches",
    "measured",
    "iterations",
    "spread",
    "spread_metric",
    "replay_ns",
    "clock_hz",
    *METRICS,
    "pipes",
    "text",
)


def render(view: Comparison) -> str:
    """The counters of a view as CSV; the heading alone where there are none (then the
    report has no such file)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    found = view.counters
    for side in found.sides if found else ():
        for r in side.rows:
            row = _line(side, r)
            writer.writerow([field(row[c]) for c in COLUMNS])
    return out.getvalue().encode("utf-8", "backslashreplace").decode("utf-8")


def _line(side: CountedSide, r: CountedRow) -> dict[str, Any]:
    floor = r.floor
    spread = r.spread
    return {
        **vars(r),
        "side": side.key,
        "sources": side.sources,
        "share_of_time": r.share,
        **{f"share_{k}": r.shares[k] for k in SHARES},
        "floor_flop": floor and floor.flop,
        "floor_bytes": floor and floor.bytes,
        "over_floor_flop": r.times_flop,
        "over_floor_bytes": r.times_bytes,
        "iterations": side.iterations,
        "spread": spread and spread.relative,
        "spread_metric": spread and spread.metric,
        **{k: r.metrics[k] for k in METRICS},
        "pipes": [f"{name} {value:.3g} %" for name, value in r.pipes.items()],
    }
