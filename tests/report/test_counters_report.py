"""Why it costs that: counters of modules, layers and kernels, worked out by hand.

`counted_views` has the device and the kernels; a real capture is tests/data/ncu/h100_tiny.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import counted_views as views
import h100_tiny
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import rendering
from captured import engine_of
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import DATA

from layerline.analysis.captures import counters
from layerline.analysis.comparison.build import build
from layerline.analysis.counters import launches
from layerline.analysis.model.layer import Floor
from layerline.analysis.model.side import Model
from layerline.analysis.report import counted, roofline_plot, tables_csv
from layerline.analysis.rundir.problems import Problems
from layerline.core import nodes
from layerline.core.cli.command import cli
from layerline.core.errors import ToolMissing
from layerline.core.files import write_json
from layerline.core.resolve import parse_network
from layerline.core.roofline_metrics import BYTES, CLOCK
from layerline.core.run import Run, open_run
from layerline.core.tables import read_parquet
from layerline.profile.ncu import command
from layerline.profile.ncu.tool import Options


def rows(table: pa.Table | None = None, view: Any = None) -> dict[tuple[str, str], Any]:
    return {(r.kind, r.name): r for r in views.counted(table, view).rows}


def test_launches_that_were_given_counters_are_told_apart() -> None:
    found = rows()
    given = found["layer", "h_1_ln/Norm"]
    assert (given.launches, given.measured, given.bound) == (1, 0, "memory")
    assert (found["module", "h.1"].launches, found["module", "h.1"].measured) == (3, 1)
    side = views.counted()
    assert (side.launches, side.measured, side.uncounted) == (6, 4, 0)
    assert any("2 were given those of a launch" in f for f in counted.facts(side))


def of_eager(
    phases: tuple[str, ...], ranges: dict[str, str], without: str | None = None
) -> dict[str, float | None]:
    """Shares of the layers of an eager side, whose layers are ranges: those in `ranges`. The
    module `without` has no cost on it."""
    counted_table, view = views.counters(), views.view()
    names = [ranges[x] for x in counted_table["layer"].to_pylist()]
    at = counted_table.column_names.index("layer")
    counted_table = counted_table.set_column(at, "layer", pa.array(names))
    view["layers"] = []
    view["sides"][0].update(task="eager", backend="torch", phase=phases[0])
    for module in view["modules"]:
        cost = module["costs"][views.KEY]
        there = () if module["path"] == without else phases
        module["costs"] = {f"eager/fp16/{phase}": cost for phase in there}
    made = views.counted(counted_table, view, floors={}, plan=None, clock_control=None)
    return {r.name: r.share for r in made.rows if r.kind == "layer"}


def test_a_range_of_an_eager_module_has_the_share_of_what_is_its_own() -> None:
    """Of 56 us: fc 9, ln 18, and 1 of the block itself, which takes 28 with these."""
    ranges = {x: f"layerline/module/{views.LAYERS[x][0][0]}" for x in views.LAYERS}
    found = of_eager(("inference",), ranges)
    assert found["layerline/module/h.0.fc"] == pytest.approx(9 / 56)
    assert found["layerline/module/h.1"] == pytest.approx(1 / 56)
    assert sum(v or 0 for v in found.values()) == pytest.approx(1)


def test_a_module_that_ran_nothing_leaves_the_range_around_it_its_share() -> None:
    """Of the block's 28 us its fc has 9; the range of a module without a cost has no share."""
    ranges = {x: f"layerline/module/{views.LAYERS[x][0][0]}" for x in views.LAYERS}
    found = of_eager(("inference",), ranges, without="h.1.ln")
    assert found["layerline/module/h.1"] == pytest.approx(19 / 56)
    assert found["layerline/module/h.1.ln"] is None


def test_a_range_of_a_training_step_has_the_share_of_its_phase() -> None:
    ranges = {x: f"layerline/module/{views.LAYERS[x][0][0]}" for x in views.LAYERS}
    ranges["h_0_fc/Gemm"] = "layerline/phase/backward/h.0.fc"
    ranges["h_0_ln/Norm"] = "layerline/phase/optimizer"
    found = of_eager(("step", "forward"), ranges)
    assert found["layerline/module/h.1.fc"] == pytest.approx(9 / 56)
    assert found["layerline/phase/backward/h.0.fc"] is None  # backward is not in this view
    assert found["layerline/phase/optimizer"] is None  # of no module
    assert of_eager(("step", "backward"), ranges)["layerline/phase/backward/h.0.fc"] == (
        pytest.approx(9 / 56)
    )


def test_twins_that_were_both_measured_tell_their_spread() -> None:
    found = rows()
    spread = found["layer", "h_0_fc/Gemm"].spread  # 10 and 11 us
    assert spread.relative == pytest.approx(1 / 10.5) and spread.launches == 2
    assert spread.metric == "gpu__time_duration.sum"
    assert found["layer", "h_0_ln/Norm"].spread is None  # measured once
    # Of the module's 10.5 us (the twins' mean), 20 and 2 us: what is small speaks for little.
    module = found["module", "h.1"].spread
    assert module.relative == pytest.approx(1 / 32.5) and module.launches == 2
    side = views.counted()
    assert side.spread.relative == pytest.approx(2 / 65)
    assert side.widest == spread
    assert any("of a single kind by at most 9.5 %" in f for f in counted.facts(side))


def test_the_costliest_modules_of_one_kind_are_one_sentence() -> None:
    """ln: 18 us of 56 in each block, and memory-bound in the first; fc 9."""
    said = counted.sentences(views.counted())
    assert [name for name, _, _ in said] == ["h.*.ln", "h.*.fc"]
    (_, share, text), (_, _, second) = said
    assert share == "64.3 %, 2 of them"
    assert text.startswith("h.0.ln: memory-bound, 80.0 %") and second.startswith(
        "of 2, 1 latency-bound; h.0.fc: tensor-bound"
    )


def test_what_no_side_has_measured_has_no_column() -> None:
    names = {"ipc": "sm__inst_executed.avg.per_cycle_active"}
    whole = views.view()
    whole["counters"] = {
        "sides": [views.counted(None, whole)],
        "uncounted": [],
    }
    there = counted.section(rendering.comparison(whole))
    whole["counters"]["sides"] = [views.counted(views.counters((names["ipc"],)))]
    without = counted.section(rendering.comparison(whole))
    assert there is not None and without is not None
    assert [h for h in there["head"] if h not in without["head"]] == ["IPC"]
    (side,) = without["sides"]
    assert {len(row["cells"]) for row in side["rows"]} == {len(without["head"])}
    at = without["head"].index("occupancy")
    assert side["rows"][0]["cells"][at] == "25.0 %"


def test_without_bytes_nothing_is_said_of_memory() -> None:
    """Unknown is not zero: the addition might be bound by memory."""
    found = rows(views.counters(left_out=(BYTES,)))
    add, product = found["layer", "h_0_add/Add"], found["layer", "h_0_fc/Gemm"]
    assert add.bound is None and add.shares["memory"] is None and add.bytes is None
    assert "unknown" in add.text and "memory" in add.text
    assert product.bound == "tensor" and "bytes" not in product.text
    side = views.counted(views.counters(left_out=(BYTES,)))
    assert side.missing == [BYTES]
    assert any(BYTES in f and "--roofline" in f for f in counted.facts(side))


def test_a_layer_with_a_kernel_that_was_not_counted_is_unknown() -> None:
    """The capture of time has two kernels in every layer, ncu has one."""
    found = rows(view=views.view(kernels=2))
    row = found["layer", "h_0_fc/Gemm"]
    assert row.flop is None and row.bound is None and row.times_bytes is None
    assert "1 of its 2 kernels have no counters" in row.text
    assert "6 of its 12 kernels have no counters" in found["module", ""].text
    side = views.counted(None, views.view(kernels=2))
    assert any("6 more kernels of an iteration were not captured" in f for f in counted.facts(side))
    assert found["kernel", "gemm"].flop == 2.56e9  # that one is known


def test_compute_peaks_are_those_at_the_clock_that_ran() -> None:
    side = views.counted()
    assert side.peaks == pytest.approx({"memory": 1e12, "fp32": 25.6e12, "tensor fp16": 409.6e12})
    without = views.counted(views.counters(left_out=(CLOCK,)))
    assert "lowered" in (side.peaks_source or "")
    assert "lowered" not in (without.peaks_source or "")


def test_the_drawing_puts_roofs_and_points_where_they_belong() -> None:
    drawn = roofline_plot.drawing(views.counted())
    assert drawn is not None
    # Two products have FLOP; both stand under the tensor roof, and right of its ridge (409.6).
    points = drawn["points"]
    assert sorted(p["bound"] for p in points) == ["latency", "tensor"] and drawn["left_out"] == 4
    tensor = next(r for r in drawn["roofs"] if r["name"].startswith("tensor fp16"))
    slope = drawn["roofs"][0]
    assert (slope["x2"], slope["y2"]) == (tensor["x1"], tensor["y1"])
    assert all(p["y"] > tensor["y1"] and p["x"] > tensor["x1"] for p in points)
    frame = drawn["frame"]
    for p in points:
        assert frame["x"] <= p["x"] <= frame["right"] and frame["y"] <= p["y"] <= frame["bottom"]


def test_every_renderer_shows_it() -> None:
    view: Any = views.counted_view()
    page, text = rendering.html(view), rendering.markdown(view)
    for shown in (page, text):
        assert "Why it costs that" in shown and "replayed one at a time" in shown
        assert "62.5" in shown and "TensorRT fp32" in shown and "run ncu as root" in shown
    assert '<circle class="b-tensor"' in page
    found = rendering.summary(view)["counters"]
    assert found[views.KEY]["modules"]["h.0.fc"]["bound"] == "tensor"
    assert found["engine/fp32.tensorrt/inference"]["why"].endswith("(ERR_NVGPUCTRPERM)")
    lines = list(csv.DictReader(io.StringIO(tables_csv.counters(rendering.comparison(view)))))
    assert len(lines) == 8 + 6 + 6  # modules, layers, kernels
    row = next(x for x in lines if x["name"] == "h_0_fc/Gemm")
    assert float(row["share_tensor"]) == pytest.approx(0.625) and row["bound"] == "tensor"
    assert float(row["over_floor_bytes"]) == pytest.approx(1.3)
    unknown = next(x for x in lines if x["name"] == "h_0_add/Add")
    assert unknown["floor_bytes"] == "" and unknown["over_floor_bytes"] == ""


def test_a_kernels_name_is_text_and_nothing_else() -> None:
    view: Any = views.counted_view(kernel="</script><script>window.hacked=1</script>")
    page = rendering.html(view)
    assert "<script>window.hacked" not in page and "window.hacked" in page


def test_no_counters_says_nothing_and_breaks_nothing() -> None:
    view: Any = views.view()
    assert counted.section(rendering.comparison(view)) is None
    assert "Why it costs that" not in rendering.html(view)
    assert "Why it costs that" not in rendering.markdown(view)
    assert tables_csv.counters(rendering.comparison(view)).count("\n") == 1
    assert rendering.summary(view)["counters"] == {}


@settings(max_examples=15, deadline=None)
@given(st.sets(st.sampled_from(list(views.LAYERS)), min_size=1))
def test_whatever_was_counted_parents_come_first_and_nothing_is_counted_twice(
    kept: set[str],
) -> None:
    table = views.counters()
    keep = [layer in kept for layer in table["layer"].to_pylist()]
    side = views.counted(table.filter(pa.array(keep)))
    seen: set[str] = set()
    for r in side.rows:
        assert r.parent is None or r.parent in seen
        seen.add(r.id)
        assert 0 <= r.measured <= r.launches
    for kind in ("layer", "kernel"):
        assert sum(r.launches for r in side.rows if r.kind == kind) == len(kept)
    assert side.uncounted == 6 - len(kept)


@pytest.fixture
def counted_run(h100: Run) -> tuple[Run, Any, Any, pa.Table]:
    """Two engines on an H100, and the fp32 engine's ComputeWorkloadAnalysis of three inferences."""
    shaped = gzip.decompress((DATA / "h100_tiny" / "shaped.nodes.json.gz").read_bytes())
    write_json(h100.file("export", "fp32.nodes.json"), json.loads(shaped))
    sides = [engine_of(h100, p).sides[0] for p in ("fp32", "fp16")]
    read = read_parquet(DATA / "ncu" / "h100_tiny.counters.parquet", "counters")
    engine = h100_tiny.document()
    joined = launches.join(
        read, nodes.parse(engine["nodes"]), parse_network(engine["fp32"]["network"]), "fp32"
    )
    named = pa.array(["fp32.tensorrt.ncu.csv"] * len(joined))
    at = joined.column_names.index("source")
    return h100, sides, joined.set_column(at, "source", named)


def test_a_real_capture_of_the_default_section(counted_run: Any) -> None:
    run, sides, table = counted_run
    measured = counters.load(run, sides, table, Problems())
    found = build(sides, Model("tiny"), counters=measured).counters
    assert found is not None
    (side,) = found.sides
    assert (side.launches, side.measured, side.iterations) == (84, 84, 3)
    assert side.device == "NVIDIA H100 80GB HBM3" and BYTES in side.missing
    layers = {r.name: r for r in side.rows if r.kind == "layer"}
    assert len(layers) == 28
    c_fc = layers["transformer_h_0_mlp_c_fc/Gemm_matrix_multiply"]
    # The section measures no bytes and no FLOP: what bounds it is not guessed.
    assert c_fc.bound is None and c_fc.bytes is None and c_fc.times_bytes is None
    assert c_fc.floor == Floor(2 * 64 * 64 * 256, 4 * (64 * 64 + 2 * 64 * 256))
    assert "unknown" in c_fc.text and "tensor_op_hmma" in c_fc.pipes
    assert sum(r.share for r in layers.values()) == pytest.approx(1)
    # Every layer that nsys timed is here by the same label, so nothing is incomplete.
    assert not any("have no counters" in r.why for r in side.rows)
    ipc = table.filter(pc.equal(table["metric"], "sm__inst_executed.avg.per_cycle_active"))
    low, high = pc.min_max(ipc["value"]).as_py().values()
    whole = next(r for r in side.rows if r.id == "module:")
    assert low < whole.metrics["ipc"] < high
    (missing,) = found.uncounted
    assert missing.label == "TensorRT fp16" and not missing.refused
    asked = "layerline ncu --run RUN --precision fp16 --backend tensorrt --roofline"
    assert missing.fix == asked


def test_of_two_captures_of_an_engine_the_one_that_tells_more_is_shown(counted_run: Any) -> None:
    run, sides, table = counted_run
    at = table.column_names.index("source")
    every = table.set_column(
        at, "source", pa.array(["fp32.tensorrt.ncu-every.ncu-rep"] * len(table))
    )
    first = pc.field("launch") >= 28  # a capture that measured less
    both = pa.concat_tables([table.filter(first), every])
    found = build(
        sides, Model("tiny"), counters=counters.load(run, sides, both, Problems())
    ).counters
    assert found is not None
    (side,) = found.sides
    assert side.sources == ["fp32.tensorrt.ncu-every.ncu-rep"] and side.launches == 84


def test_counters_that_the_driver_refuses_are_said_in_the_report(h100: Run) -> None:
    for folder in ("engines", "captures"):
        for path in h100.file(folder).glob("fp16.*"):
            path.unlink()
    why = {"why": "ncu may not read performance counters here (ERR_NVGPUCTRPERM)", "fix": "be root"}
    write_json(h100.file("captures", "fp32.tensorrt.ncu.refused.json"), why)
    done = CliRunner().invoke(cli, ["report", "--run", str(h100.path)])
    assert done.exit_code == 0, done.output
    for name in ("index.html", "report.md"):
        text = h100.file("report", name).read_text()
        assert "ERR_NVGPUCTRPERM" in text and "To have them: be root" in text
    assert not h100.file("report", "counters.csv").exists()


def test_a_refused_capture_is_remembered_until_one_succeeds(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", create=True)

    def file(suffix: str) -> Path:
        return run.file("captures", "fp16.tensorrt" + suffix)

    of: Any = SimpleNamespace(run=run, stem="fp16.tensorrt", file=file, sqlite=None, inputs=[])

    def refused() -> dict[str, Any]:
        raise ToolMissing("ncu may not read counters (ERR_NVGPUCTRPERM)", fix="be root")

    def measured() -> dict[str, Any]:
        write_json(file(".ncu.meta.json"), {})
        return {}

    told = file(".ncu.refused.json")
    with pytest.raises(ToolMissing):
        command.measure(of, Options(), {}, [".ncu.meta.json"], refused)
    assert json.loads(told.read_text())["fix"] == "be root"
    command.measure(of, Options(), {}, [".ncu.meta.json"], measured)
    assert not told.exists()


def test_an_eager_module_with_a_launch_that_was_not_counted_is_unknown() -> None:
    """An eager side has no layers: the plan says what it launched, and of which module."""
    table = views.counters()
    layers = ["layerline/module/" + m for _, (of, *_) in views.LAYERS.items() for m in of]
    numbers = table["launch"].to_pylist()
    at = table.schema.get_field_index("layer")
    table = table.set_column(at, "layer", pa.array([layers[n] for n in numbers]))
    planned = [
        {"index": i, "key": i, "layer": layer, "function": "mul"} for i, layer in enumerate(layers)
    ]
    extra = [
        {"index": 6, "key": 6, "layer": "layerline/module/h.0.fc", "function": "pow"},
        {"index": 7, "key": 7, "layer": "layerline/phase/loss", "function": "sum"},
    ]
    view = views.view()
    view["layers"] = []
    side = views.counted(table, view, floors={}, plan={"launches": planned + extra})
    found = {(r.kind, r.name): r for r in side.rows}
    assert "1 of its 2 kernels have no counters" in found["module", "h.0.fc"].text
    assert found["module", "h.0.fc"].flop is None
    assert "1 of its 7 kernels have no counters" in found["module", ""].text
    assert "have no counters" not in found["module", "h.1.fc"].text
    assert (side.uncounted, side.uncounted_kernels) == (2, {"pow": 1, "sum": 1})
    (told,) = [f for f in counted.facts(side) if "have no counters" in f]
    assert told.startswith("2 launches have no counters, and none of the same work has (1 of pow")
