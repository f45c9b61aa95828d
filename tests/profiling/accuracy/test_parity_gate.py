"""An engine that computes something else is known within seconds and is not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from engine_models import TOKENS, reference, weights, write_run
from onnx import numpy_helper

from layerline.analysis.commands.compare import compare as compare_runs
from layerline.analysis.commands.report import report
from layerline.analysis.comparison.runs import load
from layerline.core.accuracy.limits import FEWEST_POSITIONS, LIMITS, Asked, Limits, judge
from layerline.core.run import open_run
from layerline.core.tables import read_parquet
from layerline.engines.command import engines
from layerline.profile.command import profile
from layerline.profile.engine.accuracy import compare

pytest.importorskip("onnxruntime")
QUICK = ("--what", "engine", "--iterations", "8", "--seconds", "1")


def invoke(command: Any, path: Path, *arguments: str) -> Any:
    return CliRunner().invoke(command, ["--run", str(path), *arguments])


def planted(path: Path, precision: str, weight: str, factor: float) -> Path:
    """A run whose engine of one precision has one weight wrong, beside eager's right outputs."""
    run = write_run(path)
    file = run / f"export/{precision}.onnx"
    model = onnx.load(str(file))
    (stored,) = [i for i in model.graph.initializer if i.name == weight]
    values = numpy_helper.to_array(stored)
    wrong = values[::-1].copy() if np.isnan(factor) else values * values.dtype.type(factor)
    stored.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(wrong), weight))
    onnx.save(model, str(file))
    open_run(run, create=True)
    captures = run / "captures"
    captures.mkdir()
    logits = reference(weights(np.float32), np.arange(TOKENS)[None]).astype(np.float32)
    np.savez(captures / "eager.fp32.outputs.npz", logits=logits)
    assert invoke(engines, run, "--backend", "onnxruntime").exit_code == 0
    return run


def captured(run: Path) -> set[str]:
    return {p.name for p in (run / "captures").iterdir()}


def test_a_wrong_engine_is_not_measured_and_the_others_are(tmp_path: Path) -> None:
    run = planted(tmp_path / "run", "fp16", "head.weight", np.nan)
    done = invoke(profile, run, "--backend", "onnxruntime", *QUICK)
    assert done.exit_code == 1
    line = done.exception.line()
    assert "the fp16 engine of onnxruntime does not compute what eager does: cosine" in line
    left = captured(run)
    assert {"fp16.onnxruntime.accuracy.json", "fp32.onnxruntime.latency.json"} <= left
    assert not left & {"fp16.onnxruntime.latency.json", "fp16.onnxruntime.profile.json"}

    # What the other engine took is told; of this one, that it is wrong, first of all.
    done = invoke(report, run)
    assert done.exit_code == 1
    summary = json.loads((run / "report/summary.json").read_text())
    first = "ONNX Runtime fp16 does not compute what eager does: cosine"
    assert summary["headline"][0].startswith(first)
    assert summary["engines"]["fp16.onnxruntime"]["outputs"]["ok"] is False
    assert summary["engines"]["fp32.onnxruntime"]["outputs"] == {"ok": True, "why": ""}
    assert not [r for r in summary["ratios"] if "fp16" in r["under"] + r["over"]]
    for name in ("report.md", "index.html"):
        assert first in (run / "report" / name).read_text()


def test_a_wrong_engine_that_was_measured_is_never_called_faster(tmp_path: Path) -> None:
    run = planted(tmp_path / "run", "fp16", "head.weight", 0.0)
    done = invoke(profile, run, "--backend", "onnxruntime", "--anyway", *QUICK)
    assert done.exit_code == 1 and "every value is 0" in done.exception.line()
    assert "fp16.onnxruntime.latency.json" in captured(run)
    assert invoke(report, run).exit_code == 1
    summary = json.loads((run / "report/summary.json").read_text())
    assert summary["ratios"] == []
    (row,) = summary["comparisons"]
    assert (row["times"], row["saves"], row["loses"]) == ("no result", "–", "–")
    assert "every value is 0" in row["note"]
    for name in ("report.md", "index.html"):
        text = (run / "report" / name).read_text()
        assert "as fast" not in text.replace("never called faster", "")


def test_the_limits_can_be_set_and_the_report_takes_those_of_the_measurement(
    tmp_path: Path,
) -> None:
    run = planted(tmp_path / "run", "fp32", "ln.weight", 1.02)
    options = ("--backend", "onnxruntime", "--precision", "fp32", *QUICK)
    assert invoke(profile, run, *options, "--min-cosine", "0.9999999").exit_code == 1
    assert invoke(profile, run, *options, "--min-cosine", "fp32=0.5,fp16=1").exit_code == 0
    assert invoke(report, run).exit_code == 0
    assert invoke(report, run, "--min-cosine", "0.9999999").exit_code == 1
    assert invoke(report, run).exit_code == 0
    assert invoke(report, run, "--min-top1", "int8=0.5").exit_code == 2
    assert invoke(report, run, "--min-cosine", "nan").exit_code == 2


def test_errors_by_module_are_a_table_as_long_as_they_were_measured(tmp_path: Path) -> None:
    run = planted(tmp_path / "run", "fp16", "head.weight", np.nan)
    assert invoke(profile, run, "--backend", "onnxruntime", *QUICK).exit_code == 1
    file = run / "captures/fp16.onnxruntime.accuracy.modules.json"
    rows = [
        {"module": "fc", "tensor": "f", "error_in": 0.001, "error_out": 0.002},
        {"module": "head", "tensor": "logits", "error_in": 0.002, "nonfinite": 7,
         "first_wrong": True, "how": "the engine's own tensor"},
    ]  # fmt: skip
    document = {"schema_version": 1, "precision": "fp16", "backend": "onnxruntime"}
    file.write_text(json.dumps({**document, "modules": rows}))
    assert invoke(report, run).exit_code == 1
    table = run / "tables/accuracy.parquet"
    of = {"source": "engine/fp16.onnxruntime/inference", "precision": "fp16"}
    empty = {"error_out": None, "nonfinite": None, "first_wrong": False, "how": ""}
    assert read_parquet(table, "accuracy").to_pylist() == [of | empty | row for row in rows]
    file.unlink()
    assert invoke(report, run).exit_code == 1
    assert not table.exists()


RIGHT = np.random.default_rng(0).normal(size=(1, 40, 8)).astype(np.float32)


@pytest.mark.parametrize(
    ("engine", "ok", "why"),
    [
        (RIGHT, True, ""),
        (RIGHT + 1e-4, True, ""),
        (np.zeros_like(RIGHT), False, "every value is 0"),
        (np.full_like(RIGHT, 3), False, "every value is 3"),
        (np.where(RIGHT > 2, np.nan, RIGHT), False, "NaN or infinite"),
        (np.where(RIGHT > 2, np.inf, RIGHT), False, "NaN or infinite"),
        (np.full_like(RIGHT, np.nan), False, "320 values are NaN or infinite"),
        (-RIGHT, False, "cosine -1, below 0.9999"),
        # Every row is off by a constant: the largest is right, the values are not.
        (RIGHT + 5, False, "cosine"),
        # The values are near, the largest of many rows is another.
        (np.round(RIGHT), False, "cosine"),
    ],
)
def test_outputs_are_judged(engine: Any, ok: bool, why: str) -> None:
    verdict = judge(compare({"y": engine}, {"y": RIGHT}), LIMITS["fp32"])
    assert verdict.ok is ok and why in verdict.why


def test_what_cannot_be_told_is_neither_right_nor_wrong() -> None:
    unknown = {"cosine": None, "top1": None, "max_abs": None}
    assert judge(unknown, LIMITS["fp16"]).ok is None
    assert judge({**unknown, "max_abs": 0.5}, LIMITS["fp16"]).ok is None
    broken = np.where(RIGHT > 2, np.nan, RIGHT)
    verdict = judge(compare({"y": RIGHT}, {"y": broken}), LIMITS["fp32"])
    assert verdict.ok is None and "the reference itself" in verdict.why
    zero = np.zeros_like(RIGHT)
    assert judge(compare({"y": zero}, {"y": zero}), LIMITS["fp32"]).ok is True
    assert judge(compare({"y": RIGHT}, {"y": zero}), LIMITS["fp32"]).ok is not True


def test_one_wrong_output_of_several_is_a_failure() -> None:
    """Its cosine is unknown, and that of the other would be the worst known."""
    zero = np.zeros_like(RIGHT)
    compared = compare({"a": RIGHT, "b": zero}, {"a": RIGHT, "b": RIGHT})
    assert compared["cosine"] == 1
    verdict = judge(compared, LIMITS["fp32"])
    assert verdict.wrong and verdict.why == "b: every value is 0"


def test_top1_of_few_positions_is_no_verdict() -> None:
    near = np.array([[1.0, 1.0 - 1e-6, -1.0]], np.float32)
    swapped = near[:, [1, 0, 2]]
    assert judge(compare({"y": swapped}, {"y": near}), LIMITS["fp32"]).ok is True
    rows = np.repeat(near, FEWEST_POSITIONS, 0)
    compared = compare({"y": np.repeat(swapped, FEWEST_POSITIONS, 0)}, {"y": rows})
    assert judge(compared, LIMITS["fp32"]).wrong


def test_limits_are_those_asked_for_then_those_recorded_then_the_defaults() -> None:
    asked = Asked({"fp16": 0.5}, {"": 0.25})
    assert asked.limits("fp16") == Limits(0.5, 0.25)
    assert asked.limits("bf16") == Limits(LIMITS["bf16"].cosine, 0.25)
    assert Asked().limits("fp16", {"cosine": 0.1}) == Limits(0.1, LIMITS["fp16"].top1)
    assert Asked().limits("int8") == LIMITS["fp32"]


def test_two_runs_are_not_compared_by_a_wrong_engine(tmp_path: Path) -> None:
    figures = {"latency_median_ns": 100, "latency_low_ns": 99, "latency_high_ns": 101}
    engines_ = {
        "fp32.tensorrt": {"key": "engine/fp32.tensorrt/inference", **figures},
        "fp16.tensorrt": {"key": "engine/fp16.tensorrt/inference", **figures},
    }
    for name, ok in (("a", True), ("b", False)):
        engines_["fp16.tensorrt"]["outputs"] = {"ok": ok, "why": ""}
        document = {"schema_version": 1, "engines": engines_}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    assert [m.name for m in load(a).measures] == [e["key"] for e in engines_.values()]
    assert [m.name for m in load(b).measures] == ["engine/fp32.tensorrt/inference"]
    both = [str(a), str(b), "--anyway"]
    assert CliRunner().invoke(compare_runs, both).exit_code == 0
