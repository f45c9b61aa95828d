"""Progress bars for people, silence for logs.

Everything that may take over two seconds shows a bar on stderr when stderr is a terminal, and
one plain line per step when it is not (none with ``--quiet``).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..errors import one_line

_console = Console(stderr=True, highlight=False)
_quiet = False


def set_quiet(quiet: bool) -> None:
    """Silence `log` and the bars (errors are still printed)."""
    global _quiet
    _quiet = quiet


def log(message: str) -> None:
    """One line for the user on stderr. Names from files are safe: control characters escaped."""
    if not _quiet:
        _console.print(one_line(message), markup=False, soft_wrap=True)


@contextlib.contextmanager
def progress(what: str) -> Iterator[None]:
    """A moving bar for `what`. Nested bars are allowed: the inner one is not drawn."""
    if _quiet or not sys.stderr.isatty() or _console._live_stack:
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_console, transient=True) as bar:
        bar.add_task(one_line(what), total=None)
        yield
