"""The rows of a comparison: figures and texts worked out by hand, one test for each kind of row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from analysis_examples import node, ops
from measured_sides import measured_side

from layerline.analysis.comparison.build import Context, build
from layerline.analysis.costs.measured import MeasuredSide
from layerline.analysis.model.comparison import (
    Column,
    Comparison,
    Difference,
    LayerRow,
    ModuleRow,
    Node,
    Skipped,
    Sweep,
    SweepBest,
    SweepPoint,
    Unresolved,
)
from layerline.analysis.model.counters import Uncounted
from layerline.analysis.model.layer import MOVEMENT, Floor
from layerline.analysis.model.side import Model
from layerline.core import tables
from layerline.core.accuracy.limits import Asked, Verdict
from layerline.core.documents import ModuleError
from layerline.core.stats import Estimate

ENGINE, EAGER = "engine/fp16.x/inference", "eager/fp32/inference"
WHY = "no name, index, tensor or order tells which module it serves"


def side(*rows: Any, task: str = "eager", **more: Any) -> MeasuredSide:
    known: dict[str, Any] = {
        "task": task, "precision": "fp16" if task == "engine" else "fp32",
        "backend": "x", "phase": "inference", "label": task, "source": f"{task}.json",
    }  # fmt: skip
    return measured_side(ops(*rows), **{**known, **more})


def rows(view: Comparison) -> dict[str, ModuleRow]:
    return {r.id: r for r in view.modules}


def ns(costs: Any) -> dict[str, tuple[int, int]]:
    return {k: (c.own.median, c.upper.median) for k, c in costs.items()}


def test_a_module_row_says_where_it_is_and_what_is_inside() -> None:
    layers = tables.table(
        "layers", [layer_row("one", ["h.0.a", "h.0.b"]), layer_row("two", ["h.0.b", "h.1"])]
    )
    side_ = side(
        node("one", ["h.0.a", "h.0.b"], [10] * 6),
        node("two", ["h.0.b", "h.1"], [20] * 6),
        node("own", ["h.0"], [5] * 6),
        layers=layers,
    )
    view = build([side_], Model("m", ["h.0.b", "h.0.a"], {"h.0": "Block", "h.0.a": "Linear"}))
    found = rows(view)
    assert list(found) == [
        "module:", "module:h", "block:h.0.a+h.0.b+h.1", "module:h.0", "block:h.0",
        "module:h.0.b", "module:h.0.a", "module:h.1",
    ]  # fmt: skip
    costs = found["module:h"].costs
    assert found["module:h"] == ModuleRow(
        "module:h", "module:", "h", "h", None, "module", 1, [], costs, []
    )
    assert ns(costs) == {EAGER: (35, 35)}
    a = found["module:h.0.a"]
    assert a == ModuleRow(
        "module:h.0.a", "module:h.0", "a", "h.0.a", "Linear", "module", 3, [], a.costs,
        [f"{EAGER}#0"],
    )  # fmt: skip
    assert ns(a.costs) == {EAGER: (0, 10)}
    assert found["module:"].parent is None and found["module:"].depth == 0
    assert found["module:h.0"].module_class == "Block" and found["module:h.0"].layers == []
    assert found["module:h.0.b"].layers == [f"{EAGER}#0", f"{EAGER}#1"]
    block = found["block:h.0.a+h.0.b+h.1"]
    assert block == ModuleRow(
        "block:h.0.a+h.0.b+h.1", "module:h", "0.a + 0.b + 1", "h", None, "block", 2,
        ["h.0.a", "h.0.b", "h.1"], block.costs, [f"{EAGER}#0", f"{EAGER}#1"],
    )  # fmt: skip
    own = found["block:h.0"]
    assert own == ModuleRow(
        "block:h.0", "module:h.0", "own operations", "h.0", None, "block", 3, ["h.0"], own.costs, []
    )
    assert ns(own.costs) == {EAGER: (5, 5)}


def test_a_block_names_its_members_below_their_common_parent() -> None:
    """Of a module with children its own operations are meant."""
    view = build(
        [side(
            node("f", ["h.0", "h.0.a"], [1]), node("g", ["h.1", "h.1.a", "x"], [1]),
            node("r", ["", "y"], [1]),
        )],
        Model("m"),
    )  # fmt: skip
    names = {r.id: r.name for r in view.modules if r.kind == "block"}
    assert names == {
        "block:h.0+h.0.a": "own operations + a",
        "block:h.1+h.1.a+x": "h.1 (own operations) + h.1.a + x",
        "block:+y": "own operations + y",
    }


def test_two_leaves_with_a_common_layer_are_a_block_and_one_alone_is_none() -> None:
    view = build([side(node("f", ["a", "b"], [1]), node("c", ["c"], [1]))], Model("m"))
    assert [r.id for r in view.modules if r.kind == "block"] == ["block:a+b"]


def test_rows_that_are_no_modules_stand_in_the_order_of_a_step() -> None:
    names = ["zeta", "gradient sums", "optimizer", "alpha", "loss", "unresolved"]
    one = side(
        *(node(n, [], [10 * (i + 1)] * 6) for i, n in enumerate(names)),
        labels=pa.array([n for n in names for _ in range(6)]),
        outside_ns={2: 300, 0: 100, 1: 200},
    )
    two = side(node("l", [], [7] * 6), task="engine", labels=pa.array(["loss"] * 6))
    view = build([one, two], Model("m"))
    found = [r for r in view.modules if r.kind == "row"]
    assert [r.id for r in found] == [
        "row:loss", "row:optimizer", "row:gradient sums", "row:alpha", "row:zeta",
        "row:unresolved", "row:outside operators",
    ]  # fmt: skip
    loss = Estimate(50, 50, 50, 6)
    costs = found[0].costs
    assert found[0] == ModuleRow("row:loss", None, "loss", "", None, "row", 0, [], costs, [])
    assert ns(costs) == {EAGER: (50, 50), ENGINE: (7, 7)}
    assert costs[EAGER].own.figures() == loss.figures() and costs[EAGER].share == 50 / 210
    assert costs[ENGINE].share == 1
    outside = found[-1].costs
    assert ns(outside) == {EAGER: (200, 200)} and outside[EAGER].share is None


def test_kinds_are_what_repeats_or_has_operations_of_its_own() -> None:
    """The most expensive first; of several classes the kind has none."""
    classes = {"h.0": "Block", "h.1": "Block", "h.0.a": "A", "h.1.a": "B", "top": "Top"}
    one = side(
        node("a", ["h.0.a"], [10] * 6),
        node("b", ["h.1.a"], [20] * 6),
        node("t", ["top"], [40] * 6),
        node("s", ["single.inner"], [5] * 6),
        node("o", ["single"], [100] * 6),
    )
    two = side(
        node("a", ["h.0.a"], [300] * 6), node("x", ["only.in"], [1] * 6), task="engine"
    )  # fmt: skip
    paths = ["h", "h.0", "h.0.a", "h.1", "h.1.a", "h.2", "top", "unused.0", "unused.1"]
    view = build([one, two], Model("m", paths, classes))
    assert [(k.name, k.module_class, k.count, ns(k.costs)) for k in view.kinds] == [
        ("h.*", None, 3, {EAGER: (30, 30), ENGINE: (300, 300)}),
        ("h.*.a", None, 2, {EAGER: (30, 30), ENGINE: (300, 300)}),
        ("single", None, 1, {EAGER: (105, 105)}),
        ("top", "Top", 1, {EAGER: (40, 40)}),
        ("single.inner", None, 1, {EAGER: (5, 5)}),
        ("only.in", None, 1, {ENGINE: (1, 1)}),
    ]
    (alike,) = build([side(node("a", ["h.0"], [1]))], Model("m", ["h.0", "h.1"], classes)).kinds
    assert (alike.name, alike.module_class, alike.count) == ("h.*", "Block", 2)


def test_an_operation_of_several_modules_of_a_kind_is_counted_once() -> None:
    one = side(
        node("f", ["h.0.a", "h.1.a"], [10] * 6),
        node("g", ["h.0.a", "x"], [4] * 6),
        node("y", ["y"], [1] * 6),
    )
    kinds = build([one], Model("m")).kinds
    assert [k.name for k in kinds] == ["h.*", "h.*.a", "y", "x"]
    assert {k.name: ns(k.costs) for k in kinds} == {
        "h.*": {EAGER: (10, 14)}, "h.*.a": {EAGER: (10, 14)}, "y": {EAGER: (1, 1)},
        "x": {EAGER: (0, 4)},
    }  # fmt: skip


def layer_row(name: str, modules: list[str] | None, **more: Any) -> dict[str, Any]:
    return {"source": "e", "layer": name, "modules": modules, "calls": 1, "median_ns": 20, **more}


def test_a_layer_row_has_what_is_known_and_says_what_is_not() -> None:
    layers = tables.table(
        "layers",
        [
            {
                "source": "e", "layer": "one", "kind": "Gemm", "rule": "name", "nodes": ["n1"],
                "modules": ["a"], "calls": 12, "kernels": 3, "median_ns": 25, "ci_low_ns": 20,
                "ci_high_ns": 30, "precision_in": "fp16", "precision_out": "fp32",
                "compute_precision": "tf32", "tactic": "t",
            },
            {"source": "e", "layer": "two", "calls": 0},
        ],
    )  # fmt: skip
    engine = side(
        node("one", ["a"], [25] * 6), node("?", None, [75] * 6), task="engine", layers=layers
    )
    view = build([side(node("a", ["a"], [9])), engine], Model("m"))
    assert view.layers == [
        LayerRow(
            f"{ENGINE}#0", ENGINE, "one", "Gemm", "name", ["n1"], ["a"], 12, 3,
            Estimate(25, 20, 30, 6), 0.25, "fp16", "fp32", "tf32", "t", None,
        ),
        LayerRow(
            f"{ENGINE}#1", ENGINE, "two", "unknown", "unresolved", [], [], 0, None,
            Estimate(None, None, None, 0), None, None, None, None, None, None,
        ),
    ]  # fmt: skip
    assert rows(view)["module:a"].layers == [f"{ENGINE}#0"]


def test_what_moves_data_has_no_floor_also_where_it_shares_a_layers_name() -> None:
    layers = [layer_row("l", ["a"], kind="Gemm"), layer_row("l", ["a"], kind=MOVEMENT)]
    floor = Floor(1.0, 2.0)
    measured = side(node("l", ["a"], [1]), layers=tables.table("layers", layers), task="engine")
    view = build([replace(measured, floors={"l": floor})], Model("m"))
    assert [x.floor for x in view.layers] == [floor, None]


def test_nodes_and_what_they_lack() -> None:
    nodes = [
        {"name": "n", "op": "Add", "module": "a", "status": "fused", "layer": "l"},
        {"name": "m"},
    ]
    view = build([side(task="engine", nodes=nodes), side(nodes=nodes[1:])], Model("m"))
    assert view.nodes == [
        Node(ENGINE, "n", "Add", "a", "fused", "l"),
        Node(ENGINE, "m", "", None, "missing", None),
        Node(EAGER, "m", "", None, "missing", None),
    ]


def test_unresolved_operations_by_name_the_largest_first() -> None:
    """By their layer, else by their name; those of a module or of a row that is known are none."""
    one = side(
        node("none", None, [0, 0, 0]),
        node("least", None, [1, 1, 1]),
        node("small", None, [1, 2, 3]),
        node("big", None, [20, 20, 20]),
        node("big", None, [30, 30, 30]),
        [{**r, "layer": None} for r in node("bare", None, [9, 9, 9])],
        [{**r, "layer": None, "name": None} for r in node("bare", None, [2, 2, 2])],
        node("known", [], [500, 500, 500]),
        node("a", ["a"], [36, 36, 36]),
        labels=pa.array(["unresolved"] * 21 + ["loss"] * 3 + ["unresolved"] * 3),
    )
    view = build([one, side(node("a", ["a"], [1]), task="engine")], Model("m"))
    total = 1 + 2 + 50 + 9 + 2 + 500 + 36
    assert view.unresolved == [
        Unresolved(EAGER, name, t, pytest.approx(t / total), WHY)
        for name, t in (
            ("big", 50),
            ("bare", 9),
            ("small", 2),
            ("unnamed", 2),
            ("least", 1),
            ("none", 0),
        )
    ]


# --- verdicts, sweeps, counters ------------------------------------------------------------------


def parity(**more: Any) -> dict[str, Any]:
    return {"cosine": 0.9995, "random_weights": False, **more}


def test_outputs_are_held_to_what_was_asked_for_else_recorded_else_the_default() -> None:
    def verdict(of: dict[str, Any] | None, asked: Asked = Asked(), **more: Any) -> Any:  # noqa: B008
        (found,) = build([side(task="engine", parity=of, **more)], Model("m"), limits=asked).sides
        return found.outputs

    assert verdict(None) is None
    assert verdict(parity()) == Verdict(True)
    assert verdict(parity(), Asked(cosine={"": 0.9999})).ok is False
    assert verdict(parity(), Asked(cosine={"fp16": 0.9999})).ok is False
    assert verdict(parity(), Asked(cosine={"fp32": 0.9999})).ok is True
    assert verdict(parity(limits={"cosine": 0.9999, "top1": 0.5})).ok is False
    assert verdict(parity(), precision="fp32").ok is False  # fp32's limit is 0.9999


def test_a_module_that_is_wrong_makes_outputs_wrong_that_are_within_the_limits() -> None:
    wrong = ModuleError(
        module="a", tensor="t", error_in=0.0, error_out=1.0, nonfinite=0, first_wrong=True, how="x"
    )
    (found,) = build(
        [side(task="engine", parity=parity(random_weights=True), errors={"a": wrong})], Model("m")
    ).sides
    assert found.wrong and "a module's are not" in (found.outputs or Verdict(None)).why


def point(key: str) -> SweepPoint:
    unknown: dict[str, Any] = dict.fromkeys(SweepPoint.__dataclass_fields__)
    return SweepPoint(**{**unknown, "key": key, "label": key, "batch": 8})


def best(key: str) -> SweepBest:
    return SweepBest(key, key, 8, 1.0, 1.0, 1.0, 1, [], True)


def test_no_batch_of_a_wrong_engine_is_best() -> None:
    swept = Sweep([point("fp16.x"), point("fp32.x")], [best("fp16.x"), best("fp32.x")], [], ["r"])
    right, wrong = side(task="engine"), side(task="engine", parity={"cosine": 0.0}, label="X16")
    assert build([right], Model("m"), sweep=swept).sweep == swept
    assert build([wrong], Model("m")).sweep is None
    found = build([wrong, side(task="engine", precision="fp32")], Model("m"), sweep=swept).sweep
    assert found == Sweep(
        swept.points,
        [best("fp32.x")],
        [],
        ["r", "X16 does not compute what eager does: no batch of it is best"],
    )
    other = Sweep([point("fp32.x")], [best("fp32.x")], [], [])
    assert build([wrong], Model("m"), sweep=other).sweep == other


def test_sides_without_counters_say_why() -> None:
    why = Uncounted(ENGINE, "X", "no ncu", "install it", False)
    found = build([side(task="engine")], Model("m"), counters=[why]).counters
    assert found is not None and (found.sides, found.uncounted) == ([], [why])
    assert build([side(task="engine")], Model("m")).counters is None


def test_an_engine_that_is_wrong_is_compared_with_nothing() -> None:
    times = {"latency_ns": [100, 101, 102, 103, 104, 105]}
    eager = side(node("a", ["a"], [50] * 6), **times)
    right = side(node("a", ["a"], [20] * 6), task="engine", **times)
    assert [(r.over, r.under) for r in build([eager, right], Model("m")).ratios] == [
        (EAGER, ENGINE)
    ]
    wrong = side(node("a", ["a"], [20] * 6), task="engine", parity={"cosine": 0.1}, **times)
    view = build([eager, wrong], Model("m"))
    assert view.ratios == [] and [s.wrong for s in view.sides] == [False, True]


def test_what_a_ratio_saves_leaves_out_what_is_not_resolved() -> None:
    times = {"latency_ns": [100, 101, 102, 103, 104, 105]}
    eager = side(node("a", ["a"], [50] * 6), node("?", None, [3] * 6), **times)
    engine = side(node("a", ["a"], [20] * 6), node("?", None, [7] * 6), task="engine", **times)
    (found,) = build([eager, engine], Model("m")).ratios
    assert found.lead and [(p.name, p.at_least_ns) for p in found.saves] == [("a", 50 - 20 - 7)]
    engine = side(node("a", ["a"], [20] * 6), task="engine", **times)
    (found,) = build([eager, engine], Model("m")).ratios
    assert [(p.name, p.at_least_ns) for p in found.saves] == [("a", 50 - 20)]


def test_what_is_given_is_kept() -> None:
    bent = [Difference("load", "1", "2", "x", [EAGER])]
    left = [Skipped("counters", "no ncu", None)]
    beside = [Column("k", "K", "note", None, "ns", {"a": 1.0})]
    context = Context("now", {"a": 1}, bent, left, beside, {EAGER: 0.25})
    view = build([side(node("a", ["a"], [1]))], Model("title"), context)
    assert (view.title, view.manifest, view.generated) == ("title", {"a": 1}, "now")
    assert view.load == {EAGER: 0.25} and list(view.partitions) == [EAGER]
    assert (view.comparability, view.skipped, view.columns) == (bent, left, beside)
    nothing = build([], Model("m", ["a"]))
    assert nothing.manifest == {} and nothing.modules == []
