"""The layers table: statistics over per-iteration sums."""

from __future__ import annotations

from analysis_examples import node, ops

from layerline.analysis.costs.layers import of_ops


def test_statistics_are_over_sums_per_iteration_not_over_calls() -> None:
    # Two calls per iteration: sums 11, 22, 33.
    table = of_ops(ops(node("x", ["a"], [1, 2, 3]), node("x", ["a"], [10, 20, 30])), "fp32.ort")
    (row,) = table.to_pylist()
    assert (row["median_ns"], row["total_ns"], row["calls"]) == (22, 66, 6)
    assert (row["p90_ns"], row["p99_ns"]) == (33, 33)
    assert row["ci_low_ns"] is None and row["kernels"] is None
    assert row["engine"] == "fp32.ort" and row["modules"] == ["a"]


def test_an_iteration_in_which_a_layer_did_not_run_counts_as_no_time() -> None:
    table = of_ops(ops(node("x", ["a"], [4]), node("y", ["b"], [1, 1, 1])), "e")
    assert {r["layer"]: r["median_ns"] for r in table.to_pylist()} == {"x": 0, "y": 1}


def test_movement_is_kept_apart_from_the_same_layers_computation() -> None:
    table = of_ops(
        ops(
            node("x", ["a"], [9], kind="kernel"),
            node("x", ["a"], [4], kind="kernel"),
            node("x", ["a"], [2], kind="kernel", rule="carrier"),
            node("x", ["a"], [1], kind="memcpy"),
        ),
        "e",
        [{"name": "x", "kind": "gemm", "tactic": "t1"}],
    )
    found = {r["kind"]: (r["median_ns"], r["kernels"], r["calls"]) for r in table.to_pylist()}
    assert found == {"gemm": (13, 2, 1), "movement": (3, 1, 1)}


def test_a_layer_that_never_ran_is_listed_without_a_time() -> None:
    described = [
        {"name": "x", "kind": "Gemm", "precision_in": ["fp16"] * 2, "compute_precision": "fp32"},
        {"name": "gone", "kind": "Cast", "nodes": ["n"], "modules": ["a"], "rule": "name"},
    ]
    x, gone = of_ops(ops(node("x", ["a"], [5])), "e", described).to_pylist()
    assert (x["kind"], x["precision_in"], x["compute_precision"]) == ("Gemm", "fp16", "fp32")
    assert (gone["layer"], gone["calls"], gone["median_ns"], gone["total_ns"]) == (
        "gone",
        0,
        None,
        None,
    )


def test_a_layer_with_an_unknown_time_has_no_statistics() -> None:
    (row,) = of_ops(ops(node("x", ["a"], [5, 0], duration_ns=None)), "e").to_pylist()
    assert row["total_ns"] is None and row["median_ns"] is None and row["calls"] == 2


def test_an_empty_capture_gives_an_empty_table() -> None:
    assert of_ops(ops(), "e").num_rows == 0
