"""No process of a job outlives it: what Linux offers for that (prctl(2), proc(5))."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

# linux/prctl.h
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def dying_with_parent(number: signal.Signals) -> Callable[[], None]:
    """What a child does before it becomes its program (`preexec_fn`): ask for this signal when the
    thread that started it ends, also by kill -9."""
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl  # loaded here: little is safe between fork and exec

    def child() -> None:
        prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it went in between
            os._exit(128 + number)

    return child


def end_with_parent() -> None:
    """Be sent SIGTERM when this process's parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def adopt_orphans() -> None:
    """Make descendants whose parents end children of this process."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> list[int]:
    """Children of this process that have not ended; those that have are collected."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return [int(n) for n in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def end_children() -> None:
    """End what is left of this process's descendants, once it has adopted orphans."""
    while left := children():
        for child in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
