"""What `layerline profile` would run, as text: workers with their jobs, nsys around one of them."""

from __future__ import annotations

from pathlib import Path

from ..engines import launch
from . import nsys
from .eager import nsys as nsys_
from .eager import process
from .engine import measure, trace
from .engine.measure import Plan, Subject


def engine(of: Subject, unprofiled: Plan, profiled: Plan, traced: int) -> list[str]:
    """The commands for one engine, in order."""
    worker = of.backend.worker().command
    raw = of.capture(measure.PROFILE)
    latency = launch.shell_line(worker, of.job("latency", None, unprofiled.as_job()))
    lines = [
        launch.shell_line(worker, of.job("outputs", of.capture(".outputs.npz"))),
        *[latency] * unprofiled.processes,
        launch.shell_line(worker, of.job("profile", raw, profiled.as_job())),
    ]
    if of.traceable:
        why = nsys.missing()
        if why is not None:
            return [*lines, f"# kernels are not captured: {why}"]
        report = of.capture(".nsys-rep")
        under = [*nsys.prefix(report.with_suffix("")), *worker]
        lines.append(launch.shell_line(under, trace.job(of, traced)))
        lines.append(launch.shell_line(nsys.export_command(report, of.capture(".sqlite"))))
    return lines


def torch_side(task: str, precision: str) -> str:
    """The jobs of the eager model or its training, with the worker that does them with others."""
    why = process.why_not(precision, {})
    if why is not None:
        return f"# {task} {precision} is not measured here: {why}"
    job = {"task": task, "precision": precision}
    worker = process.WORKER.command
    lines = [launch.shell_line(worker, {**job, "part": part}) for part in process.PARTS]
    if nsys_.why_not(precision, {}) is None:
        under = nsys.prefix(Path(f"{task}.{precision}"))
        lines.append(launch.shell_line([*under, *nsys_.WORKER.command], job))
    return "\n".join(lines)
