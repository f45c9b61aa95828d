"""Two runs side by side: how much slower or faster, and whether the noise allows saying so.

A difference is told only where the interval of the ratio excludes 1. The interval is the
conservative one of `core.stats.ratio` (both medians anywhere in their own 95 % intervals), made
wider by noise that was measured: between two builds of an engine, and between repeated runs of
the baseline. Two runs of the same thing differ, too: where the baseline was not repeated, B is
lower or higher in these two runs, and not said to be faster or slower.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import Struct

from ...core.documents import forms
from ...core.documents.forms import Amount
from ...core.errors import InputError
from ...core.files import read_json
from ...core.run import Run
from ...core.stats import Estimate, median
from ..model.comparison import SCHEMA_VERSION
from ..rundir import age
from .ratios import widened

SLOWER, FASTER = "slower", "faster"
HIGHER, LOWER = "higher here", "lower here"
SAME, UNSURE = "not distinguishable", "no interval"


class SummaryOutputs(Struct, kw_only=True):
    """Whether an engine computes what eager does."""

    ok: bool | None = None


class SummaryFigures(Struct, kw_only=True):
    """One side of a run in its summary."""

    key: str
    latency_median_ns: Amount | None = None
    latency_low_ns: Amount | None = None
    latency_high_ns: Amount | None = None
    rebuild_noise: Amount | None = None
    outputs: SummaryOutputs | None = None


class SummaryCost(Struct, kw_only=True):
    """What one module costs on one side."""

    own_ns: Amount | None = None
    own_low_ns: Amount | None = None
    own_high_ns: Amount | None = None
    shared_ns: Amount | None = None


class SummaryLost(Struct, kw_only=True):
    """What a report was made without."""

    what: str
    why: str


class Summary(Struct, kw_only=True):
    """report/summary.json, as far as two runs are compared by it."""

    engines: dict[str, SummaryFigures | None] | None = None
    eager: dict[str, SummaryFigures | None] | None = None
    modules: dict[str, dict[str, SummaryCost | None] | None] | None = None
    facts: dict[str, Any] | None = None
    unusable: list[SummaryLost] | None = None


@dataclass(frozen=True)
class Measure:
    """One measured time, in ns. `low` and `high` bound it; None where they are not known.

    `group` is what was measured ("latency", or a side's key for a module or layer); `exact` is
    false where shared layers make the bounds wider than the noise does; `unchecked`: it is of an
    engine whose outputs were not held against eager's; `repeated`: they hold repeated runs.
    """

    group: str
    name: str
    median: int
    low: int | None
    high: int | None
    exact: bool = True
    unchecked: bool = False
    repeated: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """What two runs are matched by."""
        return self.group, self.name


@dataclass(frozen=True)
class Difference:
    """B against A. `change`, `low`, `high`: B / A - 1; None where unknown."""

    a: Measure
    b: Measure
    change: float | None
    low: float | None
    high: float | None
    verdict: str

    @property
    def unchecked(self) -> bool:
        """Whether outputs were not checked on one side: then faster is not known to be better."""
        return self.a.unchecked or self.b.unchecked

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "group": self.a.group,
            "name": self.a.name,
            "a_ns": self.a.median,
            "b_ns": self.b.median,
            "change": self.change,
            "low": self.low,
            "high": self.high,
            "verdict": self.verdict,
            "noise_measured": self.a.repeated,
            "unchecked": self.unchecked,
        }


def difference(a: Measure, b: Measure) -> Difference:
    """B / A - 1 with its interval and what may be said of it."""
    change = b.median / a.median - 1 if a.median and a.exact and b.exact else None
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Difference(a, b, change, None, None, UNSURE)
    if not 0 < a.low <= a.high or b.low > b.high:
        return Difference(a, b, change, None, None, UNSURE)
    low, high = b.low / a.high - 1, b.high / a.low - 1
    more, less = (SLOWER, FASTER) if a.repeated else (HIGHER, LOWER)
    verdict = more if low > 0 else less if high < 0 else SAME
    return Difference(a, b, change, low, high, verdict)


def compare(
    a: Iterable[Measure], b: Iterable[Measure]
) -> tuple[list[Difference], list[Measure], list[Measure]]:
    """Differences of what both have (in A's order), and what only A and only B have."""
    in_a, in_b = {m.key: m for m in a}, {m.key: m for m in b}
    both = [difference(m, in_b[k]) for k, m in in_a.items() if k in in_b]
    only_a = [m for k, m in in_a.items() if k not in in_b]
    only_b = [m for k, m in in_b.items() if k not in in_a]
    return both, only_a, only_b


def with_repeats(measures: Sequence[Measure], again: Sequence[Sequence[Measure]]) -> list[Measure]:
    """Baseline measures made as wide as repeated runs of the baseline were apart.

    The median becomes the median of the runs' medians, the interval the hull of theirs; there is
    none where one of them has none.
    """
    others: dict[tuple[str, str], list[Measure]] = {}
    for run in again:
        for m in run:
            others.setdefault(m.key, []).append(m)
    widened = []
    for m in measures:
        same = [m, *others.get(m.key, ())]
        if len(same) > 1:
            lows = [x.low for x in same if x.low is not None]
            highs = [x.high for x in same if x.high is not None]
            m = replace(
                m,
                median=median(sorted(x.median for x in same)),
                low=min(lows) if len(lows) == len(same) else None,
                high=max(highs) if len(highs) == len(same) else None,
                repeated=True,
            )
        widened.append(m)
    return widened


def from_summary(summary: Mapping[str, Any]) -> list[Measure]:
    """Latencies and module costs of a summary.json (`Summary`), without those of engines that
    compute something else than eager: their times are no result."""
    measures = []
    wrong, unchecked = wrong_sides(summary), _unchecked(summary)
    sides = {**(summary.get("engines") or {}), **(summary.get("eager") or {})}
    for figures in sides.values():
        if figures is not None and figures["key"] in wrong:
            continue
        if figures is not None and figures.get("latency_median_ns") is not None:
            name, middle = figures["key"], figures["latency_median_ns"]
            told = Estimate(middle, figures.get("latency_low_ns"), figures.get("latency_high_ns"))
            of = widened(told, figures.get("rebuild_noise"))
            left = name in unchecked
            measures.append(Measure("latency", name, middle, of.low, of.high, unchecked=left))
    for key, modules in (summary.get("modules") or {}).items():
        if key in wrong:
            continue
        for path, cost in (modules or {}).items():
            if cost is not None and cost.get("own_ns") is not None:
                measures.append(_bounded(key, path, cost, unchecked=key in unchecked))
    return measures


def wrong_sides(summary: Mapping[str, Any]) -> list[str]:
    """The keys of sides that compute something else than eager."""
    engines = [f for f in (summary.get("engines") or {}).values() if f is not None]
    return [f["key"] for f in engines if (f.get("outputs") or {}).get("ok") is False]


def _unchecked(summary: Mapping[str, Any]) -> set[str]:
    """The keys of engines whose outputs were not held against eager's."""
    engines = (summary.get("engines") or {}).values()
    return {f["key"] for f in engines if f is not None and not f.get("outputs")}


def from_modules(rows: Iterable[Mapping[str, Any]]) -> list[Measure]:
    """Module costs of a `modules` table."""
    return [
        _bounded(f"{r['side']}/{r['precision']}/{r['phase']}", r["module"], r)
        for r in rows
        if r["own_ns"] is not None
    ]


def from_layers(rows: Iterable[Mapping[str, Any]]) -> list[Measure]:
    """Layer times of a `layers` table; movement stands apart from its layer."""
    measures = []
    for r in rows:
        if r["median_ns"] is not None:
            engine, median_ns = r["engine"] or "", r["median_ns"]
            name = r["layer"] + (" [movement]" if r["kind"] == "movement" else "")
            measures.append(Measure(engine, name, median_ns, r["ci_low_ns"], r["ci_high_ns"]))
    return measures


def _bounded(group: str, module: str, cost: Mapping[str, Any], unchecked: bool = False) -> Measure:
    """A module's cost lies in [own, own + shared], each end with its own noise."""
    name = module or "(model)"
    low, high, shared = cost.get("own_low_ns"), cost.get("own_high_ns"), cost.get("shared_ns") or 0
    if high is not None:
        more = cost.get("shared_high_ns")
        high += shared if more is None else more
    return Measure(group, name, cost["own_ns"], low, high, shared == 0, unchecked)


# What must be equal for a comparison to mean anything, and what is worth a warning. The rest of a
# run's facts (versions, commands) may be exactly what is being compared.
MUST_AGREE = ("model", "batch", "sequence", "cpu", "cpus_usable", "gpu", "threads")

SHOULD_AGREE = ("governor", "driver", "kernel", "versions")


def disagreements(
    a: Mapping[str, Any], b: Mapping[str, Any], names: Sequence[str]
) -> list[tuple[str, Any, Any]]:
    """(name, A's value, B's value) where they differ or one is unknown."""
    differing = []
    for name in names:
        x, y = a.get(name), b.get(name)
        if isinstance(x, Mapping) and isinstance(y, Mapping):
            differing += [
                (f"{name} of {k}" if name != "versions" else k, x.get(k), y.get(k))
                for k in sorted({*x, *y})
                if x.get(k) != y.get(k)
            ]
        elif x != y:
            differing.append((name, x, y))
    return differing


# Kinds of captures that `layerline layers` makes a table of.
_NAME_LAYERS = ("nsys-sqlite", "nsys-parquet", "trt-profile", "onnxruntime-profile")
_LISTS_LAYERS = (*_NAME_LAYERS, "trt-layers")


@dataclass(frozen=True)
class Loaded:
    """Measures of one side, with the facts that must agree (None where the file has none), the
    engines without measures, for they compute something else than eager, and what could not be
    used."""

    path: Path
    kind: str
    measures: list[Measure]
    facts: Mapping[str, Any] | None
    wrong: Sequence[str] = ()
    lost: Sequence[str] = ()


def load(path: Path) -> Loaded:
    """Read one side. InputError says what the file is instead."""
    if path.suffix == ".parquet" and not path.is_dir():
        if path.parent.name == "tables":
            age.check(Run(path.parent.parent))
        return _table(path)
    summary = path / "report" / "summary.json" if path.is_dir() else path
    if path.is_dir() and not summary.exists():
        raise _capture(path) or InputError(
            "run directory without report/summary.json",
            file=path,
            fix=f"layerline report --run {path}",
        )
    return _summary(summary)


def _summary(path: Path) -> Loaded:
    try:
        document = read_json(path)
    except InputError as e:
        raise _capture(path) or e from None
    if not isinstance(document, dict) or "engines" not in document:
        raise _capture(path) or InputError(
            "is no summary of a run", file=path, fix="name a run directory or its summary.json"
        )
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError(
            f"summary of schema version {version!r}, this layerline reads {SCHEMA_VERSION}",
            file=path,
            fix="make the report again",
        )
    summary = forms.check(document, Summary, path, "make the report again")
    if path.parent.name == "report":
        age.check(Run(path.parent.parent))
    lost = [f"made without {one.what}: {one.why}" for one in summary.unusable or ()]
    return Loaded(
        path, "summary", from_summary(document), document.get("facts"), wrong_sides(document), lost
    )


def _capture(path: Path) -> InputError | None:
    """The error for a capture: its kind, and how to make a table of layers of it. None for what is
    no capture."""
    from ..readers import registry

    try:
        reader = registry.identify(path)
    except InputError:
        return None
    layers = reader.KIND in _NAME_LAYERS
    table = f"layerline layers {path} -o {path.stem}.parquet makes one"
    return InputError(
        f"is a capture ({reader.DESCRIPTION}, {reader.KIND}), and no table of layers or summary",
        file=path,
        fix=f"{table}, to be compared" if layers else "name a run directory or a table of layers",
    )


def names_layers(path: Path) -> bool:
    """Whether a path is a capture, a profile or a list of an engine's layers."""
    from ..readers import registry

    if path.suffix == ".parquet" and not path.is_dir():
        return False
    try:
        return registry.identify(path).KIND in _LISTS_LAYERS
    except InputError:
        return False


def _table(path: Path) -> Loaded:
    from ...core.tables import read_parquet

    columns = set(read_parquet(path).column_names)
    tables = (
        ("layers", {"layer", "median_ns"}, from_layers),
        ("modules", {"module", "own_ns"}, from_modules),
    )
    for name, needed, measures in tables:
        if needed <= columns:
            rows = read_parquet(path, name).to_pylist()
            return Loaded(path, f"{name} table", measures(rows), None)
    raise InputError(
        "is neither a layers nor a modules table", file=path, fix="name one from RUN/tables"
    )
