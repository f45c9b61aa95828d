"""What the PyTorch workers share: the job in, the result or the user's error out."""

from __future__ import annotations

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
