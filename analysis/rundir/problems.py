"""What of a run cannot be shown: the report is made of all that can, and lists the rest.

A run has twenty captures and more, and one that is cut short must not take the others with it. So
whoever reads a run passes `Problems` along: an error about a file leaves out what is made of that
file alone, and is kept for the report. A command that has one input passes None: there the error
ends the command.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...core.errors import CheckFailed, LayerlineError
from ...core.run import Run

_AGAIN = "copy it again from where it was made, or make it again"


@dataclass
class Problems:
    """`skipped`: what was not measured, or not asked for: what, why, the fix and, where a file
    tells it, the file. `errors`: those about files that cannot be used, in their order, each once,
    with all that is not shown for want of its file (none: the file's own facts are unknown)."""

    skipped: list[dict[str, str]] = field(default_factory=list)
    errors: list[tuple[LayerlineError, list[str]]] = field(default_factory=list)

    def skip(self, what: str, why: str, fix: str | None, **more: str) -> None:
        """List what was not measured; `more`: the file that tells it."""
        self.skipped.append({"what": what, "why": why, "fix": fix or "", **more})

    def keep(self, error: LayerlineError, what: str | None = None) -> None:
        """Keep an error, with `what` is lost by it. Several things may be lost for want of one
        file: each is named."""
        line = error.line()
        lost = next((lost for e, lost in self.errors if e.line() == line), None)
        if lost is None:
            lost = []
            self.errors.append((error, lost))
        if what is not None and what not in lost:
            lost.append(what)

    @contextlib.contextmanager
    def without(self, what: str) -> Iterator[None]:
        """Go on without `what` where it ends in an error, which is kept."""
        try:
            yield
        except LayerlineError as e:
            self.keep(e, what)

    def listed(self, run: Run) -> list[dict[str, str]]:
        """What reports list: all that is skipped, then the errors; of these what is not there, why,
        the fix, and the file by its path in the run."""
        rows = list(self.skipped)
        for error, lost in self.errors:
            file, what = _inside(run, error.file), ", ".join(lost)
            why = ": ".join(filter(None, (file, error.what))) if lost else error.what
            row = {"what": what or file, "why": why, "fix": error.fix or _AGAIN}
            rows.append({**row, "file": file or what})
        return rows

    def raise_first(self) -> None:
        """Raise the first error of a capture: there is nothing to show instead of it."""
        for error, lost in self.errors:
            if lost:
                raise error


def keep(error: LayerlineError, problems: Problems | None, what: str | None = None) -> None:
    """Keep an error; raise it where nobody collects."""
    if problems is None:
        raise error
    problems.keep(error, what)


def failed(
    listed: Iterable[Mapping[str, str]], file: Path, wrong: Iterable[tuple[str, str]] = ()
) -> CheckFailed | None:
    """That `file` was made without what is `listed`, in one line; after `wrong`, what else is wrong
    with it, and the fix of each. None where nothing is."""
    faults = [*wrong, *((f"made without {o['what']}: {o['why']}.", o["fix"]) for o in listed)]
    if not faults:
        return None
    what = " ".join(text for text, _ in faults).rstrip(".")
    return CheckFailed(what, file=file, fix="; ".join(dict.fromkeys(fix for _, fix in faults)))


def _inside(run: Run, file: str | None) -> str:
    return run.relative(Path(file)) if file else ""
