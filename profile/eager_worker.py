"""The eager worker: a process of its own, so that a trace holds the model and nothing else.

``python -m layerline.profile.eager_worker JOB.json``; the job names what to do, and where the
result goes: ``{"protocol": 1, "ok": true, "facts": {...}}`` or the error of a LayerlineError.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from layerline.core.errors import LayerlineError
from layerline.core.files import read_json, write_json


def main(path: Path) -> int:
    """Do the job; an error that the user can act on goes into the result."""
    job: dict[str, Any] = read_json(path)
    try:
        if job["task"] == "train":
            from .train_measure import run
        else:
            from .eager_measure import run
        result: dict[str, Any] = {"protocol": 1, "ok": True, "facts": run(job)}
    except LayerlineError as e:
        error = {"exit_code": e.exit_code, "what": e.what, "file": e.file, "fix": e.fix}
        result = {"protocol": 1, "ok": False, "error": error}
    write_json(Path(job["result"]), result)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
