"""Rows summed by name: every time counts once, whatever is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.analysis.costs import summed
from layerline.core import tables
from layerline.core.stats import summarise


def ops(*rows: dict[str, Any]) -> Any:
    return tables.table("ops", [{"range_path": [], **row} for row in rows])


def kernel(name: str, ns: int | None, **more: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": name, "duration_ns": ns, **more}


def found(table: Any, by: str) -> list[dict[str | None, tuple[int | None, int | None]]]:
    return [
        {g.name: (g.calls, g.total_ns) for g in one.groups}
        for one in summed.of_table("ops", table, by) or []
    ]


def test_host_and_device_are_two_sums_and_nested_operators_count_once() -> None:
    table = ops(
        {"kind": "op", "name": "linear", "duration_ns": 100, "self_ns": 30},
        {"kind": "op", "name": "addmm", "duration_ns": 70, "self_ns": 70},
        kernel("gemm", 40, layer="addmm"),
        {"kind": "memcpy", "name": "copy", "duration_ns": 5, "layer": "linear"},
    )
    host = {"linear": (1, 30), "addmm": (1, 70)}
    assert found(table, "name") == [{"gemm": (1, 40), "copy": (1, 5)}, host]
    assert found(table, "kernel") == [{"gemm": (1, 40)}]
    assert found(table, "operator") == [{"addmm": (1, 40), "linear": (1, 5)}, host]
    # What is called a layer there is an operator.
    assert found(table, "layer") == []


def test_modules_are_those_of_the_innermost_range_that_names_one() -> None:
    table = ops(
        kernel("a", 1, range_path=["layerline/module/h.0", "aten::mm, seq = 4"]),
        kernel("b", 2, range_path=["layerline/module/", "cub::Scan"]),
        kernel("c", 4, range_path=["nn.Module: Net_0", "nn.Module: Linear_1"]),
        kernel("d", 8, range_path=["somebody's"]),
        kernel("e", 16, range_path=None),
    )
    assert found(table, "module") == [
        {"h.0": (1, 1), "(the model)": (1, 2), "Linear_1": (1, 4), None: (2, 24)}
    ]
    assert found(table, "operator")[0]["aten::mm"] == (1, 1)
    assert found(ops(kernel("d", 8, range_path=["somebody's"])), "module") == []


def test_medians_are_of_iterations_where_there_are_several_and_of_calls_where_not() -> None:
    runs = [(0, 10), (0, 20), (1, 40), (2, 100), (None, 7)]
    table = ops(*(kernel("k", ns, iteration=i) for i, ns in runs), kernel("once", 3, iteration=1))
    (one,) = summed.of_table("ops", table, "name") or []
    groups = {g.name: g for g in one.groups}
    # 30, 40 and 100 ns; the row of no iteration counts in the total alone.
    assert (groups["k"].typical.median, groups["k"].total_ns, groups["k"].calls) == (40, 177, 5)
    assert groups["once"].typical.median == 0  # it ran in one of three
    assert (one.per, one.iterations, one.outside) == ("iteration", 3, 1)
    table = ops(*(kernel("k", ns) for ns in range(1, 10)))
    (one,) = summed.of_table("ops", table, "name") or []
    expected = summarise(range(1, 10))
    assert expected is not None and one.per == "call"
    found = one.groups[0].typical
    assert (found.median, found.low, found.high) == (5, expected.low, expected.high)


def test_a_time_that_is_not_known_is_in_no_sum_and_said() -> None:
    (one,) = summed.of_table("ops", ops(kernel("k", 5), kernel("k", None)), "name") or []
    assert (one.groups[0].calls, one.groups[0].total_ns, one.unknown) == (2, 5, 1)
    (one,) = summed.of_table("ops", ops(kernel("k", 5), kernel("never", None)), "name") or []
    assert {g.name: g.total_ns for g in one.groups} == {"k": 5, "never": None}


def test_a_table_without_times_is_not_summed() -> None:
    layers = tables.table("layers", [{"source": "a", "layer": "x"}])
    assert summed.of_table("layers", layers, "name") is None


def test_layers_of_one_name_are_summed_and_have_no_common_median() -> None:
    rows = [("a", 10, 5), ("b", 7, 7), ("a", 30, 15)]
    table = tables.table(
        "layers",
        [
            {"source": "x", "layer": n, "total_ns": t, "median_ns": m, "calls": 2}
            for n, t, m in rows
        ],
    )
    (one,) = summed.of_table("layers", table, "layer") or []
    told = {g.name: (g.calls, g.total_ns, g.typical.median) for g in one.groups}
    assert told == {"a": (4, 40, None), "b": (2, 7, 7)}


names = st.sampled_from(["a", "b", "c", None])
times = st.none() | st.integers(0, 1 << 40)


@given(st.lists(st.tuples(names, times, st.none() | st.integers(0, 3)), min_size=1, max_size=30))
def test_every_time_is_in_one_sum(rows: list[tuple[str | None, int | None, int | None]]) -> None:
    table = ops(*(kernel(n, ns, iteration=i) for n, ns, i in rows))  # type: ignore[arg-type]
    expected: dict[str | None, int | None] = {}
    for name, ns, _ in rows:
        before = expected.setdefault(name, None)
        expected[name] = before if ns is None else (before or 0) + ns
    sums = summed.of_table("ops", table, "name")
    if all(name is None for name, _, _ in rows):
        assert sums is None
        return
    (one,) = sums or []
    assert {g.name: g.total_ns for g in one.groups} == expected
    assert one.total_ns == sum(ns or 0 for _, ns, _ in rows)
    assert one.unknown == sum(ns is None for _, ns, _ in rows)


@pytest.mark.parametrize("by", summed.BY)
def test_no_kind_of_rows_is_summed_twice(by: str) -> None:
    table = ops(
        {"kind": "node", "name": "n", "duration_ns": 50, "self_ns": 20},
        {"kind": "node", "name": "inner", "duration_ns": 30, "layer": "n"},
        kernel("k", 11, layer="n"),
    )
    for sums in found(table, by):
        assert sum(ns or 0 for _, ns in sums.values()) in (11, 50)
