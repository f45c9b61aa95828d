"""What bounds modules, layers and kernels, by counters worked out by hand (`counted_views`)."""

from __future__ import annotations

from typing import Any

import counted_views as views
import pyarrow as pa
import pytest

from layerline.analysis.model.counters import CountedSide
from layerline.analysis.model.layer import Floor
from layerline.analysis.roofline import bound


@pytest.fixture
def whole() -> CountedSide:
    return views.counted()


def rows(side: CountedSide) -> dict[tuple[str, str], Any]:
    return {(r.kind, r.name): r for r in side.rows}


def test_a_product_is_bound_by_the_tensor_cores(whole: CountedSide) -> None:
    row = rows(whole)["layer", "h_0_fc/Gemm"]
    assert row.bound == "tensor" and row.shares["tensor"] == pytest.approx(0.625)
    assert row.shares["memory"] == pytest.approx(0.13)  # 1.3 us of 10
    assert row.intensity == pytest.approx(2.56e9 / 1.3e6)
    assert row.flop_per_second == pytest.approx(2.56e14)
    assert row.floor == Floor(2.56e9, 1e6)
    said = "tensor-bound, 62.5 % of the tensor peak; moves 1.30× the bytes it must"
    assert row.text == said
    assert row.share == pytest.approx(9 / 56)  # of nsys's time, not of ncu's


def test_a_product_that_takes_longer_waits(whole: CountedSide) -> None:
    row = rows(whole)["layer", "h_1_fc/Gemm"]  # 6.25 us of 11
    assert row.bound == "latency" and row.shares["tensor"] == pytest.approx(6.25 / 11)
    assert row.text.startswith("latency-bound, it waits: at most 56.8 % of the tensor peak")


def test_a_norm_is_bound_by_memory_and_an_addition_by_its_launch(whole: CountedSide) -> None:
    found = rows(whole)
    norm, add = found["layer", "h_0_ln/Norm"], found["layer", "h_0_add/Add"]
    assert norm.text == "memory-bound, 80.0 % of the DRAM bandwidth; moves the bytes it must"
    # 2 us, 1e5 bytes at 1e12: 5 %.
    assert add.bound == "launch" and add.shares["memory"] == pytest.approx(0.05)
    assert "too short" in add.text and "the bytes it must move are unknown" in add.text
    assert add.floor is None and add.times_bytes is None and add.times_flop is None
    assert add.intensity == 0


def test_a_block_adds_up_its_layers_and_one_unknown_floor_makes_it_unknown(
    whole: CountedSide,
) -> None:
    found = rows(whole)
    block, whole = found["module", "h.0"], found["module", ""]
    assert block.replay_ns == 32_000 and block.flop == 2.56e9
    assert block.bytes == pytest.approx(17.4e6)
    assert block.shares["memory"] == pytest.approx(17.4 / 32)
    assert (block.launches, block.measured) == (3, 3)
    assert block.floor is None and block.times_bytes is None  # the addition has none
    assert whole.launches == 6 and whole.measured == 4
    assert found["module", "h.0.fc"].floor == Floor(2.56e9, 1e6)
    assert block.share == pytest.approx(0.5)


def test_headline_metrics_are_there_where_the_capture_has_them(whole: CountedSide) -> None:
    row = rows(whole)["kernel", "add"]
    assert row.metrics["ipc"] == 1.5 and row.metrics["occupancy"] == 25
    assert row.metrics["issue_busy"] == 40 and row.metrics["dram"] is None
    assert row.pipes == {"tensor": 70, "alu": 3}


def test_a_pipe_and_its_parts_are_not_both_named() -> None:
    """`shared` is FP64 and tensor cores together: beside these it reads as shared memory."""
    of = {
        f"sm__pipe_{pipe}_cycles_active.avg.pct_of_peak_sustained_active": value
        for pipe, value in {"shared": 72.0, "tensor": 71.0, "tensor_op_hmma": 71.0}.items()
    }
    alu = {"sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active": 6.0}
    assert bound._pipes(of | alu) == {"tensor": 71.0, "alu": 6.0}
    alone = {name: value for name, value in of.items() if "shared" in name}
    assert bound._pipes(alone) == {"shared": 72.0}


def test_rows_stand_in_their_modules_layers_and_kernels(whole: CountedSide) -> None:
    """The block's own layer comes before the modules inside it; each has its kernel."""
    block = [
        ("module:h.{0}", "module:h", "h.{0}", 2),
        ("layer:h_{0}_add/Add", "module:h.{0}", "h_{0}_add/Add", 3),
        ("kernel:h_{0}_add/Add\x1fadd", "layer:h_{0}_add/Add", "add", 4),
        ("module:h.{0}.fc", "module:h.{0}", "h.{0}.fc", 3),
        ("layer:h_{0}_fc/Gemm", "module:h.{0}.fc", "h_{0}_fc/Gemm", 4),
        ("kernel:h_{0}_fc/Gemm\x1fgemm", "layer:h_{0}_fc/Gemm", "gemm", 5),
        ("module:h.{0}.ln", "module:h.{0}", "h.{0}.ln", 3),
        ("layer:h_{0}_ln/Norm", "module:h.{0}.ln", "h_{0}_ln/Norm", 4),
        ("kernel:h_{0}_ln/Norm\x1fnorm", "layer:h_{0}_ln/Norm", "norm", 5),
    ]
    expected: list[tuple[str, str | None, str, int]] = [("module:", None, "", 0)]
    expected.append(("module:h", "module:", "h", 1))
    for number in (0, 1):
        expected += [(a.format(number), b.format(number), c.format(number), d)
                     for a, b, c, d in block]  # fmt: skip
    assert [(r.id, r.parent, r.name, r.depth) for r in whole.rows] == expected
    assert {r.kind for r in whole.rows} == {"module", "layer", "kernel"}
    assert all(r.id.startswith(f"{r.kind}:") for r in whole.rows)
    assert rows(whole)["module", "h.0"].modules == ["h.0", "h.0.fc", "h.0.ln"]
    assert rows(whole)["kernel", "gemm"].modules == ["h.1.fc"]


def test_a_side_says_what_was_captured_and_how(whole: CountedSide) -> None:
    side = whole
    assert (side.key, side.label) == (views.KEY, "TensorRT fp16")
    assert (side.sources, side.device, side.clock_control) == ([views.SOURCE], "GPU", "base")
    assert side.peaks_source is not None and side.peaks_source.startswith("device attributes")
    assert (side.iterations, side.launches, side.measured) == (1, 6, 4)
    assert (side.uncounted, side.uncounted_kernels, side.absent) == (0, {}, 0)
    assert side.missing == []
    # The two products, of 10 and 11 us; all that was measured is 65 us.
    assert side.widest is not None and side.widest.relative == pytest.approx(1 / 10.5)
    assert side.spread is not None and side.spread.relative == pytest.approx(2 / 65)


def test_a_row_has_what_was_measured_of_it(whole: CountedSide) -> None:
    """2.56e9 FLOP and 1.3e6 bytes in 10 us, by one kernel; its layer's floor is no kernel's."""
    row = rows(whole)["layer", "h_0_fc/Gemm"]
    assert (row.replay_ns, row.clock_hz, row.flop, row.bytes) == (10_000, 1e9, 2.56e9, 1.3e6)
    assert row.shares == {
        "tensor": pytest.approx(0.625), "fp32": 0, "memory": pytest.approx(0.13),
    }  # fmt: skip
    assert row.why == "62.5 % of its time at the peak of tensor"
    assert row.spread is not None and row.spread.launches == 2
    kernel = next(r for r in whole.rows if r.parent == row.id)
    assert (kernel.replay_ns, kernel.flop, kernel.bound) == (10_000, 2.56e9, "tensor")
    assert (kernel.floor, kernel.share, kernel.launches, kernel.measured) == (None, None, 1, 1)
    given = next(r for r in whole.rows if r.parent == "layer:h_1_ln/Norm")
    assert (given.replay_ns, given.launches, given.measured) == (20_000, 1, 0)
    assert rows(whole)["layer", "h_0_add/Add"].why.startswith("2.0 us a kernel; no resource near")


def more(*launches: dict[str, Any], times: int = 1) -> pa.Table:
    """The counters and those of further launches like the addition's, `times` over."""
    table = views.counters()
    of_addition = [r for r in table.to_pylist() if r["launch"] == 2]
    of_one = table.to_pylist()
    for launch in launches:
        number = max(r["launch"] for r in of_one) + 1
        of_one += [{**r, "launch": number, **launch} for r in of_addition]
    size = max(r["launch"] for r in of_one) + 1
    every = [{**r, "launch": r["launch"] + k * size} for k in range(times) for r in of_one]
    return pa.Table.from_pylist(every, table.schema)


def test_a_layer_of_several_modules_is_of_the_closest_around_them_and_one_of_none_comes_last() -> (
    None
):
    both = {"layer": "both", "kernel": "k", "modules": ["h.0.fc", "h.0.ln"]}
    side = views.counted(more(both, {"layer": "lost", "kernel": "k", "modules": None}))
    found = rows(side)
    assert (found["layer", "both"].parent, found["layer", "both"].depth) == ("module:h.0", 3)
    assert found["module", "h.0"].launches == 4 and found["module", "h.0.fc"].launches == 1
    assert [(r.name, r.parent, r.depth, r.modules) for r in side.rows[-2:]] == [
        ("lost", None, 0, []),
        ("k", "layer:lost", 1, []),
    ]


def test_of_a_launch_of_which_no_metric_is_shown_nothing_is_known() -> None:
    blank = {"layer": "blank", "kernel": "k", "modules": ["m"], "metric": "launch__waves"}
    found = rows(views.counted(more(blank)))
    for key in (("module", "m"), ("layer", "blank"), ("kernel", "k")):
        row = found[key]
        assert (row.launches, row.measured, row.replay_ns, row.bound) == (1, 1, None, None)
        assert set(row.metrics.values()) == {None} and row.pipes == {}


def test_launches_of_one_kernel_in_a_layer_are_one_row_and_another_kernel_is_another() -> None:
    add = {"layer": "h_1_add/Add", "modules": ["h.1"], "representative_of": None}
    side = views.counted(more({**add, "kernel": "add"}, {**add, "kernel": "split"}))
    layer = rows(side)["layer", "h_1_add/Add"]
    assert (layer.launches, layer.measured, layer.replay_ns) == (3, 2, 6_000)
    assert layer.why.startswith("2.0 us a kernel")
    kernels = [r for r in side.rows if r.parent == layer.id]
    assert [(r.name, r.launches, r.replay_ns) for r in kernels] == [
        ("add", 2, 4_000),
        ("split", 1, 2_000),
    ]


def test_amounts_are_of_one_iteration_and_launches_of_all() -> None:
    side = views.counted(more(times=2))
    assert (side.iterations, side.launches) == (2, 12)
    row = rows(side)["layer", "h_0_add/Add"]
    assert (row.launches, row.replay_ns, row.bytes) == (2, 2_000, 1e5)
    assert row.why.startswith("2.0 us a kernel")


def test_where_a_kernel_has_no_counters_nothing_is_known_of_what_it_is_in() -> None:
    """The capture of time has two kernels in every layer."""
    side = views.counted(None, views.view(kernels=2))
    found = rows(side)
    assert side.absent == 6
    layer, block = found["layer", "h_0_fc/Gemm"], found["module", "h.0"]
    assert layer.why == "1 of its 2 kernels have no counters"
    assert block.why == "3 of its 6 kernels have no counters"
    for row in (layer, block):
        assert (row.replay_ns, row.flop, row.bytes, row.bound) == (None, None, None, None)
        assert set(row.metrics.values()) == {None} and row.pipes == {}
    assert layer.floor == Floor(2.56e9, 1e6)  # what it must do is known all the same
    assert found["kernel", "add"].bound == "launch"


def test_launches_that_were_planned_and_not_counted_are_said_by_function() -> None:
    named = [{"index": 6 + i, "key": 9, "function": f} for i, f in enumerate("abb")]
    plan = {"launches": [*views.plan()["launches"], *named, {"index": 9, "key": 9}]}
    side = views.counted(plan=plan)
    assert side.uncounted == 4
    assert list(side.uncounted_kernels.items()) == [("b", 2), ("a", 1), ("a kernel", 1)]


def test_without_its_device_nothing_bounds() -> None:
    attributes = tuple(f"device__attribute_{k}" for k in views.ATTRIBUTES)
    side = views.counted(views.counters(left_out=attributes))
    row = rows(side)["layer", "h_0_fc/Gemm"]
    assert (side.device, side.peaks, side.peaks_source) == (None, {}, None)
    assert (row.bound, row.why) == (None, "the capture does not name its device")
    assert row.flop == 2.56e9


def floor_of(floors: dict[str, Floor], path: str, kinds: dict[str, str] | None = None) -> Any:
    """The floor of a module, of layers with these; `kinds` of layers other than kernels."""
    view = views.view()
    for layer in view["layers"]:
        layer["kind"] = (kinds or {}).get(layer["layer"], "kernel")
    return rows(views.counted(None, view, floors=floors))["module", path].floor


def test_the_floor_of_a_module_is_the_sum_of_its_layers_of_which_movement_asks_nothing() -> None:
    fc, ln = Floor(8.0, 20.0), Floor(1.0, 3.0)
    floors = {"h_0_fc/Gemm": fc, "h_0_ln/Norm": ln}
    assert floor_of(floors, "h.0") is None  # the addition's is unknown
    moves = {"h_0_add/Add": "movement"}
    assert floor_of(floors, "h.0", moves) == Floor(9.0, 23.0)
    assert floor_of({"h_0_fc/Gemm": fc}, "h.0", moves) is None
    unknown = {**floors, "h_0_ln/Norm": Floor(None, 3.0)}
    assert floor_of(unknown, "h.0", moves) == Floor(None, 23.0)
    assert floor_of(unknown, "h.0.ln") == Floor(None, 3.0)
    unknown["h_0_ln/Norm"] = Floor(1.0, None)
    assert floor_of(unknown, "h.0", moves) == Floor(9.0, None)
    assert floor_of({"h_0_ln/Norm": Floor(None, None)}, "h.0.ln") is None
    assert floor_of({}, "h.0.ln", {"h_0_ln/Norm": "movement"}) is None


def test_a_module_has_a_share_where_its_own_time_and_the_whole_are_known(
    whole: CountedSide,
) -> None:
    assert rows(whole)["module", "h.1.fc"].share == pytest.approx(9 / 56)
    view = views.view()
    by_path = {m["path"]: m for m in view["modules"]}
    by_path["h.0.ln"]["costs"] = {}
    by_path["h.0.fc"]["costs"][views.KEY]["own"]["median"] = None
    found = rows(views.counted(None, view))
    assert found["module", "h.0.ln"].share is None and found["module", "h.0.fc"].share is None
    assert found["module", "h.0"].share == pytest.approx(0.5)
    view = views.view()
    view["sides"][0]["operation_ns"] = None
    assert rows(views.counted(None, view))["module", "h.0"].share is None


PIPE = "sm__pipe_{}_cycles_active.avg.pct_of_peak_sustained_active"
INSTRUCTIONS = "sm__inst_executed_pipe_{}.avg.pct_of_peak_sustained_active"


def test_the_four_busiest_pipes_are_named_equal_ones_by_name_and_none_that_did_nothing() -> None:
    of = {"fma": 5.0, "alu": 5.0, "lsu": 9.0, "xu": 1.0, "uniform": 0.5, "fp16": 0.0}
    given: dict[str, float | None] = {INSTRUCTIONS.format(k): v for k, v in of.items()}
    assert list(bound._pipes(given).items()) == [("lsu", 9), ("alu", 5), ("fma", 5), ("xu", 1)]
    few: dict[str, float | None] = {PIPE.format("xu"): 0.0, PIPE.format("lsu"): None}
    assert bound._pipes(few) == {}


def test_cycles_of_a_pipe_come_before_its_instructions_in_whatever_order() -> None:
    both: dict[str, float | None] = {PIPE.format("alu"): 30.0, INSTRUCTIONS.format("alu"): 10.0}
    assert bound._pipes(both) == bound._pipes(dict(reversed(both.items()))) == {"alu": 30}
    both[PIPE.format("alu")] = None
    assert bound._pipes(both) == {"alu": 10}


@pytest.mark.parametrize(
    "metric",
    [
        "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "sm__pipe_alu_cycles_active.max.pct_of_peak_sustained_active",
        "smsp__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active",
    ],
)
def test_another_metric_is_no_pipe(metric: str) -> None:
    assert bound._pipes({metric: 50.0}) == {}


def test_kinds_of_tensor_product_are_named_where_the_whole_is_not() -> None:
    of: dict[str, float | None] = {PIPE.format("tensor_op_hmma"): 40.0}
    assert bound._pipes(of) == {"tensor_op_hmma": 40}
    assert bound._pipes({**of, PIPE.format("tensor"): 41.0}) == {"tensor": 41}
    fp64 = {PIPE.format("shared"): 72.0, PIPE.format("fp64"): 7.0}
    assert bound._pipes(fp64) == {"fp64": 7}
