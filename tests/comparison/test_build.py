"""The view: every number that the report shows, from two small sides worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import rendering
from analysis_examples import node, ops, three_modules
from measured_sides import measured_side

from layerline.analysis.comparison import savings
from layerline.analysis.comparison.build import Context, build
from layerline.analysis.costs.iterations import stat
from layerline.analysis.costs.layers import of_ops
from layerline.analysis.costs.measured import MeasuredSide
from layerline.analysis.model.comparison import Check, Comparison, Kind
from layerline.analysis.model.side import Model
from layerline.analysis.report import headline
from layerline.analysis.report.headline import Sentence

ENGINE, EAGER = "engine/fp16.ort/inference", "eager/fp32/inference"


def engine(**more: Any) -> MeasuredSide:
    table = three_modules()
    described = [
        {"name": "a", "kind": "Gemm", "compute_precision": "fp32"},
        {"name": "c", "kind": "Gemm", "compute_precision": "fp16"},
        {"name": "d", "kind": "movement", "precision_in": "int64"},
    ]
    facts: dict[str, Any] = {
        "task": "engine",
        "label": "ort fp16",
        "precision": "fp16",
        "phase": "inference",
        "backend": "ort",
        "source": "x.json",
        "ops": table,
        "latency_ns": [150, 151, 152, 153, 154, 155],
        "traced_ns": {0: 160, 1: 170, 2: 180},
        "layers": of_ops(table, "fp16.ort", described),
        "nodes": [{"name": "a/Op", "op": "Op", "module": "a", "status": "executed", "layer": "a"}],
    }
    return measured_side(**{**facts, **more})


def eager(**more: Any) -> MeasuredSide:
    table = ops(
        node("mm", ["a"], [40, 40, 40], kind="op", self_ns=40),
        node("mm2", ["b.c"], [300, 300, 300], kind="op", self_ns=300),
        node("add", ["b"], [9, 9, 9], kind="op", self_ns=9),
        node("noise", None, [2, 2, 2], kind="op", self_ns=2),
        node("sgd", [], [20, 20, 20], kind="op", self_ns=20),
    )
    labels = ["optimizer" if m == [] else "unresolved" for m in table["modules"].to_pylist()]
    facts: dict[str, Any] = {
        "task": "eager",
        "label": "eager fp32",
        "precision": "fp32",
        "phase": "inference",
        "backend": "torch",
        "source": "e.json",
        "ops": table,
        "labels": pa.array(labels),
        "latency_ns": [450, 451, 452, 453, 454, 455],
        "outside_ns": {0: 50, 1: 60, 2: 70},
    }
    return measured_side(**{**facts, **more})


@pytest.fixture
def view() -> Comparison:
    model = Model("tiny, 1×8", ["", "a", "b", "b.c", "b.d"], {"b.c": "Linear"})
    return build([engine(), eager()], model, Context("2026-01-01T00:00:00+00:00"))


def row(view: Comparison, identity: str) -> Any:
    (found,) = [r for r in view.modules if r.id == identity]
    return found


def test_it_is_plain_json(view: Comparison) -> None:
    text = json.dumps(msgspec.to_builtins(view), allow_nan=False)
    assert json.loads(text) == json.loads(msgspec.json.encode(view))


def test_modules_in_preorder_with_blocks_below_their_common_parent(view: Comparison) -> None:
    assert [r.id for r in view.modules] == [
        "module:",
        "block:a+b.c",
        "module:a",
        "module:b",
        "block:b",
        "module:b.c",
        "module:b.d",
        "row:optimizer",
        "row:unresolved",
        "row:outside operators",
    ]


def test_costs_by_hand(view: Comparison) -> None:
    a = row(view, "module:a").costs
    assert a[ENGINE].own.median == 20 and a[ENGINE].shared == 5
    assert a[ENGINE].share == pytest.approx(25 / 134)  # totals 123, 134, 148
    assert a[EAGER].own.median == 40 and a[EAGER].shared == 0
    whole = row(view, "module:").costs
    assert (whole[ENGINE].own.median, whole[EAGER].own.median) == (127, 349)
    assert row(view, "module:b").costs[EAGER].own.median == 309


def test_a_block_is_exact_on_both_sides(view: Comparison) -> None:
    block = row(view, "block:a+b.c")
    assert block.members == ["a", "b.c"] and block.parent == "module:"
    # 10+5+100, 20+5+100, 30+5+100; and 40 + 300.
    assert [(block.costs[k].own.median, block.costs[k].shared) for k in (ENGINE, EAGER)] == [
        (125, 0),
        (340, 0),
    ]


def test_own_operations_of_a_module_with_children_are_a_block(view: Comparison) -> None:
    own = row(view, "block:b")
    assert own.name == "own operations" and own.members == ["b"]
    assert own.costs == {EAGER: replace(own.costs[EAGER], own=stat([9] * 3))}


def test_a_side_that_ran_nothing_for_a_module_has_no_cost_there(view: Comparison) -> None:
    assert EAGER not in row(view, "module:b.d").costs


def test_rows_that_are_no_modules(view: Comparison) -> None:
    assert row(view, "row:optimizer").costs[EAGER].own.median == 20
    outside = row(view, "row:outside operators").costs[EAGER]
    assert outside.own.median == 60 and outside.share is None
    lost = row(view, "row:unresolved").costs
    assert (lost[ENGINE].own.median, lost[EAGER].own.median) == (7, 2)


def test_unresolved_time_is_named_and_counts_against_coverage(view: Comparison) -> None:
    by_side = {u.side: u for u in view.unresolved}
    assert (by_side[ENGINE].name, by_side[ENGINE].ns) == ("?", 7)
    assert (by_side[EAGER].name, by_side[EAGER].ns) == ("noise", 2)
    engine_side, eager_side = view.sides
    assert engine_side.coverage == pytest.approx(1 - 21 / 405)
    assert engine_side.unresolved_ns == 7 and engine_side.operation_ns == 134
    assert eager_side.coverage == pytest.approx(1 - 2 / 371)


def test_precision_that_ran_is_weighed_by_time(view: Comparison) -> None:
    run = view.sides[0].precision_run
    # a 60, c 300, 15 + 21 that no layer describes; d (9) is known to compute nothing.
    assert run == {"fp16": 300 / 396, "fp32": 60 / 396, "unknown": 36 / 396}


def test_a_leafs_layers_are_those_wholly_or_partly_inside(view: Comparison) -> None:
    names = {r.id: r.layer for r in view.layers}
    assert {names[i] for i in row(view, "module:a").layers} == {"a", "a+c"}
    assert row(view, "module:b").layers == []
    assert [i.partition("#")[0] for i in names] == [ENGINE] * 5


def test_ratio_of_latencies_with_an_interval(view: Comparison) -> None:
    (r,) = view.ratios
    assert (r.over, r.under) == (EAGER, ENGINE)
    assert r.ratio == pytest.approx(452 / 152)  # medians 452.5 and 152.5 rounded to even
    assert (r.low, r.high) == (450 / 155, 455 / 150)


def test_the_noise_of_building_is_in_the_interval_of_a_ratio() -> None:
    view = build([engine(rebuild_noise=0.1), eager()], Model("m"))
    (r,) = view.ratios
    # The engine's 150 to 155 ns become 135 to 170 (155 * 1.1 = 170.5, rounded to even).
    assert (r.low, r.high) == (450 / 170, 455 / 135)
    assert view.sides[0].latency.low == 150


def test_headline_says_how_much_where_and_how_sure(view: Comparison) -> None:
    first, second, *_, last = (h.text for h in rendering.headline(view))
    assert first.startswith("ort fp16 is 2.97× as fast as eager fp32 (152 ns against 452 ns; 95 %")
    # a: 40 - 25 - 7; b.c: 300 - 105 - 7: what is unresolved (7 ns) may be either's.
    assert "saves most in b.c (at least 188 ns), a (at least 8 ns)" in second
    assert "was not checked" in last


def test_headline_is_not_significant_by_accident() -> None:
    noisy = [600, 100, 150, 150, 100, 600]
    view = build(
        [engine(latency_ns=noisy), eager(latency_ns=[500, 130, 160, 170, 120, 600])], Model("m")
    )
    first = rendering.headline(view)[0]
    assert "not distinguishable" in first.text and first.tone == "neutral"


def test_headline_without_an_interval_says_so() -> None:
    view = build([engine(latency_ns=[100]), eager(latency_ns=[1000])], Model("m"))
    assert "with no interval to say how sure that is" in rendering.headline(view)[0].text


def test_headline_of_a_slower_engine_is_bad_news() -> None:
    view = build([engine(latency_ns=[900] * 6), eager()], Model("m"))
    assert "takes 1.99× as long as" in rendering.headline(view)[0].text
    assert rendering.headline(view)[0].tone == "bad"


def test_a_check_that_failed_is_in_the_headline() -> None:
    check = Check("i", [], 9, 0.5, 0.1, False, "These numbers do not add up: x.")
    view = build([engine(checks=[check]), eager()], Model("m"))
    where = rendering.headline(view)[1]
    assert where.text.startswith("As profiled, with checks that failed: ")
    assert where.tone == "neutral"
    assert rendering.headline(view)[-1] == Sentence(
        text="These numbers do not add up: operations are not counted once (ort fp16). "
        "See the checks.",
        tone="bad",
    )


def test_nothing_captured_gives_an_empty_view() -> None:
    view = build([], Model("m"))
    assert view.modules == [] and view.sides == []


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "unknown"),
        (0, "0 ns"),
        (999, "999 ns"),
        (1234, "1.23 µs"),
        (12_345_678, "12.3 ms"),
        (123_456_789, "123 ms"),
        (1_500_000_000, "1.50 s"),
        (-2500, "-2.50 µs"),
    ],
)
def test_times_for_people(ns: int | None, text: str) -> None:
    assert headline.time(ns) == text


def test_nested_kinds_are_not_counted_twice() -> None:
    def kind(name: str) -> Any:
        return Kind(name, None, 2, {})

    names = ["h.*", "h.*.attn", "h.*.attn.q", "h.*.mlp", "wte", "enc", "enc.x"]
    assert [k.name for k in savings.disjoint([kind(n) for n in names])] == [
        "h.*.attn",
        "h.*.mlp",
        "wte",
        "enc.x",
    ]
