"""The eager side of the stage: two processes serve all its steps, and each step stays its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from serving_fakes import a_run, done, install

from layerline.core.errors import InputError
from layerline.core.run import Run, Step
from layerline.profile import steps
from layerline.profile.beside import Beside
from layerline.profile.eager import nsys
from layerline.profile.eager.stage import Eager, Side, sides

LIMITS: dict[str, Any] = {"target": 0.02, "seconds": None, "iterations": None}


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return install(tmp_path, monkeypatch)


def some(run: Run, what: Sequence[str] = ("eager", "train")) -> list[Side]:
    return sides(run, what, ["fp16"], LIMITS)


def measure(run: Run, of: Sequence[Side], *, reference: bool = False) -> None:
    """As the stage does."""
    with Beside() as beside, Eager(run, of) as eager:
        eager.start()
        if reference:
            eager.reference()
        eager.measure()
        eager.capture(beside)
        beside.wait()
        eager.finish()


def captured(run: Run) -> dict[str, str]:
    """What each exported capture holds."""
    found = {}
    for path in sorted(run.file("captures").glob("*.sqlite")):
        with sqlite3.connect(path) as database:
            ((found[path.stem],),) = database.execute("select text from NVTX_EVENTS")
    return found


def test_latencies_come_before_traces_and_one_process_serves_all(tmp_path: Path, log: Path) -> None:
    """Torch's profiler may stay in the way of what the same process does later."""
    run = a_run(tmp_path)
    of = some(run)
    assert [s.name for s in of] == ["eager.fp16", "eager.fp32", "train.fp16"]
    measure(run, of, reference=True)
    found = [(pid, job) for pid, job in done(log) if job != "export"]
    names = ["eager fp16", "eager fp32", "train fp16"]
    parts = [f"{n} latency" for n in names] + [f"{n} trace" for n in names]
    assert [job for _, job in found] == ["outputs fp32", *parts, *names]
    assert len({pid for pid, _ in found[:7]}) == len({pid for pid, _ in found[7:]}) == 1
    assert captured(run) == {
        n.replace(" ", "."): f"layerline/capture/{n.replace(' ', '.')}" for n in names
    }


def test_what_is_valid_starts_no_process(tmp_path: Path, log: Path) -> None:
    run = a_run(tmp_path)
    measure(run, some(run))
    log.write_text("")
    measure(run, some(run))
    assert log.read_text() == ""


def test_only_what_is_stale_is_measured(tmp_path: Path, log: Path) -> None:
    run = a_run(tmp_path)
    measure(run, some(run))
    done(log)
    run.file("captures", "train.fp16.latency.json").write_text("changed")
    run.file("captures", "eager.fp32.nsys-rep").unlink()
    measure(run, some(run))
    # The new report is byte by byte the old one, so its export is still that of it.
    assert [job for _, job in done(log)] == ["train fp16 latency", "eager fp32"]


def test_what_was_measured_before_an_error_is_kept(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path)
    monkeypatch.setenv("FAILS", "train")
    with pytest.raises(InputError, match="out of luck"):
        measure(run, some(run))
    kept = run.file("captures", "eager.fp16.latency.json").read_text()
    kept_steps = {name for name in run.manifests() if name.startswith("profile/")}
    assert kept_steps == {"profile/eager.fp16.latency", "profile/eager.fp32.latency"}
    done(log)
    monkeypatch.delenv("FAILS")
    measure(run, some(run))
    jobs = [job for _, job in done(log)]
    assert jobs[0] == "train fp16 latency"
    assert "eager fp16 latency" not in jobs
    assert run.file("captures", "eager.fp16.latency.json").read_text() == kept


def test_a_capture_whose_export_was_interrupted_is_exported_not_taken_again(
    tmp_path: Path, log: Path
) -> None:
    run = a_run(tmp_path)
    measure(run, some(run))
    done(log)
    run.manifest_path("profile/eager.fp16.nsys.export").unlink()
    run.file("captures", "eager.fp16.sqlite").write_bytes(b"half")
    measure(run, some(run))
    assert [job for _, job in done(log)] == ["export"]
    assert captured(run)["eager.fp16"] == "layerline/capture/eager.fp16"


@pytest.mark.parametrize("what", ["SWAPS", "LOSES"])
def test_a_report_of_another_capture_or_none_is_not_believed(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Each is captured alone then."""
    run = a_run(tmp_path)
    monkeypatch.setenv(what, "1")
    measure(run, some(run))
    names = ["eager.fp16", "eager.fp32", "train.fp16"]
    assert captured(run) == {name: f"layerline/capture/{name}" for name in names}
    jobs = [job for _, job in done(log)]
    assert jobs.count("train fp16") == 2 and jobs.count("eager fp32") == (
        2 if what == "LOSES" else 1
    )


def test_what_nsys_cannot_export_is_a_fact_and_the_rest_goes_on(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path)
    monkeypatch.setenv("BREAKS", "1")
    measure(run, some(run, ["train"]))
    skipped = run.manifests()["profile/train.fp16.nsys"]["facts"]["skipped"]
    assert skipped["what"] == "train fp16 under nsys" and "cannot read it" in skipped["why"]
    assert not run.file("captures", "train.fp16.sqlite").exists()
    assert "profile/train.fp16" in run.manifests()


def test_without_a_gpu_it_is_skipped_with_a_reason(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nsys.process, "cuda_usable", lambda: False)
    run = a_run(tmp_path)
    measure(run, some(run, ["eager"]))
    skipped = run.manifests()["profile/eager.fp32.nsys"]["facts"]["skipped"]
    assert skipped["what"] == "eager fp32 under nsys" and "GPU" in skipped["why"]
    assert "fifty times" in run.manifests()["profile/eager.fp16"]["facts"]["skipped"]["why"]


def trained_on_text(run: Run) -> list[Path]:
    """What `layerline train --profile waits` leaves of itself."""
    left = [run.file("captures", f"train.fp16.{s}.json") for s in ("latency", "meta", "waits")]
    step = Step(run, "profile/train.fp16", {"request": {"workload": "gpt2"}}, [], left)
    with step.recording():
        for path in left:
            path.parent.mkdir(exist_ok=True)
            path.write_text("of a text")
    return left


def test_a_training_of_another_command_is_kept_until_it_is_to_be_replaced(
    tmp_path: Path, log: Path
) -> None:
    """Both commands give their files the same names."""
    run = a_run(tmp_path)
    left = trained_on_text(run)
    assert [s.name for s in some(run)] == ["eager.fp16", "eager.fp32"]
    assert {p.read_text() for p in left} == {"of a text"}
    steps.forget(run, ["train"], ["fp16"], "cpu")
    assert not any(p.exists() for p in left)
    assert [s.name for s in some(run)] == ["eager.fp16", "eager.fp32", "train.fp16"]
