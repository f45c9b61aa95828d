"""The batch sweep: sub-runs made with the run's own options, points, resuming, the report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rendering
import report_views
from click.testing import CliRunner

from layerline.analysis.captures import sweep as sweep_
from layerline.analysis.comparison import build
from layerline.analysis.model.side import Model
from layerline.analysis.report.screen import screens
from layerline.analysis.report.sweep import rate, sentence
from layerline.core import files
from layerline.core.documents import of_form
from layerline.core.errors import InputError, ToolMissing
from layerline.core.run import Run
from layerline.core.stats import Estimate
from layerline.core.sweep import Sweep
from layerline.engines.onnxruntime_backend import OnnxRuntimeBackend
from layerline.export import inference
from layerline.export.command import export
from layerline.profile.sweep import measure
from layerline.profile.sweep.command import _engines, sweep

LABELS = {"tensorrt": "TensorRT", "onnxruntime": "ONNX Runtime"}


# --- figures -------------------------------------------------------------------------------------


def a_point(batch: int, median: int, **more: Any) -> dict[str, Any]:
    """100 tokens a sequence; the interval is 1 % each way."""
    summary = {"n": 20, "median": median, "low": round(median * 0.99),
               "high": round(median * 1.01), "p90": median + 1, "p99": median + 2}  # fmt: skip
    return {
        "batch": batch, "sequence": 100, "precision": "fp16", "backend": "tensorrt",
        "source": f"sweep/batch-{batch}/captures/fp16.tensorrt.latency.json", "summary": summary,
        "clock": "device events", "ended_by": "target", "relative_width": 0.01, "target": 0.02,
        "throughput_per_second": None, "queued_median_ns": None, "engine_bytes": 5,
        "memory": {"device_bytes": None, "context_bytes": 2**20, "peak_host_bytes": 2**30},
        **more,
    }  # fmt: skip


def a_document(*points: dict[str, Any], skipped: list[Any] | None = None) -> Sweep:
    written = {"schema_version": 1, "points": list(points), "skipped": skipped or []}
    return of_form(written, Sweep, Path("sweep.json"))


def test_rates_are_of_the_whole_batch_and_their_interval_is_turned_round() -> None:
    # 4 sequences of 100 tokens in 2 ms: 2000 sequences/s, 200,000 tokens/s.
    (p,) = sweep_.view(a_document(a_point(4, 2_000_000)), LABELS).points
    assert p.sequences_per_second == pytest.approx(2_000)
    assert p.tokens_per_second == pytest.approx(200_000)
    assert p.tokens_low == pytest.approx(400 / 2.02e-3)
    assert p.tokens_high == pytest.approx(400 / 1.98e-3)
    assert (p.memory_bytes, p.memory_of) == (2**20, "context_bytes")
    assert p.queue_tokens_per_second is None
    (p,) = sweep_.view(a_document(a_point(4, 1, throughput_per_second=10.0)), LABELS).points
    assert p.queue_tokens_per_second == 4_000


def test_the_best_batch_is_sure_or_said_not_to_be() -> None:
    sure = sweep_.view(
        a_document(a_point(1, 1_000_000), a_point(4, 2_000_000), a_point(8, 5_000_000)), LABELS
    )
    (best,) = sure.best
    assert (best.batch, best.alike, best.last, best.of) == (4, [], False, 3)
    assert sentence(best) == (
        "TensorRT fp16: 200 k tokens/s at batch 4 (95 % interval 198 k – 202 k), the most of "
        "3 batches."
    )
    # 8 in 4.04 ms is 198 k tokens/s: its interval reaches that of 200 k.
    close = sweep_.view(a_document(a_point(4, 2_000_000), a_point(8, 4_040_000)), LABELS)
    assert close.best[0].alike == [8]
    assert "not distinguishable from batch 8" in sentence(close.best[0])
    growing = sweep_.view(a_document(a_point(1, 1_000_000), a_point(4, 2_000_000)), LABELS)
    assert "a larger one may do more" in sentence(growing.best[0])
    alone = sweep_.view(a_document(a_point(4, 2_000_000)), LABELS)
    assert "the only batch" in sentence(alone.best[0])


def test_points_without_an_interval_are_never_surely_below() -> None:
    few = {"n": 2, "median": 9_000_000, "low": None, "high": None, "p90": 1, "p99": 1}
    found = sweep_.view(a_document(a_point(1, 1_000_000), a_point(2, 0, summary=few)), LABELS)
    assert found.best[0].alike == [2]
    nothing = sweep_.view(a_document(a_point(1, 0, summary=None)), LABELS)
    assert nothing.best == []
    assert nothing.points[0].tokens_per_second is None


def a_side(low: int, high: int, **more: Any) -> Any:
    latency = Estimate((low + high) // 2, low, high, 20)
    about = {"task": "engine", "precision": "fp16", "backend": "tensorrt", "latency": latency}
    return SimpleNamespace(**about | more)


def test_a_point_that_is_not_what_the_run_measured_says_so() -> None:
    """1.33 ms (1.32 to 1.34) in the sweep; in the run 2.02 ms (1.94 to 2.18): no common value."""
    found = sweep_.view(a_document(a_point(1, 1_330_000), a_point(4, 4_000_000)), LABELS)
    own = a_side(1_940_000, 2_180_000)
    (said,) = sweep_.beside(found, [own], 1, 100)
    assert "TensorRT fp16 at batch 1 took 1.33 ms (1.32 to 1.34) here" in said
    assert (
        "2.06 ms (1.94 to 2.18) in the run itself: they differ by more than their intervals" in said
    )
    assert "not steady from one process to the next" in said
    (slow,) = sweep_.beside(found, [a_side(999_400_000, 1_234_600_000)], 1, 100)
    assert "1,117 ms (999 to 1,235) in the run itself" in slow
    assert sweep_.beside(found, [a_side(1_340_000, 1_500_000)], 1, 100) == []  # they meet
    assert sweep_.beside(found, [own], 2, 100) == []  # the run's batch was not swept
    assert sweep_.beside(found, [own], 1, 99) == []  # another sequence length
    assert sweep_.beside(found, [a_side(1, 2, backend="onnxruntime")], 1, 100) == []
    unknown = Estimate(1, None, None, 2)
    assert sweep_.beside(found, [a_side(1, 2, latency=unknown)], 1, 100) == []
    found = replace(found, remarks=[said])
    shown = build.build([], Model("m"))
    shown = replace(shown, sweep=found)
    for rendered in (rendering.markdown(shown), rendering.html(shown)):
        assert "steady from one process to the next; the sweep and the run compare" in rendered


@pytest.mark.slow
def test_a_sweep_compares_its_point_at_the_runs_own_batch(swept: Path) -> None:
    of = measure.exported(Run(swept))
    own = swept / "captures" / "fp32.onnxruntime.latency.json"
    (p, _) = document(swept)["points"]
    assert measure.remarks(Run(swept), of) == []  # the run was not profiled
    far = {k: 1000 * p["summary"][k] for k in ("median", "low", "high")}
    try:
        files.write_json(own, {"summary": far})
        (said,) = measure.remarks(Run(swept), of)
        assert said.startswith("onnxruntime fp32 at batch 1 took ")
        files.write_json(own, {"summary": p["summary"]})
        assert measure.remarks(Run(swept), of) == []
    finally:
        own.unlink()


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.5, "0.5"), (3.14159, "3.14"), (999.9, "1.00 k"), (1_234.0, "1.23 k"),
     (189_400.0, "189 k"), (2.5e9, "2.50 G")],
)  # fmt: skip
def test_rates_as_text(value: float | None, text: str) -> None:
    assert rate(value) == text


def test_both_reports_show_it_and_escape_what_failed() -> None:
    skipped = [{"what": "fp16 tensorrt at batch 64", "why": "<b>out|of memory", "fix": None}]
    found = sweep_.view(a_document(a_point(4, 2_000_000), skipped=skipped), LABELS)
    shown = build.build([], Model("m"))
    assert "Batch sweep" not in rendering.markdown(shown) + rendering.html(shown)
    shown = replace(shown, sweep=found)
    text, page = rendering.markdown(shown), rendering.html(shown)
    for rendered in (text, page):
        assert "Batch sweep" in rendered
        assert "200 k" in rendered
        assert "198 k – 202 k" in rendered
        assert "<b>out" not in rendered
    assert 'href="#sweep"' in page
    assert "batch 64" in text


def test_a_foreign_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    (tmp_path / "captures" / "sweep.json").write_text('{"points": [{}], "skipped": []}')
    with pytest.raises(InputError, match=r"sweep\.json"):
        sweep_.load(Run(tmp_path), {}, None)
    assert sweep_.load(Run(tmp_path / "captures"), {}, None) is None


# --- what is asked for ---------------------------------------------------------------------------


def test_engines_are_those_asked_for_else_the_runs_own() -> None:
    built = [("fp32", "onnxruntime"), ("fp16", "tensorrt")]
    assert _engines(built, (), ()) == built
    assert _engines(built, ("fp16",), ()) == [("fp16", "tensorrt")]
    assert _engines(built, (), ("tensorrt",)) == [("fp16", "tensorrt")]
    assert _engines(built, ("bf16", "fp16"), ("tensorrt",)) == [
        ("bf16", "tensorrt"), ("fp16", "tensorrt"),
    ]  # fmt: skip
    assert _engines([], (), ("onnxruntime",)) == [("fp32", "onnxruntime"), ("fp16", "onnxruntime")]


@pytest.mark.parametrize("batches", ["0", "-1", "x", "1.5"])
def test_batches_that_are_none(tmp_path: Path, batches: str) -> None:
    result = CliRunner().invoke(sweep, ["--run", str(tmp_path), "--batches", batches])
    assert result.exit_code == 2
    assert "no batch size" in result.output


def test_a_run_that_was_not_exported_is_told_the_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(sweep, ["--run", str(tmp_path), "--batches", "1"])
    assert isinstance(result.exception, InputError)
    assert result.exception.fix == f"layerline export {tmp_path}"


# --- the whole way -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny run, swept at batch 1 and 3 with the CPU."""
    for library in ("torch", "transformers", "onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(library)
    path = tmp_path_factory.mktemp("swept") / "run"
    made = CliRunner().invoke(
        export,
        ["--run", str(path), "--model", "tiny", "--precision", "fp32", "--seq", "8",
         "--seed", "3", "--set", "n_layer=1"],
    )  # fmt: skip
    assert made.exit_code == 0, made.exception
    result = invoke(path, "1,3")
    assert result.exit_code == 0, result.exception
    yield path


def invoke(path: Path, batches: str, *more: str, backend: str = "onnxruntime") -> Any:
    command = ["--run", str(path), "--batches", batches, "--precision", "fp32", "--backend",
               backend, "--iterations", "8", "--seconds", "2", *more]  # fmt: skip
    return CliRunner().invoke(sweep, command)


def document(path: Path) -> Any:
    return json.loads((path / "captures" / "sweep.json").read_text())


@pytest.mark.slow
def test_points_are_the_runs_own_model_at_other_batches(swept: Path) -> None:
    found = document(swept)
    assert [(p["batch"], p["sequence"], p["backend"]) for p in found["points"]] == [
        (1, 8, "onnxruntime"), (3, 8, "onnxruntime"),
    ]  # fmt: skip
    for p in found["points"]:
        assert p["summary"]["n"] == 8
        source = swept / p["source"]
        assert files.sha256(source) == p["sha256"]
        times = sorted(json.loads(source.read_text())["latency_ns"])
        assert p["summary"]["median"] == round((times[3] + times[4]) / 2)
        model = json.loads((source.parent.parent / "export" / "model.json").read_text())
        assert (model["batch"], model["seq"], model["seed"]) == (p["batch"], 8, 3)
        assert model["overrides"] == {"n_layer": 1}
        assert 10_000_000 < p["memory"]["peak_host_bytes"] < 10**9
    assert found["skipped"] == []


@pytest.mark.slow
def test_what_is_valid_is_not_made_again_and_stays_in_the_file(swept: Path) -> None:
    folder = swept / "sweep"
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}
    assert invoke(swept, "3").exit_code == 0
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()} == before
    assert [p["batch"] for p in document(swept)["points"]] == [1, 3]


@pytest.mark.slow
def test_a_backend_that_is_missing_is_listed_and_the_others_are_measured(
    swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = inference.Unavailable("no NVIDIA GPU here", "run this stage on a machine with a GPU")
    monkeypatch.setattr(inference, "no_gpu", lambda: gone)
    result = invoke(swept, "3", backend="onnxruntime,onnxruntime-cuda")
    assert result.exit_code == 0, result.exception
    found = document(swept)
    assert [p["batch"] for p in found["points"]] == [1, 3]
    (skipped,) = found["skipped"]
    assert (skipped["batch"], skipped["backend"]) == (3, "onnxruntime-cuda")
    alone = invoke(swept, "3", backend="onnxruntime-cuda")
    assert isinstance(alone.exception, ToolMissing)
    assert alone.exception.exit_code == 3


@pytest.mark.slow
def test_points_of_another_export_are_left_out(swept: Path) -> None:
    export_of = measure.exported(Run(swept))
    other = measure.Export(measure.replace(export_of.request, seq=16), export_of.options)
    assert len(measure.points(Run(swept), export_of)) == 2
    assert measure.points(Run(swept), other) == []


def test_the_runs_build_options_are_taken_over(tmp_path: Path) -> None:
    files.write_json(
        tmp_path / "manifests" / "engines" / "fp32.onnxruntime.json",
        {"options": {"optimization_level": "basic", "threads": 1, "version": "x"}},
    )
    found = measure.asked(Run(tmp_path), "fp32", OnnxRuntimeBackend())
    assert (found.asked.optimization_level, found.asked.threads) == ("basic", 1)
    assert measure.asked(Run(tmp_path), "fp16", OnnxRuntimeBackend()).asked.threads is None


def test_the_plan_of_the_runs_engine_is_kept_at_other_batches(tmp_path: Path) -> None:
    plan = {"file": "plan.json", "modules_fp32": ["h.0.attn"]}
    files.write_json(
        tmp_path / "manifests" / "engines" / "fp16.onnxruntime.json",
        {"options": {"optimization_level": "all", "precision_plan": plan}},
    )
    found = measure.asked(Run(tmp_path), "fp16", OnnxRuntimeBackend())
    assert found.asked.build == {"precision_plan": plan}


OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        return (x * -1e6).exp()  # 1e6 is infinite in half, and nought times it NaN

def build(batch=1):
    return nn.Sequential(Net()), torch.zeros(batch, 4)
"""


@pytest.mark.slow
def test_an_engine_of_a_half_file_that_is_wrong_is_no_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a model that is named by a relative path has the same name in run and sweep."""
    for library in ("torch", "transformers", "onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(library)
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run"
    made = CliRunner().invoke(
        export, ["--run", str(path), "--model", "own.py:build", "--precision", "fp32,fp16"]
    )
    assert made.exit_code == 0, made.exception
    assert invoke(path, "2", "--precision", "fp16").exit_code == 0
    found = document(path)
    assert [(p["batch"], p["precision"]) for p in found["points"]] == [(2, "fp32")]
    (skipped,) = found["skipped"]
    assert (skipped["batch"], skipped["precision"]) == (2, "fp16")
    assert "does not compute what eager fp32 does" in skipped["why"]
    assert found["model"] == "own.py:build"


def test_the_first_screen_of_a_sweep_tells_which_batch_does_most_and_how_long_it_takes() -> None:
    growing = a_document(*(a_point(n, 600_000 + 400_000 * n) for n in (1, 2, 4)))
    shown = replace(rendering.comparison(report_views.empty()), sweep=sweep_.view(growing, LABELS))
    (screen,) = screens.of(shown)
    # 4 x 100 tokens in 2.2 ms.
    said = "TensorRT fp16 does 182 k tokens/s at batch 4, the most and the largest tried"
    assert screen.answer.text == said and len(said.split()) <= 15
    assert screen.line[0].startswith("2.20 ms for an inference (95 %")
    assert screen.line[0].endswith("at batch 1 1.00 ms.")
    assert [b.name for b in screen.bars] == ["batch 1", "batch 2", "batch 4"]
    # 100, 143 and 182 thousand; the interval of the last reaches the end of the axis.
    widths = [b.width for b in screen.bars]
    assert [w / widths[-1] for w in widths] == pytest.approx([0.55, 0.786, 1], abs=0.001)
    assert [b.text for b in screen.beside] == ["1.00 ms", "1.40 ms", "2.20 ms"]
    page, text = rendering.html(shown), rendering.markdown(shown)
    assert said in text and "Throughput" in page and "Latency" in page
