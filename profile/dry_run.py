"""What `layerline profile` would run, as text: workers with their jobs, nsys around one of them."""

from __future__ import annotations

import sys
from pathlib import Path

from ..engines import launch
from ..engines.backend import inputs_path
from . import nsys
from .eager import nsys as nsys_
from .eager.process import why_not
from .engine.measure import Plan, Subject
from .engine.trace import WARMUP

EAGER = (sys.executable, "-P", "-m", "layerline.profile.eager.worker")


def engine(of: Subject, unprofiled: Plan, profiled: Plan, traced: int) -> list[str]:
    """The commands for one engine, in order."""
    worker = of.backend.worker().command
    once = {"min": traced, "max": traced}
    trace = {"warmup": WARMUP, "iterations": once, "target": 1.0, "seconds": 60}

    def job(task: str, raw: Path | None, plan: dict[str, object] | None) -> dict[str, object]:
        options = of.backend.job_options(of.run, of.precision)
        given = inputs_path(of.run)
        return launch.job(
            task, of.engine, given, of.precision,
            threads=of.threads, options=options, raw=raw, plan=plan,
        )  # fmt: skip

    raw = of.capture(of.backend.profile_suffix)
    latency = launch.shown(worker, job("latency", None, unprofiled.as_job()))
    lines = [
        *[latency] * unprofiled.processes,
        launch.shown(worker, job("profile", raw, profiled.as_job())),
        launch.shown(worker, job("outputs", of.capture(".outputs.npz"), None)),
    ]
    if of.backend.traceable:
        why = nsys.missing()
        if why is not None:
            return [*lines, f"# kernels are not captured: {why}"]
        report = of.capture(".nsys-rep")
        under = [*nsys.prefix(report.with_suffix("")), *worker]
        own = of.backend.trace_suffix
        lines.append(launch.shown(under, job("trace", of.capture(own) if own else None, trace)))
        lines.append(launch.shown(nsys.export_command(report, of.capture(".sqlite"))))
    return lines


def torch_side(part: str, precision: str) -> str:
    """The command for the eager model or its training."""
    why = why_not(precision, {})
    if why is not None:
        return f"# {part} {precision} is not measured here: {why}"
    job = {"task": part, "precision": precision}
    line = launch.shown(EAGER, job)
    if nsys_.why_not(precision, {}) is None:
        under = nsys.prefix(Path(f"{part}.{precision}"), nsys_.TRACES)
        line += "\n" + launch.shown([*under, *nsys_.WORKER], job)
    return line
