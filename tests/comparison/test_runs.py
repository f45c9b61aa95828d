"""`layerline compare`: differences claimed only where the intervals allow it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from analysis_examples import node, ops
from hypothesis import given, settings
from hypothesis import strategies as st

from layerline.analysis.comparison import runs
from layerline.analysis.comparison.runs import Measure, compare, difference, with_repeats
from layerline.analysis.costs.layers import of_ops
from layerline.core.cli.command import main
from layerline.core.tables import write_parquet

ENGINE = "engine/fp32.ort/inference"
FACTS = {"model": "abc", "batch": 1, "sequence": 8, "cpu": "X", "versions": {"torch": "1"}}


def summary(median: int = 100, low: int | None = 95, high: int | None = 105, **more: Any) -> Any:
    figures = {
        "key": ENGINE,
        "latency_median_ns": median,
        "latency_low_ns": low,
        "latency_high_ns": high,
    }
    return {
        "schema_version": 1,
        "engines": {"fp32.ort": figures},
        "eager": {},
        "modules": {},
        "facts": FACTS,
        **more,
    }


def run(tmp_path: Path, name: str, document: Any) -> Path:
    folder = tmp_path / name / "report"
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(document))
    return folder.parent


def outcome(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main(["compare", *map(str, arguments)])
    return int(str(end.value.code))


def test_the_interval_of_a_ratio_is_the_widest_of_both() -> None:
    a = Measure("g", "n", 100, 90, 110, repeated=True)
    d = difference(a, Measure("g", "n", 150, 132, 165))
    assert d.change == 0.5
    assert d.low == pytest.approx(132 / 110 - 1) and d.high == pytest.approx(165 / 90 - 1)
    assert d.verdict == runs.SLOWER


def test_overlapping_intervals_are_not_distinguishable_however_far_the_medians() -> None:
    d = difference(Measure("g", "n", 100, 50, 400), Measure("g", "n", 200, 60, 300))
    assert d.verdict == runs.SAME


def test_without_an_interval_nothing_is_claimed() -> None:
    d = difference(Measure("g", "n", 100, None, None), Measure("g", "n", 900, 890, 910))
    assert (d.verdict, d.low) == (runs.UNSURE, None)


times = st.integers(1, 10**9)


@settings(deadline=None, max_examples=60)
@given(st.lists(times, min_size=3, max_size=3), st.lists(times, min_size=3, max_size=3))
def test_a_claim_holds_for_every_pair_of_values_in_the_intervals(first, second) -> None:  # type: ignore[no-untyped-def]
    (al, am, ah), (bl, bm, bh) = sorted(first), sorted(second)
    a, b = Measure("g", "n", am, al, ah), Measure("g", "n", bm, bl, bh)
    for repeated, more, less in (
        (True, "slower", "faster"),
        (False, "higher here", "lower here"),
    ):
        d = difference(replace(a, repeated=repeated), b)
        assert (d.verdict == more) == (bl > ah)
        assert (d.verdict == less) == (bh < al)
        assert d.verdict in (more, less, runs.SAME)


def test_repeats_of_the_baseline_widen_it() -> None:
    base = [Measure("latency", "x", 100, 99, 101)]
    again = [[Measure("latency", "x", 110, 108, 112)], [Measure("latency", "x", 104, 103, 105)]]
    (wide,) = with_repeats(base, again)
    assert (wide.median, wide.low, wide.high) == (104, 99, 112)


@pytest.mark.parametrize("of", [0, 1])
def test_a_run_without_an_interval_leaves_repeats_none(of: int) -> None:
    both = [Measure("latency", "x", 100, 99, 101), Measure("latency", "x", 104, None, None)]
    (found,) = with_repeats([both[of]], [[both[1 - of]]])
    assert (found.median, found.low, found.high) == (102, None, None)
    assert difference(found, Measure("latency", "x", 200, 199, 201)).verdict == runs.UNSURE


def test_rebuild_noise_widens_a_latency() -> None:
    document = summary(100, 99, 101)
    document["engines"]["fp32.ort"]["rebuild_noise"] = 0.1
    (m,) = runs.from_summary(document)
    assert (m.low, m.high) == (89, 111)
    document["engines"]["fp32.ort"]["rebuild_noise"] = 1.2
    (m,) = runs.from_summary(document)
    assert (m.low, m.high) == (None, None)


def test_a_modules_bounds_include_its_shared_time() -> None:
    cost = {"own_ns": 100, "own_low_ns": 90, "own_high_ns": 110, "shared_ns": 50}
    a, b = summary(modules={ENGINE: {"m": cost}}), summary(modules={ENGINE: {"m": cost}})
    found, _, _ = compare(runs.from_summary(a), runs.from_summary(b))
    (d,) = [d for d in found if d.a.name == "m"]
    assert (d.a.low, d.a.high, d.verdict) == (90, 160, runs.SAME)
    assert d.change is None  # a ratio of own times would compare two unknown splits


def test_what_was_a_gate_of_compare_leads_to_the_gate(tmp_path: Path, capsys: Any) -> None:
    a = run(tmp_path, "a", summary())
    assert outcome(a, a, "--fail-above", 5) == 2
    assert "layerline gate A B --slower 5%" in capsys.readouterr().err


def test_runs_of_different_work_are_refused(tmp_path: Path, capsys: Any) -> None:
    a = run(tmp_path, "a", summary())
    b = run(tmp_path, "b", summary(facts={**FACTS, "batch": 8}))
    assert outcome(a, b) == 2
    assert "batch (1 against 8)" in capsys.readouterr().err
    assert outcome(a, b, "--anyway") == 0


def test_an_unknown_fact_is_not_taken_for_equal(tmp_path: Path) -> None:
    a = run(tmp_path, "a", summary())
    b = run(tmp_path, "b", summary(facts={k: v for k, v in FACTS.items() if k != "cpu"}))
    assert outcome(a, b) == 2


def test_what_neither_run_says_is_told(tmp_path: Path, capsys: Any) -> None:
    a = run(tmp_path, "a", summary())
    assert outcome(a, a) == 0
    assert "neither run says its cpus_usable, gpu, threads" in capsys.readouterr().err


def test_another_version_is_what_may_be_compared(tmp_path: Path, capsys: Any) -> None:
    a = run(tmp_path, "a", summary())
    b = run(tmp_path, "b", summary(facts={**FACTS, "versions": {"torch": "2"}}))
    assert outcome(a, b) == 0
    assert "differs: torch: 1 against 2" in capsys.readouterr().err


def test_nothing_in_common_is_an_error(tmp_path: Path) -> None:
    a = run(tmp_path, "a", summary())
    b = run(tmp_path, "b", summary(engines={}))
    assert outcome(a, b) == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 9, "engines": {}}', '{"a'])
def test_other_files_are_refused_in_one_line(tmp_path: Path, text: str, capsys: Any) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert outcome(path, path) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_run_without_a_report_says_what_to_do(tmp_path: Path, capsys: Any) -> None:
    assert outcome(tmp_path, tmp_path) == 2
    assert "layerline report" in capsys.readouterr().err


def test_layer_tables(tmp_path: Path, capsys: Any) -> None:
    for name, times in (("a", [100] * 6), ("b", [150] * 6)):
        write_parquet(tmp_path / f"{name}.parquet", of_ops(ops(node("gemm", ["m"], times)), "e"))
    a, b = tmp_path / "a.parquet", tmp_path / "b.parquet"
    assert outcome(a, b, "--json") == 0
    (only,) = json.loads(capsys.readouterr().out)["differences"]
    assert (only["name"], only["change"]) == ("gemm", 0.5)


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [("layer", None, "1 of 1 rows have no layer"), ("ci_low_ns", "x", "column ci_low_ns holds")],
)
def test_a_table_that_was_changed_is_refused_in_one_line(
    tmp_path: Path, column: str, value: Any, told: str, capsys: Any
) -> None:
    made = of_ops(ops(node("gemm", ["m"], [100] * 6)), "e")
    at = made.schema.get_field_index(column)
    path = tmp_path / "a.parquet"
    write_parquet(path, made.set_column(at, column, pa.array([value], pa.string())))
    assert outcome(path, path) == 2
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1


def test_bounds_the_wrong_way_round_are_no_interval() -> None:
    right = Measure("g", "n", 5, 4, 6)
    for a, b in [((5, 0), (4, 6)), ((4, 6), (6, 4)), ((6, 4), (4, 6))]:
        found = difference(replace(right, low=a[0], high=a[1]), replace(right, low=b[0], high=b[1]))
        assert (found.low, found.verdict) == (None, runs.UNSURE)


def test_how_many_modules_differ_by_chance_is_told_where_some_differ(
    tmp_path: Path, capsys: Any
) -> None:
    def modules(slower: int) -> Any:
        costs = {}
        for i in range(40):
            at = 200 if i < slower else 100
            costs[f"m{i}"] = {"own_ns": at, "own_low_ns": at - 5, "own_high_ns": at + 5}
        return summary(modules={ENGINE: costs})

    a, same = run(tmp_path, "a", modules(0)), run(tmp_path, "b", modules(0))
    other = run(tmp_path, "c", modules(3))
    assert outcome(a, other, "--again", same) == 0
    # One in twenty of forty.
    said = capsys.readouterr().out
    assert "(of 40 with 95 % intervals, up to 2 differ by chance)" in said
    assert said.count(": slower") == 3 and "not measured" not in said
    assert outcome(a, same, "--again", same) == 0
    assert "by chance" not in capsys.readouterr().out
    # Intervals within a run leave out the noise between runs: nothing bounds what differs by it.
    assert outcome(a, other) == 0
    said = capsys.readouterr().out
    assert said.startswith("Noise between runs was not measured (--again RUN)")
    assert said.count(": higher here") == 3
    assert "by chance" not in said and ": slower" not in said


def test_what_the_repeats_lack_is_not_called_slower(tmp_path: Path, capsys: Any) -> None:
    def modules(**costs: int) -> Any:
        own = {
            n: {"own_ns": ns, "own_low_ns": ns - 5, "own_high_ns": ns + 5}
            for n, ns in costs.items()
        }
        return summary(modules={ENGINE: own})

    a, again = run(tmp_path, "a", modules(m=100, n=100)), run(tmp_path, "r", modules(m=100))
    assert outcome(a, run(tmp_path, "b", modules(m=200, n=200)), "--again", again) == 0
    said = capsys.readouterr().out
    assert said.startswith("Noise between runs was not measured of 1 of 3 ")
    assert "+100.0% (+85.7% to +115.8%): slower" in said
    assert "+100.0% (+85.7% to +115.8%): higher here" in said


def test_an_engine_is_not_called_faster_without_saying_that_its_outputs_were_not_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, latency, outputs in (("a", 200, {"ok": True}), ("b", 100, None)):
        figures = {
            "key": "engine/fp16.tensorrt/inference",
            "latency_median_ns": latency,
            "latency_low_ns": latency,
            "latency_high_ns": latency,
            "outputs": outputs,
        }
        eager = {**figures, "key": "eager/fp16/inference"}
        document = {"schema_version": 1, "engines": {"e": figures}, "eager": {"fp16": eager}}
        document["modules"] = {figures["key"]: {"attn": {"own_ns": latency}}}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    a = tmp_path / "a.json"
    assert outcome(a, tmp_path / "b.json", "--again", a) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [x for x in lines if "inference: 200 ns" in x] == [
        "engine/fp16.tensorrt/inference: 200 ns -> 100 ns, -50.0% (-50.0% to -50.0%): faster, "
        "outputs not checked",
        "eager/fp16/inference: 200 ns -> 100 ns, -50.0% (-50.0% to -50.0%): faster",
    ]
    assert "engine/fp16.tensorrt/inference (outputs not checked):" in lines
