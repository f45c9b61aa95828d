"""The eager model under nsys: the same work as under torch.profiler, told by another tool.

Leaves ``captures/{task}.{precision}.nsys-rep``, ``.sqlite`` and ``.nsys.meta.json``; `task` is
``eager`` or ``train``. NVTX carries the same names of modules, phases and iterations, and PyTorch's
own ranges carry sequence numbers, so that the same rules apply (``attribution/eager_nsys.py``).
"""

from __future__ import annotations

import sys
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
SECONDS = 600.0  # of the whole run, loading the model included
SUFFIXES = (".nsys-rep", ".sqlite", ".nsys.meta.json")


def why_not(precision: str, options: dict[str, Any]) -> tuple[str, str] | None:
    """Why it is not captured here, with what to do about it; None where it is."""
    if options.get("device") == "cpu" or not process.cuda_usable():
        return "nsys tells the kernels of NVIDIA GPUs, and there is none", "use a GPU"
    why = nsys.missing()
    if why is not None:
        return why, nsys.INSTALL
    reason = process.why_not(precision, options)
    return None if reason is None else (reason, "use fp32")


def outputs(run: Run, precision: str, task: Task) -> list[Path]:
    """The files that `capture` leaves."""
    names = [CaptureName(task, precision, suffix=suffix) for suffix in SUFFIXES]
    return [name.path(run.file("captures")) for name in names]


def capture(run: Run, precision: str, task: Task, options: dict[str, Any]) -> dict[str, Any]:
    """Capture a few iterations under nsys and export them; gives facts for the manifest.

    `options` (all optional): device, threads, seed, learning_rate, warmup, traced (iterations).
    The caller holds the machine's lock. LayerlineError where nsys or the worker fails; no report
    is left then.
    """
    report, sqlite, meta = outputs(run, precision, task)
    iterations = int(options.get("traced", ITERATIONS))
    job = {
        "task": task,
        "precision": precision,
        "model": str(run.file("export", "model.json")),
        "options": {**options, "warmup": options.get("warmup", WARMUP), "traced": iterations},
    }
    what = f"{task} {precision}"
    answer = nsys.capture(WORKER, job, report, sqlite, what=what, timeout=SECONDS)
    document = {
        **answer["facts"],
        "schema_version": 1,
        "source": sqlite.name,
        "task": task,
        "precision": precision,
        "iterations": iterations,
        "command": answer["command"],
        "machine": answer["machine"],
    }
    write_json(meta, document)
    return {"iterations": iterations}
