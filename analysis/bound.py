"""What bounds each module, layer and kernel of a side, by its hardware counters.

Values are those of `roofline` (FLOP, DRAM bytes, peaks, what bounds) and of a few metrics of ncu's
ComputeWorkloadAnalysis and Occupancy. A layer is one by its label; a kernel row is all launches of
one kernel in one layer; a module row is what runs wholly inside the module, and its floor is the
sum of the floors of its layers, so as the engine cut them.

Launches that were given the counters of one that is the same work (`representative_of`) count like
measured ones, and are told apart in `measured`. Where a kernel of a layer has no counters at all,
the layer's sums, and those of the modules above it, are unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..core.roofline_metrics import BYTES, CLOCK, DURATION, FP16, FP32, METRICS, SASS, TENSOR
from . import counters, counters_sums, devices, modules, ncu_spread, roofline
from .counters import Launch
from .floors import LayerFloor
from .layers import MOVEMENT
from .report import counted
from .report.view import View

# The first that a capture has is shown. Names: `metrics/meanings.py`.
HEADLINES: dict[str, tuple[str, ...]] = {
    "ipc": ("sm__inst_executed.avg.per_cycle_active", "sm__inst_executed.avg.per_cycle_elapsed"),
    "issue_busy": (
        "sm__inst_issued.avg.pct_of_peak_sustained_active",
        "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
    ),
    "sm_busy": (
        "sm__instruction_throughput.avg.pct_of_peak_sustained_active",
        "sm__instruction_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "dram": ("dram__throughput.avg.pct_of_peak_sustained_elapsed",),
}
_PIPE = (
    r"^sm__(?:inst_executed_)?pipe_(\w+?)(?:_cycles_active)?\.avg\.pct_of_peak_sustained_active$"
)
# What twins are compared by; other metrics say how a kernel ran, not how much it did.
SPREAD = (DURATION, BYTES, *(m for groups in TENSOR.values() for g in groups for m in g),
          *(SASS.format(op) for op in (*FP32, *FP16)))  # fmt: skip
PIPES_SHOWN = 4


@dataclass(frozen=True)
class Capture:
    """An ncu capture of one side: its joined `counters`, with representatives' rows.

    `plan`: the document of ``….ncu.plan.json``, null where every launch was replayed without one.
    `floors`: by layer label, as the side has them.
    """

    key: str
    counters: pa.Table
    floors: Mapping[str, LayerFloor] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None
    clock_control: str | None = None


def side(capture: Capture, view: View) -> counted.CountedSide:
    """The counters of one side of the view. The view gives shares of time and the label."""
    found = counters.known(capture.counters)
    about = _About(capture, found, view)
    rows = _rows(about)
    peaks = _peaks(about)
    device = about.device
    names = set(pc.unique(capture.counters["metric"]).to_pylist())
    planned = len(capture.plan["launches"]) if capture.plan else len(found)
    return {
        "key": capture.key,
        "label": next(s["label"] for s in view["sides"] if s["key"] == capture.key),
        "sources": sorted(pc.unique(capture.counters["source"]).to_pylist()),
        "device": device.name if device else None,
        "peaks": peaks,
        "peaks_source": _peaks_source(about),
        "clock_control": capture.clock_control,
        "iterations": about.iterations,
        "launches": len(found),
        "measured": sum(about.is_measured(x) for x in found),
        "uncounted": max(0, planned - len(found)),
        "missing": roofline.missing(names),
        "rows": rows,
        "spread": _spread(about.twins.values()),
    }


class _About:
    """What rows are made of."""

    def __init__(self, capture: Capture, found: Sequence[Launch], view: View) -> None:
        self.capture, self.launches = capture, found
        self.device = devices.of_capture(capture.counters)
        self.iterations = max((x.iteration for x in found), default=0) + 1
        known = capture.counters.select(["launch", "representative_of"])
        given = known.filter(pc.is_valid(known["representative_of"]))
        self._given = set(given["launch"].to_pylist())
        self.table = _chosen(capture.counters)
        self.twins = _twins(capture)
        everything = counters_sums.per_layer(self.table, [replace(x, layer="") for x in found])
        self.whole = _values(everything, "layer", "value").get("", {})
        self.key_of = (
            {x["index"]: x["key"] for x in capture.plan["launches"]} if capture.plan else {}
        )
        self.layers = [r for r in view["layers"] if r["side"] == capture.key]
        self.costs = {
            m["path"]: m["costs"].get(capture.key) for m in view["modules"] if m["kind"] == "module"
        }
        self.total = next(s["operation_ns"] for s in view["sides"] if s["key"] == capture.key)
        self.lacking = self._lacking()

    def is_measured(self, launch: Launch) -> bool:
        """Whether a launch has counters of its own."""
        return launch.launch not in self._given

    def kinds(self, launches: Iterable[Launch]) -> list[int]:
        """The kinds of work of launches, of those with several measured."""
        numbers = {self.key_of.get(x.launch) for x in launches}
        return sorted(n for n in numbers if n in self.twins and n is not None)

    def _lacking(self) -> dict[str, tuple[tuple[str, ...], float]]:
        """By label of a layer: its modules, and how many kernels per iteration, that the capture
        of time has of it, have no counters."""
        expected: dict[str, float] = defaultdict(float)
        of: dict[str, tuple[str, ...]] = {}
        for r in self.layers:
            if r["kernels"] and r["time"]["n"] and r["modules"]:
                expected[r["layer"]] += r["kernels"] / r["time"]["n"]
                of[r["layer"]] = tuple(r["modules"])
        have = Counter(x.layer for x in self.launches)
        return {
            name: (of[name], number - have[name] / self.iterations)
            for name, number in expected.items()
            if number - have[name] / self.iterations > 0.5
        }

    def moves_only(self, label: str) -> bool:
        """Whether a layer does nothing but move data for others."""
        kinds = {r["kind"] for r in self.layers if r["layer"] == label}
        return kinds == {MOVEMENT}


def _chosen(table: pa.Table) -> pa.Table:
    """The rows of the metrics that are shown."""
    wanted = pa.array([*METRICS, *(m for names in HEADLINES.values() for m in names)])
    metric = table["metric"]
    keep = pc.or_(pc.is_in(metric, wanted), pc.match_substring_regex(metric, _PIPE))
    return table.filter(keep)


def _rows(about: _About) -> list[counted.CountedRow]:
    """Modules in preorder, each followed by the layers whose closest common module it is, and
    these by their kernels; layers without a module last."""
    layers = counters_sums.per_layer(about.table, list(about.launches))
    of_layer = _values(layers, "layer", "value")
    of_module = _values(counters_sums.per_module(layers), "module", "own")
    owner = {x.layer: _common(x.modules) for x in about.launches}
    kernels = _kernels(about)
    by_layer: dict[str, list[Launch]] = defaultdict(list)
    for x in about.launches:
        by_layer[x.layer].append(x)
    paths = modules.ordered_tree(
        list(about.costs), sorted({m for x in about.launches for m in x.modules or ()})
    )
    found: list[counted.CountedRow] = []
    shown: set[str] = set()
    for path in paths:
        inside = [
            x
            for x in about.launches
            if x.modules and all(modules.inside(m, path) for m in x.modules)
        ]
        if inside:
            shown.add(path)
            found.append(_module(about, path, inside, of_module.get(path, {}), shown))
        found += _layers_of(about, path, owner, by_layer, of_layer, kernels, shown)
    return found + _layers_of(about, None, owner, by_layer, of_layer, kernels, shown)


def _layers_of(
    about: _About,
    path: str | None,
    owner: Mapping[str, str | None],
    by_layer: Mapping[str, list[Launch]],
    values: Mapping[str, dict[str, float | None]],
    kernels: Mapping[str, dict[str, dict[str, float | None]]],
    shown: set[str],
) -> list[counted.CountedRow]:
    found = []
    for label, launches in by_layer.items():
        if owner[label] != path:
            continue
        parent = None if path is None or path not in shown else f"module:{path}"
        depth = 0 if path is None else _depth(path) + 1
        row = _layer(about, label, launches, values.get(label, {}), parent, depth)
        found.append(row)
        for kernel, known in kernels[label].items():
            mine = [x for x in launches if x.kernel == kernel]
            found.append(_kernel(about, row, kernel, mine, known))
    return found


def _kernels(about: _About) -> dict[str, dict[str, dict[str, float | None]]]:
    """Metric values by layer and kernel, by the same rules as a layer's."""
    names = {(x.layer, x.kernel): str(i) for i, x in enumerate(about.launches)}
    split = [replace(x, layer=names[x.layer, x.kernel]) for x in about.launches]
    values = _values(counters_sums.per_layer(about.table, split), "layer", "value")
    found: dict[str, dict[str, dict[str, float | None]]] = defaultdict(dict)
    for (layer, kernel), name in names.items():
        found[layer][kernel] = values.get(name, {})
    return found


def _module(
    about: _About,
    path: str,
    launches: list[Launch],
    values: dict[str, float | None],
    shown: set[str],
) -> counted.CountedRow:
    labels = list(dict.fromkeys(x.layer for x in launches))
    lacking = sum(n for of, n in about.lacking.values() if all(modules.inside(m, path) for m in of))
    cost = about.costs.get(path)
    share = None
    if cost is not None and cost["own"] is not None and about.total:
        share = cost["own"] / about.total
    above = path.rpartition(".")[0] if path else None
    while above and above not in shown:
        above = above.rpartition(".")[0]
    parent = f"module:{above}" if above is not None and above in shown else None
    given = _Row("module", f"module:{path}", path, parent, _depth(path), launches, lacking, share)
    return _row(about, given, values, _summed(about, labels))


def _layer(
    about: _About,
    label: str,
    launches: list[Launch],
    values: dict[str, float | None],
    parent: str | None,
    depth: int,
) -> counted.CountedRow:
    lacking = about.lacking[label][1] if label in about.lacking else 0
    shares = [r["share"] for r in about.layers if r["layer"] == label]
    share = sum(s or 0 for s in shares) if shares and None not in shares else None
    given = _Row("layer", f"layer:{label}", label, parent, depth, launches, lacking, share)
    floor = about.capture.floors.get(label)
    least = None if floor is None else _floor(floor.flop, floor.bytes)
    return _row(about, given, values, least)


def _kernel(
    about: _About,
    layer: counted.CountedRow,
    kernel: str,
    launches: list[Launch],
    values: dict[str, float | None],
) -> counted.CountedRow:
    identity = f"kernel:{layer['name']}\x1f{kernel}"
    given = _Row("kernel", identity, kernel, layer["id"], layer["depth"] + 1, launches, 0, None)
    return _row(about, given, values, None)


@dataclass(frozen=True)
class _Row:
    kind: str
    id: str
    name: str
    parent: str | None
    depth: int
    launches: list[Launch]
    lacking: float
    share: float | None


def _row(
    about: _About,
    of: _Row,
    values: dict[str, float | None],
    floor: counted.CountedFloor | None,
) -> counted.CountedRow:
    if of.lacking:
        values = {}
    per_iteration = max(1, round(len(of.launches) / about.iterations))
    made = roofline.row(of.name, roofline.work(values, per_iteration), about.device)
    why = made["why"]
    if of.lacking:
        number = round(of.lacking)
        why = f"{number} of its {per_iteration + number} kernels have no counters"
    elif about.device is None:
        why = "the capture does not name its device"
    row: counted.CountedRow = {
        "id": of.id,
        "parent": of.parent,
        "kind": of.kind,
        "name": of.name,
        "modules": sorted({m for x in of.launches for m in x.modules or ()}),
        "depth": of.depth,
        "launches": len(of.launches),
        "measured": sum(about.is_measured(x) for x in of.launches),
        "replay_ns": made["duration_ns"],
        "clock_hz": made["clock_hz"],
        "flop": made["flop"],
        "bytes": made["bytes"],
        "intensity": made["intensity"],
        "flop_per_second": made["flop_per_second"],
        "shares": {k: made[f"share_{k}"] for k in ("tensor", "fp32", "memory")},
        "bound": made["bound"],
        "why": why,
        "floor": floor,
        "times_flop": _over(made["flop"], floor["flop"] if floor else None),
        "times_bytes": _over(made["bytes"], floor["bytes"] if floor else None),
        "metrics": {
            k: next((v for n in names if (v := values.get(n)) is not None), None)
            for k, names in HEADLINES.items()
        },
        "pipes": _pipes(values),
        "spread": _spread(about.twins[k] for k in about.kinds(of.launches)),
        "share": of.share,
        "text": "",
    }
    row["text"] = counted.sentence(row)
    return row


def _values(table: pa.Table, by: str, column: str) -> dict[str, dict[str, float | None]]:
    found: dict[str, dict[str, float | None]] = defaultdict(dict)
    for r in table.select([by, "metric", column]).to_pylist():
        found[r[by]][r["metric"]] = r[column]
    return found


def _summed(about: _About, labels: Iterable[str]) -> counted.CountedFloor | None:
    """The floors of layers added up; layers that only move data ask for nothing."""
    parts = [about.capture.floors.get(x) for x in labels if not about.moves_only(x)]
    if not parts or any(p is None for p in parts):
        return None
    return _floor(_added(p.flop for p in parts if p), _added(p.bytes for p in parts if p))


def _floor(flop: float | None, size: float | None) -> counted.CountedFloor | None:
    return None if flop is None and size is None else {"flop": flop, "bytes": size}


def _added(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for v in values:
        if v is None:
            return None
        total += v
    return total


def _over(amount: float | None, least: float | None) -> float | None:
    return amount / least if amount is not None and least else None


def _pipes(values: Mapping[str, float | None]) -> dict[str, float]:
    """The busiest pipes, in percent of their peak. Cycles of a pipe come before its instructions
    where a capture has both: they are what it can do at most."""
    found: dict[str, float] = {}
    for cycles in (False, True):
        for metric, value in values.items():
            name = _pipe(metric)
            if name and value is not None and ("_cycles_active" in metric) == cycles:
                found[name] = value
    busiest = sorted(found, key=lambda n: (-found[n], n))[:PIPES_SHOWN]
    return {n: found[n] for n in busiest if found[n] > 0}


def _pipe(metric: str) -> str | None:
    name, _, rollup = metric.partition(".")
    if rollup != "avg.pct_of_peak_sustained_active":
        return None
    for prefix in ("sm__inst_executed_pipe_", "sm__pipe_"):
        if name.startswith(prefix):
            return name.removeprefix(prefix).removesuffix("_cycles_active")
    return None


def _twins(capture: Capture) -> dict[int, counted.Spread]:
    """By kind of work, how far its measured launches are apart."""
    if capture.plan is None:
        return {}
    table = capture.counters
    own = table.filter(
        pc.and_(pc.is_null(table["representative_of"]), pc.is_in(table["metric"], pa.array(SPREAD)))
    )
    pairs = {(r["source"], r["launch"]) for r in own.select(["source", "launch"]).to_pylist()}
    reports: dict[str, dict[str, int]] = defaultdict(dict)
    for source, launch in pairs:
        reports[source][str(launch)] = launch
    plan = {"launches": capture.plan["launches"], "reports": reports}
    found: dict[int, counted.Spread] = {}
    for d in ncu_spread.differences(own, plan):
        made: counted.Spread = {
            "relative": d.relative,
            "metric": d.metric,
            "launches": len(d.launches),
        }
        before = found.get(d.key)
        if before is None or (d.relative or 0) > (before["relative"] or 0):
            found[d.key] = made
    return found


def _spread(parts: Iterable[counted.Spread]) -> counted.Spread | None:
    return max(parts, key=lambda s: s["relative"] or 0, default=None)


def _clock(about: _About) -> float | None:
    """The mean clock that the kernels ran at, where it was measured and the highest is known."""
    clock = about.whole.get(CLOCK)
    return clock if about.device and about.device.clock_hz else None


def _peaks_source(about: _About) -> str | None:
    if about.device is None:
        return None
    clock = _clock(about)
    return about.device.source + (
        f"; compute peaks lowered to the {clock / 1e9:.3g} GHz that the kernels ran at"
        if clock
        else ""
    )


def _peaks(about: _About) -> dict[str, float]:
    """Peaks at the clock that the kernels ran at, of memory, fp32 and each tensor precision that
    they used."""
    device, clock = about.device, _clock(about)
    if device is None:
        return {}
    slower = clock / device.clock_hz if clock and device.clock_hz else 1.0
    found = {}
    if device.bandwidth:
        found["memory"] = device.bandwidth
    if device.fp32:
        found["fp32"] = device.fp32 * slower
    for precision, flop in roofline.work(about.whole).tensor.items():
        if flop and precision in device.tensor:
            found[f"tensor {precision}"] = device.tensor[precision] * slower
    return found


def _common(paths: Sequence[str] | None) -> str | None:
    """The closest module that all of these are inside of; null where none is known."""
    if not paths:
        return None
    parts = [p.split(".") if p else [] for p in paths]
    shared = []
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return ".".join(shared)


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0
