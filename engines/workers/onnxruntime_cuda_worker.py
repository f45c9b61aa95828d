"""The worker of ONNX Runtime's CUDA provider.

Tasks: build, probe, outputs as on the CPU; ready (load the libraries); latency (device events
around each run, host clock beside them); profile (ONNX Runtime's own, with every launch waiting for
its kernel); trace (a few runs between cudaProfilerStart and Stop, for nsys and ncu around this
process, with ONNX Runtime's profile of the same runs to `raw`, and the clock readings that join the
two).

The provider is given this worker's own stream (``user_compute_stream``), so that events around a
run time what the device does, as the TensorRT worker's do. Runs do not wait for the stream
(``disable_synchronize_execution_providers``); the worker does, where it needs to.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# A plain script; its folder is not on the path where PYTHONSAFEPATH is set.
sys.path.insert(0, str(Path(__file__).resolve().parent))
import common
import cuda_driver
import gpu_memory
import onnxruntime_session as sessions
import onnxruntime_worker as shared
from common import Job, WorkerError
from cuda_driver import OUT_OF_MEMORY, Cuda, CudaError, NoDriver
from device_clock import DeviceClock

CUDA = "CUDAExecutionProvider"
INSTALL = 'pip uninstall onnxruntime, then pip install "layerline[gpu]"'
LIBRARIES = (
    'pip install "onnxruntime-gpu[cuda,cudnn]", or a torch of the same CUDA version: '
    "CUDA and cuDNN are taken from its packages"
)
# ONNX's number of bfloat16 (onnx.proto, TensorProto.DataType), which numpy does not have.
_BFLOAT16 = "tensor(bfloat16)"
_NO_WAIT = "disable_synchronize_execution_providers"
READINGS = 20


class Gpu(sessions.Host):
    """Inputs and outputs in the memory of one GPU."""

    def __init__(self, *, waiting: bool = False) -> None:
        """`waiting`: every launch waits for its kernel, so that a node's time on the host holds
        its kernels; must be known before the driver is used."""
        if waiting:
            os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
        try:
            self.cuda = Cuda()
        except NoDriver as e:
            raise WorkerError(str(e), "run this stage on a machine with a GPU", 3) from None
        super().__init__(sessions.load(INSTALL))
        preload(self.ort)
        self.stream = self.cuda.stream()
        self.memory_before = self.cuda.memory()
        self.run_options = self.ort.RunOptions()
        self.run_options.add_run_config_entry(_NO_WAIT, "1")

    def provider_options(self, job: Job) -> list[dict[str, str]]:
        providers, given = job["options"]["providers"], super().provider_options(job)
        stream = {"user_compute_stream": str(self.stream)}
        return [
            {**options, **(stream if provider == CUDA else {})}
            for provider, options in zip(providers, given, strict=True)
        ]

    def check(self, session: Any) -> None:
        """A provider whose libraries are missing is left out of a session with a warning only."""
        if CUDA not in session.get_providers():
            raise WorkerError(*why_not(self.ort, self.cuda.device_facts()["cuda_driver"]), 3)

    def out_of_memory(self, detail: str | None = None) -> WorkerError:
        return gpu_memory.out_of_memory(detail)

    def lacks_memory(self, text: str) -> str | None:
        # onnxruntime/core/providers/cuda/cuda_call.cc: "CUDNN failure 1001: …NOT_INITIALIZED ; …"
        if not re.search(r"\bcu\w+ failure \d+", text.lower()):
            return None
        return gpu_memory.shortage(self.memory_before, cuda_driver.memory())

    def bind_input(self, binding: Any, name: str, array: Any) -> None:
        try:
            value = self.ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0)
        except (RuntimeError, MemoryError) as e:
            if "memory" in str(e).lower():
                raise gpu_memory.out_of_memory() from e
            raise
        binding.bind_ortvalue_input(name, value)

    def bind_bfloat16(self, binding: Any, name: str, bits: Any) -> None:
        value = self.ort.OrtValue.ortvalue_from_shape_and_type(
            list(bits.shape), sessions.BFLOAT16, "cuda", 0
        )
        self.cuda.to_device(value.data_ptr(), bits)
        binding.bind_ortvalue_input(name, value)

    def bind_output(self, binding: Any, name: str) -> None:
        binding.bind_output(name, "cuda", 0)

    def wait(self) -> None:
        try:
            self.cuda.synchronize(self.stream)
        except CudaError as e:
            if e.code == OUT_OF_MEMORY:
                raise gpu_memory.out_of_memory() from e
            raise WorkerError(f"the engine does not run ({e})") from None

    def fetch(self, value: Any) -> Any:
        if value.data_type() != _BFLOAT16:
            return value.numpy()
        half = np.empty(tuple(value.shape()), np.uint16)
        self.cuda.to_host(half, value.data_ptr())
        return (half.astype(np.uint32) << 16).view(np.float32)

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "device": self.cuda.device_facts(),
            "cuda": getattr(self.ort, "cuda_version", None),
            # Of the whole device: what another process allocates meanwhile is in it.
            "device_bytes": max(self.memory_before[0] - self.cuda.memory()[0], 0),
        }


def preload(ort: Any) -> None:
    """Load CUDA and cuDNN from NVIDIA's Python packages, wherever they are on the path (1.21 and
    later; by itself ONNX Runtime looks for them beside its own folder only).

    What is not found is left to the loader; `why_not` explains a provider that does not load.
    """
    if not hasattr(ort, "preload_dlls"):
        return
    spec = importlib.util.find_spec("nvidia")
    bases = spec.submodule_search_locations if spec else None
    folders = [lib for base in bases or () for lib in sorted(Path(base).glob("*/lib"))]
    with contextlib.redirect_stdout(sys.stderr):
        for folder in folders:
            ort.preload_dlls(directory=str(folder))
        if not folders:
            ort.preload_dlls()


def why_not(ort: Any, driver: str) -> tuple[str, str]:
    """What keeps the CUDA provider from loading, and what to do."""
    folder = Path(ort.__file__).parent / "capi"
    try:
        ctypes.CDLL(str(folder / "libonnxruntime_providers_shared.so"), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(folder / "libonnxruntime_providers_cuda.so"))
    except OSError as e:
        return f"the CUDA provider of onnxruntime does not load ({e})", LIBRARIES
    wanted = getattr(ort, "cuda_version", None) or "unknown"
    return (
        f"the CUDA provider of onnxruntime does not start (built for CUDA {wanted}, "
        f"the driver is for {driver})",
        "update the driver, or install an onnxruntime-gpu for its CUDA version",
    )


def latency(job: Job) -> dict[str, Any]:
    """Device time of each run by events on the provider's stream; see `DeviceClock.latency`."""
    place = Gpu()
    session, bound, loaded = sessions.engine(place, job)
    measured = DeviceClock(place.cuda, place.stream).latency(bound.run, job)
    measured["facts"].update(
        sessions.facts(place, session, job), load_seconds=loaded, cuda_graph=False
    )
    return measured


def profile(job: Job) -> dict[str, Any]:
    """ONNX Runtime's profile. Its times are the host's: launches alone, were they not to wait."""
    measured = shared.profile(job, Gpu(waiting=True))
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
    session, bound, _ = sessions.engine(place, job, profiled=bool(job.get("raw")))
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
        ns = clock.queued(bound.run) if queued else clock.timed(bound.run)
        if ns is None:  # it could be queued before: the host was held up for a second
            raise WorkerError("the run was not queued in time", "capture again")
        device.append(ns)
        host.append(time.perf_counter_ns() - begun)
    _read(clock, now, readings)
    place.cuda.profiler_stop()
    if job.get("raw"):
        Path(session.end_profiling()).replace(job["raw"])
    return {
        "latency_ns": device,
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


def ready(_job: Job) -> dict[str, Any]:
    """The libraries are loaded; nothing is on the GPU, and its driver is not used yet."""
    ort = sessions.load(INSTALL)
    preload(ort)
    return {"facts": {"onnxruntime": ort.__version__}}


TASKS = {
    **shared.tasks_at(Gpu),
    "ready": ready,
    "latency": latency,
    "profile": profile,
    "trace": trace,
}

if __name__ == "__main__":
    on_gpu = {name: gpu_memory.reported()(task) for name, task in TASKS.items()}
    sys.exit(common.main(on_gpu, sys.argv[1:]))
