"""Small files of a run directory, of which any may be missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core import documents
from ...core.errors import InputError
from . import problems, provenance

# A raw JSON capture above it is not read a second time for check (i).
RAW_LIMIT_BYTES = 300_000_000
# Traces compress to about a twentieth.
COMPRESSION = 20


def optional(path: Path) -> dict[str, Any]:
    """A JSON object of the form that its name asks for, empty where there is no such file.

    One that is broken, or has values of other types (`core.documents`), counts as missing where
    such errors are collected (`unusable`); else it is an InputError.
    """
    try:
        return needed(path)
    except InputError as e:
        if not problems.note(e):
            raise
        return {}


def needed(path: Path) -> dict[str, Any]:
    """The same, where the numbers would be others without what is in it: InputError always, also
    for one that is of something else than its name says, or of another run (`belongs`)."""
    if not path.exists():
        return {}
    found = documents.read(path)
    provenance.check(path, found)
    return found


def describing(path: Path) -> dict[str, Any]:
    """As `optional`, for what describes a raw capture: of another one, it was copied with it, so
    nothing is known of the capture either. InputError then."""
    try:
        return needed(path)
    except provenance.Foreign:
        raise
    except InputError:
        return optional(path)


def plan_of(folder: Path, stem: str) -> dict[str, Any] | None:
    """The plan of an ncu capture, as `optional`; null where it has none."""
    return optional(folder / f"{stem}.ncu.plan.json") or None


def small(path: Path) -> bool:
    """Whether a raw JSON file is worth being read whole once more."""
    size = path.stat().st_size * (COMPRESSION if path.suffix == ".gz" else 1)
    return size <= RAW_LIMIT_BYTES
