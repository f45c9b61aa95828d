"""The rows of a table summed by what they have in common: which names take the time.

Times of one clock add up: those of the device (kernels, copies), and those of the host (operators
by self time, so that nested ones count once). A table of sums (an engine's layers, a report of
nsys) is one that is summed already.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core import stats, tables
from ...core.own_ranges import MODULE
from ...core.stats import UNMEASURED, Estimate
from ...core.tables import DEVICE_KINDS, Ints
from ...core.torch_ranges import split
from ..readers.torch.nesting import MODULE_FRAME

BY = ("name", "kernel", "operator", "layer", "module")
_OPERATOR = re.compile(r"[a-z_]\w*::[a-z_]\w*")  # aten::mm, where nothing else follows


@dataclass(frozen=True)
class Group:
    """What has one name: None where it is not known. `total_ns` of the rows with a time, None
    where none has one; `typical`: the median of one iteration's sum, or of one row, with its
    interval."""

    name: str | None
    calls: int | None
    total_ns: int | None
    typical: Estimate


@dataclass(frozen=True)
class Summed:
    """`what`: the rows and their clock, in words. `unknown`: how many have no time; `per`: what
    `typical` is of, None where it is not known; `iterations`: how many, where it is of these."""

    what: str
    groups: list[Group]
    unknown: int = 0
    per: str | None = None
    iterations: int | None = None
    outside: int = 0  # rows with a time in no iteration, where medians are of iterations

    @property
    def total_ns(self) -> int:
        """All groups together."""
        return sum(g.total_ns or 0 for g in self.groups)


def of_table(name: str, table: pa.Table, by: str) -> list[Summed] | None:
    """The sums of a reader's table, one for each clock; None where it cannot be summed so.

    `by`: one of `BY`. A table that says nothing of it, or has no times, is None.
    """
    if name == "ops":
        return of_ops(table, by) or None
    if "total_ns" in table.column_names and table["total_ns"].null_count < len(table):
        return _of_sums(table, by)
    return None


_DEVICE = (*DEVICE_KINDS, "graph")
# Kinds of rows whose times add up, in words.
_CLOCKS = (
    (_DEVICE, "kernels, copies and sets on the device"),
    (("node",), "nodes on the host"),
    (("op",), "operators on the host, without those inside them"),
)
_KERNELS = ((("kernel",), "kernels on the device"),)
# What names are made of, by what is asked for.
_NAMED = {"operator": ["layer", "range_path"], "layer": ["layer"], "module": ["range_path"]}


def of_ops(ops: pa.Table, by: str) -> list[Summed]:
    """Sums of operations: of the device's, and of the host's operators or engine's nodes."""
    ops = ops.select(["kind", "name", "iteration", "duration_ns", "self_ns", *_NAMED.get(by, [])])
    by_host = _are(ops, ("op", "node")).any()
    if by == "layer" and _are(ops, ("op",)).any():
        return []  # the column names operators there
    if by == "operator" and not by_host:  # nsys: PyTorch's ranges name what launched
        ops = tables.with_columns(ops, {"layer": _of_paths(ops["range_path"], _operator)})
    found = []
    for kinds, what in _KERNELS if by == "kernel" else _CLOCKS:
        keep = _are(ops, kinds)
        if not keep.any():
            continue
        rows = ops if keep.all() else ops.filter(pa.array(keep))
        host = kinds[0] not in _DEVICE
        ns = rows["self_ns" if host else "duration_ns"]
        if kinds == ("node",):
            ns = pc.coalesce(ns, rows["duration_ns"])
        names = _names(rows, by, host=host)
        if names.null_count < len(names):
            found.append(_of_rows(what, names, ns, rows["iteration"]))
    return found


def _are(ops: pa.Table, kinds: Sequence[str]) -> Any:
    return pc.is_in(ops["kind"], pa.array(kinds)).to_numpy(zero_copy_only=False)


def _operator(path: Sequence[str]) -> str | None:
    for text in reversed(path):
        name, _ = split(text)
        if name != text or _OPERATOR.fullmatch(name):
            return name
    return None


def _module(path: Sequence[str]) -> str | None:
    for text in reversed(path):
        if text.startswith(MODULE):
            return text.removeprefix(MODULE) or "(the model)"
        if text.startswith(MODULE_FRAME):
            return text.removeprefix(MODULE_FRAME)
    return None


def _names(rows: pa.Table, by: str, *, host: bool) -> Any:
    """The name that each row is summed by; null where it has none."""
    if by in ("name", "kernel"):
        return rows["name"]
    if by in ("operator", "layer"):
        return rows["name"] if host else rows["layer"]
    return _of_paths(rows["range_path"], _module)


def _of_paths(paths: Any, name: Callable[[Sequence[str]], str | None]) -> Any:
    """A name for each list of ranges, worked out once for each distinct one."""
    code, distinct = tables.codes(paths)
    named = [name(path) for path in distinct]
    return pa.array([*named, None], pa.string()).take(pa.array(code % (len(named) + 1)))


def _of_rows(what: str, names: Any, ns: Any, iteration: Any) -> Summed:
    code, distinct = tables.codes(names)
    code = np.where(code < 0, len(distinct), code)
    timed = pc.is_valid(ns).to_numpy(zero_copy_only=False)
    calls = np.bincount(code, minlength=len(distinct) + 1)
    values = pc.fill_null(ns, 0).to_numpy(zero_copy_only=False).astype(np.int64)[timed]
    of = code[timed]
    number = pc.fill_null(iteration, -1).to_numpy(zero_copy_only=False)[timed]
    numbers = np.unique(number[number >= 0])
    outside = 0
    if len(numbers) > 1:
        inside = number >= 0
        outside = int((~inside).sum())
        samples = _by_iteration(
            of[inside], np.searchsorted(numbers, number[inside]), values[inside]
        )
    else:
        samples = lambda g, mine: mine  # noqa: E731 (the other is a closure too)
    order = np.argsort(of, kind="stable")
    ends = np.cumsum(np.bincount(of, minlength=len(distinct) + 1))
    groups = []
    for g, name in enumerate([*distinct, None]):
        if not calls[g]:
            continue
        mine = values[order[ends[g - 1] if g else 0 : ends[g]]]
        if not len(mine):
            groups.append(Group(name, int(calls[g]), None, UNMEASURED))
            continue
        groups.append(Group(name, int(calls[g]), int(mine.sum()), _typical(samples(g, mine))))
    per = "iteration" if len(numbers) > 1 else "call"
    count = len(numbers) if len(numbers) > 1 else None
    return Summed(what, groups, int((~timed).sum()), per, count, outside)


def _by_iteration(of: Ints, at: Ints, values: Ints) -> Callable[[int, Ints], Ints]:
    """The sums of a group in each of the iterations, 0 where it did not run."""
    width = int(at.max(initial=0)) + 1
    pairs, place = np.unique(of * np.int64(width) + at, return_inverse=True)
    sums = np.zeros(len(pairs), np.int64)
    np.add.at(sums, place, values)

    def samples(group: int, _mine: Ints) -> Ints:
        first, last = np.searchsorted(pairs, (group * width, (group + 1) * width))
        own = np.zeros(width, np.int64)
        own[pairs[first:last] - group * width] = sums[first:last]
        return own

    return samples


def _typical(samples: Ints) -> Estimate:
    return stats.of_ordered(np.sort(samples).tolist()) or UNMEASURED


def _of_sums(table: pa.Table, by: str) -> list[Summed] | None:
    """Of a table whose rows are sums: each report of several by itself."""
    column = "layer" if "layer" in table.column_names else "name"
    if by not in ("name", column):
        return None
    names = table[column]
    reports = table["report"] if "report" in table.column_names else None
    if reports is None:
        return [_summed_again("layers" if column == "layer" else "names", table, names)]
    return [
        _summed_again(
            report, table.filter(pc.equal(reports, report)), names.filter(pc.equal(reports, report))
        )
        for report in reports.unique().to_pylist()
    ]


def _summed_again(what: str, table: pa.Table, names: Any) -> Summed:
    def column(name: str) -> list[Any]:
        return table[name].to_pylist() if name in table.column_names else [None] * len(table)

    found: dict[str | None, list[tuple[int | None, int | None, Estimate]]] = {}
    medians = [column(c) for c in ("median_ns", "ci_low_ns", "ci_high_ns")]
    for name, calls, total, *typical in zip(
        names.to_pylist(), column("calls"), column("total_ns"), *medians, strict=True
    ):
        median, low, high = (None if v is None else round(v) for v in typical)
        found.setdefault(name, []).append((calls, total, Estimate(median, low, high)))
    groups = []
    for name, rows in found.items():
        counted = [calls for calls, _, _ in rows if calls is not None]
        known = [total is not None for _, total, _ in rows]
        groups.append(
            Group(
                name,
                sum(counted) if len(counted) == len(rows) else None,
                None if not any(known) else sum(total or 0 for _, total, _ in rows),
                rows[0][2] if len(rows) == 1 else UNMEASURED,
            )
        )
    unknown = table["total_ns"].null_count
    timed = any(g.typical.median is not None for g in groups)
    return Summed(what, groups, unknown, "row" if timed else None)
