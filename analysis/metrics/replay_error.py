"""A capture at the fraction against one of every launch of the same run: what it saved, and how far
its counters are off.

Both are brought to the launches of one plan (`ncu_spread`), so a difference is between the same
launch of the same layer, never between two positions in two lists. Differences of launches that
both captures replayed are the noise of replaying; those of launches that were given another's
counters hold that noise too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.capture_names import RANGE
from ...core.errors import InputError
from ..counters import pieces, representatives
from ..counters.units import base_unit
from ..readers import registry
from ..rundir.files import optional
from .series import STATIC

LIMIT = 0.10
# Launch attributes are what makes launches equal, or addresses.
LEFT_OUT = (*STATIC, "launch__")
NO_LAYER = "(no layer)"
# Of one instance of a unit (one SM, one channel): which blocks it got differs from run to run.
EXTREMES = frozenset({"min", "max"})


@dataclass(frozen=True)
class Side:
    """One capture: its counters by the plan's numbers of launches, its meta file, and what its
    readers say."""

    name: str
    counters: pa.Table
    meta: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layer:
    """A layer's metric in both captures: the means over the launches that have it in both.

    `relative`: ``|fraction - every| / |every|``, null where the metric is zero in `every` only.
    `given`: whether any of the launches was given another's counters.
    """

    layer: str
    metric: str
    fraction: float
    every: float
    relative: float | None
    given: bool


def load(fraction: Path, every: Path) -> tuple[Side, Side]:
    """Two captures with the plan and meta files beside them.

    InputError where the first has no plan, the second is not of every launch, they are the same,
    or of different engines or options.
    """
    for path in (fraction, every):
        if not path.exists():
            raise InputError("no such file", file=path)
    for path in (fraction, every):
        if _stem(path).endswith(f".{RANGE}"):
            raise InputError(
                "holds ranges that were replayed as one, and no launches to compare",
                file=path,
                fix="name two captures of kernels",
            )
    if _stem(fraction) == _stem(every) and fraction.parent.resolve() == every.parent.resolve():
        raise InputError(
            "is compared with itself", file=every, fix="name a capture of every launch second"
        )
    stem = _stem(fraction)
    plan_file = fraction.with_name(f"{stem}.ncu.plan.json")
    if not plan_file.exists():
        raise InputError(
            "has no .ncu.plan.json beside it, so nothing was left out of it",
            file=fraction,
            fix="name the capture at the fraction first, then that of every launch",
        )
    plan = representatives.load(plan_file)
    metas = [_meta(path) for path in (fraction, every)]
    if metas[1].get("every") is False:
        raise InputError(
            "is no capture of every launch",
            file=every,
            fix="name the capture at the fraction first, then one that was taken with --every",
        )
    for key in ("inputs", "options"):
        if metas[0].get(key) != metas[1].get(key):
            raise InputError(
                f"is of other {key} than {fraction.name}", file=every, fix="capture both again"
            )
    reports = [Path(str(n)).name for n in metas[0].get("reports") or [fraction.name]]
    paths = [fraction if n == fraction.name else _readable(fraction.with_name(n)) for n in reports]
    if fraction not in paths:  # ncu's page of the report was named
        paths[0] = fraction
    read = [registry.read(p) for p in paths]
    for r in read:
        plan = representatives.completed(plan, r.tables["launches"])
    ours = representatives.spread(pa.concat_tables([r.main for r in read]), plan)
    whole = registry.read(every)
    _whole(fraction, metas[0], sum(len(r.tables["launches"]) for r in read))
    _whole(every, metas[1], len(whole.tables["launches"]))
    bare = {**plan, "reports": {}, "chosen": None}
    own = representatives.completed(bare, whole.tables["launches"])
    theirs = representatives.spread(whole.main, own)
    notes = tuple(note for r in read for note in r.notes)
    return (
        Side(fraction.name, ours, metas[0], notes),
        Side(every.name, theirs, metas[1], tuple(whole.notes)),
    )


def _whole(path: Path, meta: Mapping[str, Any], held: int) -> None:
    """InputError where a capture has fewer launches than when it was taken."""
    told = pieces.captured(meta)
    if told is not None and held < told:
        raise pieces.fewer(path, held, told)


def _readable(report: Path) -> Path:
    page = report.with_name(report.name.removesuffix(".ncu-rep") + ".ncu.csv")
    return report if report.exists() else page


def _stem(path: Path) -> str:
    found = representatives.stem(path)
    if found is None:
        raise InputError("is no capture of a run", file=path, fix="name a .ncu-rep or .ncu.csv")
    return found


def _meta(path: Path) -> dict[str, Any]:
    meta = path.with_name(f"{_stem(path)}.ncu.meta.json")
    found = optional(meta)
    if not found:
        raise InputError(
            "does not say how it was taken: no such file, or nothing in it",
            file=meta,
            fix="copy it beside the capture, or capture again",
        )
    return found


def differences(fraction: pa.Table, every: pa.Table) -> tuple[list[Layer], list[str]]:
    """Each layer's metrics in both captures, and the metrics that are zero in both throughout.

    Layers are told by the plan's launches. A metric of a layer that is zero in both is left out
    of relative numbers. Attributes of the launch, the device and the tool are left out, and the
    extremes over the instances of a unit.
    """
    ours, theirs = _values(fraction), _values(every)
    sums: dict[tuple[str, str], list[tuple[float, float, bool]]] = defaultdict(list)
    for key, (value, layer, given) in ours.items():
        if key in theirs:
            sums[layer, key[1]].append((value, theirs[key][0], given))
    layers, zero, other = [], set(), set()
    for (layer, metric), of in sorted(sums.items()):
        a, b = (math.fsum(v[side] for v in of) / len(of) for side in (0, 1))
        given = any(v[2] for v in of)
        if all(v[0] == 0 and v[1] == 0 for v in of):
            zero.add(metric)
            continue
        other.add(metric)
        relative = abs(a - b) / abs(b) if b else None
        layers.append(Layer(layer, metric, a, b, relative, given))
    return layers, sorted(zero - other)


def _values(table: pa.Table) -> dict[tuple[int, str], tuple[float, str, bool]]:
    # Reports and ncu's pages have other multiples of a unit (cycle/nsecond, Mhz).
    columns = ["launch", "metric", "value", "unit", "layer", "representative_of"]
    return {
        (r["launch"], r["metric"]): (
            r["value"] * base_unit(r["unit"])[0],
            r["layer"] or NO_LAYER,
            r["representative_of"] is not None,
        )
        for r in table.select(columns).to_pylist()
        if r["value"] is not None
        and not r["metric"].startswith(LEFT_OUT)
        and EXTREMES.isdisjoint(r["metric"].split("."))
    }


def comparison(fraction: Side, every: Side, limit: float = LIMIT) -> dict[str, Any]:
    """What the fraction saved and how far its counters are off, as JSON.

    `median`, `p90` and `worst` are of relative differences over layers, per metric and over all;
    `noise` are those of layers whose launches both captures replayed. Null is not known.
    """
    layers, zero = differences(fraction.counters, every.counters)
    by_metric: dict[str, list[Layer]] = defaultdict(list)
    for one in layers:
        by_metric[one.metric].append(one)
    beyond = sorted(
        (x for x in layers if x.relative is None or x.relative > limit),
        key=lambda x: (-_size(x), x.layer, x.metric),
    )
    return {
        "schema_version": 1,
        "fraction": fraction.name,
        "every": every.name,
        "launches": fraction.meta.get("launches"),
        "replayed": _replayed(fraction),
        "replayed_share": _ratio(_replayed(fraction), _replayed(every)),
        "profiled_ratio": _ratio(*(_sum(s.meta, "profiled_seconds") for s in (fraction, every))),
        "whole_ratio": _ratio(*(_sum(s.meta, "seconds") for s in (fraction, every))),
        "layers": len({x.layer for x in layers}),
        "differences": _summary(layers),
        "noise": _summary([x for x in layers if not x.given]),
        "given": _summary([x for x in layers if x.given]),
        "metrics": {m: _summary(found) for m, found in sorted(by_metric.items())},
        "limit": limit,
        "beyond": [vars(x) for x in beyond],
        "beyond_layers": sorted({x.layer for x in beyond}),
        "zero_in_both": zero,
    }


def _replayed(side: Side) -> int:
    """The launches that have counters of their own."""
    own = side.counters.filter(pc.is_null(side.counters["representative_of"]))
    return len(pc.unique(own["launch"]))


def _size(x: Layer) -> float:
    return math.inf if x.relative is None else x.relative


def _summary(layers: Sequence[Layer]) -> dict[str, Any]:
    known = [x.relative for x in layers if x.relative is not None]
    worst = max(layers, key=_size, default=None)
    return {
        "count": len(layers),
        "median": float(np.median(known)) if known else None,
        # The nearest rank, as everywhere else (core.stats.percentile).
        "p90": float(np.quantile(known, 0.9, method="inverted_cdf")) if known else None,
        "worst": None if worst is None else vars(worst),
    }


def _sum(meta: Mapping[str, Any], key: str) -> float | None:
    values = meta.get(key)
    if not isinstance(values, list) or not all(isinstance(v, (int, float)) for v in values):
        return None
    if not values:
        return None
    return math.fsum(values)


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or not b else a / b
