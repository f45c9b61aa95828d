"""Layers that files name, and what the resolver is given of each: worked out by hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from layerline.analysis.attribution import resolution
from layerline.analysis.readers.base import Artefact
from layerline.analysis.readers.tensorrt import profile
from layerline.core import tables
from layerline.core.nodes import parse
from layerline.core.resolve import RawLayer, Resolution

GRAPH = parse(
    {
        "schema_version": 1,
        "nodes": [
            {"name": f"{m}/Gemm", "op": "Gemm", "module": m, "inputs": [x], "outputs": [y]}
            for m, x, y in (("a", "x", "y"), ("b", "y", "z"))
        ],
    }
)


def resolved(rule: str, nodes: tuple[str, ...] = (), modules: tuple[str, ...] = ()) -> Resolution:
    return Resolution("l", 0, nodes, modules, rule, "compute", "why")


def test_what_is_not_resolved_has_no_nodes_and_what_has_no_module_none() -> None:
    none = {"nodes": None, "modules": None}
    assert resolution.columns_of(None) == {**none, "rule": None}
    assert resolution.columns_of(resolved("unresolved")) == {**none, "rule": "unresolved"}
    assert resolution.columns_of(resolved("name", ("n", "m"), ("b", "a"))) == {
        "nodes": ["n", "m"], "modules": ["b", "a"], "rule": "name",
    }  # fmt: skip
    assert resolution.columns_of(resolved("order", ("n",))) == {
        "nodes": ["n"], "modules": None, "rule": "order",
    }  # fmt: skip


def test_an_operation_has_what_its_layer_has() -> None:
    ops = tables.table("ops", [{"name": n} for n in "xyz"])
    columns = resolution.of_rows(
        ops, [None, resolved("name", ("n",), ("m",))], pa.array([1, None, 0])
    )
    assert {k: v.to_pylist() for k, v in columns.items()} == {
        "nodes": [["n"], None, None], "modules": [["m"], None, None], "rule": ["name", None, None],
    }  # fmt: skip


def test_operations_are_resolved_by_their_layer_else_by_their_name() -> None:
    ops = tables.table(
        "ops",
        [
            {"name": "kernel", "layer": "a/Gemm"}, {"name": "b/Gemm"}, {"name": None},
            {"name": "other", "layer": "a/Gemm"},
        ],
    )  # fmt: skip
    found = resolution.resolve_ops(ops, GRAPH, None).to_pylist()
    assert [(r["modules"], r["rule"]) for r in found] == [
        (["a"], "name"), (["b"], "name"), (None, "unresolved"), (["a"], "name"),
    ]  # fmt: skip


def test_each_engine_of_a_file_is_resolved_by_itself() -> None:
    """The rows stay in their places."""
    rows: list[dict[str, Any]] = [{"row": i} for i in range(3)]
    raw: list[tuple[str | None, RawLayer]] = [
        ("one", RawLayer(name="a/Gemm")), ("two", RawLayer(name="a/Gemm")),
        ("one", RawLayer(name="b/Gemm")),
    ]  # fmt: skip
    resolution.resolve_rows(rows, raw, GRAPH, None)
    assert [(r["row"], r["modules"], r["nodes"]) for r in rows] == [
        (0, ["a"], ["a/Gemm"]), (1, ["a"], ["a/Gemm"]), (2, ["b"], ["b/Gemm"]),
    ]  # fmt: skip


def test_the_resolver_is_given_the_tensors_and_metadata_of_a_layers_place_in_its_engine() -> None:
    def tensor(engine: str | None, index: int, direction: str, name: str | None) -> dict[str, Any]:
        return {"engine": engine, "index": index, "direction": direction, "tensor": name}

    artefact = Artefact(
        "trt-layers",
        {
            "layers": pa.table({"x": [1]}),
            "tensors": pa.Table.from_pylist(
                [
                    tensor("e", 0, "input", "x"), tensor("e", 0, "output", "y"),
                    tensor("e", 1, "input", "y"), tensor("e", 1, "input", None),
                    tensor("e", 1, "strange", "s"), tensor("f", 0, "output", "q"),
                    tensor("e", 0, "input", "w"),
                ]
            ),
            "details": pa.Table.from_pylist(
                [{"engine": "e", "index": 1, "metadata": "[ONNX Layer: n]"}]
            ),
        },
    )  # fmt: skip
    rows = [
        {"engine": engine, "layer": name, "kind": kind}
        for engine, name, kind in (
            ("e", "conv", "Conv"), ("f", "conv", None), ("e", "conv", None), ("e", None, "x"),
        )
    ]  # fmt: skip
    assert resolution.raw_layers(rows, artefact) == [
        ("e", RawLayer("conv", "Conv", ("x", "w"), ("y",))),
        ("f", RawLayer("conv", None, (), ("q",))),
        ("e", RawLayer("conv", None, ("y",), (), "[ONNX Layer: n]", 1)),
        ("e", RawLayer("", "x")),
    ]
    bare = Artefact("trt-profile", {"layers": pa.table({"x": [1]})})
    assert resolution.raw_layers(rows[:1], bare) == [("e", RawLayer("conv", "Conv"))]


@pytest.mark.parametrize(
    ("kind", "table", "said"),
    [
        ("torch-trace", "ops", "is of kind torch-trace, which names no engine layers"),
        (profile.KIND, "latency", "holds times of whole iterations (trtexec --exportTimes)"),
        (profile.KIND, "settings", "holds settings of a TensorRT profile and no time of a layer"),
    ],
)
def test_a_file_without_layers_says_what_it_holds(kind: str, table: str, said: str) -> None:
    error = resolution.nameless(Artefact(kind, {table: pa.table({"x": [1]})}))
    assert error.what.startswith(said) and error.fix is not None and "name " in error.fix
