"""Counters of launches that were not replayed: those of a launch that is the same work.

`core/replay/plan.py` says which launches are the same work, and `captures/NAME.ncu.plan.json`
which of them were measured.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.documents import forms
from ...core.errors import InputError
from ...core.files import read_json
from ...core.kernel_names import function_name
from ...core.own_ranges import PHASE
from ...core.replay import match
from ...core.replay import plan as plan_
from ...core.roofline_metrics import BYTES, DURATION, FP16, FP32, SASS, TENSOR
from ...core.tables import with_columns
from ..model.counters import Spread
from ..readers.base import Artefact
from .units import base_unit


def of_file(read: Artefact, path: Path) -> pa.Table:
    """The counters of one ncu capture, spread by the plan at `path`; as they are without one.

    Where the capture was made on a machine that could not read it, it is matched to the plan
    here: CheckFailed where its launches are not those of the plan.
    """
    if not path.exists():
        return read.main
    return for_every_launch(read.main, matched(load(path), read.tables["launches"]))


def load(path: Path) -> dict[str, Any]:
    """An ``ncu.plan.json``. InputError where it is none."""
    plan: dict[str, Any] = read_json(path)
    fix = "capture again, or remove it"
    forms.check(plan, plan_.NcuPlan, path, fix, "is no plan of launches")
    return plan


def stem(capture: Path) -> str | None:
    """The name that a report, its page or a folder of pieces shares with what lies beside it; None
    for other files."""
    for suffix in (".ncu-rep", ".ncu.csv", ".ncu.batches"):
        if capture.name.endswith(suffix):
            return capture.name.removesuffix(suffix)
    return None


def plan_beside(capture: Path) -> dict[str, Any] | None:
    """The plan that lies beside a capture, None where there is none."""
    path = capture.with_name(f"{stem(capture)}.ncu.plan.json")
    return load(path) if stem(capture) is not None and path.exists() else None


def matched(plan: dict[str, Any], launches: pa.Table) -> dict[str, Any]:
    """The plan with the launches of a report matched, where they are not yet.

    InputError where the report lacks launches that it had when the plan was written.
    """
    rows = launches.to_pylist()
    source = rows[0]["source"]
    for name, planned_of in plan["reports"].items():
        if source in (name, _page(name)):
            lacking = {int(n) for n in planned_of} - {r["launch"] for r in rows}
            if lacking:
                raise InputError(
                    f"holds {len(rows)} launches; {len(lacking)} that its plan names are missing",
                    file=source,
                    fix="is it whole? Copy it again, or capture again",
                )
            return plan
    planned = [_launch(x) for x in plan["launches"]]
    seen = [
        match.Seen(
            r["launch"], function_name(r["kernel"]), size(r["grid"]), size(r["block"]), r["layer"]
        )
        for r in rows
    ]
    bare = [dataclasses.replace(x, function=function_name(x.function)) for x in planned]
    chosen = plan.get("chosen")
    # Null is every launch; a plan that does not say is of an older capture.
    every = len(seen) == len(planned) or ("chosen" in plan and chosen is None)
    if every or chosen is None:
        index_of = match.match(bare, seen, every=every)
    else:
        index_of = match.planned_of(bare, [x for x in bare if x.index in set(chosen)], seen)
    known = {name: {int(n): i for n, i in of.items()} for name, of in plan["reports"].items()}
    whole = plan_.document(planned, {**known, source: index_of})
    return {**whole, "chosen": chosen}


def _launch(row: Mapping[str, Any]) -> plan_.Launch:
    own: dict[str, Any] = {f.name: row.get(f.name) for f in dataclasses.fields(plan_.Launch)}
    return plan_.Launch(**{**own, "grid": tuple(row["grid"]), "block": tuple(row["block"])})


def size(text: str | None) -> tuple[int, ...] | None:
    """A grid or a block, ``(18, 4, 1)`` as reports print it."""
    return None if text is None else tuple(int(n) for n in text.strip("()").split(","))


def for_every_launch(counters: pa.Table, plan: Mapping[str, Any]) -> pa.Table:
    """The `counters` table with a row for every launch of the plan that has counters.

    `launch` becomes the launch's index in the plan. A launch that was not replayed is given the
    rows of one that is the same work, with its own kernel and layer, and `representative_of` is
    the index of that one; it is null in measured rows. Launches without a measured equal have no
    rows: unknown is not zero. `layer` is that of `label`. InputError where a report has a launch
    that the plan lacks.
    """
    measured = _indexed(counters, plan)
    number = measured["launch"].to_numpy()
    order = np.argsort(number, kind="stable")
    planned = [x for x in plan["launches"] if x["representative"] is not None]
    given = np.array([x["representative"] for x in planned], np.int64)
    index = np.array([x["index"] for x in planned], np.int64)
    begin = np.searchsorted(number[order], given)
    count = np.searchsorted(number[order], given, side="right") - begin
    # For each row of the result, its launch of the plan, and the measured row that it is.
    of = np.repeat(np.arange(len(planned)), count)
    within = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
    itself = (given == index)[of]
    rows = measured.take(pa.array(order[np.repeat(begin, count) + within]))
    labels = [label(x) for x in planned]
    # What a capture says of a launch itself stays, but for what only the plan knows.
    same = [n == x["layer"] for n, x in zip(labels, planned, strict=True)]
    told = itself & np.array(same, np.bool_)[of] & rows["layer"].is_valid().to_numpy()
    columns = {
        "launch": pa.array(index[of]),
        "representative_of": pa.array(given[of], mask=itself),
    }
    for name, values, keep in (
        ("kernel", [x["kernel"] for x in planned], itself),
        ("layer", labels, told),
    ):
        own = pa.array(values, pa.string()).take(pa.array(of))
        columns[name] = pc.if_else(keep, rows[name], own)
    return with_columns(rows, columns)


def label(launch: Mapping[str, Any]) -> str | None:
    """The layer of a launch of a plan; where that is a phase's range, and the plan knows the module
    (of backward: modules' ranges are on the thread of the forward), ``RANGE/MODULE``."""
    layer: str | None = launch["layer"]
    parts = (launch.get("place") or "").split("/", 3)
    if len(parts) == 4 and parts[3] and layer == PHASE + parts[0]:
        return f"{layer}/{parts[3]}"
    return layer


def _indexed(counters: pa.Table, plan: Mapping[str, Any]) -> pa.Table:
    """The rows of the plan's reports, by the plan's numbers of launches."""
    reports = plan["reports"]
    # A page that ncu printed of a report has its launches.
    names = {**reports, **{_page(name): rows for name, rows in reports.items()}}
    keep, launch = [], []
    pairs = zip(counters["source"].to_pylist(), counters["launch"].to_pylist(), strict=True)
    for row, (source, number) in enumerate(pairs):
        if source not in names:
            continue
        if str(number) not in names[source]:
            raise InputError(
                f"launch {number} is not in the plan", file=source, fix="capture it again"
            )
        keep.append(row)
        launch.append(names[source][str(number)])
    rows = counters.take(pa.array(keep, pa.int64()))
    return with_columns(rows, {"launch": launch})


def _page(report: str) -> str:
    return report.removesuffix(".ncu-rep") + ".ncu.csv"


# What launches of one kind are compared by; other metrics say how a kernel ran, not how much.
METRICS = (DURATION, BYTES, *(m for groups in TENSOR.values() for g in groups for m in g),
           *(SASS.format(op) for op in (*FP32, *FP16)))  # fmt: skip


class SameWork:
    """The measured launches of each kind of work of one capture's joined `counters`.

    `launches`: those of the plan, with `index` and `key` (the kind); none without a plan.
    """

    def __init__(self, counters: pa.Table, launches: Sequence[Mapping[str, Any]]) -> None:
        self._key = {x["index"]: x["key"] for x in launches}
        # By metric: the value of each launch; of each kind with several, width, mean and number.
        self._values: dict[str, dict[int, float]] = defaultdict(dict)
        self._kinds: dict[str, dict[int, tuple[float, float, int]]] = defaultdict(dict)
        rows = counters.filter(pc.is_in(counters["metric"], pa.array(METRICS)))
        measured: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
        columns = ("launch", "metric", "unit", "value", "representative_of")
        for r in rows.select(columns).to_pylist() if self._key else ():
            if r["value"] is None or r["launch"] not in self._key:
                continue
            value = r["value"] * base_unit(r["unit"])[0]
            self._values[r["metric"]][r["launch"]] = value
            if r["representative_of"] is None:
                measured[r["metric"], self._key[r["launch"]]][r["launch"]] = value
        for (metric, key), of in measured.items():
            if len(of) > 1:
                width = max(of.values()) - min(of.values())
                self._kinds[metric][key] = (width, sum(of.values()) / len(of), len(of))

    def of(self, launches: Iterable[int]) -> Spread | None:
        """The spread of a row that is these launches, of the metric where it is widest; None where
        none of them is of a kind that was measured twice."""
        numbers = list(launches)
        return _widest(self._of(m, numbers) for m in METRICS if m in self._kinds)

    def widest(self) -> Spread | None:
        """The kind of work whose measured launches are furthest apart."""
        kinds = {k for of in self._kinds.values() for k in of}
        alone = {self._key[n]: n for of in self._values.values() for n in of}
        return _widest(self.of([alone[k]]) for k in sorted(kinds))

    def _of(self, metric: str, launches: Sequence[int]) -> Spread | None:
        values, kinds = self._values[metric], self._kinds[metric]
        known = [n for n in launches if n in values]
        repeated = [kinds[self._key[n]] for n in known if self._key[n] in kinds]
        if not repeated:
            return None
        wide = sum(width for width, _, _ in repeated)
        alone = sum(abs(values[n]) for n in known if self._key[n] not in kinds)
        total = alone + sum(abs(mean) for _, mean, _ in repeated)
        relative = wide / total if total else 0.0 if not wide else None
        number = sum(kinds[k][2] for k in {self._key[n] for n in known} if k in kinds)
        return Spread(relative, metric, number)


def _widest(spreads: Iterable[Spread | None]) -> Spread | None:
    return max(filter(None, spreads), key=lambda s: s.relative or 0, default=None)
