"""What is captured under ncu: an engine, the eager model, or its training."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.capture_names import EVERY, RANGE
from ...core.files import read_json
from ...core.replay import plan as plan_
from ...core.replay.plan import Launch, Plan
from ...core.run import Run
from ...engines import launch
from ...engines.backend import Worker, inputs_path
from ...engines.layers import load as load_layers
from ..engine.measure import Subject
from . import eager_launches, inductor_launches
from . import launches as launches_

WARMUP = 2


@dataclass(frozen=True)
class Target:
    """What is captured: a worker with its job, and the names of the files.

    `job` takes the number of warming iterations. `sqlite`: the nsys export of the same work.
    `about` goes into the meta file. `torch`: ncu's report has no layers, which the nsys capture
    has. `layers`: layers.json of a package of inductor, whose places that capture tells.
    """

    run: Run
    stem: str
    worker: Worker
    job: Callable[[int], dict[str, Any]]
    inputs: list[Path]
    sqlite: Path | None
    about: dict[str, Any]
    torch: bool = False
    layers: Path | None = None

    @property
    def warmup(self) -> int:
        """Iterations before a capture of chosen invocations. An engine's first inference is like
        the others, so nothing needs to run before, wherever ncu counts from; a first training
        step is another one (the optimizer makes its state)."""
        return WARMUP if self.torch else 0

    def every(self) -> Target:
        """The same with other files: a capture of every launch lies beside the usual one."""
        return dataclasses.replace(self, stem=f"{self.stem}.{EVERY}")

    def whole(self) -> Target:
        """The same with other files: counters of the iteration as one are no launch's."""
        return dataclasses.replace(self, stem=f"{self.stem}.{RANGE}")

    def file(self, suffix: str) -> Path:
        """A file of this capture."""
        return self.run.file("captures", self.stem + suffix)

    def plan(self) -> Plan | None:
        """What to replay, by the run's nsys capture; None where there is none."""
        launches = self.launches()
        return None if launches is None else plan_.plan(launches)

    def launches(self) -> list[Launch] | None:
        """The launches of one iteration by the run's nsys capture; None where there is none."""
        if self.sqlite is None or not self.sqlite.exists():
            return None
        if not self.torch:
            return launches_.of_nsys(self.sqlite)
        if self.layers is not None:
            return inductor_launches.of_nsys(self.sqlite, load_layers(self.layers)["layers"])
        meta = self.sqlite.with_suffix(".nsys.meta.json")
        about = read_json(meta) if meta.exists() else {}
        return eager_launches.of_nsys(self.sqlite, about.get("modules") or {})


def engine_target(of: Subject) -> Target:
    """One inference of an engine between profiler start and stop, on an idle stream: a replay
    would wait for a gate."""

    def job(warmup: int) -> dict[str, Any]:
        plan = {"warmup": warmup, "iterations": {"min": 1, "max": 1}, "target": 1.0, "seconds": 60}
        options = {**of.backend.job_options(of.run, of.precision), "queued": False}
        return launch.job(
            "trace", of.engine, inputs_path(of.run), of.precision,
            threads=of.threads, options=options, plan=plan,
        )  # fmt: skip

    about = {"precision": of.precision, "backend": of.backend.name, "engine": of.engine.name}
    # Of other backends every launch is replayed.
    sqlite = of.capture(".sqlite") if of.backend.tells_launches else None
    package = not of.backend.from_onnx
    return Target(
        of.run,
        f"{of.precision}.{of.backend.name}",
        of.backend.worker(),
        job,
        of.inputs(),
        sqlite,
        about,
        torch=package,
        layers=of.backend.layers(of.run, of.precision) if package else None,
    )


def torch_target(run: Run, what: str, precision: str) -> Target:
    """One inference of the eager model, or one step of its training."""

    def job(warmup: int) -> dict[str, Any]:
        model = run.file("export", "model.json")
        return {
            "task": what,
            "precision": precision,
            "model": str(model),
            "options": {"warmup": warmup},
        }

    worker = Worker((sys.executable, "-P", "-m", "layerline.profile.ncu.eager_worker"))
    inputs = [run.file("export", "model.json"), inputs_path(run)]
    about = {"precision": precision, "what": what}
    sqlite = run.file("captures", f"{what}.{precision}.sqlite")
    return Target(run, f"{what}.{precision}", worker, job, inputs, sqlite, about, torch=True)
