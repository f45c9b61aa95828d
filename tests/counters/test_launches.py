"""Counters joined to layers and modules, on a capture of TensorRT 8.6 on an H100.

tests/data/ncu/h100_tiny.counters.parquet: four metrics of every launch, and eight attributes of
the device, of `ncu --nvtx --section ComputeWorkloadAnalysis` over three inferences of the engine of
tests/data/h100_tiny (fp32 there, TF32 allowed).
"""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import DATA

from layerline.analysis.captures import counters as counters_
from layerline.analysis.counters import launches as launches_
from layerline.analysis.counters import sums
from layerline.core import nodes
from layerline.core.nodes import NodeGraph
from layerline.core.resolve import parse_network
from layerline.core.run import Run
from layerline.core.tables import SCHEMAS, read_parquet, table


@pytest.fixture(scope="module")
def engine():
    document = json.loads(gzip.decompress((DATA / "h100_tiny" / "run.json.gz").read_bytes()))
    return nodes.parse(document["nodes"]), parse_network(document["fp32"]["network"])


@pytest.fixture(scope="module")
def capture():
    return read_parquet(DATA / "ncu" / "h100_tiny.counters.parquet", "counters")


def made(*launches, metrics=()):
    """Counters of (layer, kernel) pairs, with `metrics`: {name: (unit, values)}."""
    rows = [
        {"source": "a", "layer": layer, "kernel": kernel, "launch": i, "metric": m, "unit": unit}
        | {"value": values[i]}
        for m, (unit, values) in (metrics or {"x.sum": ("inst", [1.0] * len(launches))}).items()
        for i, (layer, kernel) in enumerate(launches)
    ]
    return table("counters", rows)


def test_every_launch_of_a_tensorrt_engine_has_its_layer_and_modules(capture, engine):
    found = launches_.launches(capture, *engine)
    assert len(found) == 84
    assert all(x.modules and x.nodes for x in found)
    assert "unresolved" not in {x.rule for x in found}
    # Three inferences of 28 kernels; the GELUs of both blocks have one name, and are told apart.
    assert Counter(x.iteration for x in found) == {0: 28, 1: 28, 2: 28}
    gelu = [x for x in found if x.layer.startswith("gelu_mul")]
    assert [x.modules for x in gelu] == [
        ("transformer.h.0.mlp.act",),
        ("transformer.h.1.mlp.act",),
    ] * 3
    assert gelu[0].layer.removesuffix(" #1") + " #2" == gelu[1].layer


def test_joining_changes_no_value(capture, engine):
    joined = launches_.join(capture, *engine, precision="tf32", engine="e")
    assert joined.schema == SCHEMAS["counters"]
    for column in ("launch", "metric", "unit", "value", "kernel"):
        assert joined[column].equals(capture[column])
    assert joined["modules"].null_count == 0
    assert launches_.of_table(joined) == launches_.launches(capture, *engine)


def test_modules_add_up_to_the_whole_capture(capture, engine):
    """Own time of the root is the mean of what the launches' raw durations sum to."""
    found = launches_.launches(capture, *engine)
    layers = sums.per_layer(capture, found)
    time = [r for r in layers.to_pylist() if r["metric"] == "gpu__time_duration.sum"]
    assert len(time) == 28 and {r["iterations"] for r in time} == {3}
    modules = {
        r["module"]: r
        for r in sums.per_module(layers).to_pylist()
        if r["metric"] == "gpu__time_duration.sum"
    }
    assert modules[""]["own"] == sum(r["value"] for r in time)
    assert modules[""]["shared"] == 0
    children = [modules[m]["own"] for m in ("lm_head", "transformer")]
    assert sum(children) == modules[""]["own"]
    # The second layer norm shares its kernel with the residual addition of the block.
    assert modules["transformer.h.0.ln_2"]["own"] == 0
    assert modules["transformer.h.0.ln_2"]["shared_layers"] == 1


def test_two_kernels_of_one_range_are_one_execution():
    found = launches_.launches(made(("a", "splitk"), ("a", "reduce"), ("b", "k"), ("a", "k")))
    assert [x.layer for x in found] == ["a #1", "a #1", "b", "a #2"]


def test_a_launch_outside_every_layer_is_kept():
    found = launches_.launches(
        made((None, "k"), ("ExecutionContext::enqueue", "k"), ("a", "k")), NodeGraph(())
    )
    assert [x.layer for x in found] == ["(no layer range)"] * 2 + ["a"]
    assert [x.modules for x in found] == [None] * 3
    assert {x.rule for x in found} == {"unresolved"}


def test_module_ranges_of_an_eager_capture_are_their_modules():
    found = launches_.launches(
        made(("layerline/module/h.0", "a"), ("layerline/module/", "b"), (None, "c")), NodeGraph(())
    )
    assert [(x.modules, x.rule) for x in found] == [
        (("h.0",), "range"),
        (("",), "range"),
        (None, "unresolved"),
    ]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(2, 4), st.integers(0, 5))
def test_a_sequence_that_repeats_is_as_many_iterations(once, times, tail):
    whole = once * times + once[: min(tail, len(once) - 1)]
    period = launches_.repeats(whole)
    assert period <= len(once)
    assert all(whole[i] == whole[i + period] for i in range(len(whole) - period))


def test_equal_blocks_without_engine_ranges_are_no_iterations():
    found = launches_.launches(made(*[(None, "a"), (None, "b")] * 12))
    assert {x.iteration for x in found} == {0}


def test_a_details_page_weighs_by_its_own_duration():
    pct = "Compute (SM) Throughput"
    metrics = {"Duration": ("us", [10.0, 30.0]), pct: ("%", [20.0, 60.0])}
    data = made(("a", "k1"), ("a", "k2"), metrics=metrics)
    layers = sums.per_layer(data, launches_.launches(data))
    assert {r["metric"]: r["value"] for r in layers.to_pylist()}[pct] == 50


def test_a_sequence_that_does_not_repeat_twice_is_one_iteration():
    assert launches_.repeats([]) == 0
    assert launches_.repeats([1, 2, 3, 1]) == 4


def test_sums_add_and_means_are_weighted_by_time():
    """By hand: 10 us at 20 % and 30 us at 60 % are 50 %; 1 Kbyte and 24 byte are 1024 byte."""
    data = made(
        ("a", "k1"),
        ("a", "k2"),
        metrics={
            "gpu__time_duration.sum": ("us", [10.0, 30.0]),
            "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", [20.0, 60.0]),
            "sm__throughput.max.pct_of_peak_sustained_elapsed": ("%", [20.0, 60.0]),
            "dram__bytes.sum": ("Kbyte", [1.0, 0.024]),
            "launch__registers_per_thread": ("register/thread", [32.0, 32.0]),
            "launch__grid_size": (None, [1.0, 2.0]),
            "something__new": (None, [1.0, 2.0]),
        },
    )
    layers = sums.per_layer(data, launches_.launches(data))
    found = {r["metric"]: (r["value"], r["unit"], r["rule"]) for r in layers.to_pylist()}
    assert found == {
        "gpu__time_duration.sum": (40_000.0, "ns", "sum"),
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": (50.0, "%", "mean"),
        "sm__throughput.max.pct_of_peak_sustained_elapsed": (None, "%", None),
        "dram__bytes.sum": (1024.0, "byte", "sum"),
        "launch__registers_per_thread": (32.0, "register/thread", "constant"),
        "launch__grid_size": (None, None, "constant"),
        "something__new": (None, None, None),
    }


def test_an_unknown_value_is_not_zero():
    data = made(("a", "k1"), ("a", "k2"), ("b", "k3"), metrics={"x.sum": ("inst", [1.0, None, 3])})
    layers = sums.per_layer(data, launches_.launches(data))
    assert {r["layer"]: r["value"] for r in layers.to_pylist()} == {"a": None, "b": 3.0}


def test_a_mean_without_durations_is_unknown():
    pct = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
    data = made(("a", "k1"), ("a", "k2"), ("b", "k3"), metrics={pct: ("%", [1.0, 2.0, 3.0])})
    layers = sums.per_layer(data, launches_.launches(data))
    assert {r["layer"]: r["value"] for r in layers.to_pylist()} == {"a": None, "b": 3.0}


def test_a_run_without_ncu_captures_has_no_counters(tmp_path):
    (tmp_path / "captures").mkdir()
    assert counters_.counters_of_run(Run(tmp_path)) is None


def test_a_report_and_the_csv_made_of_it_are_one_capture(tmp_path):
    pytest.importorskip("ncu_report")
    folder = tmp_path / "captures"
    folder.mkdir()
    (folder / "eager.fp32.ncu-rep").symlink_to(DATA / "ncu" / "two_kernels.ncu-rep")
    (folder / "eager.fp32.ncu.csv").symlink_to(DATA / "ncu" / "two_kernels.raw.csv")
    found = counters_.counters_of_run(Run(tmp_path))
    assert set(found["source"].to_pylist()) == {"eager.fp32.ncu-rep"}
    assert set(found["precision"].to_pylist()) == {"fp32"}
    by_launch = dict(zip(found["launch"].to_pylist(), found["modules"].to_pylist(), strict=True))
    assert by_launch[1] == ["outer"] and by_launch[2] is None


def test_without_ncu_report_the_csv_is_read(tmp_path, monkeypatch):
    folder = tmp_path / "captures"
    folder.mkdir()
    (folder / "eager.fp32.ncu-rep").symlink_to(DATA / "ncu" / "two_kernels.ncu-rep")
    (folder / "eager.fp32.ncu.csv").symlink_to(DATA / "ncu" / "two_kernels.raw.csv")
    monkeypatch.setattr(counters_.importlib.util, "find_spec", lambda name: None)
    found = counters_.counters_of_run(Run(tmp_path))
    assert set(found["source"].to_pylist()) == {"eager.fp32.ncu.csv"}


def test_counters_belong_to_the_graph_that_the_engine_was_built_from(tmp_path, monkeypatch):
    """TensorRT 8 builds fp16 from fp32.onnx, whose nodes may differ from those of fp16.onnx."""
    for folder in ("captures", "export", "engines"):
        (tmp_path / folder).mkdir()
    (tmp_path / "captures" / "fp16.tensorrt.ncu.csv").symlink_to(
        DATA / "ncu" / "two_kernels.raw.csv"
    )
    build = {"source": "export/fp32.onnx"}
    (tmp_path / "engines" / "fp16.tensorrt.build.json").write_text(json.dumps(build))
    for stem in ("fp16", "fp32"):
        node = {"name": f"{stem}/Gemm", "op": "Gemm", "module": stem, "inputs": [], "outputs": []}
        document = {"schema_version": 1, "nodes": [node]}
        (tmp_path / "export" / f"{stem}.nodes.json").write_text(json.dumps(document))
    given = []
    monkeypatch.setattr(launches_, "join", lambda found, graph, *rest: given.append(graph) or found)
    counters_.counters_of_run(Run(tmp_path))
    assert [[n.name for n in graph.nodes] for graph in given] == [["fp32/Gemm"]]
