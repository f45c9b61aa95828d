"""Small files of a run directory, of which any may be missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core import documents
from ...core.documents import D, Document
from ...core.errors import InputError
from ...core.files import read_json
from ...core.run import Run
from . import provenance
from .problems import Problems, keep


def needed(path: Path, form: type[D]) -> D | None:
    """A file without which the numbers would be others. None where there is none, or nothing in it.

    InputError where it is broken or of another form, of something else than its name says, or of
    another run (`provenance`).
    """
    return _read(path, form)[1]


def optional(path: Path, form: type[D], problems: Problems | None) -> D | None:
    """The same; one that cannot be used is a problem, and counts as missing."""
    return _optional(path, form, problems)[1]


def document(path: Path, form: type[Document], problems: Problems | None) -> dict[str, Any]:
    """As `optional`, as it is written, with the keys that are not described; empty where there is
    none."""
    return _optional(path, form, problems)[0]


def describing(path: Path, form: type[D], problems: Problems | None) -> D | None:
    """As `optional`, for what describes a raw capture: of another one, it was copied with it, so
    nothing is known of the capture either. InputError then."""
    try:
        return needed(path, form)
    except provenance.Foreign:
        raise
    except InputError as e:
        keep(e, problems)
        return None


def plan_of(folder: Path, stem: str, problems: Problems | None = None) -> dict[str, Any] | None:
    """The plan of an ncu capture, as `document`; None where it has none."""
    return document(folder / f"{stem}.ncu.plan.json", Document, problems) or None


def _read(path: Path, form: type[D]) -> tuple[dict[str, Any], D | None]:
    if not path.exists():
        return {}, None
    written = read_json(path, fix=form.FIX)
    read = documents.of_form(written, form, path)
    provenance.check(path, written)
    return written, read if written else None


def _optional(
    path: Path, form: type[D], problems: Problems | None
) -> tuple[dict[str, Any], D | None]:
    try:
        return _read(path, form)
    except InputError as e:
        keep(e, problems)
        return {}, None


def spare(run: Run, path: Path) -> None:
    """InputError where a file of the run, other than its reports, would be overwritten."""
    inside = path.resolve().is_relative_to(run.path.resolve())
    if inside and path.exists() and path.resolve().parent != run.file("report").resolve():
        raise InputError(
            "is a file of the run, and would be lost", file=path, fix="name another output"
        )
