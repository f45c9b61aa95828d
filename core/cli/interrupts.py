"""Ctrl-C and the like while modules are imported: the process ends, without a traceback."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """End at the first signal inside the block, by the signal itself.

    For imports: nothing was begun that wants to be cleaned up, and an exception in the middle of
    a library that loads becomes whatever that library makes of it. What is ignored stays so.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handler = signal.getsignal(number)
            if callable(handler):
                before[number] = signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
