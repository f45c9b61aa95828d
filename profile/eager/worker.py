"""The eager worker: a process of its own, so that a trace holds the model and nothing else.

``python -m layerline.profile.eager.worker JOB.json``; the job names what to do, and where the
result goes: ``{"protocol": 1, "ok": true, "facts": {...}}`` or the error of a LayerlineError.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from .worker_main import answer


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Measure training or inference, as the job says; gives facts."""
    if job["task"] == "train":
        from .measure_training import run as measure
    else:
        from .measure_inference import run as measure
    return measure(job)


if __name__ == "__main__":
    sys.exit(answer(Path(sys.argv[1]), run))
