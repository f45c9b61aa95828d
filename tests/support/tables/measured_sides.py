"""Sides of a comparison from operations and samples that a test makes up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from layerline.analysis.captures.captured import Series, measured
from layerline.analysis.checks.precision import precision_run
from layerline.analysis.costs.measured import MeasuredSide
from layerline.analysis.model.comparison import Side


def measured_side(
    ops: pa.Table,
    *,
    labels: Any = None,
    latency_ns: Sequence[int] = (),
    target: float | None = None,
    traced_ns: Mapping[int, int] | None = None,
    layers: pa.Table | None = None,
    nodes: Sequence[Mapping[str, Any]] = (),
    outside_ns: Mapping[int, int] | None = None,
    **known: Any,
) -> MeasuredSide:
    """The side of these operations; `known`: what else `Side` has. Without labels no operation
    without a module is known. An engine's outputs are right where nothing is said of them."""
    if known.get("task") == "engine":
        known.setdefault("parity", {"cosine": 1.0})
    side = Side(**{"precision_run": precision_run(layers), **known})
    names = pa.repeat("unresolved", len(ops)) if labels is None else labels
    more = {"layers": layers, "nodes": nodes, "outside_ns": outside_ns or {}}
    return measured(side, ops, names, Series(latency_ns, (), target), traced_ns or {}, **more)
