"""The eager model under nsys: the same work as under torch.profiler, told by another tool.

Leaves ``captures/{task}.{precision}.nsys-rep``, ``.sqlite`` and ``.nsys.meta.json``; `task` is
``eager`` or ``train``. NVTX carries the same names of modules, phases and iterations, and PyTorch's
own ranges carry sequence numbers, so that the same rules apply (``attribution/eager_nsys.py``).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.capture_names import CaptureName, Task
from ...core.files import write_json
from ...core.run import Run
from ...engines.backend import Worker
from .. import nsys
from . import process

WORKER = Worker((sys.executable, "-P", "-m", "layerline.profile.eager.nsys_worker"))
WARMUP = 3
ITERATIONS = 6
SECONDS = 600.0  # of one capture, loading the model included
REPORT, META, SQLITE = ".nsys-rep", ".nsys.meta.json", ".sqlite"


def why_not(precision: str, options: dict[str, Any]) -> tuple[str, str] | None:
    """Why it is not captured here, with what to do about it; None where it is."""
    if options.get("device") == "cpu" or not process.cuda_usable():
        return "nsys tells the kernels of NVIDIA GPUs, and there is none", "use a GPU"
    why = nsys.missing()
    if why is not None:
        return why, nsys.INSTALL
    reason = process.why_not(precision, options)
    return None if reason is None else (reason, "use fp32")


def output(run: Run, precision: str, task: Task, suffix: str) -> Path:
    """A file of a capture."""
    return CaptureName(task, precision, suffix=suffix).path(run.file("captures"))


def capture(
    captures: nsys.Captures, run: Run, precision: str, task: Task, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Capture a few iterations; gives the worker's answer, for `keep`.

    `options` (all optional): device, threads, seed, learning_rate, warmup, traced (iterations).
    The caller holds the machine's lock. LayerlineError where nsys or the worker fails.
    """
    iterations = int(options.get("traced", ITERATIONS))
    job = {
        "task": task,
        "precision": precision,
        "model": str(run.file("export", "model.json")),
        "mark": nsys.mark(CaptureName(task, precision)),
        "options": {**options, "warmup": options.get("warmup", WARMUP), "traced": iterations},
    }
    answer = captures.call(job, f"{task} {precision}", SECONDS)
    return {**answer, "iterations": iterations}


def keep(
    run: Run, precision: str, task: Task, answer: Mapping[str, Any], report: Path
) -> dict[str, Any]:
    """Write the report of a capture, and how it was taken; gives facts for the manifest."""
    nsys.keep(report, output(run, precision, task, REPORT))
    document = {
        **answer["facts"],
        "schema_version": 1,
        "source": output(run, precision, task, SQLITE).name,
        "task": task,
        "precision": precision,
        "iterations": answer["iterations"],
        "command": answer["command"],
        "machine": answer["machine"],
    }
    write_json(output(run, precision, task, META), document)
    return {"iterations": answer["iterations"], "capture_seconds": answer["seconds"]}


def export(run: Run, precision: str, task: Task) -> dict[str, Any]:
    """Export the report. InputError also where it holds another capture of the same nsys."""
    report, mark = output(run, precision, task, REPORT), nsys.mark(CaptureName(task, precision))
    nsys.export(report, output(run, precision, task, SQLITE), mark)
    return {}
