"""`layerline gate --measure A B`: the engines of two runs, measured in turn by ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from engine_models import write_run
from run_by_hand import outcome

pytest.importorskip("onnxruntime")
SIDE = "engine/fp32.onnxruntime/inference"


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    made = [write_run(tmp_path / name) for name in ("a", "b")]
    for run in made:
        of = ("--run", run, "--backend", "onnxruntime")
        assert outcome("engines", *of, "--precision", "fp32,fp16", "--threads", 1) == 0
    return made


def test_each_round_is_a_process_of_each_and_leaves_the_runs_alone(
    runs: list[Path], tmp_path: Path, capsys: Any
) -> None:
    before = [sorted(p for p in run.rglob("*")) for run in runs]
    how = ("--measure", "--rounds", 3, "--seconds", 0.1, "--side", "engine:fp32.onnxruntime")
    code = outcome("gate", *runs, *how, "-o", tmp_path / "x.json")
    found = json.loads((tmp_path / "x.json").read_text())
    assert code == found["exit_code"] in (0, 1, 4)
    # Of the side that is judged alone, modules too; each has a value a round.
    assert {j["side"] for j in found["judged"]} == {SIDE}
    assert {"latency", "operations", "kind", "module"} == {j["what"] for j in found["judged"]}
    assert {tuple(j["units"]) for j in found["judged"]} == {(3, 3)}
    assert [sorted(p for p in run.rglob("*")) for run in runs] == before
    out = capsys.readouterr().out
    assert "would have seen" in out and "whether outputs are right is known of neither" in out


def test_what_cannot_be_measured_in_turn_is_said(runs: list[Path], capsys: Any) -> None:
    assert outcome("gate", *runs, "--measure", "--side", "engine:fp16.tensorrt") == 2
    there = ", ".join(f"engine/{p}.onnxruntime/inference" for p in ("fp16", "fp32"))
    said = f"error: {runs[0]}: has no engine to judge (there is {there}); layerline engines builds"
    assert said in capsys.readouterr().err
    for built in (runs[1] / "engines").glob("fp16*"):
        built.unlink()
    # The second has none: nothing of the first is measured before that is said.
    assert outcome("gate", *runs, "--measure", "--side", "engine:fp16.onnxruntime") == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {runs[1]}: has no engine to judge") and "round" not in err
    assert outcome("gate", *runs, runs[0], "--measure") == 2
    assert outcome("gate", runs[0], runs[1] / "export/fp32.onnx", "--measure") == 2
