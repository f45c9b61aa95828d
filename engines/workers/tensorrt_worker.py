"""The TensorRT worker: builds an engine, or loads one once and measures it.

Tasks: ready (import the library: a process that is started before it is needed); build; inspect
(the inspector's JSON); latency (device events around each enqueue, host clock beside them); profile
(IProfiler, per layer and iteration); outputs; trace (warm up, then a few iterations between
cudaProfilerStart and Stop, for nsys and ncu around this process).

``options.backend``: tensorrt or tensorrt-rtx.
Runs on Python 3.10 with TensorRT, numpy, polygraphy and, for clocks, nvidia-ml-py.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from typing import Any

import numpy as np

# A plain script; its folder is not on the path where PYTHONSAFEPATH is set.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import common
import cuda_driver
import gpu_memory
import tensorrt_api as api
from common import Job, WorkerError
from cuda_driver import Cuda, NoDriver
from device_clock import DeviceClock


def _library(job: Job) -> Any:
    backend = job["options"].get("backend", "tensorrt")
    try:
        return api.load(backend)
    except ImportError as e:
        fix = "pip install 'layerline[gpu]', or TRT_PYTHON=an interpreter that has it"
        raise WorkerError(f"{backend} cannot be imported ({e})", fix, 3) from None


def _device() -> Cuda:
    try:
        return Cuda()
    except NoDriver as e:
        raise WorkerError(str(e), "run this stage on a machine with a GPU", 3) from None


class Engine:
    """A deserialised engine with its inputs on the device and buffers for its outputs."""

    def __init__(self, trt: Any, job: Job) -> None:
        self.trt, self.cuda = trt, _device()
        self.logger = api.make_logger(trt)
        self.memory = self.cuda.memory()
        runtime = api.create(trt.Runtime, self.logger)
        if runtime is None:
            raise self._refused(job["engine"], "TensorRT does not start")
        plan = pathlib.Path(job["engine"]).read_bytes()
        started = time.perf_counter()
        self.engine = runtime.deserialize_cuda_engine(plan)
        self.load_seconds = time.perf_counter() - started
        if self.engine is None:
            raise self._refused(job["engine"])
        self.context = self.engine.create_execution_context()
        if self.context is None:
            raise self._refused(job["engine"], "TensorRT gives no context to run it")
        self.stream = self.cuda.stream()
        self.clock = DeviceClock(self.cuda, self.stream)
        self.outputs: dict[str, tuple[Any, int]] = {}
        self._bind(job)

    def _refused(self, path: str, instead: str | None = None) -> WorkerError:
        """Why the engine cannot be used; `instead`: what to say other than that it is none."""
        text = " ".join(self.logger.errors[-2:]) or "TensorRT gives no reason"
        low = text.lower()
        if gpu_memory.ran_out(text):
            return WorkerError(f"{path}: out of GPU memory ({text})", gpu_memory.FIX, 3)
        if "compatible" in low or "compute capability" in low or "version" in low:
            fix = "build the engine again on this GPU with this TensorRT"
            return WorkerError(f"{path}: built for another GPU or TensorRT ({text})", fix, 3)
        if "plugin" in low:
            return WorkerError(f"{path}: needs a plugin ({text})", "install the plugin", 3)
        little = gpu_memory.shortage(self.memory, cuda_driver.memory())
        if little and "magic" not in low:  # the first bytes of a file that is no engine
            return WorkerError(f"{path}: does not load, {little} ({text})", gpu_memory.FIX, 3)
        if instead:
            return WorkerError(f"{path}: {instead} ({text})", "see the messages above", 3)
        return WorkerError(f"{path}: is not an engine ({text})", "build it again", 2)

    def _bind(self, job: Job) -> None:
        trt, engine = self.trt, self.engine
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        modes = {n: engine.get_tensor_mode(n) for n in names}
        inputs = common.read_inputs(
            job, [n for n, mode in modes.items() if mode == trt.TensorIOMode.INPUT]
        )
        for name, given in inputs.items():
            dtype = self._numpy_type(engine.get_tensor_dtype(name))
            wide = dtype == np.uint16 and given.dtype.kind == "f"
            array = common.bfloat16(given) if wide else np.ascontiguousarray(given, dtype=dtype)
            if not self.context.set_input_shape(name, array.shape):
                shape = tuple(engine.get_tensor_shape(name))
                raise WorkerError(f"input {name} is {array.shape}, the engine takes {shape}")
            address = self.cuda.allocate(array.nbytes)
            self.cuda.to_device(address, array)
            self.context.set_tensor_address(name, address)
        for name in names:
            if name in inputs:
                continue
            shape = tuple(self.context.get_tensor_shape(name))
            host = np.empty(shape, dtype=self._numpy_type(engine.get_tensor_dtype(name)))
            # Poisoned, so that an output that is not written shows.
            host.view(np.uint8)[...] = 0xFF
            address = self.cuda.allocate(host.nbytes)
            self.cuda.to_device(address, host)
            self.context.set_tensor_address(name, address)
            self.outputs[name] = (host, address)

    def _numpy_type(self, dtype: Any) -> Any:
        if dtype == getattr(self.trt, "bfloat16", None):
            return np.uint16  # numpy has no bfloat16; `results` widens it
        return self.trt.nptype(dtype)

    def enqueue(self) -> None:
        """Put one inference on the stream."""
        if not self.context.execute_async_v3(self.stream):
            text = " ".join(self.logger.errors[-2:]) or "TensorRT gives no reason"
            if gpu_memory.ran_out(text):
                raise gpu_memory.out_of_memory(text)
            raise WorkerError(f"the engine does not run: {text}")

    def results(self) -> dict[str, Any]:
        """The outputs on the host, bfloat16 widened to float32."""
        arrays = {}
        for name, (host, address) in self.outputs.items():
            self.cuda.to_host(host, address)
            wide = self.engine.get_tensor_dtype(name) == getattr(self.trt, "bfloat16", None)
            arrays[name] = (host.astype(np.uint32) << 16).view(np.float32) if wide else host
        return arrays

    def facts(self) -> dict[str, Any]:
        """What ran: library, device, load time, device memory of the context."""
        sizes = ("device_memory_size_v2", "device_memory_size")  # TensorRT 10 has the first too
        size = next((name for name in sizes if hasattr(self.engine, name)), None)
        return {
            **api.facts(self.trt),
            "device": self.cuda.device_facts(),
            "load_seconds": round(self.load_seconds, 3),
            "context_bytes": None if size is None else getattr(self.engine, size),
            "gate_opened_by_itself": self.clock.gate.opened_by_itself,
            "messages": self.logger.counted(),
        }


def latency(job: Job) -> dict[str, Any]:
    """Device time of each inference by events on its stream, until the interval is narrow enough.

    `latency_ns` are device times: from the event before the enqueue to the event after it, which
    waits for every auxiliary stream too; the stream is idle before, so launch costs that the
    device waits for are in it. `host_ns` is the host clock around enqueue and wait. `queued_ns`
    are device times of inferences that were queued whole before they began: the difference to
    `latency_ns` is what the device waits for the host.
    """
    engine = Engine(_library(job), job)
    result = engine.clock.latency(engine.enqueue, job)
    result["facts"].update(engine.facts(), cuda_graph=False)
    return result


def profile(job: Job) -> dict[str, Any]:
    """IProfiler: the device time of every layer in every iteration, to `raw` as JSON.

    ``{"layers": [names in execution order], "iterations": [[ns, ...], ...]}``. TensorRT
    synchronises for it, so these times are never compared with latencies.
    """
    trt = _library(job)
    engine = Engine(trt, job)

    class Profiler(trt.IProfiler):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.rows: list[tuple[str, int]] = []

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.rows.append((layer_name, round(ms * 1e6)))

    profiler = Profiler()
    engine.context.profiler = profiler
    if hasattr(engine.context, "enqueue_emits_profile"):
        engine.context.enqueue_emits_profile = True
    iterations: list[list[tuple[str, int]]] = []
    host: list[int] = []
    for index in range(job["warmup"] + job["iterations"]["min"]):
        profiler.rows = []
        begun = time.perf_counter_ns()
        engine.enqueue()
        engine.cuda.synchronize(engine.stream)
        if index >= job["warmup"]:
            host.append(time.perf_counter_ns() - begun)
            iterations.append(profiler.rows)
    names = [name for name, _ in iterations[0]]
    if any([name for name, _ in rows] != names for rows in iterations):
        raise WorkerError("IProfiler reported other layers in some iterations", "profile again")
    document = {"layers": names, "iterations": [[ns for _, ns in rows] for rows in iterations]}
    pathlib.Path(job["raw"]).write_text(json.dumps(document))
    return {"latency_ns": host, "facts": {**engine.facts(), "clock": "host"}}


def inspect(job: Job) -> dict[str, Any]:
    """The engine inspector's JSON, to `raw`. Detailed, because engines are built so."""
    trt = _library(job)
    engine = Engine(trt, job)
    inspector = engine.engine.create_engine_inspector()
    inspector.execution_context = engine.context
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    pathlib.Path(job["raw"]).write_text(text)
    return {"facts": engine.facts()}


def outputs(job: Job) -> dict[str, Any]:
    """One inference's outputs, to `raw` as npz."""
    engine = Engine(_library(job), job)
    engine.enqueue()
    engine.cuda.synchronize(engine.stream)
    common.save(job["raw"], engine.results())
    return {"facts": engine.facts()}


def trace(job: Job) -> dict[str, Any]:
    """Warm up, then `iterations.min` inferences between profiler start and stop.

    Each is queued as a whole before it begins, and timed by device events: so the span of its
    kernels can be held against the latency of the same iteration, without the launch costs of the
    host, which tracing multiplies. No sampler runs here: the trace holds the engine's work alone.
    """
    engine = Engine(_library(job), job)
    cuda = engine.cuda
    # A tool that replays kernels (ncu) waits for each: it would wait for the gate.
    queued = bool(job["options"].get("queued", True))
    once = engine.clock.queued if queued else engine.clock.timed
    for _ in range(job["warmup"]):
        once(engine.enqueue)
    device, host = [], []
    cuda.profiler_start()
    for _ in range(job["iterations"]["min"]):
        begun = time.perf_counter_ns()
        ns = once(engine.enqueue)
        if ns is None:
            raise WorkerError("the inference was not queued in time", "capture again")
        device.append(ns)
        host.append(time.perf_counter_ns() - begun)
    cuda.profiler_stop()
    return {
        "latency_ns": device,
        "host_ns": host,
        "facts": {**engine.facts(), "clock": "device events", "queued": queued},
    }


def build(job: Job) -> dict[str, Any]:
    """Build the engine; inspect it too where this machine can load it."""
    trt = _library(job)
    import tensorrt_build  # and with it polygraphy, which asks which library is there

    if not job["options"].get("compute_capability"):
        _device()
    return {"facts": tensorrt_build.build(trt, job)}


def ready(job: Job) -> dict[str, Any]:
    """The library is imported; nothing is on the GPU yet."""
    return {"facts": api.facts(_library(job))}


TASKS = {
    "ready": ready,
    "build": build,
    "inspect": inspect,
    "latency": latency,
    "profile": profile,
    "outputs": outputs,
    "trace": trace,
}

if __name__ == "__main__":
    tasks = {name: gpu_memory.reported()(task) for name, task in TASKS.items()}
    sys.exit(common.main(tasks, sys.argv[1:]))
