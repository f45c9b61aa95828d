"""The page of two runs: B against A, as a report holds an engine against eager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_by_hand import EAGER, ENGINE, outcome, write_run

from layerline.analysis import pipeline
from layerline.analysis.model.comparison import Comparison
from layerline.analysis.report.screen import screens
from layerline.core.files import read_json, write_json
from layerline.core.run import Run


def change(run: Path, name: str, **more: Any) -> None:
    path = run / "captures" / name
    write_json(path, {**read_json(path), **more})


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("before", "after"):
        write_run(tmp_path / name)
    return tmp_path / "before", tmp_path / "after"


def both(a: Path, b: Path) -> Comparison:
    return pipeline.both(("before", Run(a)), ("after", Run(b)))


def test_b_is_held_against_a_and_the_surest_change_answers(runs: tuple[Path, Path]) -> None:
    change(runs[1], "fp16.onnxruntime.latency.json", latency_ns=[1_900_000] * 60)
    found = both(*runs)
    assert [(r.over, r.under) for r in found.ratios] == [
        (f"{ENGINE}/A", f"{ENGINE}/B"),
        (f"{EAGER}/A", f"{EAGER}/B"),
    ]
    assert found.ratios[0].ratio == pytest.approx(0.5) and found.ratios[0].lead
    (first, *_) = screens.of(found)
    said = "ONNX Runtime fp16 takes about 2.0× as long in B as in A"
    assert first.answer.text == said
    assert first.over == f"{ENGINE}/A" and first.bars
    # Modules of both stand in one row of the tree.
    row = next(m for m in found.modules if m.path == "a")
    assert {f"{ENGINE}/A", f"{ENGINE}/B", f"{EAGER}/A", f"{EAGER}/B"} == set(row.costs)


def test_a_wrong_engine_of_either_run_has_no_ratio(runs: tuple[Path, Path]) -> None:
    change(runs[1], "fp16.onnxruntime.accuracy.json", cosine=0.5)
    found = both(*runs)
    assert [r.under for r in found.ratios] == [f"{EAGER}/B"]
    assert screens.of(found)[0].answer.text == "ONNX Runtime fp16 (B) does not compute tiny"


def test_a_side_of_one_run_alone_is_shown_and_not_compared(runs: tuple[Path, Path]) -> None:
    for path in (runs[1] / "captures").glob("eager*"):
        path.unlink()
    found = both(*runs)
    assert [r.under for r in found.ratios] == [f"{ENGINE}/B"]
    assert f"{EAGER}/A" in {s.key for s in found.sides}


def test_the_command_writes_the_page_of_two_run_directories(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for run in runs:
        assert outcome("report", "--run", run) == 0
    page = runs[1].parent / "two.html"
    assert outcome("compare", *runs, "-o", page) == 0
    assert capsys.readouterr().out.rstrip().endswith("two.html")
    text = page.read_text()
    assert "ONNX Runtime fp16 (B)" in text and "noise from run to run" in text
    summaries = [run / "report/summary.json" for run in runs]
    assert outcome("compare", *summaries, "-o", page) == 2
    assert "no run directory" in capsys.readouterr().err
    assert outcome("compare", *runs, "-o", page, "--again", runs[0]) == 2
    assert "--again is of no use with a page" in capsys.readouterr().err
