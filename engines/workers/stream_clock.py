"""Timing work on one stream by device events: from idle, or queued as a whole before it begins.

Standard library only; also runs on Python 3.10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerline.engines.workers.cuda_driver import Cuda

Work = Callable[[], Any]


class StreamClock:
    """Two events and a gate on one stream."""

    def __init__(self, cuda: Cuda, stream: int) -> None:
        self.cuda, self.stream = cuda, stream
        self.start, self.end = cuda.event(), cuda.event()
        self.gate = cuda.gate()

    def timed(self, work: Work) -> int:
        """Device time of work on an idle stream, launch costs that it waits for included."""
        cuda = self.cuda
        cuda.record(self.start, self.stream)
        work()
        cuda.record(self.end, self.stream)
        cuda.wait(self.end)
        return cuda.elapsed_ns(self.start, self.end)

    def queued(self, work: Work) -> int | None:
        """Device time of work that was queued as a whole before it began.

        Null where it cannot be: the work waits for the device itself (a copy to the host in the
        middle), or puts more on the stream than a launch queue holds, so the gate had to open by
        itself.
        """
        cuda, before = self.cuda, self.gate.opened_by_itself
        self.gate.close(self.stream)
        cuda.record(self.start, self.stream)
        try:
            work()
            cuda.record(self.end, self.stream)
        finally:
            self.gate.open()
        cuda.wait(self.end)
        if self.gate.opened_by_itself > before:
            return None
        return cuda.elapsed_ns(self.start, self.end)
