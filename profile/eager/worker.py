"""The eager worker: a process of its own, so that a trace holds the model and nothing else.

``python -m layerline.profile.eager.worker JOB.json``; the job names what to do, and where the
result goes: ``{"protocol": 1, "ok": true, "facts": {...}}`` or the error of a LayerlineError.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...core.errors import LayerlineError
from ...core.files import read_json, write_json


def answer(path: Path, run: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """Do the job at `path` with `run`, which gives facts; gives the process's exit code.

    An error that the user can act on goes into the result; anything else is a traceback.
    """
    job: dict[str, Any] = read_json(path)
    result: dict[str, Any]
    try:
        result = {"protocol": 1, "ok": True, "facts": run(job)}
    except LayerlineError as e:
        error = {"exit_code": e.exit_code, "what": e.what, "file": e.file, "fix": e.fix}
        result = {"protocol": 1, "ok": False, "error": error}
    write_json(Path(job["result"]), result)
    return 0


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Measure training or inference, or only write outputs, as the job says; gives facts."""
    if job["task"] == "train":
        from .measure_training import run as measure
    elif job["task"] == "outputs":
        from .outputs import run as measure
    elif job["task"] == "modules":
        from .module_outputs import run as measure
    else:
        from .measure_inference import run as measure
    return measure(job)


if __name__ == "__main__":
    sys.exit(answer(Path(sys.argv[1]), run))
