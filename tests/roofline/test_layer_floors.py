"""Floors of layers as a run has them: which layers have one, against what device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from layerline.analysis.captures import floors as floors_
from layerline.analysis.captures.files import exported
from layerline.analysis.roofline import floor
from layerline.core import tables
from layerline.core.documents import Device
from layerline.core.nodes import Node, NodeGraph
from layerline.core.run import open_run

GRAPH = NodeGraph((Node("m/MatMul", "MatMul", "m", ("x", "w"), ("y",)),), outputs=("y",))
SHAPES = {
    "x": ("float32", (512, 768)),
    "w": ("float32", (768, 3072)),
    "y": ("float32", (512, 3072)),
}
# What the worker of TensorRT wrote of an H100 (SXM): 1.98 GHz, HBM3 at 2.619 GHz on 5120 lines.
H100 = Device(
    name="NVIDIA H100 80GB HBM3",
    multiprocessors=132,
    clock_khz=1_980_000,
    memory_clock_khz=2_619_000,
    memory_bus_bits=5120,
    l2_bytes=52_428_800,
    capability_major=9,
    capability_minor=0,
)
BANDWIDTH = 2.619e9 * 2 * 5120 / 8
HALF = 132 * 1.98e9 * 4096
FP32 = 132 * 1.98e9 * 256


def layers(*rows: dict[str, Any]) -> Any:
    return tables.table("layers", [{"precision": "fp16", "kind": "gemm", **r} for r in rows])


def row(**more: Any) -> dict[str, Any]:
    return {"layer": "L", "nodes": ["m/MatMul"], "median_ns": 10_000, **more}


def test_a_half_precision_layer_against_the_h100_it_ran_on() -> None:
    """4,325,376 elements of two bytes take 2.6 us of memory, 2.4 GFLOP 2.3 us of tensor cores."""
    shapes = floor.in_precision(SHAPES, "fp16")
    found = floor.of_layers(layers(row()), GRAPH, shapes, floor.device_of(H100))["L"]
    assert (found.flop, found.bytes) == (2_415_919_104, 2 * 4_325_376)
    assert found.ns == pytest.approx(2 * 4_325_376 / BANDWIDTH * 1e9)
    assert found.ns is not None and found.ns > 2_415_919_104 / HALF * 1e9
    assert found.limit == "bytes"
    assert found.times == pytest.approx(10_000 / found.ns)


def test_fp32_without_tf32_is_bound_by_the_ordinary_cores() -> None:
    table = layers(row(precision="fp32"))
    found = floor.of_layers(table, GRAPH, SHAPES, floor.device_of(H100))["L"]
    assert found.ns == pytest.approx(2_415_919_104 / FP32 * 1e9)
    assert found.limit == "FLOP"
    tf32 = floor.of_layers(layers(row(precision="tf32")), GRAPH, SHAPES, floor.device_of(H100))
    assert tf32["L"].ns == pytest.approx(4 * 4_325_376 / BANDWIDTH * 1e9)


def test_what_only_moves_data_or_has_no_nodes_has_no_floor() -> None:
    table = layers(row(layer="R", kind="movement"), row(layer="?", nodes=None))
    assert floor.of_layers(table, GRAPH, SHAPES, None) == {}


def test_a_cpu_has_work_and_no_least_time() -> None:
    device = floor.device_of(Device())
    found = floor.of_layers(layers(row()), GRAPH, SHAPES, device)["L"]
    assert found.flop and found.ns is None and found.times is None and found.limit is None


def test_a_layer_that_was_not_timed_keeps_its_floor() -> None:
    table = layers(row(median_ns=None))
    found = floor.of_layers(table, GRAPH, SHAPES, floor.device_of(H100))["L"]
    assert found.ns and found.times is None


def test_a_module_of_the_eager_model_has_the_floor_of_its_own_nodes(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", create=True)
    export = run.file("export", "nodes.json")
    assert floors_.of_eager(exported(export, None), "fp16") == {}
    nodes = [
        {"name": "m/MatMul", "op": "MatMul", "module": "m", "inputs": ["x", "w"], "outputs": ["y"]},
        {"name": "m.act/Tanh", "op": "Tanh", "module": "m.act", "inputs": ["y"], "outputs": ["z"]},
        {"name": "Add", "op": "Add", "module": None, "inputs": ["z", "z"], "outputs": ["s"]},
    ]
    tensors = {k: {"dtype": d, "shape": list(s)} for k, (d, s) in SHAPES.items()}
    tensors |= {"z": tensors["y"], "s": tensors["y"]}
    document = {"schema_version": 1, "nodes": nodes, "tensors": tensors, "outputs": ["s"]}
    run.file("export").mkdir()
    export.write_text(json.dumps(document))
    found = floors_.of_eager(exported(export, None), "fp16")
    # The product reads x and w and writes y; the activation reads and writes once, in two bytes.
    assert {k: v.bytes for k, v in found.items()} == {
        "layerline/module/m": 2 * 4_325_376,
        "layerline/module/m.act": 2 * 2 * 512 * 3072,
    }
    assert found["layerline/module/m"].flop == 2_415_919_104


# As inductor's captured graph has it: a product whose padded weight a kernel makes, attention that
# one call computes beside a mask, and attention in two products with a kernel between.
PACKAGE = NodeGraph(
    (
        Node("a/linear", "MatMul", "a", ("x", "w"), ("y",)),
        Node("b/mask", "Add", "b", ("m", "m"), ("mask",)),
        Node("b/attention", "Attention", "b", ("q", "q", "q"), ("z",)),
        Node("c/attention", "Attention", "c", ("q", "q", "q"), ("c",)),
    ),
    outputs=("y", "mask", "z", "c"),
)
PACKED = {
    **SHAPES,
    **dict.fromkeys(("q", "z", "c"), ("float32", (1, 12, 512, 64))),
    **dict.fromkeys(("m", "mask"), ("float32", (512, 512))),
}


def of_package(*rows: tuple[str, list[str]]) -> dict[str, Any]:
    made = [row(layer=k, nodes=n, rule="provenance", precision="fp32") for k, n in rows]
    return floor.of_layers(layers(*made), PACKAGE, PACKED, floor.device_of(H100))


def test_what_prepares_a_product_owes_none_of_its_work() -> None:
    alone = of_package(("aoti_torch_cuda_mm_out:2", ["a/linear"]))["aoti_torch_cuda_mm_out:2"]
    found = of_package(
        ("triton_poi_fused_mm_t_0:1", ["a/linear"]),
        ("aoti_torch_cuda_mm_out:2", ["a/linear"]),
        ("triton_poi_fused_where_1:3", ["b/mask", "b/attention"]),
        ("aoti_torch_cuda__scaled_dot_product_cudnn_attention:4", ["b/attention"]),
    )
    pad, product, mask, attention = found.values()
    assert product == alone and product.flop == 2 * 512 * 768 * 3072
    assert (pad.flop, pad.bytes, pad.times) == (0, 0, None)
    assert mask.flop == 512 * 512  # its own addition
    assert attention.flop is not None and attention.flop > 2 * 2 * 12 * 512 * 512 * 64


def test_a_part_of_attention_has_no_floor_that_is_known() -> None:
    parts = (
        "aoti_torch_cuda_bmm_out:1",
        "triton_per_fused_softmax_0:2",
        "aoti_torch_cuda_bmm_out:3",
    )
    assert of_package(*((part, ["c/attention"]) for part in parts)) == {}


def test_what_is_computed_again_is_work_each_time() -> None:
    found = of_package(("triton_a_0:1", ["b/mask"]), ("triton_b_1:2", ["b/mask"]))
    assert [x.flop for x in found.values()] == [512 * 512] * 2
