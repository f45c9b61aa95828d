"""A run's captures, read as the report reads them; what cannot be used is passed over."""

from __future__ import annotations

from layerline.analysis.captures import eager, engine, files, inventory
from layerline.analysis.captures.captured import Captured
from layerline.analysis.rundir.problems import Problems
from layerline.core.run import Run


def engine_files(run: Run, precision: str, backend: str) -> files.EngineFiles:
    return files.of_engine(run, precision, backend, None, Problems())


def engine_of(run: Run, precision: str, backend: str = "tensorrt") -> Captured:
    return engine.engine(engine_files(run, precision, backend))


def eager_of(run: Run, task: str, precision: str, problems: Problems) -> Captured:
    return eager.eager(files.of_eager(run, task, precision, None, problems), problems)


def captures_of(run: Run) -> list[Captured]:
    return inventory.read(run, None, Problems())
