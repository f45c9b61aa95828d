"""What the ONNX Runtime workers share: sessions, their errors, bound inputs and outputs.

``options.providers`` names execution providers, ``options.provider_options`` their options. A
place says where inputs and outputs lie: `Host` here, the GPU in `onnxruntime_cuda_worker`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from common import Job, WorkerError, bfloat16, peak_host_bytes, read_inputs
from gpu_memory import ran_out

LEVELS = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
CPU = "CPUExecutionProvider"
BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16
_REFUSALS = (
    "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoSuchFile", "NotImplemented",
    "RuntimeException", "EPFail",
)  # fmt: skip
# Options of providers that are addresses of this process.
_ADDRESSES = ("user_compute_stream", "gpu_external_alloc", "gpu_external_free",
              "gpu_external_empty_cache")  # fmt: skip


def load(fix: str = 'pip install "layerline[cpu]"') -> Any:
    """The onnxruntime module. WorkerError (3) where it cannot be imported."""
    try:
        import onnxruntime
    except ImportError as e:
        raise WorkerError(f"onnxruntime cannot be imported ({e})", fix, 3) from None
    return onnxruntime


class Host:
    """Inputs and outputs in host memory, which ONNX Runtime runs from without a copy."""

    run_options: Any = None

    def __init__(self, ort: Any) -> None:
        self.ort = ort

    def provider_options(self, job: Job) -> list[dict[str, str]]:
        """The options of each provider of the job."""
        given = job["options"].get("provider_options")
        return given or [{} for _ in job["options"].get("providers", [CPU])]

    def check(self, session: Any) -> None:
        """WorkerError where the session is not what was asked for."""

    def out_of_memory(self, detail: str | None = None) -> WorkerError:
        """The error where memory ran out."""
        what = "out of memory" + (f" ({detail})" if detail else "")
        return WorkerError(what, "use a smaller batch or sequence")

    def lacks_memory(self, text: str) -> str | None:
        """How little memory there was, where an error is taken to come from that without saying
        so."""
        return None

    def bind_input(self, binding: Any, name: str, array: Any) -> None:
        """Bind an array for all runs."""
        binding.bind_cpu_input(name, array)

    def bind_bfloat16(self, binding: Any, name: str, bits: Any) -> None:
        """Bind bfloat16 values, given as uint16, for all runs."""
        value = self.ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, BFLOAT16)
        binding.bind_ortvalue_input(name, value)

    def bind_output(self, binding: Any, name: str) -> None:
        """Let the next run allocate an output."""
        binding.bind_output(name)

    def wait(self) -> None:
        """Until everything that was started is done."""

    def fetch(self, value: Any) -> Any:
        """An output as an array on the host."""
        return value.numpy()

    def facts(self) -> dict[str, Any]:
        """What else is known of where it ran; memory in bytes."""
        return {"peak_host_bytes": peak_host_bytes()}


def session_options(ort: Any, job: Job, level: str) -> Any:
    """SessionOptions with the job's threads and an optimisation level of `LEVELS`."""
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[level])
    options.intra_op_num_threads = job["threads"]
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors; a saved graph that fits this machine only is meant
    return options


def session(place: Host, job: Job, path: str, options: Any) -> Any:
    """The session of a model. WorkerError for a model that is refused or a provider not there."""
    ort = place.ort
    providers = job["options"].get("providers", [CPU])
    missing = [p for p in providers if p not in ort.get_available_providers()]
    if missing:
        raise WorkerError(
            f"this onnxruntime has no {', '.join(missing)}",
            'pip uninstall onnxruntime, then pip install "layerline[gpu]"',
            3,
        )
    with _refused(place, f"{path}: ONNX Runtime refuses it", "export it again"):
        loaded = ort.InferenceSession(
            path,
            options,
            providers=providers,
            provider_options=place.provider_options(job),
            enable_fallback=0,  # another provider than the one asked for is an error
        )
    place.check(loaded)
    return loaded


@contextlib.contextmanager
def _refused(place: Host, what: str, fix: str | None = None) -> Iterator[None]:
    """WorkerError for an exception of ONNX Runtime: `what` with its message, or that memory ran
    out where the message says so or is taken to mean it."""
    errors = place.ort.capi.onnxruntime_pybind11_state
    try:
        yield
    except tuple(getattr(errors, name) for name in _REFUSALS if hasattr(errors, name)) as e:
        text = " ".join(str(e).split())[:500]
        if ran_out(text):
            raise place.out_of_memory() from e
        if little := place.lacks_memory(text):
            raise place.out_of_memory(f"{little}: {text}") from e
        raise WorkerError(f"{what} ({text})", fix) from None


class Bound:
    """A session with its inputs and outputs bound, so that a run copies nothing to Python."""

    def __init__(self, place: Host, session: Any, job: Job) -> None:
        self.place, self.session = place, session
        types = {i.name: i.type for i in session.get_inputs()}
        inputs = read_inputs(job, list(types))
        self.binding = session.io_binding()
        for name, array in inputs.items():
            # The file of a run's inputs has fp32 for every floating type.
            if types[name] == "tensor(bfloat16)":
                place.bind_bfloat16(self.binding, name, bfloat16(array))
                continue
            half = types[name] == "tensor(float16)"
            place.bind_input(
                self.binding, name, np.ascontiguousarray(array, np.float16 if half else None)
            )
        self.names = [o.name for o in session.get_outputs()]
        for name in self.names:
            place.bind_output(self.binding, name)
        with _refused(place, f"{job['engine']}: does not run"):
            session.run_with_iobinding(self.binding)
        place.wait()
        # The outputs of that run are the buffers of all later ones.
        self.values = self.binding.get_outputs()
        self.binding.clear_binding_outputs()
        for name, value in zip(self.names, self.values, strict=True):
            self.binding.bind_ortvalue_output(name, value)

    def run(self) -> None:
        """One inference; on a device, everything of it is on the stream when this returns."""
        self.session.run_with_iobinding(self.binding, self.place.run_options)

    def outputs(self) -> dict[str, Any]:
        """The outputs of the last run, on the host."""
        self.place.wait()
        values = zip(self.names, self.values, strict=True)
        return {name: self.place.fetch(value) for name, value in values}


def engine(place: Host, job: Job, *, profiled: bool = False) -> tuple[Any, Bound, float]:
    """The job's engine: its session, bound, and the seconds of loading it.

    Every optimisation is off: a saved engine is what the optimiser made, and runs under the names
    it has. `profiled`: with ONNX Runtime's profile on, written beside `raw`.
    """
    options = session_options(place.ort, job, "disable")
    if profiled:
        options.enable_profiling = True
        raw = Path(job["raw"])
        prefix = f".{os.getpid()}.partial.{raw.name.lstrip('.')}"
        options.profile_file_prefix = str(raw.with_name(prefix))
    started = time.perf_counter()
    loaded = session(place, job, job["engine"], options)
    seconds = time.perf_counter() - started
    return loaded, Bound(place, loaded, job), round(seconds, 4)


def facts(place: Host, session: Any, job: Job) -> dict[str, Any]:
    """What ran: library, build, providers, threads, memory."""
    return {
        "onnxruntime": place.ort.__version__,
        "build": place.ort.get_build_info(),
        "providers": session.get_providers(),
        "provider_options": {
            provider: {k: v for k, v in options.items() if k not in _ADDRESSES}
            for provider, options in session.get_provider_options().items()
        },
        "threads": job["threads"],
        **place.facts(),
    }
