"""The eager worker: a process of its own, so that a trace holds the model and nothing else.

``python -m layerline.profile.eager.worker JOB``; the job names what to do, and where the result
goes: ``{"protocol": 1, "ok": true, "facts": {...}}`` or the error of a LayerlineError. JOB is a
file, or a FIFO where jobs come in turn (`launch.Serving`): Python, torch and the model start once
for all of them. A job's ``task`` is ``ready`` (import everything and build the model, no GPU yet),
``outputs``, ``modules``, or ``eager`` or ``train``, its ``part`` then ``latency`` or ``trace``.

Torch's profiler leaves its hooks in a process (CUPTI): where both are to be measured, latencies
come first.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...core.errors import LayerlineError
from ...core.files import read_json, write_json
from ...engines.workers.common import jobs

Run = Callable[[dict[str, Any]], dict[str, Any]]


def answer(path: Path, run: Run) -> int:
    """Do the job, or the jobs, at `path` with `run`, which gives facts; gives the process's exit
    code.

    An error that the user can act on goes into the result; anything else is a traceback.
    """
    for one in jobs(path):
        _do(Path(one), run)
    return 0


def _do(path: Path, run: Run) -> None:
    job: dict[str, Any] = read_json(path)
    result: dict[str, Any]
    try:
        result = {"protocol": 1, "ok": True, "facts": run(job)}
    except LayerlineError as e:
        error = {"exit_code": e.exit_code, "what": e.what, "file": e.file, "fix": e.fix}
        result = {"protocol": 1, "ok": False, "error": error}
    except OSError as e:  # a folder that nobody may write into, say
        if e.filename is None:
            raise
        error = {"exit_code": 2, "what": e.strerror or str(e), "file": str(e.filename), "fix": None}
        result = {"protocol": 1, "ok": False, "error": error}
    _release()  # before the answer: the next job, or another process, may want the GPU's memory
    write_json(Path(job["result"]), result)


def _release() -> None:
    """Give back what a job left in memory."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Measure training or inference, or only write outputs, as the job says; gives facts."""
    from . import measure_inference, measure_training, module_outputs, outputs, setup

    if job["task"] == "ready":
        return setup.ready(job)
    if job["task"] == "outputs":
        return outputs.run(job)
    if job["task"] == "modules":
        return module_outputs.run(job)
    measure = measure_training if job["task"] == "train" else measure_inference
    with setup.explained(job):
        facts: dict[str, Any] = getattr(measure, job["part"])(job)
    return facts


if __name__ == "__main__":
    sys.exit(answer(Path(sys.argv[1]), run))
