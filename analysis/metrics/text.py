"""Metrics and rooflines of layers and modules as text and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from layerline.core.errors import InputError, one_line
from layerline.core.files import write_json
from layerline.core.nodes import NodeGraph
from layerline.core.roofline_metrics import METRICS
from layerline.core.tables import write_csv, write_parquet

from .. import counters_sums, roofline
from ..counters import Launch
from ..counters_rules import DURATION
from ..roofline_floor import floor
from ..roofline_flop import Shapes
from .source import Capture


def attribute(capture: Capture, metric: str, launches: Sequence[Launch], by: str = "layer") -> str:
    """One metric, a line per layer in execution order, or per module; tab-separated.

    InputError for a metric that the capture lacks, or that has no rule for several launches.
    """
    layers = counters_sums.per_layer(_only(capture, [metric]), list(launches))
    chosen = layers.filter(pc.equal(layers["metric"], metric))
    if not len(chosen):
        raise InputError(
            f"has no metric {metric}", file=capture.name, fix="`layerline read` lists its metrics"
        )
    rows = chosen.to_pylist()
    about = rows[0]
    device = capture.device.name if capture.device else "not named"
    lines = [
        f"# {metric}",
        f"# unit: {about['unit'] or 'none'}; over launches: {about['rule'] or 'no rule, no value'}",
        f"# capture: {capture.name}; device: {device}; iterations: {about['iterations']}",
        *([f"# {capture.partly}"] if capture.partly else []),
    ]
    if by == "layer":
        lines.append("# value\tlow\thigh\tkernels\tmodules\tlayer")
        for r in rows:
            modules = ",".join(r["modules"]) if r["modules"] else "-"
            values = (_number(r[c]) for c in ("value", "low", "high"))
            lines.append("\t".join([*values, str(r["kernels"]), modules, one_line(r["layer"])]))
    else:
        lines.append("# own\tshared\town_layers\tshared_layers\tmodule")
        made = counters_sums.per_module(layers)
        _known_modules(capture, made)
        for r in made.filter(pc.equal(made["metric"], metric)).to_pylist():
            counts = [str(r["own_layers"]), str(r["shared_layers"])]
            name = r["module"] or "(the model)"
            lines.append("\t".join([_number(r["own"]), _number(r["shared"]), *counts, name]))
    return "\n".join(lines) + "\n"


def roofline_table(
    capture: Capture,
    launches: Sequence[Launch],
    by: str = "layer",
    graph: NodeGraph | None = None,
    shapes: Shapes | None = None,
) -> pa.Table:
    """`roofline.TABLE` of a capture's layers or modules."""
    layers = counters_sums.per_layer(_only(capture, METRICS), list(launches))
    if by == "module":
        made = counters_sums.per_module(layers)
        _known_modules(capture, made)
        return roofline.of_modules(made, capture.device)
    floors = {}
    if graph is not None:
        floors = {x.layer: floor(x.nodes, graph, shapes) for x in launches}
    return roofline.of_layers(layers, capture.device, floors)


def _known_modules(capture: Capture, modules: pa.Table) -> None:
    """InputError where no launch has a module: a table without a row would look like one."""
    if not len(modules):
        raise InputError(
            "has no launch whose module is known",
            file=capture.name,
            fix="give --nodes, the nodes.json of the model that the engine was built from",
        )


def roofline_lines(capture: Capture, table: pa.Table) -> Iterator[str]:
    """The table for a terminal; what was not measured is said once."""
    device = capture.device
    if device is None:
        yield "The capture does not name its device: no peaks, no bound."
    else:
        memory = "?" if device.bandwidth is None else f"{device.bandwidth / 1e12:.2f} TB/s"
        fp32 = "?" if device.fp32 is None else f"{device.fp32 / 1e12:.1f} TFLOP/s"
        yield f"{device.name}: fp32 {fp32}, memory {memory} ({device.source})"
    known = {r["metric"] for r in capture.counters.select(["metric"]).to_pylist()}
    missing = roofline.missing(known)
    if missing:
        yield f"not in this capture: {', '.join(missing)}"
    yield f"{'us':>9} {'FLOP':>10} {'bytes':>10} {'FLOP/B':>8} {'x floor':>8}  bound     name"
    for r in table.to_pylist():
        time = None if r["duration_ns"] is None else r["duration_ns"] / 1e3
        yield (
            f"{_short(time):>9} {_short(r['flop']):>10} {_short(r['bytes']):>10} "
            f"{_short(r['intensity']):>8} {_short(r['distance']):>8}  "
            f"{r['bound'] or '?':<9} {r['name'] or '(the model)'}"
        )


def write_table(path: Path, table: pa.Table) -> None:
    """Write as .csv, .parquet or .json; InputError for another suffix."""
    if path.suffix == ".csv":
        write_csv(path, table)
    elif path.suffix == ".parquet":
        write_parquet(path, table)
    elif path.suffix == ".json":
        write_json(path, table.to_pylist())
    else:
        raise InputError("has an unknown suffix", file=path, fix="use .csv, .parquet or .json")


def _only(capture: Capture, metrics: Sequence[str]) -> pa.Table:
    """The rows of some metrics, and of the durations that weigh them."""
    wanted = pa.array([*metrics, DURATION], pa.string())
    return capture.counters.filter(pc.is_in(capture.counters["metric"], wanted))


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.15g}"


def _short(value: float | None) -> str:
    return "?" if value is None else f"{value:.4g}"
