"""The worker of AOTInductor packages.

Tasks: ready (import torch), load, latency, outputs, and two over the package whose kernels have
ranges (``options.profiled``): profile (torch.profiler), and trace (a few inferences between
cudaProfilerStart and Stop, for nsys and ncu around this process). It needs torch, and neither the
model nor its library.
``options.inputs`` names the arrays that the package takes, in their order, ``options.outputs`` what
it gives, ``options.device`` where it runs.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

# A plain script; its folder is not on the path where PYTHONSAFEPATH is set.
sys.path.insert(0, str(Path(__file__).resolve().parent))
import common
from common import Job, WorkerError

# As in core/own_ranges.py, which a worker cannot import.
ITERATION = "layerline/iteration/"
WARMUP = "layerline/warmup"
# torch on an operator that a package calls and this process does not have.
_FOREIGN = re.compile(r"Could not find schema for (\S+::\w+)")
_TYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def load() -> Any:
    """torch. WorkerError (3) where it cannot be imported."""
    try:
        import torch
    except ImportError as e:
        fix = 'pip install "layerline[model]"'
        raise WorkerError(f"torch cannot be imported ({e})", fix, 3) from None
    return torch


def _loaded(torch: Any, path: str, folder: Path, *, single_threaded: bool) -> Any:
    """What `torch._inductor.aoti_load_package` gives, which first compares this processor with the
    one it was built on, and compiles a program for that: it would need a compiler, and a minute."""
    # The package is unpacked there. Where this process ends early it goes with the job's folder.
    os.environ["TMPDIR"] = str(folder)
    from torch._inductor.package import AOTICompiledModel

    loader = torch._C._aoti.AOTIModelPackageLoader(path, "model", single_threaded, 1, -1)
    return AOTICompiledModel(loader)


class Package:
    """A package with its inputs on the device. `graphed`: a run is a replay of a CUDA graph of it,
    where the engine was asked for so."""

    def __init__(self, job: Job, path: str, *, graphed: bool = True) -> None:
        self.torch = torch = load()
        self.job, options = job, job["options"]
        torch.set_num_threads(job["threads"])
        self.cuda = options["device"] == "cuda"
        if self.cuda and not torch.cuda.is_available():
            raise WorkerError(
                f"{path}: was built for a GPU, and torch sees none here",
                "run this stage on a machine with a GPU, or build it again here",
                3,
            )
        if self.cuda:
            torch.backends.cuda.matmul.allow_tf32 = job["precision"] != "fp32"
            torch.backends.cudnn.allow_tf32 = job["precision"] != "fp32"
            torch.cuda.init()  # its time is not the package's
        self.graph: Any = None
        as_graph = self.cuda and graphed and bool(options.get("cuda_graph"))
        started = time.perf_counter()
        try:
            # A graph cannot hold what threads do to wait for one another.
            folder = Path(job["result"]).parent
            self.model = _loaded(torch, path, folder, single_threaded=as_graph)
        except RuntimeError as e:
            text = " ".join(str(e).split())[:300]
            if foreign := _FOREIGN.search(text):
                what = f"a package runs without your code, which has the operator {foreign[1]}"
                raise WorkerError(what, "write it with operators of torch") from e
            raise WorkerError(f"{path}: torch does not load it ({text})", "build it again") from e
        self.load_seconds = round(time.perf_counter() - started, 4)
        arrays = common.read_inputs(job, options["inputs"])
        self.arguments = [self._tensor(arrays[name]) for name in options["inputs"]]
        self.wait()
        if as_graph:
            self._record()

    def _record(self) -> None:
        """Record a run as a CUDA graph, after a few that set up what is set up once."""
        torch = self.torch
        side = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(side):
            for _ in range(3):
                self.model(*self.arguments)
        self.wait()
        self.graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(self.graph):
            self.given = self.model(*self.arguments)

    def _tensor(self, array: Any) -> Any:
        value = self.torch.tensor(np.ascontiguousarray(array))
        if value.is_floating_point():
            value = value.to(getattr(self.torch, _TYPES[self.job["precision"]]))
        return value.to("cuda") if self.cuda else value

    def queue(self) -> Any:
        """Start one inference; on a device it may not be done when this returns."""
        if self.graph is None:
            return self.model(*self.arguments)
        self.graph.replay()
        return self.given

    def run(self) -> Any:
        """One inference, done when this returns."""
        given = self.queue()
        self.wait()
        return given

    def wait(self) -> None:
        """Until the device has done everything."""
        if self.cuda:
            self.torch.cuda.synchronize()

    def outputs(self) -> dict[str, Any]:
        """The outputs of one inference, floating ones in fp32."""
        given = self.run()
        values = given if isinstance(given, list | tuple) else [given]
        found = {}
        for name, value in zip(self.job["options"]["outputs"], values, strict=True):
            wide = value.float() if value.is_floating_point() else value
            found[name] = wide.cpu().numpy()
        return found

    def facts(self) -> dict[str, Any]:
        """What ran: library, threads, memory, and the processor that its kernels were chosen by."""
        torch = self.torch
        facts = {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "peak_host_bytes": common.peak_host_bytes(),
        }
        if self.cuda:
            from cuda_driver import Cuda

            facts["device"] = Cuda().device_facts()
            facts["device_bytes"] = torch.cuda.max_memory_allocated()
            facts["cuda_graph"] = self.graph is not None
        return facts


def latency(job: Job) -> dict[str, Any]:
    """Unprofiled latency of the package: by the host clock; on a GPU by events around the call."""
    package = Package(job, job["engine"])
    with package.torch.no_grad():
        measured = _on_device(package, job) if package.cuda else common.repeat(package.run, job)
    measured["facts"].update(package.facts(), load_seconds=package.load_seconds)
    return measured


def _on_device(package: Package, job: Job) -> dict[str, Any]:
    """Device time by events on the stream that the package runs on; see `DeviceClock.latency`."""
    clock = _clock()
    with package.torch.cuda.stream(package.torch.cuda.ExternalStream(clock.stream)):
        measured: dict[str, Any] = clock.latency(package.queue, job)
    return measured


def _clock() -> Any:
    """A clock of a stream of its own."""
    from cuda_driver import Cuda
    from device_clock import DeviceClock

    cuda = Cuda()
    return DeviceClock(cuda, cuda.stream())


def profile(job: Job) -> dict[str, Any]:
    """torch.profiler's trace of the package with ranges, to `raw`; each inference in a range
    ``layerline/iteration/N``, those of warming up in another. Latencies are of the calls in the
    ranges."""
    package = Package(job, job["options"]["profiled"], graphed=False)
    torch = package.torch
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if package.cuda:
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    count, took = -job["warmup"], 0

    def run() -> None:
        nonlocal count, took
        with torch.profiler.record_function(f"{ITERATION}{count}" if count >= 0 else WARMUP):
            began = time.perf_counter_ns()
            package.run()
            took = time.perf_counter_ns() - began
        count += 1

    with torch.no_grad():
        package.run()
        with torch.profiler.profile(activities=kinds, record_shapes=False) as profiler:
            measured = common.repeat(run, job, sample=lambda: took)
    profiler.export_chrome_trace(job["raw"])
    measured["facts"].update(package.facts())
    return measured


def trace(job: Job) -> dict[str, Any]:
    """Warm up, then `iterations.min` inferences between profiler start and stop, timed by device
    events, and queued as a whole where they can be.

    Each is in a range ``layerline/iteration/N``, and `emit_nvtx` makes one of every kernel's and
    operator's. A tool that replays kernels (ncu; ``options.queued`` false) gets none: numbers in
    their names differ between two runs of the program.
    """
    package = Package(job, job["options"]["profiled"], graphed=False)
    torch = package.torch
    if not package.cuda:
        raise WorkerError("the package is for CPUs, and has no kernels to capture", "profile it")
    clock = _clock()
    wanted = bool(job["options"].get("queued", True))
    device, host = [], []
    with (
        torch.no_grad(),
        torch.cuda.stream(torch.cuda.ExternalStream(clock.stream)),
        torch.autograd.profiler.emit_nvtx(enabled=wanted),
    ):
        for _ in range(max(1, job["warmup"])):  # what is set up once may make the host wait
            clock.timed(package.queue)
        queued = wanted and clock.queued(package.queue) is not None
        clock.cuda.profiler_start()
        for number in range(job["iterations"]["min"]):
            begun = time.perf_counter_ns()
            with torch.cuda.nvtx.range(f"{ITERATION}{number}") if wanted else nullcontext():
                ns = clock.queued(package.queue) if queued else clock.timed(package.queue)
            if ns is None:
                raise WorkerError("the inference was not queued in time", "capture again")
            device.append(ns)
            host.append(time.perf_counter_ns() - begun)
        clock.cuda.profiler_stop()
    facts = {**package.facts(), "clock": "device events", "queued": queued}
    return {"latency_ns": device, "host_ns": host, "facts": facts}


def outputs(job: Job) -> dict[str, Any]:
    """The package's outputs for the inputs, to `raw` as npz."""
    package = Package(job, job["engine"])
    with package.torch.no_grad():
        common.save(job["raw"], package.outputs())
    return {"facts": package.facts()}


def ready(_job: Job) -> dict[str, Any]:
    """torch is imported."""
    return {"facts": {"torch": load().__version__}}


def loads(job: Job) -> dict[str, Any]:
    """The package can be loaded where its model is not."""
    return {"facts": {"load_seconds": Package(job, job["engine"], graphed=False).load_seconds}}


TASKS = {
    "ready": ready,
    "load": loads,
    "latency": latency,
    "profile": profile,
    "outputs": outputs,
    "trace": trace,
}

if __name__ == "__main__":
    faulthandler.enable()  # a package is code of its own: where it crashes is said
    sys.exit(common.main(TASKS, sys.argv[1:]))
