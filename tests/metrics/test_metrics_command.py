"""`layerline metrics`: files, charts, text."""

from __future__ import annotations

import csv
import sys

import numpy as np
import paths
import pytest
from click.testing import CliRunner

from layerline.analysis.commands.metrics import metrics
from layerline.analysis.metrics import capture as capture_
from layerline.analysis.metrics import explain, meanings, plots, series
from layerline.analysis.roofline import devices
from layerline.core.cli import progress
from layerline.core.errors import InputError, ToolMissing
from layerline.core.tables import table

DATA = paths.DATA / "ncu"
TINY = DATA / "h100_tiny.counters.parquet"
CSV = DATA / "two_kernels.raw.csv"
TIME = "gpu__time_duration.sum"
IPC = "sm__inst_executed.avg.per_cycle_active"
HMMA = "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active"


def run(*arguments):
    return CliRunner().invoke(metrics, [str(a) for a in arguments], catch_exceptions=False)


def capture_of(unit, values, phases=None, device=None):
    rows = [
        {"source": "a", "kernel": "k", "launch": i, "metric": m, "unit": u, "value": v}
        for i, value in enumerate(values)
        for m, u, v in (("dram__bytes.sum", unit, value), (TIME, "us", 2.0))
    ]
    return capture_.Capture("made.ncu-rep", table("counters", rows), device, phases or {})


def test_extract_writes_each_metric_with_its_arrays(tmp_path):
    assert run("extract", TINY, "-o", tmp_path).exit_code == 0
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == [
        "gpu__time_duration_sum.npz",
        "launch__registers_per_thread.npz",
        "sm__inst_executed_avg_per_cycle_active.npz",
        "sm__inst_executed_pipe_tensor_op_hmma_avg_pct_of_peak_sustained_active.npz",
    ]
    with np.load(tmp_path / "gpu__time_duration_sum.npz") as found:
        assert sorted(found) == ["cumulative_time_ns", "kernel_id", "metric", "unit", "value"]
        assert str(found["unit"]) == "ns" and str(found["metric"]) == TIME
        assert found["kernel_id"].tolist() == list(range(84))
        assert found["value"][:2].tolist() == [4352, 4512]
        assert found["cumulative_time_ns"][:2].tolist() == [4352, 8864]


def test_units_are_normalised_and_gaps_stay_gaps():
    capture = capture_of("Kbyte", [1.5, None, 2.0])
    one = series.series(capture.counters, ["dram__bytes.sum"])[0]
    assert one.unit == "byte" and one.known == 2
    assert one.value[[0, 2]].tolist() == [1500, 2000] and np.isnan(one.value[1])
    assert one.cumulative_time_ns.tolist() == [2000, 4000, 6000]


def test_values_in_units_that_do_not_compare_are_refused():
    rows = [
        {"launch": i, "kernel": "k", "metric": "m.sum", "unit": u, "value": 1.0}
        for i, u in enumerate(("byte", "inst"))
    ]
    with pytest.raises(InputError, match="cannot be compared"):
        series.series(table("counters", rows), ["m.sum"])


def test_a_metric_that_is_not_there_names_near_ones():
    with pytest.raises(InputError, match=r"sm__inst_executed\.avg\.per_cycle_active"):
        series.series(capture_.load(TINY).counters, ["sm__inst_executed.sum"])


def test_attribute_is_a_line_per_layer(tmp_path):
    path = tmp_path / "time.txt"
    assert run("attribute", TINY, "-m", TIME, "-o", path).exit_code == 0
    lines = path.read_text().splitlines()
    assert lines[:2] == [f"# {TIME}", "# unit: ns; over launches: sum"]
    assert "NVIDIA H100 80GB HBM3; iterations: 3" in lines[2]
    assert len(lines) == 4 + 28
    value, low, high, kernels, *_ = lines[4].split("\t")
    assert (value, low, high, kernels) == ("4352", "4352", "4384", "1")


@pytest.mark.parametrize("by", ["layer", "module"])
def test_attributing_a_metric_that_the_capture_lacks_is_one_line(by):
    for path in (TINY, DATA / "tensorrt.details.csv"):
        with pytest.raises(InputError, match="no metric sm__nonsense"):
            run("attribute", path, "-m", "sm__nonsense.sum", "--by", by)


def test_a_details_page_has_no_roofline_and_says_so():
    with pytest.raises(InputError, match=f"of a roofline, not even {TIME}.*write the raw page"):
        run("roofline", DATA / "tensorrt.details.csv")


def test_metrics_without_units_are_attributed(tmp_path):
    found = run("attribute", DATA / "known_flop.raw.csv", "-m", "launch__grid_size")
    assert "# unit: none; over launches: constant" in found.output
    tensor = "sm__ops_path_tensor_src_fp16.sum"
    lines = run("attribute", DATA / "known_flop.raw.csv", "-m", tensor).output.splitlines()
    assert lines[-1].split("\t")[0] == str(2 * 2048**3)


def test_explain_says_what_it_is_and_what_the_value_suggests():
    found = run("explain", TINY).output
    assert "84 of 84 kernels" in found
    assert "84 kernels: most cycles issue nothing" in found  # at most 0.8 a cycle
    assert "Tensor cores" in found
    alone = run("explain", "-m", "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active")
    assert "Transcendental" in alone.output
    assert "no explanation here" in run("explain", "-m", "sm__nonsense.sum").output


def test_explain_tells_the_rules_that_ncu_evaluated():
    rules = [
        {"rule": "Bottleneck", "text": "Look at @section:SchedulerStats:Scheduler Statistics@."}
    ] * 2
    capture = capture_.load(TINY)
    capture = capture_.Capture(capture.name, capture.counters, capture.device, {}, rules)
    lines = list(explain.of_capture(capture, [TIME]))
    assert lines[-1] == "  Bottleneck (2 kernels): Look at Scheduler Statistics."


@pytest.mark.parametrize(
    ("metric", "unit", "value", "said"),
    [
        ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", 90.0, "bandwidth bounds"),
        ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", 10.0, "latency"),
        ("launch__waves_per_multiprocessor", None, 0.5, "does not fill"),
        ("sm__warps_active.avg.pct_of_peak_sustained_active", "%", 50.0, "between"),
    ],
)
def test_judgements(metric, unit, value, said):
    assert said in meanings.judgement(metric, unit, value)


def test_a_percentage_limit_is_not_applied_to_a_count():
    assert meanings.judgement("sm__inst_executed_pipe_fma.sum", "inst", 5.0) is None
    assert meanings.judgement("dram__bytes.sum", "byte", 5.0) is None


def test_without_matplotlib_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ToolMissing, match=r"layerline\[plots\]") as e:
        run("overlay", TINY, "-m", TIME, "-m", IPC, "-o", tmp_path / "a.png")
    assert e.value.exit_code == 3


def test_a_suffix_that_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"\.pdf, \.svg, \.png"):
        run("overlay", TINY, "-m", TIME, "-m", IPC, "-o", tmp_path / "a.gif")


def test_other_captures_are_refused(tmp_path):
    path = DATA.parent / "h100_train_l2.trace.json.gz"
    with pytest.raises(InputError, match="no counters"):
        run("extract", path, "-o", tmp_path)


def test_charts_are_drawn_in_each_format(tmp_path):
    pytest.importorskip("matplotlib")
    for suffix, magic in (("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")):
        assert run("plot", TINY, "-m", HMMA, "--format", suffix, "-o", tmp_path).exit_code == 0
        path = tmp_path / f"{series.file_name(HMMA)}.{suffix}"
        assert path.read_bytes().startswith(magic)
    text = (tmp_path / f"{series.file_name(HMMA)}.svg").read_text()
    for said in (HMMA, "NVIDIA H100 80GB HBM3", "n = 84 kernel launches", "h100_tiny.ncu-rep", "%"):
        assert said in text


def test_an_overlay_marks_phases_and_the_l2_and_counts_what_it_leaves_out(tmp_path):
    pytest.importorskip("matplotlib")
    device = capture_.load(TINY).device
    capture = capture_of("Mbyte", [1.0, 0.0, 80.0], {0: "forward", 2: "backward"}, device)
    path = tmp_path / "a.svg"
    plots.overlay(series.series(capture.counters, ["dram__bytes.sum", TIME]), capture, path)
    text = path.read_text()
    for said in ("forward", "backward", "50 MiB", "1 of 3 values of dram__bytes.sum are 0"):
        assert said in text
    again = tmp_path / "b.svg"
    plots.overlay(series.series(capture.counters, ["dram__bytes.sum", TIME]), capture, again)
    assert again.read_bytes() == path.read_bytes()


def test_the_phases_of_a_capture_come_from_its_ranges(tmp_path):
    text = CSV.read_text().replace("layerline/module/outer", "layerline/phase/forward")
    path = tmp_path / "phases.csv"
    path.write_text(text)
    assert capture_.load(path).phases == {0: "forward", 1: "forward"}


def test_a_phase_that_is_a_start_end_range_is_one_too(tmp_path):
    """As training has it: backward runs on threads of the autograd engine."""
    start_end = '"9:<default domain>:layerline/phase/backward:none:none:none:none:none:none"'
    with CSV.open(newline="") as file:
        rows = list(csv.reader(file))
    at = next(i for i, name in enumerate(rows[0]) if "Start/Stop_Range" in name)
    for row in rows[3:]:
        row[at] = f"{start_end} "
    path = tmp_path / "phases.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    assert capture_.load(path).phases == {1: "backward", 2: "backward"}


def test_roofline_says_what_the_capture_lacks(tmp_path):
    output = tmp_path / "r.csv"
    found = run("roofline", TINY, "-o", output)
    assert found.exit_code == 0
    assert "not in this capture: dram__bytes.sum" in found.output
    assert output.read_text().splitlines()[0].startswith("name,kernels,duration_ns,clock_hz,flop_")


@pytest.fixture
def half(tmp_path):
    """Four launches of 10, 20, 30 and 40 ns; a nodes.json that knows the layers of two of them."""
    import json

    from layerline.core.tables import write_parquet

    layers = ("h.0.fc/Gemm", "h.0.act/Relu", "other.fc/Gemm", "other.act/Relu")
    rows = [
        {"source": "a", "kernel": f"k{i}", "launch": i, "layer": layer, "metric": TIME,
         "unit": "ns", "value": 10.0 * (i + 1)}
        for i, layer in enumerate(layers)
    ]  # fmt: skip
    write_parquet(tmp_path / "counters.parquet", table("counters", rows))
    nodes = [
        {
            "name": "h.0.fc/Gemm",
            "op": "Gemm",
            "module": "h.0.fc",
            "inputs": ["x"],
            "outputs": ["y"],
        },
        {
            "name": "h.0.act/Relu",
            "op": "Relu",
            "module": "h.0.act",
            "inputs": ["y"],
            "outputs": ["z"],
        },
    ]
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"schema_version": 1, "nodes": nodes}))
    return tmp_path / "counters.parquet", "--nodes", path


def test_modules_and_what_has_none_are_all_that_was_measured(half, tmp_path):
    progress.set_quiet(False)
    result = run("attribute", half[0], "-m", TIME, "--by", "module", *half[1:])
    rows = [line.split("\t") for line in result.stdout.splitlines() if line[0] != "#"]
    own = {r[4]: r[0] for r in rows}
    assert own == {"(the model)": "30", "h": "30", "h.0": "30", "h.0.act": "20", "h.0.fc": "10",
                   "(unresolved)": "70"}  # fmt: skip
    said = "modules are known for 30.0 % of the time (2 of 4 launches)"
    assert said in result.stdout and "warning: " + said in result.stderr
    assert "is nodes.json that of the model" in result.stderr
    out = tmp_path / "r.csv"
    result = run("roofline", half[0], "--by", "module", *half[1:], "-o", out)
    assert "(unresolved)" in result.stdout and said in result.stderr
    lines = {line.split(",")[0]: line.split(",")[2] for line in out.read_text().splitlines()[1:]}
    assert float(lines["(unresolved)"]) == 70 and float(lines[""]) == 30


def test_long_names_are_shortened_for_a_terminal_only():
    from layerline.analysis.metrics import text

    rows = [
        {"source": "a", "kernel": "k", "launch": i, "metric": TIME, "unit": "ns", "value": 1.0,
         "layer": "part+" * 60 + f"end_{i}"}
        for i in range(2)
    ]  # fmt: skip
    capture = capture_.Capture("a", table("counters", rows), None)
    from layerline.analysis.counters import launches

    made = text.roofline_table(capture, launches.launches(capture.counters))
    whole = list(text.roofline_lines(capture, made))[-2:]
    assert all("part+" * 60 in line for line in whole)
    short = list(text.roofline_lines(capture, made, 100))[-2:]
    assert [len(line) for line in short] == [100, 100]
    assert short[0].endswith("end_0") and short[1].endswith("end_1") and "…" in short[0]
    line = text.attribute(capture, TIME, launches.launches(capture.counters)).splitlines()[-1]
    told = text.narrowed(line, 100)
    assert line.endswith("part+" * 60 + "end_1") and told.endswith("end_1")
    assert told.split("\t")[:-1] == line.split("\t")[:-1] and len(told.expandtabs()) <= 100


def test_an_eager_captures_ranges_are_its_modules_and_what_was_not_replayed_is_said():
    from layerline.analysis.counters import launches as launches_
    from layerline.analysis.metrics import text

    rows = [
        {"source": "a", "kernel": "k", "launch": i, "metric": TIME, "unit": "ns", "value": ns,
         "layer": layer}
        for i, (layer, ns) in enumerate(
            [("layerline/module/h.0", 3.0), ("layerline/module/h.0.fc", 4.0),
             ("layerline/phase/backward", 5.0)]
        )
    ]  # fmt: skip
    # An H200 by its own attributes: 3201 MHz of 6016 lines, twice a clock.
    attributes = {"compute_capability_major": 9, "compute_capability_minor": 0,
                  "multiprocessor_count": 132, "clock_rate": 1_980_000,
                  "memory_clock_rate": 3_201_000, "global_memory_bus_width": 6016}  # fmt: skip
    device = devices.of_attributes("NVIDIA H200", attributes)
    capture = capture_.Capture("a", table("counters", rows), device, partly="3 of 9 launches")
    launches = launches_.of_table(capture.counters)
    lines = text.attribute(capture, TIME, launches, "module").splitlines()
    # h.0 with what is inside it, h.0.fc, and backward, whose modules this capture does not name.
    assert [x.split("\t")[0] for x in lines if x.endswith(("h.0", "h.0.fc"))] == ["7", "4"]
    assert lines[-1].startswith("5\t") and lines[-1].endswith("(unresolved)")
    about = list(text.roofline_lines(capture, text.roofline_table(capture, launches)))
    # 132 * 4096 * 1.98e9 FLOP/s on tensor cores; the bandwidth of the data sheet is 4.8 TB/s.
    assert "fp32 66.9 TFLOP/s, tensor bf16 1071 TFLOP/s, fp16 1071 TFLOP/s" in about[0]
    assert "tf32 535 TFLOP/s, memory 4.81 TB/s" in about[0]
    assert about[1] == "3 of 9 launches"


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ("sm__pipe_shared_cycles_active.avg.pct_of_peak_sustained_active", "not shared memory"),
        ("sm__pipe_tensor_op_imma_cycles_active.avg.pct_of_peak_sustained_active", "integer"),
        ("sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active", "warp group"),
        ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "multiply-accumulate"),
    ],
)
def test_pipes_that_share_their_way_are_told_apart(metric, says):
    assert says in meanings.meaning(metric).text


def test_a_kind_of_product_that_is_not_there_is_no_fault_of_the_others():
    imma = "sm__pipe_tensor_op_imma_cycles_active.avg.pct_of_peak_sustained_active"
    assert meanings.judgement(imma, "%", 0.0) == "no or few products of this kind"
