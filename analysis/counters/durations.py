"""Durations that ncu counted, as operations: which kernels take the time."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ...core import tables
from ...core.roofline_metrics import DURATION
from .units import PRINTED_DURATION, base_unit


def as_operations(counters: pa.Table) -> pa.Table:
    """A row of `ops` for each launch with a duration. Of a kernel alone, its clock locked unless
    ncu was told otherwise: such times compare kernels, and are not those of a run."""
    rows = counters.filter(pc.is_in(counters["metric"], pa.array([DURATION, PRINTED_DURATION])))
    # Two labels of one duration are one: a page may print both.
    first = rows["metric"].unique().to_pylist()[:1]
    rows = rows.filter(pc.is_in(rows["metric"], pa.array(first, pa.string())))
    ns = [
        None if value is None or name != "ns" else round(value * factor)
        for value, (factor, name) in zip(
            rows["value"].to_pylist(), map(base_unit, rows["unit"].to_pylist()), strict=True
        )
    ]
    return tables.table(
        "ops",
        {
            "source": rows["source"],
            "kind": pa.repeat(pa.scalar("kernel"), len(rows)),
            "name": rows["kernel"],
            "layer": rows["layer"],
            "duration_ns": pa.array(ns, pa.int64()),
        },
    )
