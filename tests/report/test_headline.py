"""What the report says first: one lead, savings with intervals, shares that close, no false win."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import rendering
from analysis_examples import node, ops
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_sides import measured_side

from layerline.analysis import formatting
from layerline.analysis.checks import latency as latency_
from layerline.analysis.commands.report import _comparisons
from layerline.analysis.comparison import lead, savings
from layerline.analysis.comparison.build import Context, build
from layerline.analysis.costs.iterations import phase_shares
from layerline.analysis.costs.measured import MeasuredSide
from layerline.analysis.model.comparison import Comparison, Cost, Difference, Place
from layerline.analysis.model.side import Model
from layerline.analysis.report import answer
from layerline.core.stats import Estimate

US = 1_000
TIMES = [100, 101, 99, 100, 102, 98, 100, 101]  # no trend, interval [98, 102] at eight samples


def a_side(name: str, precision: str, latency: int, **more: Any) -> MeasuredSide:
    """Eight iterations at about `latency` us; attn and mlp at the us given, 8 % apart at most."""
    backend = {"eager": "torch", "TensorRT": "tensorrt", "CPU": "onnxruntime"}[name]
    costs = {"attn": 200, "mlp": 300, **more.pop("costs", {})}
    table = ops(*(node(m, [m], [us * 10 * t for t in TIMES]) for m, us in costs.items()))
    kind = "eager" if name == "eager" else "engine"
    facts: dict[str, Any] = {
        "task": kind,
        "label": f"{name} {precision}",
        "precision": precision,
        "phase": "inference",
        "backend": backend,
        "source": f"{precision}.json",
        "ops": table,
        "labels": pa.array(["unresolved"] * len(table)),
        "latency_ns": [latency * 10 * t for t in TIMES],
        "target": 0.05,
        "precision_run": {precision: 1.0},
    }
    return measured_side(**{**facts, **more})


def made(*sides: MeasuredSide) -> Comparison:
    return build(list(sides), Model("m", ["", "attn", "mlp"]))


def texts(view: Comparison) -> list[str]:
    return [h.text for h in rendering.headline(view)]


def test_the_fastest_engine_against_eager_of_its_precision_leads() -> None:
    view = made(
        a_side("eager", "fp32", 9_000),
        a_side("eager", "fp16", 8_000),
        a_side("CPU", "fp32", 5_000),
        a_side("TensorRT", "fp32", 4_000),
        a_side("TensorRT", "fp16", 1_000),
    )
    first = texts(view)[0]
    # Both intervals are 98 to 102: 8 * 98 / 102 and 8 * 102 / 98.
    assert first == (
        "TensorRT fp16 is 8.00× as fast as eager fp16 (1.00 ms against 8.00 ms; 95 % interval "
        "7.69× to 8.33×)."
    )
    rows = answer.comparisons(view)
    assert [(r["side"], r["against"]) for r in rows if r["lead"]] == [
        ("TensorRT fp16", "eager fp16")
    ]
    assert rows[0]["lead"] and len(rows) == 4  # each engine against eager, TensorRT fp16 on fp32
    # The other comparisons are in the table, not in sentences.
    assert not any("CPU fp32" in t for t in texts(view))


def test_savings_have_intervals_and_those_that_may_be_zero_are_not_told() -> None:
    eager = a_side("eager", "fp32", 9_000, costs={"attn": 500, "mlp": 300})
    view = made(eager, a_side("TensorRT", "fp32", 4_000, costs={"attn": 200, "mlp": 290}))
    (ratio,) = view.ratios
    (saved,) = ratio.saves
    # Ends of the interval of eight: 98 and 102 hundredths. 500 to 200: 490 - 204 and 510 - 196.
    assert saved == Place(
        name="attn",
        ns=300 * US,
        at_least_ns=300 * US,
        low_ns=286 * US,
        high_ns=314 * US,
    )
    # 300 to 290: 294 - 295.8 is below zero, so nothing is said of it.
    assert (ratio.loses, ratio.undecided) == ([], 1)
    assert texts(view)[1] == (
        "Operation time per iteration: TensorRT fp32 saves most in attn (300 µs, 286 to 314 µs); "
        "95 % intervals; of one more kind the interval contains zero: not distinguishable."
    )
    assert answer.comparisons(view)[0]["saves"] == "attn 286 – 314 µs"


def test_a_loss_is_a_saving_the_other_way_round() -> None:
    eager = a_side("eager", "fp32", 9_000, costs={"attn": 100})
    view = made(eager, a_side("TensorRT", "fp32", 4_000, costs={"attn": 400}))
    (lost,) = view.ratios[0].loses
    # 400 to 100: 392 - 102 and 408 - 98.
    assert (lost.name, lost.ns, lost.low_ns, lost.high_ns) == (
        "attn", 300 * US, 290 * US, 310 * US
    )  # fmt: skip
    assert "loses most in attn (300 µs, 290 to 310 µs)" in texts(view)[1]


def cost(own: int, shared: int = 0, spread: int | None = 10) -> Any:
    def estimate(median: int) -> Estimate:
        return Estimate(median, *(() if spread is None else (median - spread, median + spread)))

    return Cost(estimate(own), estimate(own + shared), None)


def test_shared_layers_and_noise_both_widen_a_saving() -> None:
    # 1000 - (400 to 700): 300 to 600 of the medians, 20 more to either side by the noise.
    place = savings.between("x", cost(1000), cost(400, 300))
    assert (place.ns, place.at_least_ns) == (None, 300)
    assert (place.low_ns, place.high_ns) == (280, 620)
    place = savings.between("x", cost(1000, spread=None), cost(400, 300))
    assert (place.at_least_ns, place.low_ns, place.high_ns) == (300, None, None)


@given(st.tuples(*[st.integers(0, 10**6)] * 4), st.integers(0, 1000))
def test_a_saving_is_never_told_both_ways(values: tuple[int, ...], spread: int) -> None:
    a, b = cost(values[0], values[1], spread), cost(values[2], values[3], spread)
    less, more = savings.between("x", a, b), savings.between("x", b, a)
    assert not (savings.sure(less) > 0 and savings.sure(more) > 0)
    assert less.low_ns == -(more.high_ns or 0)
    assert (less.low_ns or 0) <= less.at_least_ns <= (less.high_ns or 0)


def test_too_few_iterations_to_be_sure_of_a_saving_are_said() -> None:
    def few(us: int) -> dict[str, Any]:
        return {"ops": ops(node("attn", ["attn"], [us] * 3)), "labels": None}

    view = made(
        a_side("eager", "fp32", 9_000, **few(300)), a_side("TensorRT", "fp32", 4_000, **few(100))
    )
    assert texts(view)[1].endswith("attn (200 ns); too few iterations to say how sure.")
    assert rendering.headline(view)[1].tone == "neutral"
    assert answer.comparisons(view)[0]["saves"] == "attn 200 ns, no interval"


def test_an_engine_that_computed_nothing_in_its_precision_is_no_win() -> None:
    half = a_side("CPU", "fp16", 7_000, precision_run={"fp32": 0.999, "int64": 0.001})
    view = made(a_side("eager", "fp32", 9_000), a_side("CPU", "fp32", 4_000), half)
    assert texts(view)[0].startswith("CPU fp32 is 2.25× as fast as eager fp32")
    (said,) = [h for h in rendering.headline(view) if h.text.startswith("CPU fp16")]
    assert said.tone == "bad"
    assert said.text == (
        "CPU fp16: nothing was computed in fp16 (by time, 99.9 % fp32); it is 1.29× as fast as "
        "eager fp32 and 0.57× as fast as CPU fp32."
    )
    note = "nothing was computed in fp16"
    assert [r["note"] for r in answer.comparisons(view)] == ["", note, note]
    # Alone it leads, and the same sentence says so.
    first = rendering.headline(made(a_side("eager", "fp32", 9_000), half))[0]
    assert first.tone == "neutral"
    assert first.text.endswith(", but nothing was computed in fp16 (by time, 99.9 % fp32).")


def test_an_engine_that_computed_little_in_its_precision_is_no_win_either() -> None:
    half = a_side("CPU", "fp16", 7_000, precision_run={"fp32": 0.9991, "fp16": 0.0009})
    first = rendering.headline(made(a_side("eager", "fp32", 9_000), half))[0]
    assert first.tone == "neutral"
    assert first.text.endswith(", but only 0.09 % was computed in fp16 (by time, 99.9 % fp32).")
    mixed = a_side("CPU", "fp16", 7_000, precision_run={"fp32": 0.3, "fp16": 0.5, "unknown": 0.2})
    view = made(a_side("eager", "fp32", 9_000), mixed)
    assert rendering.headline(view)[0].tone == "good"
    assert "CPU fp16 was asked for fp16 and computed, by time, 30.0 % fp32." in texts(view)


def test_a_failed_third_check_says_in_which_direction() -> None:
    slow, fast = (
        replace(latency_.cost([traced] * 9, [100] * 9), residual_ns=1) for traced in (385, 29)
    )
    view = made(
        a_side("eager", "fp32", 9_000, checks=[fast]), a_side("CPU", "fp32", 1, checks=[slow])
    )
    assert texts(view)[-1] == (
        "The profiled and the unprofiled run differ (eager fp32 by −71.0 %, CPU fp32 by +285 %). "
        "See the checks."
    )


def test_what_cannot_be_told_is_not_called_nothing() -> None:
    half = a_side("CPU", "fp16", 7_000, precision_run={"fp32": 0.6, "unknown": 0.4})
    view = made(a_side("eager", "fp32", 9_000), half)
    assert (
        "but nothing that can be told was computed in fp16 (by time, 60.0 % fp32)" in texts(view)[0]
    )


ALTERNATING = [12_000_000, 150_000_000] * 4


def test_a_series_that_has_not_settled_is_marked_in_the_sentence_and_in_the_ledger() -> None:
    restless = a_side("eager", "fp32", 0, latency_ns=ALTERNATING)
    view = made(restless, a_side("TensorRT", "fp32", 1_000))
    first = rendering.headline(view)[0]
    assert first.tone == "unsure"
    assert (
        "; not settled: eager fp32 has two levels: 50.0 % of samples near 12.0 ms, 50.0 % near "
        "150 ms)." in first.text
    )
    assert answer.comparisons(view)[0]["note"] == "not settled: eager fp32"
    written = rendering.markdown(view)
    assert "**? TensorRT fp32 runs m at least 12× as fast" in written
    assert "- ? TensorRT fp32 is" in written
    ledger = written.split("## Can it be believed")[1]
    (line,) = [row for row in ledger.splitlines() if row.startswith("| Unprofiled")]
    assert "? 81.0 ms" in line and "has two levels" in ledger
    assert 'class="tone-unsure"' in rendering.html(view)


def test_other_series_that_have_not_settled_have_one_sentence() -> None:
    view = made(
        a_side("eager", "fp32", 9_000, latency_ns=ALTERNATING),
        a_side("eager", "fp16", 8_000),
        a_side("TensorRT", "fp16", 1_000),
    )
    (said,) = [h for h in rendering.headline(view) if h.text.startswith("Latencies that have not")]
    assert said.tone == "unsure"
    assert "eager fp32 has two levels" in said.text


def test_an_engine_that_is_slower_has_its_sentence() -> None:
    view = made(
        a_side("eager", "fp32", 9_000),
        a_side("TensorRT", "fp32", 3_000),
        a_side("CPU", "fp32", 18_000),
    )
    (said,) = [
        h for h in rendering.headline(view) if h.text.startswith("CPU fp32 takes 2.00× as long")
    ]
    assert said.tone == "bad"


def test_an_engine_with_wrong_outputs_does_not_lead_and_is_told() -> None:
    parity = {"max_abs": 0.01, "cosine": 0.9999, "top1": 1.0, "random_weights": False}
    view = made(
        a_side("eager", "fp32", 9_000),
        a_side("eager", "fp16", 9_000),
        a_side("TensorRT", "fp32", 3_000, parity=parity),
        a_side("TensorRT", "fp16", 1_000, parity={**parity, "max_abs": None, "nonfinite": 7}),
        a_side("CPU", "fp32", 5_000, parity={**parity, "cosine": 0.4}),
    )
    wrong = "does not compute what eager does"
    assert [(h.text, h.tone) for h in rendering.headline(view)[:2]] == [
        (f"TensorRT fp16 {wrong}: 7 values are NaN or infinite. Its times are no result.", "bad"),
        (f"CPU fp32 {wrong}: cosine 0.4, below 0.9999. Its times are no result.", "bad"),
    ]
    assert texts(view)[2].startswith("TensorRT fp32 is 3.00×")
    assert [(r.over, r.under) for r in view.ratios] == [
        ("eager/fp32/inference", "engine/fp32.tensorrt/inference")
    ]
    assert [t for t in texts(view) if "differs from eager" in t] == [
        "TensorRT fp32 differs from eager by at most 0.01, top-1 agreement 100 %."
    ]


def test_an_engine_whose_outputs_were_not_checked_is_in_doubt_wherever_it_is_called_fast() -> None:
    view = made(
        a_side("eager", "fp32", 9_000),
        a_side("CPU", "fp32", 5_000, parity=None),
        a_side("TensorRT", "fp32", 3_000, parity=None),
    )
    first, *others = rendering.headline(view)
    assert first.text.endswith(", but the outputs of TensorRT fp32 were not checked.")
    assert first.tone == "unsure"
    assert "good" not in [h.tone for h in others if "saves" in h.text]
    assert "Beside these, the outputs of CPU fp32 were not checked." in texts(view)
    notes = {r["side"]: r["note"] for r in answer.comparisons(view)}
    assert notes == {x: f"{x}: outputs not checked" for x in ("CPU fp32", "TensorRT fp32")}
    # Slower stays bad news, and an eager side needs no check.
    slower = made(a_side("eager", "fp32", 2_000), a_side("TensorRT", "fp32", 3_000, parity=None))
    assert rendering.headline(slower)[0].tone == "bad"
    right = made(a_side("eager", "fp32", 9_000), a_side("TensorRT", "fp32", 3_000))
    assert not [t for t in texts(right) if "utputs not" in t or "not checked." in t]


def step(*phases: tuple[str, list[int]]) -> pa.Table:
    return ops(*(node(p, [p], times, kind="op", phase=p, self_ns=0) for p, times in phases))


def self_times(table: pa.Table) -> pa.Table:
    """The durations as self times, which is what adds up for operators."""
    at = table.schema.get_field_index("self_ns")
    return table.set_column(at, table.schema.field("self_ns"), table["duration_ns"])


def test_shares_of_a_step_are_of_the_same_iteration() -> None:
    # Shares are 10, 80, 10 %; 30, 60, 10 %; 80, 10, 10 %. Of medians they would be 30, 60, 10 of
    # 100 here; in the third iteration everything is ten times as long.
    table = self_times(
        step(("forward", [10, 30, 800]), ("backward", [80, 60, 100]), ("optimizer", [10, 10, 100]))
    )
    found = phase_shares(table)
    assert list(found) == ["forward", "backward", "optimizer"]
    assert found == pytest.approx({"forward": 0.4, "backward": 0.5, "optimizer": 0.1})
    more = {"ops": table, "labels": None, "phase": "step", "label": "eager fp32 step"}
    view = made(a_side("eager", "fp32", 9_000, **more))
    shares = "forward 40.0 %, backward 50.0 %, optimizer 10.0 %."
    assert (
        # 100, 100 and 1,000 ns: the median
        "Operations of eager fp32 step take 100 ns; shares by phase, averaged over iterations: "
        f"{shares}" in texts(view)
    )


def test_the_answer_of_training_alone_is_where_its_steps_go() -> None:
    """What lies in no phase is said, too; operations are another sum than the step."""
    table = self_times(step(("forward", [10, 30, 80]), ("backward", [80, 60, 10])))
    shares = {"backward": 0.5, "forward": 0.48, "other": 0.02}
    more = {"ops": table, "labels": None, "phase": "step", "label": "eager fp32 training step"}
    side = a_side("eager", "fp32", 9_000, **more)
    view = made(replace(side, side=replace(side.side, trains="gpt2-medium", time_shares=shares)))
    assert texts(view)[0].startswith("A step of gpt2-medium (eager fp32) takes 9.00")
    assert "backward 50.0 %, forward 48.0 %, no phase 2.0 %" in texts(view)[0]
    assert texts(view)[1].startswith("Operations of eager fp32 training step take 90 ns; shares by")


def test_a_phase_without_a_name_is_what_remains() -> None:
    rows = node("x", ["a"], [25, 25], kind="op", phase="forward", self_ns=25)
    rows += node("y", ["a"], [75, 75], kind="op", phase=None, self_ns=75)
    assert phase_shares(ops(rows)) == {"forward": 0.25, "other": 0.75}
    assert phase_shares(ops(node("x", ["a"], [0, 0], kind="op", self_ns=0))) == {}


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(["forward", "loss", "backward", "optimizer", "data", "other"]),
        st.lists(st.integers(0, 10**9), min_size=5, max_size=5),
        min_size=1,
    )
)
def test_shares_of_a_step_add_up(phases: dict[str, list[int]]) -> None:
    found = phase_shares(self_times(step(*phases.items())))
    if not any(ns for times in phases.values() for ns in times):
        assert found == {}
        return
    assert sum(found.values()) == pytest.approx(1, abs=1e-12)
    assert set(found) == set(phases)
    assert all(0 <= share <= 1 for share in found.values())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.00×"),
        (1.002, "1.002×"),
        (0.9996, "0.9996×"),
        (1.00001, ">1.00×"),
        (0.99999, "<1.00×"),
        (0.001, "0.001×"),
        (1.31, "1.31×"),
    ],
)
def test_a_ratio_next_to_one_is_not_written_as_one(value: float, text: str) -> None:
    assert formatting.ratio(value) == text


def test_an_interval_is_not_written_as_a_point() -> None:
    assert formatting.ratio_range(1.6762, 1.6846) == "1.676× – 1.685×"
    assert formatting.ratio_range(1.62, 1.7, " to ") == "1.62× to 1.70×"
    assert formatting.ratio_range(2.0, 2.0) == "2.00×"
    assert formatting.ratio_range(None, 2.0) == "–"
    assert formatting.percent(1.0004) == "100.1 %"
    assert formatting.percent(1 + 1e-12) == "100 %"


@given(st.floats(0.5, 2))
def test_only_one_is_written_as_one(value: float) -> None:
    assert (formatting.ratio(value) == "1.00×") == (value == 1)


def test_summary_and_terminal_have_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    view = made(
        a_side("eager", "fp32", 9_000, costs={"attn": 500}),
        a_side("TensorRT", "fp32", 4_000),
        a_side("CPU", "fp32", 5_000),
    )
    written = rendering.summary(view)
    assert written["ratios"][0]["over"] == "eager/fp32/inference"
    assert written["engines"]["fp32.tensorrt"]["steadiness"]["settled"] is True
    monkeypatch.setenv("COLUMNS", "200")
    lines = list(_comparisons(written["comparisons"]))
    assert lines[0].split() == ["side", "as", "95", "%", "saves", "most", "in", "loses", "most",
                                "in", "note"]  # fmt: skip
    assert lines[1].startswith("2.25× as fast  TensorRT fp32  eager fp32  2.16× – 2.34×  attn 286")
    monkeypatch.setenv("COLUMNS", "60")
    assert not any("attn" in line for line in _comparisons(written["comparisons"]))
    for text in (rendering.markdown(view), rendering.html(view)):
        assert "saves most in" in text and "attn 286 – 314" in text.replace("\u00a0", " ")


def test_without_any_comparison_each_whole_side_stands_alone() -> None:
    view = made(a_side("TensorRT", "fp32", 4_000))
    assert texts(view)[0] == "TensorRT fp32 takes 4.00 ms (95 % interval 3.92 ms to 4.08 ms)."
    assert lead.mark_lead([], view.sides) == []


def test_a_busy_machine_is_told_where_a_latency_has_not_settled() -> None:
    restless = a_side("eager", "fp32", 9_000, latency_ns=[1_000_000, 9_000_000] * 20)
    row = Difference("busy machine", "–", "load 5.1 on 2 CPUs", "", ["eager/fp32/inference"])
    said = "load 5.1 on 2 CPUs): measure again when it is idle (layerline profile RUN --force)."
    sides = [restless, a_side("TensorRT", "fp32", 4_000)]
    view = build(sides, Model("m", ["", "attn", "mlp"]), Context(comparability=[row]))
    assert [h.tone for h in rendering.headline(view) if h.text.endswith(said)] == ["unsure"]
    quiet = [a_side("eager", "fp32", 9_000), sides[1]]
    view = build(quiet, Model("m", ["", "attn", "mlp"]), Context(comparability=[row]))
    assert not any(said in t for t in texts(view))


def test_training_on_a_busy_machine_is_measured_again_by_the_command_that_trains() -> None:
    uneven = [1_000_000, 9_000_000] * 20
    side = a_side("eager", "fp32", 9_000, latency_ns=uneven, phase="step")
    row = Difference("busy machine", "–", "load 5.1 on 2 CPUs", "", ["eager/fp32/step"])
    view = build([side], Model("m", ["", "attn", "mlp"]), Context(comparability=[row]))
    said = "measure again when it is idle (layerline train … --force)."
    assert any(t.endswith(said) for t in texts(view))


def test_what_an_engine_has_not_resolved_may_be_any_modules() -> None:
    """A kind is not said to be saved because its kernel has no module."""
    eager = a_side("eager", "fp32", 9_000, costs={"attn": 500, "mlp": 300})
    engine = a_side("TensorRT", "fp32", 4_000, costs={"attn": 200, "mlp": 290})
    (found,) = made(eager, engine).ratios
    kinds = made(eager, engine).kinds
    lost = {found.under: 100 * US}
    (saved,) = savings.add(replace(found, saves=[], loses=[], undecided=0), kinds, lost).saves
    # 490 - (204 + 100) and 510 - 196.
    assert (saved.low_ns, saved.high_ns, saved.ns) == (186 * US, 314 * US, None)
    none = savings.add(found, kinds, {found.under: 290 * US})
    assert (none.saves, none.undecided) == ([], 2)
