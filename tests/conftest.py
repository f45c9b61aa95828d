"""Fixtures of run directories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h100_tiny
import pytest
from run_by_hand import write_run

from layerline.core import files
from layerline.core.cli import progress
from layerline.core.run import Run


@pytest.fixture
def h100(tmp_path: Path) -> Run:
    """TensorRT under nsys, fp32 and fp16, as an H100 left it."""
    return h100_tiny.write_run(tmp_path / "tiny")


@pytest.fixture
def made(tmp_path: Path) -> Run:
    """One engine of ONNX Runtime by its own profile, and one eager capture."""
    write_run(tmp_path / "run")
    return Run(tmp_path / "run")


@pytest.fixture(autouse=True, scope="session")
def _alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests wait for nobody else's measurement."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "LOCK_PATH", tmp_path_factory.mktemp("lock") / "lock")
        yield


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """A command with ``--quiet`` silences the process: later tests hear it again."""
    yield
    progress.set_quiet(False)


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said after two seconds is not said on a slow machine only."""
    monkeypatch.setattr(progress, "AFTER_S", 3600.0)
