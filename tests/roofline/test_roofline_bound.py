"""Rooflines with values worked out by hand."""

from __future__ import annotations

import paths
import pyarrow as pa
import pytest

from layerline.analysis.counters import launches
from layerline.analysis.counters.sums import PER_LAYER, PER_MODULE, per_module
from layerline.analysis.metrics.capture import Capture
from layerline.analysis.metrics.text import roofline_table
from layerline.analysis.readers.ncu import page
from layerline.analysis.roofline import devices, roofline
from layerline.analysis.roofline.devices import Device
from layerline.analysis.roofline.floor import Floor, floor, shapes_of, time_ns
from layerline.analysis.roofline.roofline import work
from layerline.core.nodes import Node, NodeGraph
from layerline.core.roofline_metrics import CLOCK
from layerline.core.tables import read_parquet, table

DATA = paths.DATA / "ncu"
SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
# 1 TB/s, 10 TFLOP/s fp32, 20 half, 100 tensor: 1e6 byte, 1e7, 2e7 and 1e8 FLOP in a microsecond.
SIMPLE = Device(
    "simple", "made up", None, 1, 1, 1e9, 1e12, 1e13, 2e13, {"fp16": 1e14, "tf32": 5e13}
)


def values(ns, *, tensor=0.0, ffma=0.0, hfma=0.0, dram=0.0):
    found = {SASS.format(op): 0.0 for op in ("fadd", "fmul", "ffma", "hadd", "hmul", "hfma")}
    return found | {
        "gpu__time_duration.sum": ns,
        "dram__bytes.sum": dram,
        SASS.format("ffma"): ffma,
        SASS.format("hfma"): hfma,
        "sm__ops_path_tensor_src_fp16.sum": tensor,
        "sm__ops_path_tensor_src_tf32_dst_fp32.sum": 0.0,
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 0.0,
    }


def test_flop_are_counted_as_nvidia_counts_them():
    counts = {SASS.format(op): float(n) for n, op in enumerate(("fadd", "fmul", "ffma"), 1)}
    counts |= {SASS.format(op): float(n) for n, op in enumerate(("hadd", "hmul", "hfma"), 4)}
    done = work(counts)
    assert done.fp32 == 1 + 2 + 2 * 3
    assert done.fp16 == 2 * 4 + 2 * 5 + 4 * 6


@pytest.mark.parametrize(
    ("measured", "kernels", "bound"),
    [
        # 10 us: 1e9 FLOP of tensor cores fit; 8e8 are 80 %.
        (values(10_000.0, tensor=8e8, dram=1e6), 1, "tensor"),
        # 1e8 FLOP fp32 fit; 4e7 multiply-adds are 80 %.
        (values(10_000.0, ffma=4e7, dram=1e6), 1, "fp32"),
        # 2e8 FLOP half fit; 3.5e7 paired multiply-adds are 1.4e8: 70 %.
        (values(10_000.0, hfma=3.5e7), 1, "fp32"),
        # 1e7 byte fit; 7e6 are 70 %.
        (values(10_000.0, dram=7e6, tensor=1e8), 1, "memory"),
        (values(10_000.0, dram=5e6, tensor=5e8), 1, "latency"),
        (values(10_000.0, dram=5e6, tensor=5e8), 4, "launch"),  # 2.5 us a kernel
    ],
)
def test_what_bounds_a_layer(measured, kernels, bound):
    assert roofline.row("a", work(measured, kernels), SIMPLE)["bound"] == bound


def test_shares_and_intensity_by_hand():
    found = roofline.row("a", work(values(10_000.0, tensor=8e8, dram=2e6), 1), SIMPLE)
    assert found["share_tensor"] == pytest.approx(0.8)
    assert found["share_memory"] == pytest.approx(0.2)
    assert found["intensity"] == pytest.approx(400)
    assert found["flop_per_second"] == pytest.approx(8e13)


def test_a_slower_clock_lowers_the_peaks_of_compute_alone():
    measured = values(10_000.0, tensor=4e8, dram=2e6) | {CLOCK: 0.5e9}
    found = roofline.row("a", work(measured, 1), SIMPLE)
    assert found["share_tensor"] == pytest.approx(0.8)
    assert found["share_memory"] == pytest.approx(0.2)


def launch(number, without=()):
    """Work of one launch of known_flop.raw.csv."""
    counters = page.read(DATA / "known_flop.raw.csv").main
    rows = (r for r in counters.to_pylist() if r["launch"] == number)
    return work({r["metric"]: r["value"] for r in rows if r["metric"] not in without}, 1)


def test_measured_flop_of_products_of_known_size():
    """GIVEN ncu on an H100 over torch: half, bfloat16 (2048), float without and with TF32 (1024)
    matrix products, then elementwise kernels."""
    half, bfloat, float32, tf32 = (launch(i) for i in range(4))
    assert half.tensor == {"tf32": 0, "bf16": 0, "fp16": 2 * 2048**3}
    assert bfloat.tensor == {"tf32": 0, "bf16": 2 * 2048**3, "fp16": 0}
    assert tf32.tensor == {"tf32": 2 * 1024**3, "bf16": 0, "fp16": 0}
    assert sum(float32.tensor.values()) == 0
    # The epilogue multiplies each element of the result once more.
    assert float32.fp32 == 2 * (1024**3 + 1024**2)
    assert launch(5).fp32 == 1024**2  # float * float


def test_halves_converted_to_float_count_as_half_precision():
    """half * half in torch: two conversions (HADD2.F32) and one float product an element."""
    product = launch(4)
    assert product.fp32 == 2048**2
    assert product.fp16 == 2 * (2 * 2048**2)


def test_a_large_product_is_bound_by_tensor_cores_at_the_clock_it_ran():
    device = devices.of_capture(page.read(DATA / "known_flop.raw.csv").main)
    found = roofline.row("a", launch(0), device)
    assert found["bound"] == "tensor" and found["clock_hz"] < device.clock_hz
    assert found["share_tensor"] < 1


def test_a_precision_that_was_not_counted_is_not_zero():
    """A chip that lacks the name, or a capture that did not ask: the half product is unknown."""
    found = roofline.row("a", launch(0, without=("sm__ops_path_tensor_src_fp16.sum",)), SIMPLE)
    assert found["flop_tensor"] is None and found["flop"] is None and found["bound"] is None


def test_what_was_not_measured_is_unknown_and_not_zero():
    found = roofline.row("a", work({"gpu__time_duration.sum": 10_000.0}, 1), SIMPLE)
    assert found["flop"] is found["bytes"] is found["bound"] is found["intensity"] is None
    assert "not measured" in found["why"]


def test_a_bound_that_is_measured_stands_without_the_others():
    """80 % of the memory's peak leave room for no other bound."""
    measured = {"gpu__time_duration.sum": 10_000.0, "dram__bytes.sum": 8e6}
    found = roofline.row("a", work(measured, 1), SIMPLE)
    assert found["bound"] == "memory" and found["flop"] is None


def test_an_unknown_device_has_no_bound():
    found = roofline.row("a", work(values(10_000.0, dram=7e6), 1), None)
    assert found["bound"] is None and found["intensity"] == 0


def test_layers_and_modules_become_rows():
    metrics = values(10_000.0, dram=7e6)
    layers = [
        {"layer": "a", "metric": m, "value": v, "kernels": 2, "rule": "sum"}
        for m, v in metrics.items()
    ]
    by_layer = roofline.of_layers(pa.Table.from_pylist(layers, PER_LAYER), SIMPLE)
    assert by_layer.to_pylist()[0]["bound"] == "memory"
    modules = [
        {"module": name, "metric": m, "own": v, "own_layers": n}
        for name, n in (("h.0", 1), ("h.0.ln", 0))
        for m, v in metrics.items()
    ]
    by_module = roofline.of_modules(pa.Table.from_pylist(modules, PER_MODULE), SIMPLE)
    assert by_module["name"].to_pylist() == ["h.0"]


def test_a_module_of_one_short_kernel_is_launch_bound_as_its_layer_is():
    metrics = values(3_000.0, dram=1e5)
    layers = pa.Table.from_pylist(
        [
            {"layer": f"layerline/module/h.{i}", "modules": [f"h.{i}"], "metric": m, "value": v,
             "kernels": 1, "rule": "sum"}
            for i in (0, 1)
            for m, v in metrics.items()
        ],
        PER_LAYER,
    )  # fmt: skip
    number = {"": 2, "h": 2, "h.0": 1, "h.1": 1}
    made = roofline.of_modules(per_module(layers), SIMPLE).to_pylist()
    assert {r["name"]: (r["kernels"], r["bound"]) for r in made} == {
        name: (n, "launch") for name, n in number.items()
    }


@pytest.mark.parametrize(("incomplete", "distance"), [((), 2.0), (("layerline/module/m",), None)])
def test_the_floor_of_an_eager_range_is_its_modules_where_all_of_it_was_captured(
    incomplete, distance
):
    """2 * 128 * 768 * 2304 FLOP take 4529.84832 ns at 100 TFLOP/s, its bytes less."""
    layer, metrics = "layerline/module/m", values(2 * 4529.84832, dram=1e6)
    rows = [{"source": "a", "kernel": "k", "launch": 0, "layer": layer, "metric": m, "value": v,
             "unit": "ns" if "time" in m else None} for m, v in metrics.items()]  # fmt: skip
    capture = Capture("a", table("counters", rows), SIMPLE, incomplete=frozenset(incomplete))
    (found,) = roofline_table(
        capture, launches.launches(capture.counters), "layer", graph(GEMM, outputs=("y",)), SHAPES
    ).to_pylist()
    assert found["distance"] == (None if distance is None else pytest.approx(distance))


def graph(*nodes, outputs=()):
    return NodeGraph(tuple(nodes), outputs=tuple(outputs))


GEMM = Node("m/Gemm", "Gemm", "m", ("x", "w", "b"), ("y",))
ADD = Node("m/Add", "Add", "m", ("y", "r"), ("z",))
SHAPES = {
    "x": ("float16", (128, 768)),
    "w": ("float16", (768, 2304)),
    "b": ("float16", (2304,)),
    "y": ("float16", (128, 2304)),
    "r": ("float16", (128, 2304)),
    "z": ("float16", (128, 2304)),
}


def test_the_floor_of_a_gemm_by_hand():
    found = floor(["m/Gemm"], graph(GEMM, outputs=("y",)), SHAPES)
    assert found.flop == 2 * 128 * 768 * 2304 + 128 * 2304
    assert found.bytes == 2 * (128 * 768 + 768 * 2304 + 2304 + 128 * 2304)
    assert found.dtype == "float16"


def test_what_stays_inside_a_fused_layer_is_no_traffic():
    found = floor(["m/Gemm", "m/Add"], graph(GEMM, ADD, outputs=("z",)), SHAPES)
    assert found.flop == 2 * 128 * 768 * 2304 + 2 * 128 * 2304
    assert found.bytes == 2 * (128 * 768 + 768 * 2304 + 2304 + 2 * 128 * 2304)
    # A reader outside makes it traffic.
    other = Node("o/Relu", "Relu", "o", ("y",), ("q",))
    read = floor(["m/Gemm", "m/Add"], graph(GEMM, ADD, other, outputs=("z",)), SHAPES)
    assert read.bytes == found.bytes + 2 * 128 * 2304


def test_a_transposed_gemm_has_the_same_flop():
    shapes = SHAPES | {"x": ("float16", (768, 128)), "w": ("float16", (2304, 768))}
    assert floor(["m/Gemm"], graph(GEMM), shapes).flop == 2 * 128 * 768 * 2304 + 128 * 2304


@pytest.mark.parametrize(
    ("op", "flop", "moved"),
    [
        ("Softmax", 5 * 12 * 128 * 128, 2),
        ("LayerNormalization", 8 * 12 * 128 * 128, 2),
        ("Tanh", 12 * 128 * 128, 2),
        ("Transpose", 0, 2),
        ("Reshape", 0, 0),
    ],
)
def test_other_operators_by_hand(op, flop, moved):
    node = Node("n", op, "m", ("x",), ("y",))
    shapes = dict.fromkeys("xy", ("float32", (1, 12, 128, 128)))
    found = floor(["n"], graph(node, outputs=("y",)), shapes)
    assert (found.flop, found.bytes) == (flop, moved * 4 * 12 * 128 * 128)


def test_batched_matmul_and_gather_by_hand():
    matmul = Node("a", "MatMul", "m", ("q", "k"), ("s",))
    shapes = {
        "q": ("float16", (12, 128, 64)),
        "k": ("float16", (12, 64, 128)),
        "s": ("float16", (12, 128, 128)),
    }
    assert floor(["a"], graph(matmul), shapes).flop == 2 * 12 * 128 * 64 * 128
    gather = Node("g", "Gather", "m", ("table", "ids"), ("e",))
    shapes = {
        "table": ("float16", (50257, 768)),
        "ids": ("int64", (1, 128)),
        "e": ("float16", (1, 128, 768)),
    }
    # The rows asked for, not the whole table.
    found = floor(["g"], graph(gather, outputs=("e",)), shapes)
    assert found.bytes == 2 * (2 * 128 * 768) + 8 * 128


def test_unknown_shapes_and_operators_have_no_floor():
    assert floor(["m/Gemm"], graph(GEMM), None) is None
    assert floor(None, graph(GEMM), SHAPES) is None
    assert floor(["m/Gemm"], graph(GEMM), {}).flop is None
    strange = Node("n", "FFT", "m", ("x",), ("y",))
    assert floor(["n"], graph(strange), SHAPES).flop is None


def test_the_distance_from_the_floor_by_hand():
    """1e8 FLOP at 1e14 are 1 us, 3e6 byte at 1e12 are 3 us: 12 us are four times the floor."""
    least = Floor(1e8, 3e6, 1e8, "float16")
    assert time_ns(least, SIMPLE) == pytest.approx(3000)
    found = roofline.row("a", work(values(12_000.0), 1), SIMPLE, least)
    assert found["distance"] == pytest.approx(4)


def test_shapes_of_nodes_json():
    assert shapes_of({"nodes": []}) is None
    document = {"tensors": {"x": {"dtype": "float16", "shape": [1, 2]}, "y": {"shape": ["n"]}}}
    assert shapes_of(document) == {"x": ("float16", (1, 2))}


def test_peaks_of_an_h100_from_its_own_attributes():
    """NVIDIA's data sheet (H100 SXM): 3.35 TB/s, 67 TFLOP/s fp32, 50 MB L2, 132 SMs."""
    capture = read_parquet(DATA / "h100_tiny.counters.parquet", "counters")
    found = devices.of_capture(capture)
    assert (found.name, found.sms, found.l2_bytes) == ("NVIDIA H100 80GB HBM3", 132, 50 << 20)
    assert found.bandwidth == pytest.approx(3.35e12, rel=0.01)
    assert found.fp32 == pytest.approx(67e12, rel=0.01)
    # The sheet's 989 TFLOP/s are at 1.83 GHz, the card's highest clock is 1.98.
    assert found.tensor["fp16"] * 1.83 / 1.98 == pytest.approx(989e12, rel=0.01)
    assert found.tensor["tf32"] == found.tensor["fp16"] / 2


@pytest.mark.parametrize(
    ("attributes", "fp32", "bandwidth", "fp16"),
    [  # of the data sheets: V100 SXM2, A100 SXM4 40GB
        ((7, 0, 80, 1_530_000, 877_000, 4096), 15.7e12, 898e9, 125e12),
        ((8, 0, 108, 1_410_000, 1_215_000, 5120), 19.5e12, 1555e9, 312e12),
    ],
)
def test_attributes_give_the_peaks_of_data_sheets(attributes, fp32, bandwidth, fp16):
    names = (
        "compute_capability_major",
        "compute_capability_minor",
        "multiprocessor_count",
        "clock_rate",
        "memory_clock_rate",
        "global_memory_bus_width",
    )
    found = devices.of_attributes("some card", dict(zip(names, attributes, strict=True)))
    assert found.fp32 == pytest.approx(fp32, rel=0.01)
    assert found.bandwidth == pytest.approx(bandwidth, rel=0.01)
    assert found.tensor["fp16"] == pytest.approx(fp16, rel=0.01)
    assert ("bf16" in found.tensor) == (attributes[0] >= 8)


@pytest.mark.parametrize(
    ("name", "l2_mib", "sms"),
    [
        ("Tesla V100-SXM2-16GB", 6, 80),
        ("NVIDIA A100-SXM4-80GB", 40, 108),
        ("NVIDIA H100 PCIe", 50, 114),
        ("NVIDIA H200", 50, 132),
        ("NVIDIA L4", 48, 58),
        ("NVIDIA L40S", 96, 142),
    ],
)
def test_devices_by_name(name, l2_mib, sms):
    found = devices.of_name(name)
    assert (found.l2_bytes, found.sms) == (l2_mib << 20, sms)
    assert "data sheet" in found.source


def test_an_unlisted_device_is_unknown():
    assert devices.of_name("NVIDIA H1000") is None
    found = devices.of_attributes("NVIDIA Next", {"l2_cache_size": 1024.0})
    assert found.l2_bytes == 1024 and found.fp32 is None and "not known" in found.source
