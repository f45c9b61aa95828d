"""What adds up in an iteration, by what: the sums that every figure is made of."""

from __future__ import annotations

import numpy as np
import pytest
from analysis_examples import node, ops

from layerline.analysis.costs.iterations import (
    PHASES,
    TIME,
    Key,
    iterations_of,
    labels,
    phase_shares,
    stat,
    sums,
    timed_rows,
)


def test_a_summary_is_of_numbers_whatever_holds_them() -> None:
    expected = stat(np.array([3, 1, 2], np.int64))
    assert expected is not None and (expected.median, expected.n) == (2, 3)
    assert stat([3, 1, 2]) == stat(np.array([3.0, 1.0, 2.0])) == expected
    assert stat(np.array([3, 1, 2], np.int32)) == expected


def test_a_node_counts_with_its_self_time_and_where_that_is_unknown_with_its_duration() -> None:
    rows = timed_rows(ops(node("loop", ["a"], [9], self_ns=2), node("mm", ["a"], [7])))
    assert rows[TIME].to_pylist() == [2, 7]


def test_operators_count_with_their_self_time_alone() -> None:
    rows = timed_rows(ops(node("a", ["a"], [9], kind="op", self_ns=2), node("b", ["a"], [7])))
    assert rows[TIME].to_pylist() == [7]  # beside nodes they are what launched them
    rows = timed_rows(ops(*(node("a", ["a"], [9], kind="op", self_ns=ns) for ns in (2, None))))
    assert rows[TIME].to_pylist() == [2, None]


def test_a_capture_that_marks_no_iteration_is_one() -> None:
    rows, number = iterations_of(ops(node("a", ["a"], [3, 4], iteration=None)))
    assert (len(rows), number.tolist(), number.dtype) == (2, [0, 0], np.int64)
    found = sums(ops(node("a", ["a"], [3, 4], iteration=None)))
    assert (found.iterations, found.matrix.tolist()) == ((0,), [[7]])


def test_the_columns_are_the_iterations_by_their_numbers() -> None:
    rows = node("a", ["a"], [3], iteration=7), node("b", ["b"], [5], iteration=2)
    found = sums(ops(*rows))
    assert found.iterations == (2, 7)
    assert found.keys == (Key(("a",)), Key(("b",)))
    assert found.matrix.tolist() == [[0, 3], [5, 0]]


@pytest.mark.parametrize("rows", [[], node("a", ["a"], [0, 0], duration_ns=None)])
def test_of_nothing_that_has_a_time_there_are_no_sums(rows: list[dict[str, object]]) -> None:
    found = sums(ops(rows))
    assert (found.keys, found.iterations, found.unknown) == ((), (), len(rows))
    assert found.matrix.shape == (0, 0) and found.matrix.dtype == np.int64
    assert found.resolved().tolist() == found.total().tolist() == []
    assert phase_shares(ops(rows)) == {}


def test_what_has_no_module_is_summed_by_the_names_that_it_is_given() -> None:
    rows = [node(n, m, [1]) for n, m in (("a", ["a"]), ("b", None), ("c", []), ("d", None))]
    table = ops(*rows)
    found = sums(table, labels(table, "no module"))
    assert found.keys == (Key(("a",)), Key(None, "unresolved"), Key(None, "no module"))
    assert found.matrix.tolist() == [[1], [2], [1]]
    assert found.resolved().tolist() == [1]


def test_what_has_no_module_is_called_by_its_layer_where_a_rule_found_it() -> None:
    table = ops(
        node("loss", [], [1]),
        [{**row, "layer": None} for row in node("x", [], [1])],
        node("y", [], [1], rule="unresolved"),
        node("z", [], [1], rule=None),
    )
    assert labels(table).to_pylist() == ["loss", "no module", "unresolved", "unresolved"]
    assert labels(table, "rest").to_pylist() == ["rest", "rest", "unresolved", "unresolved"]


def phase(name: str | None, times: list[int]) -> list[dict[str, object]]:
    return node("x", ["a"], times, phase=name, kind="kernel")


def test_shares_are_means_over_iterations_that_have_time() -> None:
    """60 and 10 of 100 %, of 100 ns and of 1 ns; the second iteration took nothing."""
    table = ops(phase("forward", [60, 0, 0]), phase("backward", [40, 0, 1]))
    found = phase_shares(table)
    assert found == pytest.approx({"forward": 0.3, "backward": 0.7})


def test_an_unknown_time_adds_nothing_to_a_phase_and_an_unknown_phase_is_other() -> None:
    lost = node("lost", ["a"], [9], phase="forward", kind="kernel", duration_ns=None)
    rows = phase("forward", [1]), phase(None, [2]), phase("other", [1]), phase("backward", [4])
    assert phase_shares(ops(lost, *rows)) == {"forward": 0.125, "backward": 0.5, "other": 0.375}
    assert phase_shares(ops(phase("forward", [0, 0]))) == {}


def test_phases_come_in_the_order_in_which_they_run_and_others_by_name_after_them() -> None:
    names = ["warm-up", "cool-down", *reversed(PHASES)]
    found = phase_shares(ops(*(phase(name, [i + 1]) for i, name in enumerate(names))))
    assert list(found) == [
        "data", "forward", "loss", "recompute", "backward", "optimizer", "other",
        "cool-down", "warm-up",
    ]  # fmt: skip
