"""Small files of a run directory, of which any may be missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..core.files import read_json

# A raw JSON capture above it is not read a second time for check (i).
RAW_LIMIT_BYTES = 300_000_000
# Traces compress to about a twentieth.
COMPRESSION = 20


def optional(path: Path) -> dict[str, Any]:
    """A JSON object, empty where there is no such file. A broken file is an error."""
    if not path.exists():
        return {}
    found = read_json(path)
    if not isinstance(found, dict):
        raise InputError("is not a JSON object", file=path, fix="make it again")
    return found


def small(path: Path) -> bool:
    """Whether a raw JSON file is worth being read whole once more."""
    size = path.stat().st_size * (COMPRESSION if path.suffix == ".gz" else 1)
    return size <= RAW_LIMIT_BYTES
