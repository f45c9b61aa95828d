"""Loads of an engine: processes that have imported its library before anything is measured.

Starting Python and importing the library takes longer than measuring a small engine, and does
nothing to the GPU. So all processes of an engine are started at once, and are awaited; then each
loads the engine, alone, when its turn comes: the others sleep until it has ended.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

from ...core.cli.progress import log
from ...engines.backend import Worker
from ...engines.launch import Serving

START_SECONDS = 600.0


class Loads:
    """Processes that wait for one job each."""

    def __init__(self, worker: Worker, ready: Mapping[str, Any], count: int) -> None:
        """`ready`: the job that imports the library."""
        self._worker, self._stack = worker, contextlib.ExitStack()
        self._began = time.perf_counter() if count else None
        self._waiting = [self._one() for _ in range(count)]
        for one in self._waiting:
            one.start(ready)

    def _one(self) -> Serving:
        return self._stack.enter_context(Serving(self._worker))

    def __enter__(self) -> Loads:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def ready(self) -> None:
        """Wait until all have started. LayerlineError where one cannot."""
        if self._began is None:
            return
        for one in self._waiting:
            one.ready(START_SECONDS)
        seconds = time.perf_counter() - self._began
        log(f"engine processes ready after {seconds:.1f} s")
        self._began = None

    def call(self, job: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Do a job in a process of its own, one that waits where there is one."""
        with self._waiting.pop() if self._waiting else self._one() as worker:
            return worker.call(job, timeout)
