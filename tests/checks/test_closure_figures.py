"""Closure to the last figure: every term, limit and sentence of each check, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from analysis_examples import node, ops

from layerline.analysis.checks import closure
from layerline.analysis.checks.closure import (
    Span,
    beyond_phases,
    counted,
    counted_once,
    judged,
    lost,
    middle,
    operators_against_phase,
    phases_against_step,
    profiler_cost,
    span_against_latency,
)
from layerline.analysis.model.comparison import Check, Wording
from layerline.core.stats import Stat, summarise

MS = 1_000_000


def unchecked(name: str, why: str) -> Check:
    return Check(name, [], None, None, None, None, f"Not checked: {why}.")


def stat(ns: int) -> Stat:
    found = summarise([ns])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("residuals", "shown"),
    [
        ([], None),
        ([(5, 0)], (5, 0)),
        ([(9, 0), (5, 1)], (5, 1)),  # of two the lower
        ([(9, 0), (1, 1), (5, 2)], (5, 2)),
        ([(9, 0), (1, 1), (5, 2), (7, 3)], (5, 2)),
        ([(-9, 0), (1, 1), (5, 2), (7, 3), (8, 4)], (5, 2)),
    ],
)
def test_the_iteration_shown_is_the_lower_median(
    residuals: list[tuple[int, int]], shown: tuple[int, int] | None
) -> None:
    assert middle(residuals) == shown


def test_a_residual_at_its_limit_is_allowed_and_one_nanosecond_more_is_not() -> None:
    def of(residual: int, reference: int = 1000, **more: Any) -> Check:
        given: dict[str, Any] = {"good": "good.", "bad": "bad.", **more}
        return judged("x", [("a", 1)], residual, reference, 0.05, **given)

    assert of(50) == Check("x", [("a", 1)], 50, 0.05, 0.05, True, "good.")
    failed = "These numbers do not add up: bad."
    assert of(-51) == Check("x", [("a", 1)], -51, -0.051, 0.05, False, failed)
    assert of(60, floor_ns=60).ok is True and of(61, floor_ns=60).ok is False
    # Nothing to hold it against: no share, and only nothing is allowed.
    assert of(0, 0) == Check("x", [("a", 1)], 0, None, 0.05, True, "good.")
    assert of(1, 0).ok is False
    wording = Wording("It took {}.", [0.25])
    good = of(0, good=wording)
    assert (good.text, good.wording) == ("It took 25.0 %.", wording)
    bad = of(99, good=wording)
    assert (bad.text, bad.wording) == (failed, None)
    assert of(0, good=Wording("As long.", [])).wording is None


def test_counted_once_names_each_kind_and_the_worst_decides() -> None:
    raw, tables = {"kernel": 1_000_000, "memcpy": 5_000}, {"kernel": 1_000_000, "memset": 700}
    assert counted_once(tables, raw, -50) == Check(
        "i",
        [
            ("kernel in the raw capture", 1_000_000),
            ("memcpy in the raw capture", 5_000),
            ("memset in the raw capture", 0),
            ("kernel in the tables", -1_000_000),
            ("memcpy in the tables", 0),
            ("memset in the tables", -700),
            ("attributed to nothing or twice", -50),
        ],
        5_000,
        5_000 / 1_005_000,
        1e-3,
        False,
        "These numbers do not add up: the tables and the raw capture differ by 5.00 µs "
        "(memcpy, memset, the attribution).",
    )
    good = counted_once({"kernel": 999_000}, {"kernel": 1_000_000})
    assert (good.ok, good.residual_ns) == (True, 1_000)
    assert good.text == "Every operation of the capture is counted once."
    assert counted_once({"kernel": 998_999}, {"kernel": 1_000_000}).ok is False
    assert counted_once({}, {}).residual_ns == 0
    assert counted_once({}, None) == unchecked(
        "i", "the raw capture cannot be summed independently of the reader"
    )


def test_span_against_latency_shows_terms_that_add_up() -> None:
    spans = [Span(i, 9 * MS, 2 * MS, MS, 8 * MS) for i in range(3)]
    latency = {0: 10 * MS, 1: 9 * MS, 2: 12 * MS}
    # Residuals, less 1 ms in which nothing was launched in 0: 1, 1, 4. The median's is shown.
    check = span_against_latency(spans, latency, before={0: MS})
    assert check == Check(
        "ii",
        [
            ("operations", 9 * MS),
            ("overlaps", -2 * MS),
            ("gaps", MS),
            ("span", 8 * MS),
            ("latency", 9 * MS),
        ],
        MS,
        1 / 9,
        0.05,
        False,
        "These numbers do not add up: 1.00 ms (11.1 %) of the latency lie outside the operations' "
        "span.",
    )
    only = span_against_latency(spans[:1], {0: 9 * MS}, before={0: MS})
    assert only.terms[4:] == [("before the first launch", MS), ("latency", 9 * MS)]
    assert (only.ok, only.residual_ns) == (True, 0)
    assert only.text == (
        "Operations, overlaps and gaps explain 100 % of the latency of the same iteration."
    )
    near = span_against_latency([Span(0, 19, 0, 0, 19)], {0: 20})
    assert near.wording is not None and near.wording.figures == [0.95]


def test_small_spans_have_a_floor() -> None:
    short = [Span(0, 1000, 0, 0, 1000)]
    assert span_against_latency(short, {0: 101_000}).ok is True
    assert span_against_latency(short, {0: 101_001}).ok is False
    assert span_against_latency(short, {0: 21_001}, closure.DEVICE_FLOOR_NS).ok is False
    assert span_against_latency([Span(0, 0, 0, 0, 0)], {0: 0}).ok is True


def test_a_latency_of_nothing_is_not_checked() -> None:
    assert span_against_latency([], {}) == unchecked(
        "ii", "the capture holds no latency of the traced iterations"
    )
    assert span_against_latency([Span(0, 1, 0, 0, 1)], {7: 1}) == unchecked(
        "ii", "no iteration has both operations with start times and a latency"
    )


def test_phases_against_step_by_hand() -> None:
    steps = {0: 1000, 1: 1000, 2: 1000}
    phases = {"forward": {0: 400, 1: 400, 2: 400}, "backward": {0: 575, 1: 580}}
    # What no phase fills: 25, 20, and 600 in the step without a backward.
    assert beyond_phases(steps, phases) == (25, 0)
    assert phases_against_step(steps, phases) == Check(
        "ii", [("forward", 400), ("backward", 575), ("step", 1000)], 25, 0.025, 0.02, False,
        "These numbers do not add up: 25 ns of the step lie in no phase.",
    )  # fmt: skip
    lone = phases_against_step({2: 1000}, phases)
    assert lone.terms == [("forward", 400), ("backward", 0), ("step", 1000)]
    whole = phases_against_step({0: 1000}, {"forward": {0: 980}})
    assert (whole.ok, whole.text) == (True, "The phases add up to the step.")
    why = "the capture marks no steps or no phases"
    assert phases_against_step({}, phases) == unchecked("ii", why)
    assert phases_against_step({9: 1}, phases) == unchecked("ii", why)


def test_operators_against_a_phase_by_hand() -> None:
    inside = operators_against_phase({0: 700, 1: 1}, {0: 1000}, "forward")
    assert inside == Check(
        "ii", [("operators", 700), ("outside operators", 300), ("forward", 1000)], 0, 0.0, 0.02,
        True, "Operators and the time outside them add up to the forward.",
    )  # fmt: skip
    assert operators_against_phase({0: 1000}, {0: 1000}).terms[1] == ("outside operators", 0)
    assert operators_against_phase({0: 1020}, {0: 1000}).ok is True
    assert operators_against_phase({0: 1100}, {0: 1000}) == Check(
        "ii", [("operators", 1100), ("outside operators", 0), ("phase", 1000)], -100, -0.1, 0.02,
        False,
        "These numbers do not add up: the operators take 100 ns longer than the phase that they "
        "ran in.",
    )  # fmt: skip
    why = "the capture does not say how long each backward took"
    assert operators_against_phase({0: 1}, {1: 1}, "backward") == unchecked("ii", why)


SINGLE = "The times of single operations are those of the profiled run."
OWN_CLOCK = (
    "The times of its kernels are by the device's own clock; a capture by nsys beside it tells "
    "whether they stand."
)
UNSTEADY = "the machine was not steady from one run to the other, or profiling changed the speed"


def test_the_profilers_cost_by_hand() -> None:
    assert profiler_cost(stat(1100), stat(1000)) == Check(
        "iii", [("traced latency", 1100), ("unprofiled latency", -1000)], 100, 0.1, 0.1, True,
        "The profiled run took 10.0 % longer than the unprofiled one.",
        Wording("The profiled run took {} longer than the unprofiled one.", [0.1]),
    )  # fmt: skip
    less = profiler_cost(stat(999), stat(1000))
    assert less.text == "The profiled run took 0.1 % less than the unprofiled one."
    more = profiler_cost(stat(1001), stat(1000))
    assert more.text == "The profiled run took 0.1 % longer than the unprofiled one."
    same = profiler_cost(stat(1000), stat(1000))
    assert same.text == "The profiled run took as long as the unprofiled one."
    assert same.wording is None and same.residual_ns == 0
    why = "no unprofiled latency was measured"
    assert profiler_cost(stat(1), None) == unchecked("iii", why)
    why = "the profiled run recorded no latency"
    assert profiler_cost(None, stat(1)) == unchecked("iii", why)


@pytest.mark.parametrize(
    ("traced", "evidence", "waited", "why", "stands"),
    [
        (1500, "", None, UNSTEADY, SINGLE),
        (1500, "it drifts", None,
         "a series had not settled (it drifts), or profiling changed the speed", SINGLE),
        (1500, "it drifts", 500, "tracing slows the host down, for which the device waited 500 ns "
         "of the profiled run", OWN_CLOCK),
        (1500, "", 499, UNSTEADY, SINGLE),  # it waited for less than was lost
        (500, "", 9000, UNSTEADY, SINGLE),  # nothing was lost
    ],
)  # fmt: skip
def test_why_profiling_took_too_long(
    traced: int, evidence: str, waited: int | None, why: str, stands: str
) -> None:
    check = profiler_cost(stat(traced), stat(1000), evidence, waited)
    word = "longer" if traced > 1000 else "less"
    assert check.text == (
        f"These numbers do not add up: the profiled run took 50.0 % {word} than the unprofiled "
        f"one, more than the 10.0 % allowed: {why}. {stands}"
    )


def test_a_nanosecond_of_cost_is_explained_by_a_wait() -> None:
    check = profiler_cost(stat(2), stat(1), waited_ns=1)
    assert OWN_CLOCK in check.text
    assert profiler_cost(stat(0), stat(0)).ok is True
    assert profiler_cost(stat(5), stat(0)).residual_share is None


def test_on_a_device_every_row_counts_else_those_of_iterations() -> None:
    """A kernel outside of every iteration is in the raw file; the host's start-up is not."""
    start_up = [
        {**row, "iteration": None} for row in node("k", ["a"], [7], kind="kernel", self_ns=None)
    ]
    device = ops(
        node("k", ["a"], [10, 20], kind="kernel"), start_up,
        node("copy", ["a"], [5], kind="memcpy"), node("add", ["a"], [900], kind="op", self_ns=900),
    )  # fmt: skip
    assert counted(device) == {"kernel": 37, "memcpy": 5}
    host = ops(
        node("add", ["a"], [10, 20], kind="op", self_ns=8),
        [{**r, "iteration": None} for r in node("add", ["a"], [7], kind="op", self_ns=7)],
    )
    assert counted(host) == {"op": 16}
    unknown = ops(node("add", ["a"], [10], kind="op", self_ns=None))
    assert counted(unknown) == {"op": 0}


def test_what_no_module_gets_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [ops(node("a", ["a"], [10, 20]), node("?", None, [7])), ops(node("b", ["b"], [5]))]
    assert lost([]) == lost(parts) == 0
    assert lost([ops(node("a", ["a"], [10], kind="op", self_ns=None))]) == 0
    real = closure.sums

    def without_unresolved(part: Any, labels: Any) -> Any:
        found = real(part, labels)
        found.matrix[[k.modules is None for k in found.keys]] = 0
        return found

    monkeypatch.setattr(closure, "sums", without_unresolved)
    assert lost(parts) == 7
    assert lost(parts[::-1]) == 7
