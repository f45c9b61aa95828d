"""Iterations and layers of an engine in a capture, and their statistics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nsys_build import Export

from layerline.analysis.attribution import nsys, tensorrt_ranges
from layerline.analysis.costs import layers as layers_
from layerline.analysis.costs.layers import Operations, independent
from layerline.analysis.readers.nsys import sqlite
from layerline.analysis.readers.nsys.attribution import GRAPHS_FIX, attribute
from layerline.analysis.readers.nsys.load import load
from layerline.core import stats
from layerline.core.errors import InputError
from layerline.core.nodes import NodeGraph, parse
from layerline.core.resolve import Network, NetworkLayer

TRT, MYELIN = 1, 2
ENQUEUE = "ExecutionContext::enqueue"
FOREIGN = "{ForeignNode[a...z]}"


def engine() -> Export:
    export = Export()
    export.domain(TRT, "TensorRT")
    export.domain(MYELIN, "myelin-exec")
    return export


def inference(export: Export, at: int, **durations: int) -> None:
    """1000 ns: a ForeignNode with the operations named, and a reformat after it."""
    export.range(ENQUEUE, at, at + 1000, domain=TRT)
    export.range(FOREIGN, at + 10, at + 900, domain=TRT)
    export.range("myelinGraphExecute", at + 20, at + 890, kind=60, domain=MYELIN)
    for i, (name, duration) in enumerate(durations.items()):
        begin = at + 100 + 50 * i
        export.range(name.rstrip("_"), begin, begin + 40, domain=MYELIN)
        export.launch(begin + 10, duration)
    export.range("Reformatting", at + 910, at + 990, domain=TRT)
    export.launch(at + 920, 3)


Layers = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def layers(tmp_path: Path) -> Layers:
    def read(export: Export, graph: NodeGraph | None = None, **options: Any) -> Any:
        with sqlite.source(export.write(tmp_path / "c.sqlite")) as source:
            table, notes, _ = layers_.of_nsys(source, graph, None, **options)
        read.notes = notes  # type: ignore[attr-defined]
        return table.to_pylist()

    return read


def named(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {r["layer"]: r for r in rows}


def test_what_a_foreign_node_runs_under_no_name_is_a_layer_each(layers: Layers) -> None:
    """In order of execution among the operations that have names, in every inference."""
    nodes = [
        {"name": "a/Relu", "op": "Relu", "module": "a", "inputs": ["x"], "outputs": ["y"]},
        {"name": "b/ReduceMean", "op": "ReduceMean", "module": "b", "inputs": ["y"],
         "outputs": ["m"]},
        {"name": "z/Sub", "op": "Sub", "module": "z", "inputs": ["y", "m"], "outputs": ["o"]},
    ]  # fmt: skip
    graph = parse({"schema_version": 1, "nodes": nodes, "inputs": ["x"], "outputs": ["o"]})
    export = engine()
    for at in (1000, 3000):
        inference(export, at, **{"a/Relu": 5, "z/Sub": 7})
        # Between the two ranges, and after them.
        export.launch(at + 142, 11, name="__myl_bb0_1_Mea")
        export.launch(at + 400, 13, name="mha1")
    found = named(layers(export, graph))
    assert {k: (r["calls"], r["total_ns"], r["modules"]) for k, r in found.items()} == {
        "a/Relu": (2, 10, ["a"]),
        f"{FOREIGN} #1": (2, 22, ["b"]),
        "z/Sub": (2, 14, ["z"]),
        f"{FOREIGN} #2": (2, 26, None),
        "Reformatting": (2, 6, None),
    }


def test_a_foreign_node_in_which_nothing_has_a_name_stays_whole(layers: Layers) -> None:
    export = engine()
    export.range(ENQUEUE, 1000, 2000, domain=TRT)
    export.range(FOREIGN, 1010, 1900, domain=TRT)
    for at in (1100, 1200):
        export.launch(at, 5)
    (row,) = layers(export)
    assert (row["layer"], row["kernels"], row["total_ns"]) == (FOREIGN, 2, 10)


def test_operations_inside_a_foreign_node_are_layers_of_their_own(layers: Layers) -> None:
    export = engine()
    inference(export, 1000, a=5, b=7)
    found = named(layers(export))
    assert {k: r["total_ns"] for k, r in found.items()} == {"a": 5, "b": 7, "Reformatting": 3}
    assert {r["engine"] for r in found.values()} == {"tensorrt"}


def test_statistics_are_over_sums_per_iteration(layers: Layers) -> None:
    export = engine()
    for i, duration in enumerate([5, 9, 7, 100, 6, 8, 7]):
        inference(export, 1000 + 2000 * i, a=duration)
    row = named(layers(export))["a"]
    # Sorted: 5 6 7 7 8 9 100. The 95 % interval of a median of 7 samples is [x(1), x(7)].
    assert (row["total_ns"], row["median_ns"], row["p90_ns"], row["p99_ns"]) == (142, 7, 100, 100)
    assert (row["ci_low_ns"], row["ci_high_ns"]) == (5, 100)
    assert (row["calls"], row["kernels"]) == (7, 7)


def test_two_kernels_under_one_range_are_one_call(layers: Layers) -> None:
    export = engine()
    inference(export, 1000, gemm=20)
    export.launch(1115, 4, name="reduce")
    row = named(layers(export))["gemm"]
    assert (row["calls"], row["kernels"], row["total_ns"], row["median_ns"]) == (1, 2, 24, 24)


def test_a_layer_that_another_range_crosses_is_still_one_call(layers: Layers) -> None:
    export = engine()
    inference(export, 1000, gemm=20)
    export.range("crosses", 1050, 1112, kind=60, domain=MYELIN)
    export.launch(1115, 4)
    found = named(layers(export))
    assert (found["gemm"]["calls"], found["gemm"]["kernels"], found["gemm"]["total_ns"]) == (
        1,
        2,
        24,
    )


def test_equal_names_in_one_iteration_are_layers_of_their_own(layers: Layers) -> None:
    export = engine()
    for at in (1000, 5000):
        inference(export, at, gelu=5, x=1, gelu_=50)
    found = named(layers(export))
    assert found["gelu #1"]["total_ns"] == 10
    assert found["gelu #2"]["total_ns"] == 100
    assert "gelu" not in found


def test_a_layer_that_runs_in_some_iterations_took_nothing_in_the_others(layers: Layers) -> None:
    export = engine()
    inference(export, 1000, a=5)
    inference(export, 3000, a=5, b=9)
    inference(export, 5000, a=5)
    row = named(layers(export))["b"]
    assert (row["calls"], row["total_ns"], row["median_ns"]) == (1, 9, 0)


def test_a_kernel_in_a_layer_without_finer_ranges_is_the_layers(layers: Layers) -> None:
    export = engine()
    export.range(ENQUEUE, 0, 1000, domain=TRT)
    export.range("conv1 + relu", 10, 500, domain=TRT)
    export.launch(100, 8)
    export.launch(600, 2)
    found = named(layers(export))
    assert found["conv1 + relu"]["total_ns"] == 8
    assert found["(no layer range)"]["total_ns"] == 2


def test_what_runs_outside_every_iteration_is_in_no_layer_and_is_counted(layers: Layers) -> None:
    export = engine()
    inference(export, 1000, a=5)
    export.launch(10, 999)
    found = layers(export)
    assert sum(r["total_ns"] for r in found) == 8
    assert any("1 GPU operations lie outside" in n for n in layers.notes)  # type: ignore[attr-defined]


def test_domains_that_were_created_before_the_capture_began(layers: Layers) -> None:
    export = Export()
    inference(export, 1000, a=5, b=7)
    assert set(named(layers(export))) == {"a", "b", "Reformatting"}


def test_other_ranges_can_be_the_iterations(layers: Layers) -> None:
    export = Export()
    for i in range(3):
        export.range(f"step {i}", 1000 * i, 1000 * i + 900)
        export.range("attn", 1000 * i + 10, 1000 * i + 500)
        export.launch(1000 * i + 20, 5 + i)
        export.launch(1000 * i + 600, 1)
    found = named(layers(export, iteration="step *"))
    assert found["attn"]["calls"] == 3
    assert found["attn"]["median_ns"] == 6
    assert found["(no layer range)"]["total_ns"] == 3
    assert found["attn"]["engine"] is None


def test_a_pattern_that_matches_nothing_is_an_error(layers: Layers) -> None:
    export = engine()
    inference(export, 1000, a=5)
    with pytest.raises(InputError) as e:
        layers(export, iteration="step *")
    assert Path(e.value.file or "").name == "c.sqlite"
    assert e.value.what == "no GPU operation lies in a range named step *"
    assert "nsys profile --trace=cuda,nvtx" in (e.value.fix or "")


def test_a_capture_without_an_operation_has_no_layer(layers: Layers) -> None:
    export = engine()
    export.range(ENQUEUE, 0, 1000, domain=TRT)
    export.call(10, 1)
    with pytest.raises(InputError, match="no layer was found in the capture; capture"):
        layers(export)


def test_graphs_made_before_the_capture_may_be_all_that_there_is(layers: Layers) -> None:
    export = Export()
    export.range("step", 2900, 3100)
    export.call(3000, 60, name="cudaGraphLaunch_v10000")
    export.kernel(4000, 4004, 60, graphNodeId=80)
    with pytest.raises(InputError) as e:
        layers(export, iteration="other")
    assert e.value.what == (
        "no GPU operation lies in a range named other; "
        "1 operations are of CUDA graphs made before it began"
    )
    assert e.value.fix == GRAPHS_FIX


def test_the_iterations_of_one_engine_are_counted_and_their_whole_told(tmp_path: Path) -> None:
    export = engine()
    for i, duration in enumerate([5, 9, 7]):
        inference(export, 1000 + 2000 * i, a=duration)
    with sqlite.source(export.write(tmp_path / "c.sqlite")) as source:
        table, _, times = layers_.of_nsys(source, None, None, "fp16")
    assert times.engines == () and times.iterations == 3
    assert times.total is not None and times.total.median == 10  # 7 and a reformat of 3
    assert set(table["source"].to_pylist()) == {"c.sqlite"}
    assert set(table["precision"].to_pylist()) == {"fp16"}


def test_the_most_expensive_layer_comes_first_and_what_is_not_known_last(layers: Layers) -> None:
    export = engine()
    inference(export, 1000, unknown=1, none=0, one=1, most=9)
    export.call(1115, 90)
    export.kernel(50, None, 90)
    order = ["most", "Reformatting", "one", "none", "unknown"]
    assert [r["layer"] for r in layers(export)] == order


def test_the_network_tells_what_a_layer_without_a_name_is(tmp_path: Path) -> None:
    nodes = [
        {"name": f"{m}/Gemm", "op": "Gemm", "module": m, "inputs": ["x"], "outputs": [m]}
        for m in ("a", "b")
    ]
    name = "(Unnamed Layer* 7) [Gemm]"
    network = Network({7: NetworkLayer(7, name, node="b/Gemm")})
    export = engine()
    inference(export, 1000, **{name: 5})
    graph = parse({"schema_version": 1, "nodes": nodes})
    with sqlite.source(export.write(tmp_path / "c.sqlite")) as source:
        for known, modules in ((None, None), (network, ["b"])):
            table, _, _ = layers_.of_nsys(source, graph, known)
            assert named(table.to_pylist())[name]["modules"] == modules


def test_without_any_iteration_the_capture_is_one(layers: Layers) -> None:
    export = Export()
    export.range("a", 0, 100)
    export.range("a", 200, 300)
    export.launch(10, 5)
    export.launch(210, 6)
    found = named(layers(export))
    assert found["a #1"]["total_ns"] == 5
    assert found["a #2"]["total_ns"] == 6
    assert any("taken as one" in n for n in layers.notes)  # type: ignore[attr-defined]


def test_a_layer_with_an_unknown_duration_has_unknown_times(layers: Layers) -> None:
    export = engine()
    inference(export, 1000, a=5, b=7)
    export.call(1115, 90)
    export.kernel(50, None, 90)
    found = named(layers(export))
    assert (found["a"]["total_ns"], found["a"]["median_ns"], found["a"]["kernels"]) == (
        None,
        None,
        2,
    )
    assert found["b"]["total_ns"] == 7


def test_nodes_of_a_graph_belong_to_the_layer_in_which_they_were_captured(layers: Layers) -> None:
    export = engine()
    inference(export, 1000)
    export.range("conv", 1100, 1200, domain=TRT)
    export.range("relu", 1300, 1400, domain=TRT)
    node = {"end": None, "globalTid": export.ranges[0]["globalTid"]}
    for number, original, at in (
        (70, None, 1110),
        (71, None, 1310),
        (80, 70, 1990),
        (81, 71, 1990),
    ):
        export.nodes.append(
            {**node, "start": at, "graphNodeId": number, "originalGraphNodeId": original}
        )
    for i in range(2):
        export.call(3000 + i, 60 + i, name="cudaGraphLaunch_v10000")
        export.kernel(4000 + 10 * i, 4004 + 10 * i, 60 + i, graphNodeId=80)
        export.kernel(4005 + 10 * i, 4006 + 10 * i, 60 + i, graphNodeId=81)
    found = named(layers(export))
    assert (found["conv"]["total_ns"], found["conv"]["calls"]) == (8, 2)
    assert (found["relu"]["total_ns"], found["relu"]["calls"]) == (2, 2)


def test_copies_of_nodes_whose_making_is_not_in_the_capture_are_of_no_layer(
    layers: Layers,
) -> None:
    """Stands for: what is known of a graph's launch or instantiation says nothing of a layer."""
    export = engine()
    inference(export, 1000, conv=5)
    export.range("not its layer", 1980, 1995, domain=TRT)
    node = {"end": None, "globalTid": export.ranges[0]["globalTid"]}
    export.nodes.append({**node, "start": 1990, "graphNodeId": 80, "originalGraphNodeId": 70})
    export.call(3000, 60, name="cudaGraphLaunch_v10000")
    export.kernel(4000, 4004, 60, graphNodeId=80)
    found = named(layers(export))
    assert "not its layer" not in found and found["conv"]["total_ns"] == 5


@pytest.mark.parametrize("traced", [True, False])
def test_graphs_made_before_the_capture_are_said_with_what_to_do(
    tmp_path: Path, traced: bool
) -> None:
    export = Export()
    export.range("around the launch", 2900, 3100)
    if traced:  # the table is there, with another graph
        node = {"start": 10, "end": None, "globalTid": export.ranges[0]["globalTid"]}
        export.nodes.append({**node, "graphNodeId": 1, "originalGraphNodeId": None})
    export.call(3000, 60, name="cudaGraphLaunch_v10000")
    export.kernel(4000, 4004, 60, graphNodeId=80)
    notes = sqlite.read(export.write(tmp_path / "a.sqlite")).notes
    assert [n for n in notes if n.startswith("1 kernel operations are of CUDA graphs")]
    assert any("start nsys before the graphs are made" in n for n in notes)


def test_names_become_modules_and_unresolved_ones_stay_unknown(layers: Layers) -> None:
    nodes = [
        {"name": "h.0/Gemm", "op": "Gemm", "module": "h.0", "inputs": ["x"], "outputs": ["y"]},
        {"name": "h.1/Gemm", "op": "Gemm", "module": "h.1", "inputs": ["y"], "outputs": ["z"]},
        {"name": "h.2/Gemm", "op": "Gemm", "module": "h.2", "inputs": ["x"], "outputs": ["w"]},
    ]
    graph = parse({"schema_version": 1, "nodes": nodes})
    export = engine()
    inference(export, 1000, **{"h_0/Gemm": 5, "something else entirely": 7})
    found = named(layers(export, graph))
    assert found["h_0/Gemm"]["modules"] == ["h.0"]
    assert found["h_0/Gemm"]["rule"] == "name"
    unknown = found["something else entirely"]
    assert (unknown["rule"], unknown["modules"], unknown["nodes"]) == ("unresolved", None, None)


def test_operations_carry_layer_and_iteration(tmp_path: Path) -> None:
    export = engine()
    for at in (1000, 3000):
        inference(export, at, gelu=5, gelu_=7)
    export.launch(10, 99)
    path = export.write(tmp_path / "c.sqlite")
    with sqlite.source(path) as source:
        attribution = attribute(load(source))
        found = tensorrt_ranges.runs(attribution)
        resolved = nsys.resolutions(found, None, None)
        ops = nsys.operations(attribution, found, resolved, path, "fp16").to_pylist()
    assert [(r["iteration"], r["layer"], r["duration_ns"]) for r in ops] == [
        (0, "gelu #1", 5),
        (0, "gelu #2", 7),
        (0, "Reformatting", 3),
        (1, "gelu #1", 5),
        (1, "gelu #2", 7),
        (1, "Reformatting", 3),
        (None, None, 99),
    ]
    assert {r["precision"] for r in ops} == {"fp16"}
    assert [r["phase"] for r in ops] == ["inference"] * 6 + [None]


rows = st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 3), st.integers(0, 50)), max_size=40)


@settings(max_examples=100, deadline=None)
@given(rows)
def test_sums_per_layer_and_iteration(found: list[tuple[int, int, int]]) -> None:
    columns = [np.array([r[i] for r in found], t) for i, t in enumerate((np.int32, np.int32, int))]
    ops = Operations(*columns, np.zeros(len(found), np.bool_), iterations=4)
    expected = [
        [sum(d for x, i, d in found if (x, i) == (layer, it)) for it in range(4)]
        for layer in range(5)
    ]
    assert [None if sums is None else sums.tolist() for sums in ops.sums(5)] == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 10**12), max_size=60))
def test_the_fast_summary_is_the_cores(samples: list[int]) -> None:
    assert independent(np.array(samples, np.int64)) == stats.summarise(samples)
