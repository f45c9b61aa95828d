"""The layers table: statistics over per-iteration sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from analysis_examples import node, ops

from layerline.analysis.costs.layers import (
    Operations,
    by_label,
    independent,
    of_artefact,
    of_ops,
    times,
    with_times,
)
from layerline.analysis.readers.base import Artefact
from layerline.analysis.readers.tensorrt import profile
from layerline.core import tables
from layerline.core.errors import InputError
from layerline.core.nodes import parse
from layerline.core.resolve import Network, NetworkLayer

HALF = "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32"
SINGLE = "ampere_sgemm_128x64_tn"
BEYOND = 2**53 + 1  # no double is this number


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


def operations(rows: list[tuple[int, int, int]], iterations: int = 1) -> Operations:
    """Kernels: layer, iteration and ns of each."""
    layer, iteration, ns = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    return Operations(layer, iteration, ns, np.ones(len(rows), np.bool_), iterations)


def test_more_layers_than_sixteen_bits_number_keep_their_own_sums() -> None:
    sums = list(operations([(40_000, 0, 3), (0, 0, 1), (32_768, 0, 2)]).sums(40_001))
    assert len(sums) == 40_001 and all(s is not None for s in sums)
    assert {i: int(s[0]) for i, s in enumerate(sums) if s is not None and s[0]} == {
        0: 1,
        32_768: 2,
        40_000: 3,
    }


def test_every_layer_has_sums_also_the_last_that_did_not_run() -> None:
    assert [s.tolist() for s in operations([(0, 1, 5)], 2).sums(3) if s is not None] == [
        [0, 5],
        [0, 0],
        [0, 0],
    ]


def test_sums_are_exact_beyond_what_a_double_holds() -> None:
    (samples,) = operations([(0, 0, BEYOND)]).sums(1)
    assert samples is not None and samples.tolist() == [BEYOND] and samples.dtype == np.int64
    (row,) = with_times([{}], operations([(0, 0, BEYOND)]), independent)
    assert row["total_ns"] == row["median_ns"] == BEYOND
    assert times(Artefact("e", {"ops": ops(node("x", ["a"], [BEYOND]))})).total == independent(
        np.array([BEYOND])
    )


def test_the_most_expensive_layer_comes_first_and_equal_ones_by_name() -> None:
    table = of_ops(
        ops(
            node("unknown", ["a"], [0], duration_ns=None),
            node("b", ["a"], [7]),
            node("one", ["a"], [1]),
            node("none", ["a"], [0]),
            node("a", ["a"], [7]),
            node("most", ["a"], [9]),
        ),
        "e",
    )
    assert table["layer"].to_pylist() == ["most", "a", "b", "one", "none", "unknown"]


def test_where_no_description_tells_the_precision_kernels_names_do() -> None:
    """By kernel of this layer, and only if it computes; else by the tactic that was described."""
    table = of_ops(
        ops(
            node("said", ["a"], [9], kind="kernel", name=HALF),
            node("kernel", ["a"], [8], kind="kernel", name=HALF),
            node("kernel", ["a"], [3], kind="memcpy", name=HALF),
            node("tactic", ["a"], [7], kind="kernel", name="?"),
            node("unknown", ["a"], [6], kind="kernel", name="?"),
        ),
        "e",
        [
            {"name": "said", "compute_precision": "int8"},
            {"name": "kernel", "tactic": SINGLE},
            {"name": "tactic", "tactic": SINGLE},
        ],
    )
    found = [(r["layer"], r["kind"], r["compute_precision"]) for r in table.to_pylist()]
    assert found == [
        ("said", "kernel", "int8"),
        ("kernel", "kernel", "fp16"),
        ("tactic", "kernel", "fp32"),
        ("unknown", "kernel", None),
        ("kernel", "movement", None),
    ]


def test_what_is_not_described_is_not_known_and_never_the_word_none() -> None:
    (row,) = of_ops(ops(node("x", ["a"], [1])), "e").to_pylist()
    assert [row[c] for c in ("precision_in", "precision_out", "tactic")] == [None] * 3
    more = [{"name": "x", "precision_in": ["fp16", "fp32", "fp16"], "tactic": 7}]
    (row,) = of_ops(ops(node("x", ["a"], [1])), "e", more).to_pylist()
    assert (row["precision_in"], row["tactic"]) == ("fp16+fp32", "7")


def test_a_layer_that_never_ran_is_of_the_same_engine_and_capture() -> None:
    described = [{"name": "gone", "source": "layers.json", "precision": "?"}]
    _, gone = of_ops(ops(node("x", ["a"], [5])), "trt", described).to_pylist()
    assert (gone["engine"], gone["source"], gone["precision"]) == ("trt", "x.json", "fp32")
    (alone,) = of_ops(ops(), "trt", described).to_pylist()
    assert (alone["source"], alone["precision"], alone["calls"]) == (None, None, 0)


def test_a_layer_runs_once_in_each_iteration_it_is_in_and_a_node_each_time() -> None:
    kernels = [node("b", ["b"], [1, 1, 1], kind="kernel") for _ in range(2)]
    more = node("a", ["a"], [1], kind="kernel"), node("c", ["c"], [1, 1], kind="kernel")
    table = of_ops(ops(*kernels, *more), "e")
    assert {r["layer"]: (r["calls"], r["kernels"]) for r in table.to_pylist()} == {
        "b": (3, 6),
        "a": (1, 1),
        "c": (2, 2),
    }


def without_layer(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "layer": None} for row in rows]


def beside_nodes() -> list[list[dict[str, Any]]]:
    """`mm`: two executions an iteration, each of 9 ns on the host, and three kernels of 10 ns;
    `add`: none, and 4 ns of its own on the host. Both ran in the start-up, too, each with a kernel.
    """
    return [
        node("mm", ["m"], [9, 9]),
        node("mm", ["m"], [9, 9]),
        *[node("mm", ["m"], [10, 10], kind="kernel", name="gemm") for _ in range(3)],
        node("add", ["a"], [6, 6], self_ns=4),
        node("mm", ["m"], [9], iteration=None),
        *[node(n, ["m"], [500], kind="kernel", iteration=None) for n in ("add", "mm")],
        without_layer(node("launched by no node", None, [1, 2], kind="kernel")),
    ]


def test_kernels_beside_nodes_are_their_time_and_nodes_without_any_have_the_hosts() -> None:
    rows = {r["layer"]: r for r in of_ops(ops(*beside_nodes()), "e").to_pylist()}
    assert {
        n: (r["kind"], r["calls"], r["kernels"], r["total_ns"], r["median_ns"])
        for n, r in rows.items()
    } == {
        "mm": ("kernel", 4, 6, 60, 30),
        "add": ("node", 2, None, 8, 4),
        "launched by no node": ("kernel", 2, 2, 3, 2),
    }


def test_the_whole_of_an_iteration_is_its_kernels_beside_which_nodes_add_nothing() -> None:
    found = times(Artefact("onnxruntime", {"ops": ops(*beside_nodes())}))
    assert found.iterations == 2 and found.total is not None
    assert (found.total.minimum, found.total.maximum) == (31, 32)


def test_an_iteration_of_nodes_alone_took_no_time_of_kernels() -> None:
    rows = node("mm", ["m"], [9, 9, 9]), node("mm", ["m"], [8], kind="kernel", iteration=1)
    found = times(Artefact("onnxruntime", {"ops": ops(*rows)}))
    assert found.iterations == 3 and found.total is not None
    assert (found.total.minimum, found.total.median, found.total.maximum) == (0, 0, 8)


def test_the_time_of_an_iteration_is_unknown_where_one_operations_is() -> None:
    known = node("a", ["a"], [1, 2, 3])
    found = times(Artefact("e", {"ops": ops(known)}))
    assert found.iterations == 3 and found.total is not None and found.total.median == 2
    found = times(Artefact("e", {"ops": ops(known, node("b", ["b"], [0], duration_ns=None))}))
    assert (found.iterations, found.total) == (3, None)
    alone = node("b", ["b"], [0], duration_ns=None, iteration=3)
    assert times(Artefact("e", {"ops": ops(known, alone)})).iterations == 4
    assert times(Artefact("e", {"ops": ops()})).iterations is None


@pytest.mark.parametrize(("said", "known"), [(1, 1), (0, None), ("7", None), (None, None)])
def test_how_many_iterations_a_list_of_layers_is_over_is_what_the_file_says(
    said: Any, known: int | None
) -> None:
    layers = {"layers": tables.table("layers", [{"layer": "x"}])}
    found = times(Artefact(profile.KIND, layers, {"iterations": said}))
    assert (found.iterations, found.total, found.own_reports) == (known, None, True)
    assert not times(Artefact("other", layers)).own_reports


def test_what_has_no_layer_is_one_of_its_own_name() -> None:
    table = of_ops(
        ops(
            node("x", ["a"], [9], name="call"),
            without_layer(node("y", ["a"], [5])),
            without_layer(node("z", ["a"], [2], name=None)),
        ),
        "e",
    )
    assert table["layer"].to_pylist() == ["x", "y", "unnamed"]


def test_an_operation_of_no_rule_is_no_movement() -> None:
    table = of_ops(ops(node("x", ["a"], [9], kind="kernel", rule=None)), "e")
    assert table["kind"].to_pylist() == ["kernel"]


def test_layers_of_one_name_are_told_apart_by_their_occurrence() -> None:
    layers = [
        {"name": "x", "occurrence": 1, "tactic": "second"},
        {"name": "x", "tactic": "first"},
        {"name": "once", "occurrence": 3},
        {"name": None},
        {},
    ]
    assert by_label(layers) == {"x #2": layers[0], "x #1": layers[1], "once": layers[2]}


NODES = [
    {"name": "h/Gemm", "op": "Gemm", "module": "h", "inputs": ["x"], "outputs": ["y"]},
    {"name": "g/Relu", "op": "Relu", "module": "g", "inputs": ["y"], "outputs": ["z"]},
]
GRAPH = parse({"schema_version": 1, "nodes": NODES})


def test_nodes_of_a_capture_become_layers_with_their_modules() -> None:
    artefact = Artefact("onnxruntime", {"ops": ops(node("h/Gemm", None, [3]))})
    table, notes = of_artefact(artefact, None, None)
    (row,) = table.to_pylist()
    assert (row["engine"], row["total_ns"], row["modules"], notes) == ("onnxruntime", 3, None, [])
    (row,) = of_artefact(artefact, GRAPH, None)[0].to_pylist()
    assert (row["modules"], row["rule"]) == (["h"], "name")


# A layer that TensorRT numbered may be any of two nodes: its network tells which.
UNNAMED = "(Unnamed Layer* 7) [Gemm]"
TWO = parse({"schema_version": 1, "nodes": [{**NODES[0], "name": f"{m}/Gemm", "module": m,
                                             "outputs": [m]} for m in "hg"]})  # fmt: skip
NETWORK = Network({7: NetworkLayer(7, UNNAMED, node="g/Gemm")})


@pytest.mark.parametrize("name", ["ops", "layers"])
def test_the_network_tells_what_a_layer_without_a_name_is(name: str) -> None:
    held = {
        "ops": ops(node(UNNAMED, None, [3])),
        "layers": tables.table("layers", [{"layer": UNNAMED, "engine": "e"}]),
    }
    artefact = Artefact("onnxruntime", {name: held[name]})
    for network, modules in ((None, None), (NETWORK, ["g"])):
        (row,) = of_artefact(artefact, TWO, network)[0].to_pylist()
        assert row["modules"] == modules


def test_a_list_of_layers_is_the_table_with_its_modules() -> None:
    rows = [{"layer": "h/Gemm", "engine": "e", "total_ns": 7}, {"layer": "g/Relu", "engine": "f"}]
    artefact = Artefact("list", {"layers": tables.table("layers", rows)})
    table, notes = of_artefact(artefact, None, None)
    assert table == artefact.main and notes == []
    found = of_artefact(artefact, GRAPH, None)[0].to_pylist()
    assert [(r["layer"], r["modules"], r["total_ns"]) for r in found] == [
        ("h/Gemm", ["h"], 7),
        ("g/Relu", ["g"], None),
    ]


@pytest.mark.parametrize("kind", ["op", None])
def test_what_names_no_layers_is_refused(kind: str | None) -> None:
    held = {"counters": tables.table("counters", [])}
    if kind is not None:
        held = {"ops": ops(node("x", ["a"], [1], kind=kind))}
    with pytest.raises(InputError, match="is of kind trace, which names no engine layers"):
        of_artefact(Artefact("trace", held), None, None)
