"""Measuring an engine end to end, and its outputs against a reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from captured import engine_files
from click.testing import CliRunner
from engine_models import TOKENS, reference, weights, write_run

from layerline.analysis.captures.engine_ops import engine_ops
from layerline.analysis.checks import raw_totals
from layerline.core.errors import InputError
from layerline.core.run import Run
from layerline.engines.command import engines
from layerline.profile.command import profile
from layerline.profile.engine.accuracy import compare

pytest.importorskip("onnxruntime")


def invoke(command: Any, path: Path, *arguments: str) -> Any:
    common = ["--run", str(path), "--backend", "onnxruntime", *arguments]
    return CliRunner().invoke(command, common, catch_exceptions=True)


QUICK = ("--what", "engine", "--iterations", "12", "--seconds", "2", "--target", "0.0001")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_run(tmp_path_factory.mktemp("measured") / "run")
    result = invoke(engines, path, "--threads", "1")
    assert result.exit_code == 0, result.exception
    captures = path / "captures"
    captures.mkdir()
    logits = reference(weights(np.float32), np.arange(TOKENS)[None]).astype(np.float32)
    np.savez(captures / "eager.fp32.outputs.npz", logits=logits)
    result = invoke(profile, path, *QUICK)
    assert result.exit_code == 0, result.exception
    return path


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_latency_says_how_it_was_taken(measured: Path, precision: str) -> None:
    found = json.loads((measured / f"captures/{precision}.onnxruntime.latency.json").read_text())
    assert len(found["latency_ns"]) == found["summary"]["n"] == 12
    assert (found["precision"], found["backend"]) == (precision, "onnxruntime")
    assert {"parameters", "batch", "sequence"} <= set(found)
    assert all(type(t) is int and t > 0 for t in found["latency_ns"])
    assert len(found["warmup_ns"]) == 3
    assert found["ended_by"] in ("iterations", "target")
    assert found["facts"]["threads"] == 1
    assert found["machine"].keys() == {"before", "after"}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_profile_is_joined_whole(measured: Path, precision: str) -> None:
    """Every microsecond of the raw file is in a row, every row has modules, warm-up is apart."""
    raw = measured / f"captures/{precision}.onnxruntime.profile.json"
    meta = json.loads(
        (measured / f"captures/{precision}.onnxruntime.profile.meta.json").read_text()
    )
    found = engine_ops(engine_files(Run(measured), precision, "onnxruntime"))
    ops = found.main
    assert sum(ops["duration_ns"].to_pylist()) == raw_totals.onnxruntime(raw)["node"]
    assert found.facts["unlisted"] == {}
    assert None not in ops["modules"].to_pylist()
    assert set(ops["iteration"].to_pylist()) == {None, *range(len(meta["latency_ns"]))}
    assert found.tables["latency"].num_rows == len(meta["latency_ns"])
    layers = json.loads((measured / f"engines/{precision}.onnxruntime.layers.json").read_text())
    names = {la["name"] for la in layers["layers"]}
    assert set(ops["name"].to_pylist()) == names
    per_run = len(ops) / (meta["facts"]["runs"])
    assert per_run == len(names)


def test_traced_latency_is_the_run_that_the_host_timed(measured: Path) -> None:
    """The worker's clock encloses the model_run event of the same iteration."""
    meta = json.loads((measured / "captures/fp32.onnxruntime.profile.meta.json").read_text())
    found = engine_ops(engine_files(Run(measured), "fp32", "onnxruntime"))
    traced = found.tables["latency"]["latency_ns"]
    for host, run in zip(meta["latency_ns"], traced.to_pylist(), strict=True):
        assert run <= host


def test_accuracy_is_against_eager_fp32(measured: Path) -> None:
    single = json.loads((measured / "captures/fp32.onnxruntime.accuracy.json").read_text())
    half = json.loads((measured / "captures/fp16.onnxruntime.accuracy.json").read_text())
    assert single["reference"] == "eager.fp32.outputs.npz"
    assert single["max_abs"] < 1e-4 < half["max_abs"] < 0.1
    assert single["top1"] == 1.0
    assert half["cosine"] > 0.999
    assert single["random_weights"] is None  # no model.json says so


def test_valid_captures_are_not_taken_again(measured: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in (measured / "captures").iterdir()}
    assert invoke(profile, measured, *QUICK).exit_code == 0
    assert {p: p.stat().st_mtime_ns for p in (measured / "captures").iterdir()} == before


def test_force_measures_again_what_is_asked_for_and_nothing_else(measured: Path) -> None:
    before = {p.name: p.stat().st_mtime_ns for p in (measured / "captures").iterdir()}
    built = (measured / "engines/fp16.onnxruntime.onnx").stat().st_mtime_ns
    assert invoke(profile, measured, *QUICK, "--precision", "fp16", "--force").exit_code == 0
    after = {p.name: p.stat().st_mtime_ns for p in (measured / "captures").iterdir()}
    renewed = {name for name, time in after.items() if time != before[name]}
    assert renewed == {name for name in before if name.startswith("fp16.onnxruntime.")}
    assert (measured / "engines/fp16.onnxruntime.onnx").stat().st_mtime_ns == built


def test_nothing_but_the_contract_is_left(measured: Path) -> None:
    suffixes = ("latency.json", "profile.json", "profile.meta.json", "outputs.npz", "accuracy.json")
    expected = {f"{p}.onnxruntime.{s}" for p in ("fp32", "fp16") for s in suffixes}
    found = {p.name for p in (measured / "captures").iterdir()}
    assert found == {*expected, "eager.fp32.outputs.npz"}


def test_engine_that_was_not_built(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", ("fp32",))
    result = invoke(profile, path, "--precision", "fp32", "--what", "engine")
    assert isinstance(result.exception, InputError)
    remedy = f"layerline engines {path} --precision fp32 --backend onnxruntime"
    assert result.exception.line().endswith(remedy)


def test_an_engine_of_what_was_exported_before_is_not_measured(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", ("fp32",))
    assert invoke(engines, path, "--precision", "fp32").exit_code == 0
    exported = path / "export/fp32.onnx"
    model = onnx.load(exported)
    model.doc_string = "exported again"
    onnx.save(model, exported)
    result = invoke(profile, path, *QUICK, "--precision", "fp32")
    assert isinstance(result.exception, InputError)
    said = result.exception.line()
    assert "was built of another export/fp32.onnx than is there now" in said
    assert said.endswith(f"layerline engines {path} --precision fp32 --backend onnxruntime")
    assert not (path / "captures").exists()
    # The engine of it is measured; so is one whose export is not there.
    assert invoke(engines, path, "--precision", "fp32").exit_code == 0
    assert invoke(profile, path, *QUICK, "--precision", "fp32").exit_code == 0
    exported.unlink()
    assert invoke(profile, path, *QUICK, "--precision", "fp32").exit_code == 0


def test_missing_reference_is_a_fact_and_no_error(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", ("fp32",))
    assert invoke(engines, path, "--precision", "fp32").exit_code == 0
    assert invoke(profile, path, *QUICK, "--precision", "fp32").exit_code == 0
    manifest = path / "manifests/profile/fp32.onnxruntime.accuracy.json"
    skipped = json.loads(manifest.read_text())["facts"]["skipped"]
    assert "eager fp32" in skipped["why"]


def test_broken_engine_is_one_line(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", ("fp32",))
    assert invoke(engines, path, "--precision", "fp32").exit_code == 0
    engine = path / "engines/fp32.onnxruntime.onnx"
    engine.write_bytes(engine.read_bytes()[:-300])
    result = invoke(profile, path, *QUICK, "--precision", "fp32")
    assert isinstance(result.exception, InputError)
    assert engine.name in result.exception.line()
    assert not (path / "captures/fp32.onnxruntime.latency.json").exists()


# --- accuracy, by hand --------------------------------------------------------------------------


def test_differences_by_hand() -> None:
    ours = {"y": np.array([[1.0, 2.0], [4.0, 3.0]], np.float32)}
    theirs = {"y": np.array([[1.0, 2.5], [3.0, 5.0]], np.float32)}
    found = compare(ours, theirs)
    assert found["max_abs"] == 2.0
    assert found["max_rel"] == 2.0 / 5.0
    assert found["top1"] == 0.5
    dot, a, b = 1 + 5 + 12 + 15, 1 + 4 + 16 + 9, 1 + 6.25 + 9 + 25
    assert found["cosine"] == pytest.approx(dot / (a * b) ** 0.5)


def test_nan_is_counted_and_never_agrees() -> None:
    ours = {"y": np.array([[np.nan, 2.0], [1.0, 3.0]], np.float16)}
    theirs = {"y": np.array([[1.0, 2.0], [1.0, 3.0]], np.float32)}
    found = compare(ours, theirs)
    assert (found["nonfinite"], found["max_abs"], found["top1"]) == (1, 0.0, 0.5)


def test_nothing_finite_is_unknown() -> None:
    found = compare({"y": np.full((1, 2), np.nan)}, {"y": np.zeros((1, 2))})
    assert found["max_abs"] is None
    assert found["cosine"] is None
    assert found["nonfinite"] == 2
    json.dumps(found, allow_nan=False)


def test_only_outputs_are_compared_under_any_name() -> None:
    assert compare({"logits": np.ones((1, 2))}, {"output": np.ones((1, 2))})["max_abs"] == 0.0


def test_worst_of_several_outputs() -> None:
    ours = {"a": np.ones((1, 2)), "b": np.zeros((1, 2))}
    assert compare(ours, {"a": np.ones((1, 2)), "b": np.full((1, 2), 3.0)})["max_abs"] == 3.0


@pytest.mark.parametrize(
    ("ours", "theirs", "text"),
    [
        ({"a": np.ones((1, 2))}, {"a": np.ones((1, 3))}, "shape"),
        ({"a": np.ones(2), "b": np.ones(2)}, {"c": np.ones(2)}, "outputs a, b"),
        ({"a": np.ones(2, np.int64)}, {"a": np.ones(2)}, "none"),
    ],
)
def test_what_cannot_be_compared_is_said(ours: Any, theirs: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        compare(ours, theirs)
