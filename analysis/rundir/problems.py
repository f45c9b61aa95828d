"""Files of a run that cannot be used: the report is made of all others, and names these.

A run has twenty captures and more, and one that is cut short must not take the others with it. So
within `collecting` an error about a file leaves out what is made of that file alone, and is kept
for the report. Elsewhere, where a command has that one input, it ends the command as ever.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from ...core.errors import CheckFailed, LayerlineError
from ...core.run import Run

_AGAIN = "copy it again from where it was made, or make it again"


@dataclass
class Unusable:
    """The errors that were kept, in their order, each once, with all that is not shown for want of
    its file (none: the file's own facts are unknown)."""

    errors: list[tuple[LayerlineError, list[str]]] = field(default_factory=list)

    def keep(self, error: LayerlineError, what: str | None) -> None:
        """Several things may be lost for want of one file: each is named."""
        line = error.line()
        lost = next((lost for e, lost in self.errors if e.line() == line), None)
        if lost is None:
            lost = []
            self.errors.append((error, lost))
        if what is not None and what not in lost:
            lost.append(what)

    def listed(self, run: Run) -> list[dict[str, str]]:
        """What reports list: what is not there, why, the fix, and the file by its path in the
        run."""
        found = []
        for error, lost in self.errors:
            file, what = _inside(run, error.file), ", ".join(lost)
            why = ": ".join(filter(None, (file, error.what))) if lost else error.what
            one = {"what": what or file, "why": why, "fix": error.fix or _AGAIN}
            found.append({**one, "file": file or what})
        return found

    def none_left(self) -> None:
        """Raise the first error of a capture: there is nothing to show instead of it."""
        for error, lost in self.errors:
            if lost:
                raise error


def failed(
    listed: Iterable[Mapping[str, str]], file: Path, wrong: Iterable[tuple[str, str]] = ()
) -> CheckFailed | None:
    """That `file` was made without what is `listed`, in one line; after `wrong`, what else is wrong
    with it, and the fix of each. Null where nothing is."""
    told = [*wrong, *((f"made without {o['what']}: {o['why']}.", o["fix"]) for o in listed)]
    if not told:
        return None
    what = " ".join(text for text, _ in told).rstrip(".")
    return CheckFailed(what, file=file, fix="; ".join(dict.fromkeys(fix for _, fix in told)))


def _inside(run: Run, file: str | None) -> str:
    if file is None:
        return ""
    path = Path(file)
    return path.relative_to(run.path).as_posix() if path.is_relative_to(run.path) else file


_current: ContextVar[Unusable | None] = ContextVar("unusable", default=None)


@contextlib.contextmanager
def collecting() -> Iterator[Unusable]:
    """Keep errors about files of a run instead of ending with the first."""
    kept = Unusable()
    token = _current.set(kept)
    try:
        yield kept
    finally:
        _current.reset(token)


def note(error: LayerlineError, what: str | None = None) -> bool:
    """Keep an error, with `what` is lost by it; whether anybody collects them."""
    kept = _current.get()
    if kept is None:
        return False
    kept.keep(error, what)
    return True


@contextlib.contextmanager
def aside(what: str) -> Iterator[None]:
    """Go on without `what` where it ends in an error, which is kept; raised if none collects."""
    try:
        yield
    except LayerlineError as e:
        if not note(e, what):
            raise
