"""Iterations, layers and their operations in captures of a few ranges, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
from nsys_build import Export

from layerline.analysis.attribution import nsys
from layerline.analysis.attribution.layer_info import LayerInfo
from layerline.analysis.attribution.tensorrt_ranges import Runs, runs
from layerline.analysis.readers.nsys import sqlite
from layerline.analysis.readers.nsys.attribution import attribute
from layerline.analysis.readers.nsys.load import load
from layerline.core.nodes import parse
from layerline.core.own_ranges import NO_LAYER
from layerline.core.resolve import RawLayer

TRT, MYELIN, OTHER = 1, 2, 3
ENQUEUE = "ExecutionContext::enqueue"
FOREIGN = "{ForeignNode[a...z]}"
T = TypeVar("T")


def read(export: Export, then: Callable[[Any, Runs, Path], T], pattern: str | None = None) -> T:
    with TemporaryDirectory() as folder:
        path = export.write(Path(folder) / "c.sqlite")
        with sqlite.source(path) as source:
            attribution = attribute(load(source))
            return then(attribution, runs(attribution, pattern), path)


def found(export: Export, pattern: str | None = None) -> Runs:
    return read(export, lambda _, capture, __: capture, pattern)


def told(capture: Runs) -> list[tuple[int, str | None, int]]:
    """Per operation its iteration, the label of its layer, and its ns."""
    return [
        (i, capture.layers[x].label if x >= 0 else None, ns)
        for i, x, ns in zip(
            capture.iteration.tolist(), capture.layer.tolist(), capture.ns.tolist(), strict=True
        )
    ]


def engine(*names: tuple[int, str]) -> Export:
    export = Export()
    for number, name in names or ((TRT, "TensorRT"), (MYELIN, "myelin-exec")):
        export.domain(number, name)
    return export


def test_only_tensorrts_ranges_are_layers_of_its_inferences() -> None:
    """Not one of another library, not a phase of Myelin's, not one around the enqueue."""
    export = engine((TRT, "TensorRT"), (MYELIN, "myelin-exec"), (OTHER, "mine"))
    for at in (3000, 1000):  # the file's order is not that of time
        export.range("around", at - 100, at + 1000, domain=TRT)
        export.range(ENQUEUE, at, at + 900, domain=TRT)
        export.range("conv", at + 10, at + 200, domain=TRT)
        export.range("not a layer", at + 20, at + 100, domain=OTHER)
        export.launch(at + 30, at // 1000)
        export.range(FOREIGN, at + 300, at + 700, domain=TRT)
        export.range("phase", at + 310, at + 600, domain=MYELIN, kind=60)
        export.range("gemm", at + 320, at + 400, domain=MYELIN)
        export.launch(at + 330, 10 * at // 1000)
        export.launch(at + 750, 7)
        export.launch(at + 950, 9)
    capture = found(export)
    assert (capture.engine, capture.iterations, len(capture.engines)) == ("tensorrt", 2, 1)
    assert [x.label for x in capture.layers] == ["conv", "gemm", NO_LAYER]
    assert capture.calls.tolist() == [2, 2, 2]
    assert sorted(told(capture)) == [
        (-1, None, 9), (-1, None, 9), (0, NO_LAYER, 7), (0, "conv", 1), (0, "gemm", 10),
        (1, NO_LAYER, 7), (1, "conv", 3), (1, "gemm", 30),
    ]  # fmt: skip
    assert min(capture.layer) == -1 and capture.calls.dtype == capture.ns.dtype
    assert capture.notes == [
        "2 GPU operations lie outside every iteration and are in no layer (18 ns)"
    ]


def test_the_first_range_of_a_capture_is_a_layer_as_the_others_are() -> None:
    export = Export()
    export.range("a", 0, 100)
    export.launch(10, 5)
    capture = found(export)
    assert told(capture) == [(0, "a", 5)] and capture.iterations == 1


def test_a_capture_without_operations_is_one_empty_iteration() -> None:
    export = Export()
    export.range("a", 0, 100)
    capture = found(export)
    assert (told(capture), capture.layers, capture.iterations) == ([], [], 1)
    assert (capture.ns.size, capture.kernel.size, capture.calls.size) == (0, 0, 0)
    bare = Export()
    bare.kernel(10, 15, None)
    assert told(found(bare)) == [(0, NO_LAYER, 5)]


def test_what_has_no_name_is_neither_a_layer_nor_an_iteration() -> None:
    export = engine()
    export.range(ENQUEUE, 1000, 1900, domain=TRT)
    export.range("conv", 1010, 1500, domain=TRT)
    export.range(None, 1100, 1200, domain=TRT)
    export.launch(1110, 5)
    export.range(None, 2000, 2100, domain=TRT)
    export.launch(2010, 6)
    assert told(found(export)) == [(0, "conv", 5), (-1, None, 6)]


def test_what_runs_directly_in_a_divided_region_is_a_layer_each() -> None:
    """Also in an inference in which nothing in it has a name; not in a region where nothing ever
    has one, and not in a layer that is no region."""
    export = engine()
    other = "{ForeignNode[b...y]}"
    for at in (1000, 3000):
        export.range(ENQUEUE, at, at + 1900, domain=TRT)
        export.range(FOREIGN, at + 10, at + 500, domain=TRT)
        export.launch(at + 20, 1)
        if at == 1000:
            export.range("gemm", at + 100, at + 200, domain=MYELIN)
            export.launch(at + 110, 2)
        export.launch(at + 300, 3)
        export.range(other, at + 600, at + 700, domain=TRT)
        export.launch(at + 610, 4)
        export.launch(at + 620, 5)
        export.range("conv", at + 800, at + 900, domain=TRT)
        export.range("inside", at + 810, at + 820, domain=TRT)
        export.launch(at + 815, 6)
        export.launch(at + 850, 7)
        export.launch(at + 860, 8)
    capture = found(export)
    assert told(capture)[:8] == [
        (0, f"{FOREIGN} #1", 1), (0, "gemm", 2), (0, f"{FOREIGN} #2", 3), (0, other, 4),
        (0, other, 5), (0, "inside", 6), (0, "conv", 7), (0, "conv", 8),
    ]  # fmt: skip
    assert [x for _, x, _ in told(capture)[8:10]] == [f"{FOREIGN} #1", f"{FOREIGN} #2"]
    assert [x.label for x in capture.layers if x.nameless] == [f"{FOREIGN} #1", f"{FOREIGN} #2"]
    assert len(capture.engines) == 1


def test_engines_are_told_apart_by_the_outermost_layers_of_tensorrt_alone() -> None:
    """Not by what is inside of them, nor by ranges of others in the enqueue."""
    export = engine((TRT, "TensorRT"), (OTHER, "mine"))
    for at, name in ((1000, "first"), (3000, "second")):
        export.range(ENQUEUE, at, at + 900, domain=TRT)
        export.range(f"mine, {name}", at + 5, at + 8, domain=OTHER)
        export.range("conv", at + 10, at + 500, domain=TRT)
        export.range(f"inside, {name}", at + 20, at + 50, domain=TRT)
        export.launch(at + 30, 1)
    capture = found(export)
    assert len(capture.engines) == 1 and capture.iterations == 2
    assert [x.label for x in capture.layers] == ["inside, first", "inside, second"]


def test_processes_without_tensorrt_are_no_engines() -> None:
    export = Export()
    for process in (1000, 2000):
        export.range("layerline/iteration/0", 0, 100, process=process)
        export.range("layerline/module/h", 10, 90, process=process)
        export.launch(20, 5, process=process)
    capture = found(export)
    assert len(capture.engines) == 1 and {x for _, x, _ in told(capture)} == {"h"}


def test_domains_without_names_are_told_by_the_enqueue_and_by_foreign_nodes() -> None:
    export = Export()
    export.range(ENQUEUE, 1000, 1900, domain=TRT)
    export.range("conv", 1010, 1100, domain=TRT)
    export.launch(1020, 1)
    export.range("outside of a ForeignNode", 1110, 1190, domain=OTHER)
    export.launch(1120, 2)
    export.range(FOREIGN, 1200, 1500, domain=TRT)
    export.range("gemm", 1210, 1300, domain=MYELIN)
    export.launch(1220, 3)
    export.launch(1400, 4)
    assert told(found(export)) == [
        (0, "conv", 1), (0, NO_LAYER, 2), (0, "gemm", 3), (0, FOREIGN, 4),
    ]  # fmt: skip


def test_an_enqueue_in_another_domain_than_tensorrts_makes_no_engine() -> None:
    """A range of somebody else is called as an enqueue, and those of TensorRT are not there."""
    export = engine((TRT, "TensorRT"))
    export.range("something", 0, 10, domain=TRT)
    export.range(ENQUEUE, 1000, 1900, domain=OTHER)
    export.range("inner", 1010, 1100, domain=OTHER)
    export.launch(1020, 1)
    capture = found(export)
    assert capture.engine is None and told(capture) == [(0, "inner", 1)]
    assert capture.notes == ["no range marks an iteration; the whole capture is taken as one"]


@pytest.mark.parametrize("name", ["ExecutionContext::execute", "ExecutionContext::enqueueV3"])
def test_an_inference_is_an_enqueue_or_an_execution(name: str) -> None:
    export = engine()
    export.range(name, 1000, 1900, domain=TRT)
    export.launch(1020, 1)
    assert found(export).engine == "tensorrt"


def test_own_iterations_and_modules_are_those_of_an_eager_capture() -> None:
    export = Export()
    for i in (1, 0):
        at = 1000 * i
        export.range(f"layerline/iteration/{i}", at, at + 900)
        export.range("layerline/module/", at + 10, at + 800)
        export.range("layerline/module/h", at + 20, at + 500)
        export.range("cub::Scan", at + 30, at + 100)
        export.launch(at + 40, 1 + i)
        export.launch(at + 600, 10)
    capture = found(export)
    assert told(capture) == [(1, "h", 2), (1, "(model)", 10), (0, "h", 1), (0, "(model)", 10)]
    assert capture.engine is None and capture.notes == []


def test_names_that_match_are_iterations_and_the_innermost_other_ranges_layers() -> None:
    """The outermost of those that match; operations of no iteration are noted."""
    export = engine()
    export.range("step 1", 1000, 2000)
    export.range("step 2", 1100, 1500)
    export.range("a", 1200, 1300)
    export.launch(1210, 1)
    export.launch(1400, 2)
    export.launch(2500, 3)
    capture = found(export, "step ?")
    assert told(capture) == [(0, "a", 1), (0, NO_LAYER, 2), (-1, None, 3)]
    assert capture.notes == [
        "1 GPU operations lie outside every iteration and are in no layer (3 ns)"
    ]
    assert told(found(export, "STEP ?")) == [(-1, None, 1), (-1, None, 2), (-1, None, 3)]


def test_what_is_unknown_of_an_operation_stays_unknown() -> None:
    export = engine()
    export.range(ENQUEUE, 1000, 1900, domain=TRT)
    export.launch(1010, 5)
    export.call(1020, 90)
    export.kernel(50, None, 90)
    capture = found(export)
    least = -(2**63)
    assert capture.ns.tolist() == [5, least] and capture.kernel.tolist() == [True] * 2
    export.kernels[-1] |= {"start": None, "end": 60}
    assert found(export).ns.tolist() == [5, least]


def test_kinds_of_operations_follow_one_another() -> None:
    export = engine()
    export.range(ENQUEUE, 1000, 1900, domain=TRT)
    export.range("conv", 1010, 1100, domain=TRT)
    export.launch(1020, 5)
    export.call(1030, 90)
    export.copy(1200, 1207, 90)
    capture = found(export)
    assert told(capture) == [(0, "conv", 5), (0, "conv", 7)]
    assert capture.kernel.tolist() == [True, False]


def graph_of(export: Export, *nodes: tuple[int, int]) -> None:
    """Nodes of a CUDA graph, each with its number and when it was made."""
    for number, at in nodes:
        export.nodes.append(
            {"start": at, "end": None, "globalTid": export.ranges[0]["globalTid"],
             "graphNodeId": number, "originalGraphNodeId": None}
        )  # fmt: skip


def test_a_graph_launched_outside_every_inference_is_an_iteration_of_its_own() -> None:
    """In the order of the launches, also before the inference in which it was captured."""
    export = engine()
    export.range(ENQUEUE, 5000, 5900, domain=TRT)
    export.range("conv", 5010, 5100, domain=TRT)
    export.range("relu", 5200, 5300, domain=TRT)
    graph_of(export, (70, 5020), (71, 5210))
    export.launch(5030, 3)
    for at, call in ((6000, 60), (1000, 61)):
        export.call(at, call, name="cudaGraphLaunch_v10000")
        export.kernel(at + 10, at + 14, call, graphNodeId=70)
        export.kernel(at + 20, at + 25, call, graphNodeId=71)
    capture = found(export)
    assert capture.iterations == 3 and capture.calls.tolist() == [3, 2]
    assert told(capture) == [
        (1, "conv", 3), (2, "conv", 4), (2, "relu", 5), (0, "conv", 4), (0, "relu", 5),
    ]  # fmt: skip


def test_a_graphs_layers_are_where_it_was_captured_also_in_the_first_range() -> None:
    """Its launch is the first call, and later than the inference. An operation of it whose launch
    is not in the capture is of no iteration, nor is another one outside of all."""
    export = engine()
    export.range(FOREIGN, 100, 900, domain=TRT)
    export.range("gemm", 200, 300, domain=MYELIN)
    graph_of(export, (70, 250), (71, 150))
    export.call(6000, 60, name="cudaGraphLaunch_v10000")
    export.kernel(6010, 6014, 60, graphNodeId=70)
    export.kernel(6020, 6025, 60, graphNodeId=71)
    export.kernel(7020, 7026, 99, graphNodeId=70)
    export.range(ENQUEUE, 5000, 5900, domain=TRT)
    export.range("conv", 5010, 5100, domain=TRT)
    export.launch(5020, 7)
    export.launch(8000, 8)
    export.call(5030, 61)
    export.copy(5200, 5209, 61)
    capture = found(export)
    assert told(capture) == [
        (1, "gemm", 4), (1, FOREIGN, 5),
        (-1, None, 6), (0, "conv", 7), (-1, None, 8), (0, "conv", 9),
    ]  # fmt: skip
    assert [x.nameless for x in capture.layers if x.name == FOREIGN] == [True]


def test_a_graph_launched_in_an_iteration_is_of_it_and_of_its_own_layers() -> None:
    export = Export()
    export.range(ENQUEUE, 3000, 3900, domain=TRT)  # the first in the file
    export.range("launching", 3010, 3100, domain=TRT)
    export.range(ENQUEUE, 1000, 1900, domain=TRT)
    export.range("conv", 1010, 1100, domain=TRT)
    graph_of(export, (70, 1020))
    export.call(3020, 60, name="cudaGraphLaunch_v10000")
    export.kernel(4000, 4004, 60, graphNodeId=70)
    assert told(found(export)) == [(0, "conv", 4)]
    # With a pattern nothing becomes an iteration that does not match it.
    export.call(9000, 61, name="cudaGraphLaunch_v10000")
    export.kernel(9010, 9015, 61, graphNodeId=70)
    assert [i for i, _, _ in told(found(export, ENQUEUE))] == [0, -1]


# --- what the layers are -------------------------------------------------------------------------


def two_engines() -> Export:
    export = engine()
    for at, names in ((1000, ("a", "shared")), (3000, ("b", "shared"))):
        export.range(ENQUEUE, at, at + 900, domain=TRT)
        for i, name in enumerate(names):
            export.range(name, at + 100 * i + 10, at + 100 * i + 90, domain=TRT)
            export.launch(at + 100 * i + 20, 5, name=f"kernel of {name}")
            export.launch(at + 100 * i + 30, 6, name=f"kernel of {name}")
    return export


def info(*names: str) -> LayerInfo:
    return LayerInfo("info.json", [], [RawLayer(name=n, op=f"op of {n}") for n in names], ["note"])


def test_an_engines_description_is_matched_with_each_engine_by_itself() -> None:
    capture = found(two_engines())
    labels = [x.label for x in capture.layers]
    assert labels == ["a", "shared (engine 1)", "b", "shared (engine 2)"]
    known = info("shared", "b")
    assert nsys.layers_in_info(capture, known) == [None, 0, 1, 0]
    assert nsys.info_notes(capture, known) == [
        "info.json describes 3 of the 4 layers of the capture", "note",
    ]  # fmt: skip
    assert nsys.info_notes(capture, None) == []


def test_a_layer_is_resolved_with_its_kernels_and_its_description() -> None:
    def then(attribution: Any, capture: Runs, path: Path) -> None:
        plain = nsys.raw_layers(capture)
        assert plain == [RawLayer(name=n) for n in ("a", "shared", "b", "shared")]
        with_kernels = nsys.raw_layers(capture, attribution.capture, info("shared"))
        assert [[k.name for k in x.kernels] for x in with_kernels] == [
            ["kernel of a"], ["kernel of shared"], ["kernel of b"], ["kernel of shared"],
        ]  # fmt: skip
        assert [x.op for x in with_kernels] == [None, "op of shared", None, "op of shared"]

    read(two_engines(), then)


def test_a_layer_has_each_of_its_kernels_once_with_its_blocks() -> None:
    """As it was first launched; copies are none, nor what runs in no layer."""
    export = engine()
    export.range(ENQUEUE, 1000, 1900, domain=TRT)
    export.range("conv", 1010, 1500, domain=TRT)
    for at, name, blocks in ((1020, "gemm", 8), (1030, "relu", 2), (1040, "gemm", 9)):
        export.launch(at, 5, name=name, gridX=blocks, gridY=3, gridZ=1)
    export.launch(2500, 5, name="outside", gridX=1, gridY=1, gridZ=1)
    export.call(1050, 61)
    export.copy(1200, 1209, 61)

    def then(attribution: Any, capture: Runs, path: Path) -> None:
        (layer,) = nsys.raw_layers(capture, attribution.capture)
        assert {(k.name, k.grid) for k in layer.kernels} == {
            ("gemm", (8, 3, 1)),
            ("relu", (2, 3, 1)),
        }
        attribution.capture.grids = None
        (layer,) = nsys.raw_layers(capture, attribution.capture)
        assert {(k.name, k.grid) for k in layer.kernels} == {("gemm", None), ("relu", None)}

    read(export, then)


def test_layers_of_one_name_and_those_without_one_are_told_apart_for_the_resolver() -> None:
    """What has no name of its own is none of a description's layers, and takes none's place."""
    export = engine()
    export.range(ENQUEUE, 1000, 1900, domain=TRT)
    export.range(FOREIGN, 1010, 1500, domain=TRT)
    export.launch(1020, 1)
    export.range("gemm", 1100, 1200, domain=MYELIN)
    export.launch(1110, 2)
    export.range("gemm", 1300, 1400, domain=MYELIN)
    export.launch(1310, 3)
    capture = found(export)
    assert nsys.raw_layers(capture) == [
        RawLayer(name=FOREIGN, nameless=True), RawLayer(name="gemm"),
        RawLayer(name="gemm", occurrence=1),
    ]  # fmt: skip
    known = LayerInfo(
        "i", [], [RawLayer("gemm", "A"), RawLayer(FOREIGN), RawLayer("gemm", "B", occurrence=1)], []
    )
    assert nsys.layers_in_info(capture, known) == [None, 0, 2]


def test_each_engine_is_resolved_by_itself_with_what_describes_it() -> None:
    """A name that says nothing is told by its tensors; after `a` only the other node is left, and
    after `b`, which reads what the first node makes, none."""
    nodes = [
        {"name": "m/Gemm", "op": "Gemm", "module": "m", "inputs": ["x"], "outputs": ["y"]},
        {"name": "n/Relu", "op": "Relu", "module": "n", "inputs": ["y"], "outputs": ["z"]},
    ]
    graph = parse({"schema_version": 1, "nodes": nodes, "inputs": ["x"], "outputs": ["z"]})
    capture = found(two_engines())
    told = LayerInfo(
        "i", [], [RawLayer("a", None, ("x",), ("y",)), RawLayer("b", None, ("y",), ("z",))], []
    )
    resolved = nsys.resolutions(capture, graph, None, None, told)
    assert [r and r.modules for r in resolved] == [("m",), ("n",), ("n",), ()]
    assert [r and r.name for r in resolved] == ["a", "shared", "b", "shared"]


def test_operations_have_their_layers_modules_and_iteration() -> None:
    node = {"name": "m/Gemm", "op": "Gemm", "module": "m", "inputs": ["x"], "outputs": ["y"]}
    export = engine()
    export.range(ENQUEUE, 1000, 1900, domain=TRT)
    export.range("m/Gemm", 1010, 1100, domain=TRT)
    export.launch(1020, 5)
    export.launch(1200, 6)
    export.launch(2500, 7)

    def then(attribution: Any, capture: Runs, path: Path) -> None:
        assert nsys.resolutions(capture, None, None) == [None, None]
        graph = parse({"schema_version": 1, "nodes": [node]})
        resolved = nsys.resolutions(capture, graph, None)
        rows = nsys.operations(attribution, capture, resolved, path, "fp16").to_pylist()
        columns = ("layer", "modules", "nodes", "iteration", "precision", "phase", "duration_ns")
        assert [tuple(r[c] for c in columns) for r in rows] == [
            ("m/Gemm", ["m"], ["m/Gemm"], 0, "fp16", "inference", 5),
            (NO_LAYER, None, None, 0, "fp16", "inference", 6),
            (None, None, None, None, "fp16", None, 7),
        ]

    read(export, then)
