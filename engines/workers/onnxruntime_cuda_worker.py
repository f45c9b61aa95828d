"""The worker of ONNX Runtime's CUDA provider.

Tasks: build, probe, outputs as on the CPU; latency (device events around each run, host clock
beside them); profile (ONNX Runtime's own, with every launch waiting for its kernel); trace (a few
runs between cudaProfilerStart and Stop, for nsys and ncu around this process, with ONNX Runtime's
profile of the same runs to `raw`, and the clock readings that join the two).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerline.engines.workers import common, gpu_memory
    from layerline.engines.workers import onnxruntime_session as sessions
    from layerline.engines.workers import onnxruntime_tasks as tasks
    from layerline.engines.workers.common import Job
    from layerline.engines.workers.device_clock import DeviceClock
    from layerline.engines.workers.onnxruntime_cuda import Gpu
else:  # a plain script; its folder is not on the path where PYTHONSAFEPATH is set
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import common
    import gpu_memory
    import onnxruntime_session as sessions
    import onnxruntime_tasks as tasks
    from common import Job
    from device_clock import DeviceClock
    from onnxruntime_cuda import Gpu

READINGS = 20


def latency(job: Job) -> dict[str, Any]:
    """Device time of each run by events on the provider's stream; see `DeviceClock.latency`."""
    place = Gpu()
    session, bound, loaded = tasks.load(job, place)
    measured = DeviceClock(place.cuda, place.stream).latency(bound.run, job)
    measured["facts"].update(
        sessions.facts(place, session, job), load_seconds=loaded, cuda_graph=False
    )
    return measured


def profile(job: Job) -> dict[str, Any]:
    """ONNX Runtime's profile. Its times are the host's: launches alone, were they not to wait."""
    measured = tasks.profile(job, Gpu(waiting=True))
    measured["facts"].update(clock="host", launches_wait=True)
    return measured


def trace(job: Job) -> dict[str, Any]:
    """Warm up, then `iterations.min` runs between profiler start and stop, each queued as a whole
    where it can be, and timed by device events.

    Facts: `runs_before` (model_run events of `raw` before the captured ones),
    `profiling_start_ns` (the zero of `raw`) and `clock_readings`: for the first and the last
    `READINGS` calls of cuEventRecord in the capture, [ns before, ns after] by the clock of `raw`;
    between them each run has two such calls.
    """
    place = Gpu()
    options = sessions.session_options(place.ort, job, "disable")
    if job.get("raw"):
        options = sessions.profiled_options(place.ort, job)
    session = sessions.session(place, job, job["engine"], options)
    bound = sessions.Bound(place, session, job)
    clock = DeviceClock(place.cuda, place.stream)
    wanted = bool(job["options"].get("queued", True))
    queued = wanted and clock.queued(bound.run) is not None
    for _ in range(job["warmup"]):
        clock.timed(bound.run)
    before = 1 + wanted + job["warmup"]
    device: list[int] = []
    host: list[int] = []
    readings: list[list[int]] = []
    extra: dict[str, Any] = {}
    now = time.monotonic_ns
    if job.get("raw"):
        zero = session.get_profiling_start_time_ns()
        extra["profiling_start_ns"], now = zero, _clock_of(zero)
    place.cuda.profiler_start()
    _read(clock, now, readings)
    for _ in range(job["iterations"]["min"]):
        begun = time.perf_counter_ns()
        found = clock.queued(bound.run) if queued else clock.timed(bound.run)
        if found is None:  # it could be queued before: the host was held up for a second
            raise common.WorkerError("the run was not queued in time", "capture again")
        device.append(found)
        host.append(time.perf_counter_ns() - begun)
    _read(clock, now, readings)
    place.cuda.profiler_stop()
    if job.get("raw"):
        Path(session.end_profiling()).replace(job["raw"])
    return {
        "latency_ns": device,
        "warmup_ns": [],
        "host_ns": host,
        "facts": {
            **sessions.facts(place, session, job),
            "clock": "device events",
            "queued": queued,
            "runs_before": before,
            "clock_readings": readings,
            **extra,
        },
    }


def _clock_of(zero: int) -> Callable[[], int]:
    """The clock whose time `zero` is, of a moment ago: the standard library's of this platform
    decides which one ONNX Runtime has (on Linux the wall clock, whatever its manual says)."""
    return min((time.time_ns, time.monotonic_ns), key=lambda clock: abs(clock() - zero))


def _read(clock: DeviceClock, now: Callable[[], int], readings: list[list[int]]) -> None:
    """Some calls that the tool records, between two readings of a clock each."""
    for _ in range(READINGS):
        before = now()
        clock.cuda.record(clock.start, clock.stream)
        readings.append([before, now()])


TASKS: dict[str, common.Task] = {
    "build": lambda job: tasks.build(job, Gpu()),
    "probe": lambda job: tasks.probe(job, Gpu()),
    "latency": latency,
    "profile": profile,
    "outputs": lambda job: tasks.outputs(job, Gpu()),
    "trace": trace,
}

if __name__ == "__main__":
    on_gpu = {name: gpu_memory.needed()(task) for name, task in TASKS.items()}
    sys.exit(common.main(on_gpu, sys.argv[1:]))
