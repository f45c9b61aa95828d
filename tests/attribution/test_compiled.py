"""Operators of compiled graphs to kernels: traces by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from layerline.analysis.attribution.eager import of_events
from layerline.analysis.readers.torch.events import read_events
from layerline.core.documents import CompiledGraph, CompiledKernel

REGION, CALL = "Torch-Compiled Region: 0/0", "## Call CompiledFxGraph 0 ##"
Event = tuple[str, float, float]


def graph(*kernels: CompiledKernel, key: str = "0") -> CompiledGraph:
    return CompiledGraph(key=key, region="0/0", phase="forward", kernels=list(kernels))


def kernel(name: str, *modules: str, row: str | None = None) -> CompiledKernel:
    return CompiledKernel(name=name, modules=list(modules), row=row)


def ops(path: Path, events: list[Event], graphs: list[CompiledGraph], *more: Any) -> list[Any]:
    """The rows of a trace of one thread: (name, start, duration) in microseconds."""
    written = [
        {
            "ph": "X", "cat": "user_annotation" if name.startswith("layerline/") else "cpu_op",
            "name": name,
            "ts": start, "dur": duration, "pid": 1, "tid": 1, "args": {"Ev Idx": i},
        }
        for i, (name, start, duration) in enumerate(events)
    ]  # fmt: skip
    file = path / "t.json"
    file.write_text(json.dumps({"traceEvents": [*written, *more]}))
    rows = of_events(read_events(file), {}, graphs=graphs).main.to_pylist()
    return [r for r in rows if r["name"] != "outside operators"]


def around(*inside: Event) -> list[Event]:
    """A step whose forward is one call of a graph."""
    return [
        ("layerline/iteration/0", 0, 100),
        ("layerline/phase/forward", 1, 98),
        (REGION, 2, 96),
        (CALL, 5, 90),
        *inside,
    ]


def of(rows: list[Any], name: str) -> list[tuple[Any, Any, Any]]:
    return [(r["layer"], r["modules"], r["rule"]) for r in rows if r["name"] == name]


def test_a_graph_of_several_modules_is_of_the_one_whose_forward_calls_it(tmp_path: Path) -> None:
    made = graph(kernel("extern_kernels.mm:1", "h.0.fc"), kernel("cpp_fused_add_0:2", "h.0", ""))
    made.any_of = ["h.0", "h.1"]
    lookup = "TorchDynamo Cache Lookup"

    def called(start: float, module: str) -> list[Event]:
        return [
            (f"layerline/module/{module}", start, 20), (lookup, start + 1, 2),
            (REGION, start + 4, 15), (CALL, start + 5, 12), ("aten::mm", start + 6, 4),
            ("graph_0_cpp_fused_add_0", start + 11, 4),
        ]  # fmt: skip

    step: list[Event] = [("layerline/iteration/0", 0, 100), ("layerline/phase/forward", 1, 98)]
    both = [*called(10, "h.1"), *called(40, "h.0"), *called(70, "elsewhere")]
    rows = ops(tmp_path, [*step, *both], [made])
    name = "extern_kernels.mm:1"
    assert of(rows, "aten::mm") == [
        (name, ["h.1.fc"], "provenance"),
        (name, ["h.0.fc"], "provenance"),
        (name, None, "unresolved"),
    ]
    assert [m for _, m, _ in of(rows, "graph_0_cpp_fused_add_0")] == [
        ["h.1", ""],
        ["h.0", ""],
        None,
    ]
    # What is checked before a graph is no module's, wherever it is called.
    assert set(of(rows, lookup)[0][::2]) == {"guards of compiled graphs", "range"}


def test_calls_of_one_name_are_told_apart_by_their_place(tmp_path: Path) -> None:
    made = graph(
        kernel("extern_kernels.mm:1", "a"),
        kernel("cpp_fused_add_0:2", "b", "c"),
        kernel("extern_kernels.mm:3", "d"),
    )
    inside: list[Event] = [
        ("aten::mm", 10, 5),
        ("aten::resolve_conj", 11, 1),
        ("graph_0_cpp_fused_add_0", 20, 5),
        ("aten::mm", 30, 5),
    ]
    rows = ops(tmp_path, around(*inside), [made])
    assert of(rows, "aten::mm") == [
        ("extern_kernels.mm:1", ["a"], "provenance"),
        ("extern_kernels.mm:3", ["d"], "provenance"),
    ]
    # What an extern call does is its module's too; a fused kernel is shared.
    assert of(rows, "aten::resolve_conj") == [("extern_kernels.mm:1", ["a"], "provenance")]
    fused = ("cpp_fused_add_0:2", ["b", "c"], "provenance")
    assert of(rows, "graph_0_cpp_fused_add_0") == [fused]
    # Python around and between kernels is no module's.
    for name in (REGION, CALL):
        assert of(rows, name) == [("around compiled kernels", None, "range")]
    assert sum(r["self_ns"] for r in rows) == 96_000


def test_another_number_of_calls_than_places_leaves_that_name_unresolved(tmp_path: Path) -> None:
    made = graph(
        kernel("extern_kernels.mm:1", "a"),
        kernel("extern_kernels.mm:2", "b"),
        kernel("cpp_fused_add_0:3", "c"),
    )
    inside: list[Event] = [("aten::mm", 10, 5), ("graph_3_cpp_fused_add_0", 20, 5)]
    rows = ops(tmp_path, around(*inside), [made])
    assert [r[1:] for r in of(rows, "aten::mm")] == [(None, "unresolved")]
    assert of(rows, "graph_3_cpp_fused_add_0") == [("cpp_fused_add_0:3", ["c"], "provenance")]


def test_a_kernel_that_nobody_knows_is_unresolved_and_a_sum_of_gradients_a_row(
    tmp_path: Path,
) -> None:
    made = graph(kernel("cpp_fused_add_0:1", row="gradient sums"), kernel("cpp_fused_mul_1:2"))
    inside: list[Event] = [
        ("graph_0_cpp_fused_add_0", 10, 5),
        ("graph_0_cpp_fused_mul_1", 20, 5),
        ("aten::foreign", 30, 5),
    ]
    rows = ops(tmp_path, around(*inside), [made])
    assert of(rows, "graph_0_cpp_fused_add_0") == [("gradient sums", None, "provenance")]
    assert of(rows, "graph_0_cpp_fused_mul_1") == [("cpp_fused_mul_1:2", None, "unresolved")]
    assert [r[1:] for r in of(rows, "aten::foreign")] == [(None, "unresolved")]


def test_a_graph_that_the_capture_does_not_know_counts_as_one(tmp_path: Path) -> None:
    other = graph(kernel("extern_kernels.mm:1", "a"), key="7")
    rows = ops(tmp_path, around(("aten::mm", 10, 5)), [other])
    assert [r[1:] for r in of(rows, "aten::mm")] == [(["compiled graph 0/0"], "range")]


def test_a_kernel_on_a_device_is_of_the_call_that_launched_it(tmp_path: Path) -> None:
    """Streams overlap there: a Triton kernel that runs first was launched last."""
    made = graph(
        kernel("extern_kernels.mm:1", "a"),
        kernel("triton_poi_fused_add_0:2", "b", "c"),
        kernel("triton_poi_fused_mul_1:3", "d"),
    )

    def launched(number: int, start: float, name: str, ran: float) -> list[dict[str, Any]]:
        args = {"correlation": number}
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": args}
        there = {"ph": "X", "cat": "kernel", "name": name, "args": {**args, "stream": number}}
        return [
            {**call, "ts": start, "dur": 1, "pid": 1, "tid": 1},
            {**there, "ts": ran, "dur": 10, "pid": 0, "tid": 7},
        ]

    inside: list[Event] = [("aten::mm", 10, 5), ("triton_poi_fused_add_0", 20, 5)]
    more = [
        *launched(1, 11, "sm90_gemm", 60),
        *launched(2, 21, "triton_poi_fused_add_0", 50),
        # Python launches this one without a range of its own.
        *launched(3, 30, "triton_poi_fused_mul_1", 40),
    ]
    rows = ops(tmp_path, around(*inside), [made], *more)
    kernels = {r["name"]: r["modules"] for r in rows if r["kind"] == "kernel"}
    assert kernels == {
        "sm90_gemm": ["a"],
        "triton_poi_fused_add_0": ["b", "c"],
        "triton_poi_fused_mul_1": ["d"],
    }
