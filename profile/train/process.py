"""A training run: the workers that measure it, and what they leave in captures/."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...core.capture_names import CaptureName
from ...core.cli.progress import progress
from ...core.errors import ToolMissing
from ...core.files import write_json
from ...core.run import Run
from ...engines import launch
from ...engines.backend import Worker
from ...workloads.request import Request
from .. import nsys
from ..eager.plugins import PLUGINS

WORKER = Worker(
    (sys.executable, "-P", "-m", "layerline.profile.train.worker"), {"KINETO_LOG_LEVEL": "4"}
)
LATENCY, META = ".latency.json", ".meta.json"
NSYS_SECONDS = 3600.0


@dataclass(frozen=True)
class Plan:
    """How long to train, what is to watch, and the options of that."""

    steps: int = 30
    warmup: int = 3
    profile: Sequence[str] = ("torch", "operators")
    options: Mapping[str, Any] = field(default_factory=dict)

    def job(self, request: Request, folder: Path) -> dict[str, Any]:
        """The worker's job."""
        return {
            "request": request.as_dict(),
            "profile": list(self.profile),
            "folder": str(folder),
            "steps": self.steps,
            "warmup": self.warmup,
            "options": dict(self.options),
        }


def outputs(run: Run, precision: str, profile: Sequence[str]) -> list[Path]:
    """The files that `capture` leaves, of one process."""
    suffixes = [LATENCY, META, *(s for name in profile for s in PLUGINS[name].suffixes)]
    folder = run.file("captures")
    return [CaptureName("train", precision, suffix=s).path(folder) for s in suffixes]


def capture(run: Run, request: Request, plan: Plan) -> dict[str, Any]:
    """Train and measure in a worker, under nsys in a second one; gives facts for the manifest."""
    if importlib.util.find_spec("torch") is None:
        raise ToolMissing("PyTorch is not installed", fix="pip install 'layerline[model]'")
    folder = run.file("captures")
    folder.mkdir(parents=True, exist_ok=True)
    what = f"training {request.workload} {request.precision}"
    beside = [name for name in plan.profile if not PLUGINS[name].under_nsys]
    own = replace(plan, profile=beside)
    with progress(what):
        facts: dict[str, Any] = launch.call(WORKER, own.job(request, folder))["facts"]
    if "nsys" in plan.profile:
        _under_nsys(run, request, replace(plan, steps=0, profile=["nsys"]), what)
    return facts


def _under_nsys(run: Run, request: Request, plan: Plan, what: str) -> None:
    report, sqlite, meta = outputs(run, request.precision, ["nsys"])[2:]
    with nsys.Captures(WORKER, traces=nsys.ON_DEVICE) as captures:
        captures.worker.start()
        done = captures.call(plan.job(request, run.file("captures")), what, NSYS_SECONDS)
        [written] = captures.reports(NSYS_SECONDS)
        nsys.keep(written, report)
    nsys.export(report, sqlite, nsys.mark(CaptureName("train", request.precision)))
    document = {
        **done["facts"],
        "schema_version": 1,
        "source": sqlite.name,
        "task": "train",
        "precision": request.precision,
        "command": done["command"],
        "machine": done["machine"],
    }
    write_json(meta, document)
