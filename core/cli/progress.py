"""What a command is doing: a moving bar for people, a plain line for logs.

Everything that may take over two seconds is inside `progress`. On a terminal that is a bar on
stderr, with the time left where the number of pieces is known. In a pipe it is one line, written
when two seconds are over. With ``--quiet`` it is nothing.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ..errors import one_line

AFTER_S = 2.0  # a step that ends before is not worth a line in a log

_console = Console(stderr=True, highlight=False, emoji=False)
_quiet = False
_inside = False


def set_quiet(quiet: bool) -> None:
    """Silence `log` and the bars (errors are still printed)."""
    global _quiet
    _quiet = quiet


def log(message: str) -> None:
    """One line for the user on stderr. Names from files are safe: control characters escaped."""
    if not _quiet:
        _console.print(one_line(message), markup=False, soft_wrap=True)


class Doing:
    """What is being done, told further: `now` says what comes next, `done` counts pieces."""

    def __init__(self, bar: Progress | None = None) -> None:
        self._bar = bar

    def now(self, what: str) -> None:
        """The work has come to `what`."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=one_line(what))

    def done(self, pieces: int = 1) -> None:
        """So many more pieces are done."""
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0], pieces)


@contextlib.contextmanager
def progress(what: str, pieces: int | None = None) -> Iterator[Doing]:
    """Shows `what` while the block runs, and of how many `pieces`, where that is known.

    Inside another it shows nothing: the outer one says what is done.
    """
    global _inside
    if _quiet or _inside:
        yield Doing()
        return
    _inside = True
    try:
        with _bar(what, pieces) if sys.stderr.isatty() else _line(what) as doing:
            yield doing
    finally:
        _inside = False


@contextlib.contextmanager
def _bar(what: str, pieces: int | None) -> Iterator[Doing]:
    columns: list[ProgressColumn] = [
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
    ]
    columns.append(TimeElapsedColumn())
    if pieces is not None:
        columns += [MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn()]
    with Progress(*columns, console=_console, transient=True) as bar:
        bar.add_task(one_line(what), total=pieces)
        yield Doing(bar)


@contextlib.contextmanager
def _line(what: str) -> Iterator[Doing]:
    timer = threading.Timer(AFTER_S, log, [f"{what} …"])
    timer.daemon = True
    timer.start()
    try:
        yield Doing()
    finally:
        timer.cancel()
