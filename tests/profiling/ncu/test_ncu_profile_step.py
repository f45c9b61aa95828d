"""Counters as a part of `layerline profile`, and `layerline ncu`."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ncu_fake import Fake, capture, make, reports

from layerline.core.cli.command import cli
from layerline.core.errors import ToolMissing
from layerline.core.roofline_metrics import METRICS
from layerline.profile.ncu import capture as capture_
from layerline.profile.ncu import command as command_
from layerline.profile.ncu import step, target, tool


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return make(tmp_path, monkeypatch)


def subject(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An engine of the fake's run, on a machine that says it has a GPU."""
    monkeypatch.setattr(target, "engine_target", lambda _of: fake.target)
    monkeypatch.setattr(step, "cuda_usable", lambda: True)
    backend = types.SimpleNamespace(name="tensorrt")
    return types.SimpleNamespace(
        run=fake.target.run, precision="fp16", backend=backend, capture=fake.target.file
    )


def test_profile_takes_counters_with_the_rooflines_metrics_at_the_fraction(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = subject(fake, monkeypatch)
    reports(monkeypatch, fake.plan.chosen)
    assert step.counters(of, by_name=False, refused=None) is None
    (call,) = fake.calls()
    assert "--kernel-id" in call and call[call.index("--section") + 1] == tool.DEFAULT_SECTION
    assert call[call.index("--metrics") + 1] == ",".join(METRICS)
    assert step.counters(of, by_name=False, refused=None) is None
    assert len(fake.calls()) == 1  # valid: not taken again


def test_profile_keeps_counters_that_were_taken_with_other_options(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = subject(fake, monkeypatch)
    reports(monkeypatch, fake.plan.chosen)
    other = tool.Options(metrics=("a", "b"))
    command_.measure_one(fake.target, other, every=False, timeout=30)
    step.counters(of, by_name=False, refused=None)
    assert len(fake.calls()) == 1
    assert fake.read(".ncu.meta.json")["options"]["metrics"] == ["a", "b"]


@pytest.mark.parametrize("by_name", [False, True])
def test_forbidden_counters_are_said_once_and_the_rest_goes_on(
    fake: Fake,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    by_name: bool,
) -> None:
    of = subject(fake, monkeypatch)
    fake.mode("forbidden")
    if by_name:
        with pytest.raises(ToolMissing, match="ERR_NVGPUCTRPERM"):
            step.counters(of, by_name=True, refused=None)
        return
    why = step.counters(of, by_name=False, refused=None)
    assert why is not None and "ERR_NVGPUCTRPERM" in why[0]
    assert "NVreg_RestrictProfilingToAdminUsers=0" in capsys.readouterr().err
    assert step.counters(of, by_name=False, refused=why) == why
    assert len(fake.calls()) == 1 and capsys.readouterr().err.count("ERR_NVGPUCTRPERM") == 0
    skipped = fake.target.run.manifests()["profile/fp16.tensorrt.ncu"]["facts"]["skipped"]
    assert skipped["what"] == "counters of fp16 tensorrt" and "as root" in skipped["fix"]


def test_without_ncu_counters_are_skipped_with_the_remedy(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of = subject(fake, monkeypatch)
    monkeypatch.setenv("NCU", "no-such-ncu")
    assert step.counters(of, by_name=False, refused=None) is not None
    assert "install Nsight Compute" in capsys.readouterr().err
    assert "not read: no-such-ncu is not on the PATH" in step.command_lines(of)


def test_files_that_root_left_become_the_users(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Path] = []
    monkeypatch.setattr(tool.nsys, "own", copied.append)
    reports(monkeypatch, fake.plan.chosen)
    capture(fake)
    assert [p.name for p in copied] == [f"{capture_.OUTPUT}.ncu-rep"]


def test_a_dry_run_shows_the_command_before_there_is_a_capture_under_nsys(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = subject(fake, monkeypatch)
    assert "--kernel-id" in step.command_lines(of)
    fake.target.file(".sqlite").unlink()
    first, command, *_ = step.command_lines(of).splitlines()
    assert first.startswith("# of equal launches") and "--section" in command
    assert step.counters(of, by_name=False, refused=None) is None  # the next engine is tried
    assert fake.calls() == []


def test_a_dry_run_needs_no_ncu_and_no_gpu(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands for a cluster are written on a laptop."""
    monkeypatch.setenv("NCU", "no-such-ncu")
    monkeypatch.setattr(command_, "cuda_usable", lambda: False)
    model = fake.target.run.file("export", "model.json")
    model.parent.mkdir(exist_ok=True)
    model.write_text('{"name": "m"}')
    command = ["ncu", "--run", str(fake.target.run.path), "--precision", "fp32", "--of", "eager"]
    shown = CliRunner().invoke(cli, [*command, "--dry-run"])
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("no-such-ncu --nvtx --profile-from-start off --section Compute")
    asked = CliRunner().invoke(cli, command)
    assert isinstance(asked.exception, ToolMissing)
    assert fake.calls() == []
