"""The latency of inferences on a stream: from idle, queued as a whole, and with the queue full."""

from __future__ import annotations

import time
from typing import Any

import common
from common import Job
from cuda_driver import StreamClock, Work
from nvml_sampler import Sampler

MOST_QUEUED = 50
FEWEST = 100
SETTLE_SECONDS = 0.3  # a GPU's clocks rise with load: trtexec's --warmUp is 0.2 s


def steady(job: Job) -> Job:
    """The job with at least `FEWEST` iterations where it allows so many: p99 needs them."""
    limits = job["iterations"]
    least = min(limits["max"], max(limits["min"], FEWEST))
    return {**job, "iterations": {**limits, "min": least}}


class DeviceClock(StreamClock):
    """The latency of inferences on one stream, by device events."""

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

        with Sampler(self.cuda.bus_id()) as sampler:
            result = common.repeat(run, steady(job), sample=lambda: last[0], settle=SETTLE_SECONDS)
            queued = self.queued_series(work, min(MOST_QUEUED, len(result["latency_ns"])))
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
