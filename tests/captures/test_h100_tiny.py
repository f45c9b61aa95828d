"""A real engine of a two-layer GPT-2 on an H100 (TensorRT 8.6, nsys 2025.3), fp32 and fp16.

What each range is was worked out by hand, from the ONNX graph and the names: see `block`. The fp16
engine is 64 wide, so small that the builder chose TF32 products everywhere.
"""

from __future__ import annotations

import gzip
import json
import sqlite3

import pytest
from captured import engine_of
from click.testing import CliRunner
from h100_tiny import DATA, PRECISIONS

from layerline.core import tables
from layerline.core.cli.command import cli, main
from layerline.core.files import write_json
from layerline.core.run import Run

Row = tuple[str, list[str], list[str]]  # rule, nodes, modules


@pytest.fixture
def run(h100: Run) -> Run:
    return h100


def block(b: int) -> list[Row]:
    """The ranges of block b in the order they ran, from the first product to the last sum."""
    h = f"transformer.h.{b}"
    attn, act = f"{h}.attn", f"{h}.mlp.act"
    after = "transformer.h.1.ln_1" if b == 0 else "transformer.ln_f"
    gelu = ("Mul", "Pow", "Mul_1", "Add", "Mul_2", "Tanh", "Add_1", "Mul_3")
    return [
        ("name", [f"{attn}.c_attn/Gemm"], [f"{attn}.c_attn"]),
        # Split's third output is what Reshape_1 and Transpose_1 make the values, the second the
        # keys, the first the queries.
        ("name", [f"{attn}/{n}" for n in ("Split", "Reshape_1", "Transpose_1")], [attn]),
        ("name", [f"{attn}/{n}" for n in ("Split", "Reshape", "Transpose")], [attn]),
        ("name", [f"{attn}/{n}" for n in ("Split", "Reshape_2", "Transpose_2")], [attn]),
        ("name", [f"{attn}/MatMul"], [attn]),
        # max, subtract, exp, sum, divide between the named Add and IsNaN is the Softmax.
        ("boundary", [f"{attn}/{n}" for n in ("Add", "Softmax", "IsNaN", "Where")], [attn]),
        ("name", [f"{attn}/MatMul_1"], [attn]),
        ("name", [f"{attn}.c_proj/Gemm"], [f"{attn}.c_proj"]),
        ("name", [f"{h}/Add", f"{h}.ln_2/LayerNormalization"], [h, f"{h}.ln_2"]),
        ("name", [f"{h}.mlp.c_fc/Gemm"], [f"{h}.mlp.c_fc"]),
        # The same text in both blocks: only the order tells.
        ("order", [f"{act}/{n}" for n in gelu], [act]),
        ("name", [f"{h}.mlp.c_proj/Gemm"], [f"{h}.mlp.c_proj"]),
        ("name", [f"{h}/Add_1", f"{after}/LayerNormalization"], [h, after]),
    ]


# The thirteen products of the fp16 engine, as the capture times them.
TF32_NS = 2624 + 2880 + 2848 + 2496 + 2624 + 3264 + 2624 + 2848 + 2785 + 2528 + 2624 + 3264 + 2720
EMBEDDING = [
    "transformer.wte/Gather", "transformer/Add", "transformer.h.0.ln_1/LayerNormalization",
]  # fmt: skip
BY_HAND: list[Row] = [
    ("name", EMBEDDING, ["transformer.wte", "transformer", "transformer.h.0.ln_1"]),
    *block(0),
    *block(1),
    ("name", ["lm_head/MatMul"], ["lm_head"]),
]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_kernel_is_the_nodes_and_modules_that_the_graph_says(
    run: Run, precision: str
) -> None:
    ops = engine_of(run, precision).ops
    kernels = [r for r in ops.to_pylist() if r["kind"] == "kernel"]
    kernels.sort(key=lambda r: r["start_ns"])
    assert len(kernels) == len(BY_HAND) == 28
    found = [(r["rule"], sorted(r["nodes"]), sorted(r["modules"])) for r in kernels]
    assert found == [(rule, sorted(nodes), sorted(modules)) for rule, nodes, modules in BY_HAND]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_capture_whose_ranges_lost_their_domain_names_is_read_whole(
    run: Run, precision: str
) -> None:
    """With nsys's capture range the domains are created before the capture begins: their rows
    stand at negative times, and newer exports leave them out."""
    path = run.file("captures", f"{precision}.tensorrt.sqlite")
    with sqlite3.connect(path) as database:
        assert database.execute("DELETE FROM NVTX_EVENTS WHERE eventType = 75").rowcount == 2
    database.close()
    (side,) = engine_of(run, precision).sides
    assert side.layers is not None
    assert sum(side.layers["kernels"].to_pylist()) == 28
    assert "unresolved" not in side.layers["rule"].to_pylist()


@pytest.mark.parametrize(("precision", "total_ns"), [("fp32", 71_329), ("fp16", 57_569)])
def test_kernel_time_is_that_of_the_capture(run: Run, precision: str, total_ns: int) -> None:
    (side,) = engine_of(run, precision).sides
    path = run.file("captures", f"{precision}.tensorrt.sqlite")
    query = 'SELECT SUM("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL'
    with sqlite3.connect(path) as database:
        assert database.execute(query).fetchone() == (total_ns,)
    database.close()
    assert side.layers is not None
    assert sum(side.layers["total_ns"].to_pylist()) == total_ns
    first = side.side.checks[0]
    assert (first.ok, first.residual_ns) == (True, 0)


def test_layers_compute_in_what_their_kernels_names_say(run: Run) -> None:
    for precision, expected in (("fp32", "fp32"), ("fp16", "tf32")):
        (side,) = engine_of(run, precision).sides
        assert side.layers is not None
        told = dict(
            zip(*(side.layers[c].to_pylist() for c in ("layer", "compute_precision")), strict=True)
        )
        products = {n for n in told if "_matrix_multiply" in n}
        assert len(products) == 13 and {told[n] for n in products} == {expected}
        assert {p for n, p in told.items() if n not in products} == {None}


def test_the_report_of_an_fp16_engine_without_half_kernels_is_written_and_ends_with_1(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):  # also when it is up to date
        with pytest.raises(SystemExit) as ended:
            main(["report", "--run", str(run.path)])
        assert ended.value.code == 1
        errors = [e for e in capsys.readouterr().err.splitlines() if e.startswith("error: ")]
        assert len(errors) == 1 and "no kernel ran fp16" in errors[0]
    summary = json.loads(run.file("report", "summary.json").read_text())
    fp32, fp16 = (summary["engines"][f"{p}.tensorrt"] for p in PRECISIONS)
    assert (fp32["closure"]["precision"]["ok"], fp16["closure"]["precision"]["ok"]) == (True, False)
    assert fp16["precision_run"]["tf32"] == pytest.approx(TF32_NS / 57_569, abs=1e-6)
    assert fp16["coverage"] == 1 and fp16["unresolved_ns"] in (0, None)
    said = [line for line in summary["headline"] if "no kernel ran fp16" in line]
    assert len(said) == 1
    assert "no kernel ran fp16" in run.file("report", "report.md").read_text()
    assert run.file("report", "index.html").stat().st_size > 10_000
    ops = tables.read_parquet(run.file("tables", "ops.parquet"), "ops")
    assert len(ops) == 56


def test_the_report_of_the_fp32_engine_alone_ends_with_0(run: Run) -> None:
    for folder in ("engines", "captures"):
        for path in run.file(folder).glob("fp16.*"):
            path.unlink()
    done = CliRunner().invoke(cli, ["report", "--run", str(run.path)])
    assert done.exit_code == 0, done.output


def test_the_host_needs_longer_to_launch_than_the_device_to_run(run: Run) -> None:
    """fp16: first call 15,444,833 ns, last one ends 15,742,442 + 5,574; first kernel 15,498,810,
    last one ends 15,750,048 + 2,720. Read off the file with sqlite3."""
    host = engine_of(run, "fp16").sides[0].side.host
    assert host is not None
    values = {k: v.median for k, v in host.values.items() if v}
    assert values["launches"] == values["operations"] == 28
    assert values["issue"] == 15_748_016 - 15_444_833
    assert values["span"] == 15_752_768 - 15_498_810
    assert values["busy"] + values["idle"] == values["span"]
    assert host.values["cuBLAS"] is None and "CUBLAS_EVENTS" in host.missing["cuBLAS"]
    # Latency 438 us in the trace, and without it most of the time no kernel runs.
    assert host.launch_bound is True and host.confirmed is True


def test_every_layer_of_the_capture_has_its_floor(run: Run) -> None:
    """The same model exported anew, with shapes: batch 1, 64 tokens, 64 wide, four heads.

    c_fc: 64 x 64 by 64 x 256, without the bias that the exporter left out because it is zero.
    Scores (Add, Softmax, IsNaN, Where): four heads of 64 x 64 read and written, and the mask.
    """
    shaped = json.loads(gzip.decompress((DATA / "shaped.nodes.json.gz").read_bytes()))
    write_json(run.file("export", "fp32.nodes.json"), shaped)
    for precision, size in (("fp32", 4), ("fp16", 2)):  # built from the fp32 file both
        side = engine_of(run, precision).sides[0]
        assert side.layers is not None
        assert set(side.layers["layer"].to_pylist()) == set(side.floors)
        c_fc = side.floors["transformer_h_0_mlp_c_fc/Gemm_matrix_multiply"]
        assert c_fc.flop == 2 * 64 * 64 * 256
        assert c_fc.bytes == size * (64 * 64 + 64 * 256 + 64 * 256)
        assert c_fc.ns == pytest.approx(c_fc.bytes / (2.619e9 * 2 * 5120 / 8) * 1e9)
        (scores,) = (f for n, f in side.floors.items() if n.startswith("transformer_h_1_attn/Add"))
        assert scores.flop == (1 + 5 + 1) * 4 * 64 * 64
        assert scores.bytes == pytest.approx(size * (2 * 4 * 64 * 64 + 64 * 64), rel=0.001)
        assert all(f.times is not None and f.times > 1 for f in side.floors.values())
