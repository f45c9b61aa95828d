"""Timing work on a stream: from idle, and queued as a whole before it begins.

The clock is that of device events on the stream that the work is put on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerline.engines.workers import common
    from layerline.engines.workers.common import Job
    from layerline.engines.workers.cuda_driver import Cuda
    from layerline.engines.workers.nvml_sampler import Sampler
else:
    import common
    from common import Job
    from cuda_driver import Cuda
    from nvml_sampler import Sampler

Work = Callable[[], None]
MOST_QUEUED = 50
FEWEST = 100
SETTLE_SECONDS = 0.3  # a GPU's clocks rise with load: trtexec's --warmUp is 0.2 s


def steady(job: Job) -> Job:
    """The job with at least `FEWEST` iterations where it allows so many: p99 needs them."""
    limits = job["iterations"]
    least = min(limits["max"], max(limits["min"], FEWEST))
    return {**job, "iterations": {**limits, "min": least}}


class DeviceClock:
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
        middle), so the gate had to open by itself.
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

    def latency(self, work: Work, job: Job) -> dict[str, Any]:
        """latency_ns, host_ns, warmup_ns, queued_ns and the facts of `common.repeat`, plus
        throughput_per_second (the queue kept full) and what the GPU did meanwhile.

        `latency_ns` are device times from an idle stream; `host_ns` is the host clock around
        launch and wait.
        """
        host: list[int] = []
        last = [0]

        def run() -> None:
            begun = time.perf_counter_ns()
            last[0] = self.timed(work)
            host.append(time.perf_counter_ns() - begun)

        with Sampler() as sampler:
            result = common.repeat(run, steady(job), sample=lambda: last[0], settle=SETTLE_SECONDS)
            queued = self._queued(work, min(MOST_QUEUED, len(result["latency_ns"])))
            count = max(10, min(200, len(result["latency_ns"])))
            begun = time.perf_counter()
            for _ in range(count):
                work()
            self.cuda.synchronize(self.stream)
            seconds = time.perf_counter() - begun
        result["host_ns"] = host[len(result["warmup_ns"]) :]
        if queued:
            result["queued_ns"] = queued
        result["facts"].update(
            clock="device events",
            queued=bool(queued),
            throughput_per_second=count / seconds,
            gpu=sampler.summary(),
            gate_opened_by_itself=self.gate.opened_by_itself,
        )
        return result

    def _queued(self, work: Work, count: int) -> list[int]:
        """So many queued inferences; none where the first shows that it cannot be queued."""
        found: list[int] = []
        for _ in range(count):
            ns = self.queued(work)
            if ns is None:
                return []
            found.append(ns)
        return found
