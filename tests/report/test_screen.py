"""The answer in words: at most fifteen, and none that the measurement does not bear."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
import rendering
import report_views as views
from hypothesis import given
from hypothesis import strategies as st

from layerline.analysis.model import partition as model
from layerline.analysis.model.comparison import Comparison, Place, Steadiness
from layerline.analysis.model.partition import Part, Partition
from layerline.analysis.report import ledger
from layerline.analysis.report.headline import again
from layerline.analysis.report.screen import believe, drawing, screens, words
from layerline.core.accuracy.limits import Verdict
from layerline.core.stats import Estimate


def view(low: float = 1.58, high: float = 1.66, **of_engine: Any) -> Comparison:
    """An engine whose outputs are right against eager fp32."""
    found = rendering.comparison(views.gpt2(1))
    first = replace(found.ratios[0], low=low, high=high, ratio=(low * high) ** 0.5)
    right: dict[str, Any] = {"outputs": Verdict(True), "parity": {"top1": 0.993}}
    sides = [replace(s, **(right | of_engine)) if s.key == first.under else s for s in found.sides]
    return replace(found, title="org/gpt2, 1×128", sides=sides, ratios=[first])


def first(comparison: Comparison) -> screens.Screen:
    return screens.of(comparison)[0]


@pytest.mark.parametrize(
    ("low", "high", "said", "tone"),
    [
        (1.58, 1.66, "runs gpt2 1.6× as fast as Eager fp32", words.GOOD),
        (0.98, 1.02, "runs gpt2 as fast as Eager fp32", words.NEUTRAL),
        (0.9, 1.1, "cannot be told apart from Eager fp32 on gpt2", words.UNSURE),
        (0.99, 1.79, "cannot be told apart from Eager fp32 on gpt2", words.UNSURE),
        (0.5, 0.6, "takes gpt2 1.8× as long as Eager fp32", words.BAD),
        (5.09, 3359.0, "runs gpt2 at least 5.1× as fast as Eager fp32", words.GOOD),
        (0.01, 0.2, "takes gpt2 at least 5.0× as long as Eager fp32", words.BAD),
    ],
)
def test_the_interval_makes_the_words(low: float, high: float, said: str, tone: str) -> None:
    answer = first(view(low, high)).answer
    assert (answer.text, answer.tone) == (f"ONNX Runtime fp32 {said}", tone)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.5, 0.625, "(95 %: 1.60× to 2.00× as long)"),
        (1.58, 1.66, "(95 %: 1.58× to 1.66× as fast)"),
        # Nothing says which one it is: as the ratio that stands in the table.
        (0.56, 1.34, "not distinguishable (95 %: 0.56× to 1.34× as fast)"),
    ],
)
def test_the_interval_has_the_direction_of_the_answer(low: float, high: float, said: str) -> None:
    assert said in first(view(low, high)).line[0]


def test_a_change_that_is_sure_is_told_where_the_whole_cannot_be() -> None:
    for low, told in ((0.9, True), (0.98, False)):
        found = view(low, 1.02)
        mix = Place("h.*.mix", 5_000, 5_000, 4_000, 6_000)
        ratio = replace(found.ratios[0], loses=[mix], saves=[])
        line = " ".join(first(replace(found, ratios=[ratio])).line)
        assert ("more in h.*.mix (5.00 µs, 4.00 to 6.00 µs)" in line) == told


def test_what_is_doubtful_is_in_the_answer() -> None:
    unchecked = first(view(outputs=None, parity=None))
    assert unchecked.answer.text.endswith("about 1.6× as fast as Eager fp32, outputs unchecked")
    little = first(view(precision_run={"fp32": 0.01, "fp16": 0.99}))
    assert little.answer.text.endswith("as Eager fp32, barely in fp32")
    assert "✗ fp32 did not run" in [f"{c.mark} {c.text}" for c in little.chips]
    assert unchecked.answer.tone == little.answer.tone == words.UNSURE


def test_on_an_overloaded_machine_an_unsteady_latency_tells_no_ratio() -> None:
    """Both intervals are of the same crowd: 25.7× to 34.7× was measured of an engine that is 1.5×
    as fast."""
    restless = msgspec.convert(views.steadiness("has two levels"), Steadiness)
    found = view(25.7, 34.7, steadiness=restless)
    under = found.ratios[0].under
    crowded = first(replace(found, load={under: 5.75}))
    said = "The machine was too busy to tell how fast ONNX Runtime fp32 runs gpt2"
    assert crowded.answer.text == said
    assert crowded.answer.tone == words.UNSURE
    assert "×" not in " ".join(crowded.line)
    assert crowded.line[0].endswith("when it is idle: layerline profile RUN --force.")
    trained = [replace(s, phase="step") for s in found.sides if s.task != "engine"]
    assert again(replace(found, sides=trained)) == "layerline train … --force"
    leads = [replace(found.ratios[0], lead=True)]
    written = rendering.markdown(replace(found, load={under: 5.75}, ratios=leads))
    assert (
        "| cannot tell |" in written
        and "30" not in written.partition("## All comparisons")[2][:900]
    )
    assert "cannot be told: the machine was too busy" in written
    for load in (0.9, 0.0):
        assert "about 30× as fast" in first(replace(found, load={under: load})).answer.text
    settled = replace(view(25.7, 34.7), load={under: 5.75})
    assert "30× as fast" in first(settled).answer.text


def test_a_machine_is_quiet_only_where_its_load_was_recorded() -> None:
    found = view()
    over, under = found.ratios[0].over, found.ratios[0].under
    for recorded, said in (
        ((), "? machine load unknown"),
        ([under], "? machine load unknown"),
        ([over, under], "✓ machine quiet"),
    ):
        chip = first(replace(found, load=dict.fromkeys(recorded, 0.1))).chips[-1]
        assert f"{chip.mark} {chip.text}" == said


def test_a_wrong_engine_is_compared_with_nothing() -> None:
    wrong = first(view(outputs=Verdict(False, "cosine 0.5, below 0.9999")))
    assert wrong.answer.text == "ONNX Runtime fp32 does not compute gpt2"
    assert wrong.answer.tone == words.BAD and "×" not in " ".join(wrong.line)
    assert wrong.repair == (
        "Find the module",
        "layerline accuracy RUN --precision fp32 --backend onnxruntime",
    )


def test_the_device_alone_is_told_where_it_differs_by_more_than_the_interval() -> None:
    found = view(6.8, 7.0)
    over, under = found.ratios[0].over, found.ratios[0].under
    queued = {over: Estimate(300, 299, 301, 9), under: Estimate(270, 269, 271, 9)}
    times = {over: 1890, under: 273}
    sides = [
        replace(
            s, queued=queued[s.key], launch_bound=1 - (queued[s.key].median or 0) / times[s.key]
        )
        if s.key in queued
        else s
        for s in found.sides
    ]
    divided = {
        key: Partition(
            "latency", True, total, None, None,
            [
                Part("attn", model.MODULES, queued[key].median or 0),
                Part("waiting for launches", model.WAITING, total - (queued[key].median or 0)),
            ],
            [],
        )
        for key, total in times.items()
    }  # fmt: skip
    made = first(replace(found, sides=sides, partitions=divided))
    assert made.answer.text.endswith("6.9× as fast as Eager fp32, 1.1× on the device")
    assert "On the device alone 1.11×" in made.line[1]
    assert "Eager fp32 waits for launches in 84.1 % of its latency" in made.line[1]
    waits = next(b for b in made.bars if b.name == "waiting for launches")
    assert waits.text == "−1.59 µs" and waits.cls == "wait"


@given(
    st.lists(st.text("ab ", min_size=1, max_size=30), min_size=3, max_size=3),
    st.floats(0.01, 900),
    st.floats(1, 3),
)
def test_no_answer_has_more_than_fifteen_words(names: list[str], low: float, width: float) -> None:
    found = view(low, low * width)
    over, under = found.ratios[0].over, found.ratios[0].under
    label = {over: names[0], under: names[1]}
    sides = [replace(s, label=label.get(s.key, s.label)) for s in found.sides]
    for outputs in (Verdict(True), Verdict(None, "?"), Verdict(False, "no")):
        changed = [replace(s, outputs=outputs) if s.key == under else s for s in sides]
        made = replace(found, title=f"{names[2]}, 1×8", sides=changed)
        assert len(first(made).answer.text.split()) <= words.MOST_WORDS


@given(
    st.lists(
        st.tuples(st.integers(-(10**6), 10**6), st.integers(0, 10**5)), min_size=1, max_size=8
    ),
    st.integers(0, 10**7),
)
def test_bars_stay_in_the_drawing(steps: list[tuple[int, int]], start: int) -> None:
    made = [
        model.Step(f"s{i}", model.MODULES, ns, ns - w, ns + w) for i, (ns, w) in enumerate(steps)
    ]
    end = max(0, start + sum(ns for ns, _ in steps))
    fall = model.Waterfall(start, end, made)
    for bar in drawing.bars(fall, ("a", "b"), {}):
        assert bar.left >= -0.01 and bar.width >= 0
        assert bar.left + bar.width <= 100.01
        if bar.sure:
            assert bar.sure[0] >= -0.01 and bar.sure[1] >= -0.01 and sum(bar.sure) <= 100.01


def test_a_training_step_alone_is_its_phases_in_their_order() -> None:
    found = view()
    some = next(s for s in found.sides if s.phase == "forward")
    shares = {"backward": 0.5, "forward": 0.25, "optimizer": 0.15, "data": 0.06, "other": 0.04}
    step = replace(some, phase="step", latency=Estimate(9_001, 900, 9_900, 20), time_shares=shares)
    parts = Partition("latency", False, 9_001, None, None, [Part("mlp", model.MODULES, 9_001)], [])
    made = replace(found, ratios=[], sides=[step], partitions={step.key: parts})
    screen = first(made)
    assert [(b.name, b.text) for b in screen.bars] == [
        ("data", "540 ns"), ("forward", "2.25 µs"), ("backward", "4.50 µs"),
        ("optimizer", "1.35 µs"), ("no phase", "360 ns"), (some.label, "9.00 µs"),
    ]  # fmt: skip
    ends = [b.left + b.width for b in screen.bars]
    assert ends[-2] == pytest.approx(ends[-1], abs=0.01) and ends[-1] == 100
    profiled = replace(step, time_shares=None)
    assert [b.name for b in first(replace(made, sides=[profiled])).bars] == ["mlp", some.label]


def test_of_several_precisions_the_first_panels_is_the_first_screen() -> None:
    found = view()
    some = next(s for s in found.sides if s.phase == "forward")
    steps = [replace(some, phase="step", precision=p) for p in ("bf16", "fp32")]
    parts = Partition("latency", False, 9_001, None, None, [Part("mlp", model.MODULES, 9_001)], [])
    made = replace(found, ratios=[], sides=steps, partitions={s.key: parts for s in steps})
    assert [s.under for s in screens.of(made)] == ["eager/fp32/step", "eager/bf16/step"]


def test_one_check_adds_up_and_several_add_up() -> None:
    for sides, said in ((1, "1 of 1 adds up"), (2, "2 of 2 add up")):
        view = rendering.comparison(views.gpt2(1))
        some = replace(view, sides=[s for s in view.sides if s.task == "engine"][:sides])
        panel: Any = {"groups": ledger.groups(some.sides)}
        (check,) = [c for c in believe.checks(some, [panel], [])[0] if c.key == "i"]
        assert check.said == said
