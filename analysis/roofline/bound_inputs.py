"""What the rows of a side's hardware counters are made of: launches, values, twins, peaks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core.capture_names import CaptureName
from ...core.own_ranges import PREFIX, modules_of_range, phase_of_range
from ...core.roofline_metrics import CLOCK, METRICS
from ...core.stats import sum_all
from ..counters import representatives, sums
from ..counters.launches import Launch
from ..counters.representatives import SameWork
from ..model.comparison import LayerRow, ModuleRow, Side
from ..model.layer import MOVEMENT, Floor
from . import devices, roofline

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


@dataclass(frozen=True)
class Capture:
    """An ncu capture of one side: its joined `counters`, with representatives' rows.

    `plan`: the document of ``….ncu.plan.json``, null where every launch was replayed without one.
    `floors`: by layer label, as the side has them.
    """

    side: Side
    counters: pa.Table
    floors: Mapping[str, Floor] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None
    clock_control: str | None = None


class About:
    """What rows are made of."""

    def __init__(
        self,
        capture: Capture,
        found: Sequence[Launch],
        layers: Iterable[LayerRow],
        modules: Iterable[ModuleRow],
    ) -> None:
        self.capture, self.launches = capture, found
        self.device = devices.of_capture(capture.counters)
        self.iterations = max((x.iteration for x in found), default=0) + 1
        known = capture.counters.select(["launch", "representative_of"])
        given = known.filter(pc.is_valid(known["representative_of"]))
        self._given = set(given["launch"].to_pylist())
        self.table = _chosen(capture.counters)
        everything = sums.per_layer(self.table, [replace(x, layer="") for x in found])
        self.whole = values_of(everything, "layer", "value").get("", {})
        self.layers = [r for r in layers if r.side == capture.side.key]
        self._of: dict[str, list[LayerRow]] = defaultdict(list)
        for r in self.layers:
            self._of[r.layer].append(r)
        self._by_path = {m.path: m for m in modules if m.kind == "module"}
        self._inside: dict[str, list[ModuleRow]] = defaultdict(list)
        for m in self._by_path.values():
            if m.parent is not None:
                self._inside[m.parent.removeprefix("module:")].append(m)
        self.costs = {path: m.costs.get(capture.side.key) for path, m in self._by_path.items()}
        self.total = capture.side.operation_ns
        have = {x.launch for x in found}
        planned = capture.plan["launches"] if capture.plan else []
        self.twins = SameWork(capture.counters, planned)
        self.uncounted = [x for x in planned if x["index"] not in have]
        self.lacking = self._lacking()

    def is_measured(self, launch: Launch) -> bool:
        """Whether a launch has counters of its own."""
        return launch.launch not in self._given

    def _lacking(self) -> dict[str, tuple[tuple[str, ...], float]]:
        """By label of a layer: its modules, and how many kernels per iteration, that the capture
        of time has of it, have no counters. Of an eager side, which has no layers, the plan says
        it, by the ranges of modules and phases."""
        expected: dict[str, float] = defaultdict(float)
        of: dict[str, tuple[str, ...]] = {}
        for r in self.layers:
            if r.kernels and r.time.n and r.modules:
                expected[r.layer] += r.kernels / r.time.n
                of[r.layer] = tuple(r.modules)
        have = Counter(x.layer for x in self.launches)
        found: dict[str, tuple[tuple[str, ...], float]] = {
            name: (of[name], number - have[name] / self.iterations)
            for name, number in expected.items()
            if number - have[name] / self.iterations > 0.5
        }
        own = Counter(representatives.label({"layer": None, **x}) or "" for x in self.uncounted)
        for name, number in own.items():
            if name.startswith(PREFIX):
                found[name] = (modules_of_range(name), number)
        return found

    def moves_only(self, label: str) -> bool:
        """Whether a layer does nothing but move data for others."""
        return {r.kind for r in self._of.get(label, ())} == {MOVEMENT}

    def share(self, label: str) -> float | None:
        """A layer's share of the side's time, movement under its name too; of a range of an eager
        capture that of its module without the modules inside it, in the phase of the range."""
        shares = [r.share for r in self._of.get(label, ())]
        return sum_all(shares) if shares else self._share_of_range(label)

    def _share_of_range(self, label: str) -> float | None:
        of = modules_of_range(label)
        if not of or not self.total:
            return None
        side = self.capture.side
        own_phase = "forward" if side.phase == "step" else side.phase
        key = replace(side, phase=phase_of_range(label) or own_phase).key
        chosen = [self._by_path.get(of[0]), *self._inside[of[0]]]
        mine, *below = [m and m.costs.get(key) for m in chosen]
        # A module inside it that has no cost ran nothing here, as a dropout in inference.
        own = [cost.own.median for cost in (mine, *below) if cost]
        known = [ns for ns in own if ns is not None]
        if not mine or len(known) < len(own):
            return None
        return max(0, known[0] - sum(known[1:])) / self.total


def _chosen(table: pa.Table) -> pa.Table:
    """The rows of the metrics that are shown."""
    wanted = pa.array([*METRICS, *(m for names in HEADLINES.values() for m in names)])
    metric = table["metric"]
    keep = pc.or_(pc.is_in(metric, wanted), pc.match_substring_regex(metric, _PIPE))
    return table.filter(keep)


def values_of(table: pa.Table, by: str, column: str) -> dict[str, dict[str, float | None]]:
    """`column` of a table of `counters.sums`, by layer or module and metric."""
    found: dict[str, dict[str, float | None]] = defaultdict(dict)
    for r in table.select([by, "metric", column]).to_pylist():
        found[r[by]][r["metric"]] = r[column]
    return found


def _clock(about: About) -> float | None:
    """The mean clock that the kernels ran at, where it was measured and the highest is known."""
    clock = about.whole.get(CLOCK)
    return clock if about.device and about.device.clock_hz else None


def peaks_source(about: About) -> str | None:
    """Where the peaks are from, and that they are lower than at the highest clock."""
    if about.device is None:
        return None
    clock = _clock(about)
    return about.device.source + (
        f"; compute peaks lowered to the {clock / 1e9:.3g} GHz that the kernels ran at"
        if clock
        else ""
    )


def peaks(about: About) -> dict[str, float]:
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


def by_name(counters: pa.Table | None) -> dict[str, tuple[str, pa.Table]]:
    """By engine or task and precision, the capture that tells most: its stem and its counters."""
    if counters is None:
        return {}
    sources_of: dict[CaptureName, list[str]] = defaultdict(list)
    for source in pc.unique(counters["source"]).to_pylist():
        name = CaptureName.parse(source)
        if name is not None and name.kind == "ncu":
            second_report = name.variant.isdecimal()
            whole = replace(name, suffix="", variant="" if second_report else name.variant)
            sources_of[whole].append(source)
    found: dict[str, tuple[str, pa.Table]] = {}
    for name, sources in sorted(sources_of.items(), key=lambda item: item[0].stem):
        table = counters.filter(pc.is_in(counters["source"], pa.array(sources)))
        if name.side not in found or _rank(table) > _rank(found[name.side][1]):
            found[name.side] = (name.stem, table)
    return found


def _rank(table: pa.Table) -> tuple[int, int]:
    """First what bounds can be told by, then how many launches were measured themselves."""
    lacking = roofline.missing(set(pc.unique(table["metric"]).to_pylist()))
    own = table.filter(pc.is_null(table["representative_of"]))
    return -len(lacking), len(pc.unique(own["launch"]))
