"""Doubt is shown wherever its number is: phases of a step, ratios, heads of tables, cells."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import rendering
import report_views as views
from analysis_examples import node, ops
from captured import eager_of
from measured_sides import measured_side
from run_by_hand import outcome, write_run

from layerline.analysis import formatting
from layerline.analysis.comparison import lead
from layerline.analysis.comparison.build import build
from layerline.analysis.costs.measured import MeasuredSide
from layerline.analysis.model.comparison import Comparison, Ratio
from layerline.analysis.model.side import Model
from layerline.analysis.report import answer, cells, contents, doubts, headline, ledger, payload
from layerline.analysis.report.screen import screens
from layerline.analysis.rundir.problems import Problems
from layerline.core.files import write_json
from layerline.core.run import open_run
from layerline.core.stats import Estimate

MS = 1_000_000
# Its interval, from order statistics of ten, is the 2nd to the 9th: 44 to 56, ±12 %.
WIDE = [ms * MS for ms in (50, 44, 56, 47, 53, 43, 57, 49, 51, 45)]
TIMES = [100, 101, 99, 100, 102, 98, 100, 101]


def a_side(key: str, label: str, phase: str, latency: list[int], **more: Any) -> MeasuredSide:
    table = ops(node("mlp", ["mlp"], [us * 1000 for us in TIMES]))
    precision = label.split()[1]
    facts: dict[str, Any] = {
        "task": key.split("/")[0],
        "label": label,
        "precision": precision,
        "phase": phase,
        "backend": key.split("/")[1].partition(".")[2] or "torch",
        "source": "x.json",
        "ops": table,
        "labels": pa.array(["unresolved"] * len(table)),
        "latency_ns": latency,
        "target": 0.05,
        "precision_run": {precision: 1.0},
    }
    return measured_side(**{**facts, **more})


def made(*sides: MeasuredSide) -> Comparison:
    return build(list(sides), Model("m", ["", "mlp"]))


def steady(ns: int) -> list[int]:
    return [ns * t // 100 for t in TIMES]


def _trace() -> dict[str, Any]:
    """Two steps of a forward and a backward with one operator each."""
    events: list[dict[str, Any]] = []

    def add(cat: str, name: str, ts: float, dur: float) -> None:
        one = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}
        events.append({**one, "args": {}})

    for i in range(2):
        t = 10_000 * i
        add("user_annotation", f"layerline/iteration/{i}", t, 4000)
        for k, phase in enumerate(("forward", "backward")):
            add("user_annotation", f"layerline/phase/{phase}", t + 2000 * k + 1, 1900)
            add("user_annotation", "layerline/module/a", t + 2000 * k + 5, 1800)
            add("cpu_op", "aten::linear", t + 2000 * k + 10, 1700)
    return {"schemaVersion": 1, "traceEvents": events}


def test_phases_of_a_step_are_held_to_what_was_asked_for_the_step(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", create=True)
    path = run.file("captures", "train.fp32.trace.json.gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(_trace()).encode()))
    latency = {
        "latency_ns": steady(100 * MS),
        "phases_ns": {"forward": WIDE, "backward": steady(40 * MS)},
        "target": 0.1,
    }
    write_json(run.file("captures", "train.fp32.latency.json"), latency)
    view = build(eager_of(run, "train", "fp32", Problems()).sides, Model("m", ["", "a"]))
    assert {s.steadiness and s.steadiness.target for s in view.sides} == {0.1}
    faults = {s.phase: list(lead.faults(s)) for s in view.sides}
    assert "has an interval wider than asked" in faults["forward"][-1]
    assert faults["backward"] == faults["step"] == []
    # In the ledger, in its sentences, in the headline and over the modules' column.
    text = rendering.markdown(view)
    assert "? 49.5 ms (44.0 – 56.0 ms, n 10)" in text
    assert "- ? eager fp32 forward, latency: Not settled: it has an interval wider" in text
    (said,) = [h for h in rendering.headline(view) if h.text.startswith("Latencies that have not")]
    assert "eager fp32 forward has an interval wider than asked" in said.text
    head = next(x for x in text.split("## Modules")[1].splitlines() if x.startswith("| module"))
    assert "? eager fp32 forward" in head and "? eager fp32 backward" not in head


@pytest.mark.parametrize("beside", [[], ["parameters"]])
def test_steps_that_counted_changes_of_parameters_are_said_to_be_longer(
    tmp_path: Path, beside: list[str]
) -> None:
    run = open_run(tmp_path / "run", create=True)
    path = run.file("captures", "train.fp32.trace.json.gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(_trace()).encode()))
    latency = {"latency_ns": steady(100 * MS), "beside": beside}
    write_json(run.file("captures", "train.fp32.latency.json"), latency)
    assert outcome("report", run.path) == 0
    view = build(eager_of(run, "train", "fp32", Problems()).sides, Model("m", ["", "a"]))
    (step,) = [s for s in view.sides if s.phase == "step"]
    (traced,) = [c for c in step.checks if c.name == "iii"]
    text = run.file("report", "report.md").read_text()
    assert (traced.ok is None) is bool(beside)
    assert ("Latency while changes of parameters are counted" in text) is bool(beside)
    assert ("a training without it is shorter" in text) is bool(beside)


def test_loads_too_far_apart_for_an_interval_are_said_and_have_none(tmp_path: Path) -> None:
    write_run(tmp_path)
    loads = {"latency_ns": [ns for ns in (330_000, 595_000, 920_000) for _ in range(8)]}
    path = tmp_path / "captures/fp16.onnxruntime.latency.json"
    write_json(path, {**loads, "processes": [{"n": 8}] * 3})
    assert outcome("report", tmp_path) == 0
    figures = json.loads((tmp_path / "report/summary.json").read_text())["engines"]
    (found,) = [f for f in figures.values() if f["latency_median_ns"] == 595_000]
    assert (found["latency_low_ns"], found["latency_high_ns"]) == (None, None)
    text = (tmp_path / "report/report.md").read_text()
    assert "595 µs for 2.90 ms (no interval)." in text and "? 595 µs (no interval, n 24)" in text
    assert "it has no interval: its 3 processes lie too far apart (330 µs to 920 µs)" in text


def test_a_profiled_series_that_has_not_settled_is_marked_too() -> None:
    traced = dict(enumerate([10 * MS, 30 * MS] * 5))
    side = a_side("eager/fp32/step", "eager fp32 step", "step", steady(9 * MS), traced_ns=traced)
    (shown,) = made(side).sides
    rows = {r.label: r.cells[0] for r in ledger.groups([shown])[0].rows}
    assert rows["Unprofiled"].tone == "" and rows["Traced"].tone == "none"
    (said,) = doubts.series(shown)
    assert said.startswith("while traced it has two levels: 50.0 % of samples near 10.0 ms")
    data = payload.build(made(side))
    assert data["sides"][0]["doubt"] == said


def test_the_sentence_of_a_step_that_has_not_settled_says_so() -> None:
    side = a_side("eager/fp32/step", "eager fp32 step", "step", [10 * MS, 90 * MS] * 5)
    said, more = rendering.headline(made(side))[:2]
    assert said.tone == headline.UNSURE
    assert said.text.startswith("eager fp32 step takes 50.0 ms")
    assert "; not settled: has two levels: 50.0 % of samples near 10.0 ms" in said.text
    assert more.text.startswith("Operations of eager fp32 step take ")


def _alike(**more: Any) -> Comparison:
    """Eager 8 ms ± 2 %, an engine 7 to 10 ms that computed little in its precision."""
    eager = a_side("eager/fp16/inference", "eager fp16", "inference", steady(8 * MS))
    other = [8 * MS, 7 * MS, 10 * MS, 9 * MS, 7 * MS, 10 * MS, 8 * MS, 9 * MS]
    slow = a_side("engine/fp16.cpu/inference", "CPU fp16", "inference", other, **more)
    fast = a_side("engine/fp16.trt/inference", "TRT fp16", "inference", steady(2 * MS))
    return made(eager, slow, fast)


def test_a_ratio_whose_interval_holds_one_is_never_shown_as_a_difference() -> None:
    view = _alike(precision_run={"fp32": 0.96, "fp16": 0.04})
    (ratio,) = [r for r in view.ratios if r.under.startswith("engine/fp16.cpu")]
    assert ratio.low < 1 < ratio.high
    (said,) = [h.text for h in rendering.headline(view) if h.text.startswith("CPU fp16: only")]
    assert "it is not distinguishable from eager fp16 (ratio 0.94×, 95 % interval " in said
    assert "as fast" not in said
    (row,) = [r for r in answer.comparisons(view) if r["side"] == "CPU fp16"]
    assert row["note"].startswith("not distinguishable; only 4.0 % was computed in fp16")
    (screen,) = [s for s in screens.of(view) if s.option.startswith("CPU fp16 with eager fp16")]
    assert "cannot be told apart from eager fp16" in screen.answer.text
    assert "×" not in screen.answer.text
    assert "not distinguishable (95 %: " in screen.line[0]


@pytest.mark.parametrize(
    ("ratio", "alike"),
    [((0.43, 1.16), True), ((1.0, 1.2), True), ((1.01, 1.2), False), ((None, None), False)],
)
def test_alike_is_told_by_the_interval(ratio: Any, alike: bool) -> None:
    low, high = ratio
    found = Ratio(over="a", under="b", ratio=0.68, low=low, high=high)
    assert lead.alike(found) is alike


def test_a_sentence_is_never_cut_within_a_word() -> None:
    text = "95 %: 0.43 to 1.16; only 0.06 % was computed in fp16; not settled: ONNX Runtime fp16"
    assert formatting.words(text, 200) == text
    for limit in range(20, len(text)):
        cut = formatting.words(text, limit)
        assert cut.endswith("…") and len(cut) <= limit
        kept = cut[:-1]
        assert text.startswith(kept) and not text[len(kept)].isalnum()


def test_the_tables_tell_what_can_be_read_across_and_where_intervals_are() -> None:
    view = views.gpt2(2)
    both = rendering.markdown(view), rendering.html(view)
    for note in contents.NOTES:
        assert all(text.count(note.replace("'", "&#39;")) + text.count(note) for text in both)
    assert "`own_low_ns` to `own_high_ns`" in both[0]
    assert contents.LOOSE not in both[0]  # nothing is marked


def test_intervals_of_cells_are_on_the_page_and_in_the_summary() -> None:
    table = ops(
        node("a", ["mlp"], [us * 1000 for us in TIMES]),
        node("x", ["mlp", "attn"], [us * 500 for us in TIMES]),
    )
    labels = pa.array(["unresolved"] * len(table))
    side = a_side("engine/fp32.x/inference", "E fp32", "inference", [], ops=table, labels=labels)
    view = build([side], Model("m", ["", "mlp", "attn"]))
    # The ends of eight: 98 and 102; own 98 to 102 µs, with half as much that is shared 147 to 153.
    found = rendering.summary(view)["modules"][side.key]["mlp"]
    assert found == {
        "own_ns": 100_000,
        "own_low_ns": 98_000,
        "own_high_ns": 102_000,
        "shared_ns": 50_000,
        "upper_low_ns": 147_000,
        "upper_high_ns": 153_000,
    }
    assert rendering.summary(view)["kinds"][side.key]["mlp"] == found
    row = next(m for m in view.modules if m.path == "mlp")
    text = "95 %: own 98.0 – 102 µs, with shared 147 – 153 µs"
    assert cells.cost_interval(row.costs[side.key]) == text
    page = rendering.html(view).replace("\N{NO-BREAK SPACE}", " ")
    assert f'<small class="ci">{text}</small>' in page
    few = replace(row.costs[side.key], own=Estimate(100_000, n=3))
    assert cells.cost_interval(few) == "no interval" and cells.cost_interval(None) == ""
