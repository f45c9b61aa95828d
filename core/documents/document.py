"""Of what form a JSON file of a run directory is, and how one is read.

Only what is read is described; the stages that write these files are the source. Null is unknown in
every file of ours, and older files lack newer keys: a null counts as a key that is not there, and
keys that nobody reads are not looked at. Elements of a list are never null: a missing sample is no
sample.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, TypeVar

from msgspec import Struct

from ..files import read_json
from .forms import check


class Document(Struct, kw_only=True):
    """A whole file. `FIX`: what to do where it is of another form."""

    FIX: ClassVar[str] = "measure again (layerline profile)"


D = TypeVar("D", bound=Document)


def read(path: Path, form: type[D]) -> D:
    """A JSON file of a run. InputError where it is missing, no object, or of another form."""
    return of_form(read_json(path, fix=form.FIX), form, path)


def checked(path: Path, form: type[Document]) -> dict[str, Any]:
    """The same as it is written, with the keys that are not described."""
    document: dict[str, Any] = read_json(path, fix=form.FIX)
    of_form(document, form, path)
    return document


def of_form(document: Any, form: type[D], path: Path) -> D:
    """A JSON file that was parsed. InputError, naming the file and the place in it, where it is of
    another form."""
    return check(_known(document), form, path, form.FIX)


def _known(value: Any) -> Any:
    """The same without what is null, but for what a model says in files of its own."""
    if isinstance(value, list):
        return [_known(v) for v in value]
    if not isinstance(value, dict):
        return value
    kept = {k: v for k, v in value.items() if v is not None}
    return {k: v if k in ("config", "overrides") else _known(v) for k, v in kept.items()}
