"""Metrics and rooflines of layers and modules as text and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import InputError, one_line
from ...core.files import write_json
from ...core.nodes import NodeGraph
from ...core.roofline_metrics import DURATION, METRICS
from ...core.tables import write_csv, write_parquet
from ..attribution.resolution import ENOUGH
from ..counters import sums
from ..counters.launches import Launch
from ..counters.units import PRINTED_DURATION
from ..formatting import fitted, percent
from ..roofline import roofline
from ..roofline.floor import floor, of_ranges
from ..roofline.flop import Shapes
from .capture import Capture
from .series import near


def attribute(capture: Capture, metric: str, launches: Sequence[Launch], by: str = "layer") -> str:
    """One metric, a line per layer in execution order, or per module; tab-separated.

    InputError for a metric that the capture lacks. One without a rule for several launches has the
    values of layers of one launch.
    """
    layers = sums.per_layer(_only(capture, [metric, PRINTED_DURATION]), list(launches))
    chosen = layers.filter(pc.equal(layers["metric"], metric))
    if not len(chosen):
        known = near(metric, capture.counters)
        raise InputError(f"has no metric {metric}", file=capture.name, fix=known)
    rows = chosen.to_pylist()
    about = rows[0]
    device = capture.device.name if capture.device else "not named"
    how = about["rule"] or "no rule, a value only where there is one"
    lines = [
        f"# {metric}",
        f"# unit: {about['unit'] or 'none'}; over launches: {how}",
        f"# capture: {one_line(capture.name)}; device: {device}; iterations: {about['iterations']}",
        *([f"# {capture.partly}"] if capture.partly else []),
        *([f"# {lacking}"] if (lacking := coverage(capture, launches)) else []),
    ]
    if by == "layer":
        lines.append(f"# value\tlow\thigh\t{capture.rows}\tmodules\tlayer")
        for r in rows:
            modules = one_line(",".join(r["modules"])) if r["modules"] else "-"
            values = (_number(r[c]) for c in ("value", "low", "high"))
            lines.append("\t".join([*values, str(r["kernels"]), modules, one_line(r["layer"])]))
    else:
        lines.append("# own\tshared\town_layers\tshared_layers\tmodule")
        by_module = _modules(capture, layers)
        for r in by_module.filter(pc.equal(by_module["metric"], metric)).to_pylist():
            counts = [str(r["own_layers"]), str(r["shared_layers"])]
            name = one_line(r["module"]) or "(the model)"
            lines.append("\t".join([_number(r["own"]), _number(r["shared"]), *counts, name]))
    return "\n".join(lines) + "\n"


def roofline_table(
    capture: Capture,
    launches: Sequence[Launch],
    by: str = "layer",
    graph: NodeGraph | None = None,
    shapes: Shapes | None = None,
) -> pa.Table:
    """`roofline.TABLE` of a capture's layers or modules. A layer has a floor where the graph and
    its shapes are given and all of its kernels were captured."""
    layers = sums.per_layer(_only(capture, METRICS), list(launches))
    if by == "module":
        table = roofline.of_modules(_modules(capture, layers), capture.device)
    else:
        floors = {}
        if graph is not None and shapes is not None:
            floors = {x.layer: floor(x.nodes, graph, shapes) for x in launches}
            if not any(x.nodes for x in launches):  # eager: a range is of a module
                floors |= of_ranges(graph, shapes)
        # Some of a layer's kernels took less than all of its work needs.
        floors = {k: v for k, v in floors.items() if k not in capture.incomplete}
        table = roofline.of_layers(layers, capture.device, floors)
    if not len(table):
        raise InputError(
            "has none of the metrics of a roofline, not even "
            f"{DURATION} (is it a details page, or another section?)",
            file=capture.name,
            fix="measure them with `layerline ncu --roofline`, and write the raw page",
        )
    return table


def _modules(capture: Capture, layers: pa.Table) -> pa.Table:
    """The metrics per module, and those of the layers without one last: with the whole model's they
    are all there is. InputError where no launch has a module: the table would say nothing."""
    by_module = sums.per_module(layers)
    if not len(by_module):
        raise InputError(
            "has no launch whose module is known",
            file=capture.name,
            fix="give --nodes, the nodes.json of the model that the engine was built from",
        )
    return pa.concat_tables([by_module, sums.unresolved(layers)])


def coverage(capture: Capture, launches: Sequence[Launch]) -> str | None:
    """What is to be said where modules are known in part; None where `ENOUGH` of the time has its
    modules, or nothing has one (then no module is asked for, or it is an error)."""
    known = [bool(x.modules) for x in launches]
    times = sums.durations(capture.counters)
    timed = all(x.launch in times for x in launches)
    weights = [times[x.launch] if timed else 1.0 for x in launches]
    share = sum(w for w, k in zip(weights, known, strict=True) if k) / (sum(weights) or 1.0)
    if not any(known) or share >= ENOUGH:
        return None
    of = "the time" if timed else "the launches"
    return (
        f"modules are known for {percent(share)} of {of} ({sum(known)} of {len(known)} launches); "
        f"the rest is {sums.UNRESOLVED}"
    )


def roofline_lines(capture: Capture, table: pa.Table, width: int | None = None) -> Iterator[str]:
    """The table for people; what was not measured is said once. Names are shortened to lines of
    `width` characters, where one is given."""
    device = capture.device
    if device is None:
        yield "The capture does not name its device: no peaks, no bound."
    else:
        memory = "?" if device.bandwidth is None else f"{device.bandwidth / 1e12:.2f} TB/s"
        fp32 = "?" if device.fp32 is None else f"{device.fp32 / 1e12:.1f} TFLOP/s"
        tensor = "".join(f"{k} {v / 1e12:.0f} TFLOP/s, " for k, v in sorted(device.tensor.items()))
        peaks = f"fp32 {fp32}, {f'tensor {tensor}' if tensor else ''}memory {memory}"
        yield f"{device.name}: {peaks} ({device.source})"
    if capture.partly:
        yield capture.partly
    if missing := roofline.missing(capture.counters["metric"].unique().to_pylist()):
        yield f"not in this capture: {', '.join(missing)}"
    yield f"{'us':>9} {'FLOP':>10} {'bytes':>10} {'FLOP/B':>8} {'x floor':>8}  bound     name"
    for r in table.to_pylist():
        name = r["name"] or "(the model)"
        time = None if r["duration_ns"] is None else r["duration_ns"] / 1e3
        before = (
            f"{_short(time):>9} {_short(r['flop']):>10} {_short(r['bytes']):>10} "
            f"{_short(r['intensity']):>8} {_short(r['distance']):>8}  {r['bound'] or '?':<9} "
        )
        yield before + (name if width is None else fitted(name, width - len(before)))


def narrowed(line: str, width: int) -> str:
    """A line of `attribute` for a terminal: its last field, the name, shortened."""
    before, tab, name = line.rpartition("\t")
    if not tab or line.startswith("#"):
        return line
    return f"{before}\t{fitted(name, width - len((before + tab).expandtabs()))}"


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
