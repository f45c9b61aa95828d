"""What a backend is: the interface that the stages use, and the class of each.

A backend knows one inference library. It builds an engine from an ONNX file, says which layers
the engine has, and names the worker that loads it. Callers know nothing else of it, so another
library is one class here, one worker, one line in `_CLASSES` and one in `export.inference`.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ..core.errors import InputError, ToolMissing
from ..core.run import Run
from ..export import inference
from ..export.inference import Unavailable

# "module:Class" of each of `BACKENDS`, imported when it is used.
_CLASSES: dict[str, str] = {
    "tensorrt": "layerline.engines.tensorrt_backend:TensorRTBackend",
    "onnxruntime-cuda": "layerline.engines.onnxruntime_cuda_backend:OnnxRuntimeCudaBackend",
    "onnxruntime": "layerline.engines.onnxruntime_backend:OnnxRuntimeBackend",
    "inductor": "layerline.engines.inductor_backend:InductorBackend",
    "tensorrt-rtx": "layerline.engines.tensorrt_backend:TensorRTRTXBackend",
}


@dataclass(frozen=True)
class BuildOptions:
    """What the user may ask of a build. A backend refuses what it has no meaning for.

    `threads` None: as many as this process may use CPUs. `build` is what only some builders have:
    workspace_mib, timing_cache, compute_capability (TensorRT), and precision_plan:
    ``{"file": name, "modules_fp32": [path, ...]}``.
    """

    optimization_level: str | None = None
    threads: int | None = None
    build: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Worker:
    """How a worker is started: the command without the job, and changes to the environment.

    A value of None in `environment` removes the variable.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str | None] = field(default_factory=dict)


class Backend(ABC):
    """One inference library. Engines are named ``{precision}.{name}{suffix}``."""

    name: ClassVar[str]
    precisions: ClassVar[tuple[str, ...]]
    suffix: ClassVar[str]  # of the engine file: ".onnx", ".engine"
    # Whether `source` is an ONNX file; else the engine is compiled from the model itself.
    from_onnx: ClassVar[bool] = True
    # Whether a capture of it under nsys tells inferences and layers, so that a fraction of its
    # launches can stand for the rest.
    tells_launches: ClassVar[bool] = False
    # What the task trace writes to `raw` beside the capture: ".trace.profile.json"; None: nothing.
    trace_suffix: ClassVar[str | None] = None
    # Whether `take` takes engines that were built elsewhere.
    takes_engines: ClassVar[bool] = False
    # Of BuildOptions.build, what this backend has; and whether its engines run on CPU threads.
    builder: ClassVar[tuple[str, ...]] = ()
    threaded: ClassVar[bool] = False

    @property
    def traceable(self) -> bool:
        """Whether the worker has the task trace, for captures of its kernels under nsys and ncu."""
        return False

    @property
    def loads_differ(self) -> bool:
        """Whether the latency of an engine is that of several loads: on a GPU they differ."""
        return self.traceable

    def unavailable(self) -> Unavailable | None:
        """None where this backend builds and runs engines; cheap: no library, no process."""
        return inference.unavailable(self.name)

    def cannot_run(self) -> Unavailable | None:
        """Why an engine that is built does not run here; None: it does."""
        return self.unavailable()

    def not_worth(self, precision: str) -> Unavailable | None:
        """Why an engine of this precision is built here only when it is asked for; None: it is not
        so."""
        return None

    @abstractmethod
    def options(self, asked: BuildOptions) -> dict[str, Any]:
        """What decides the build, as JSON: the checked options and the library's version.

        Imports no library. Raises InputError for an option the backend does not have.
        """

    @abstractmethod
    def source(self, run: Run, precision: str) -> Path:
        """What an engine of this precision is built from: the exported ONNX file, or model.json."""

    @abstractmethod
    def build(self, run: Run, precision: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Build the engine, its layer list and build.json; gives facts for the manifest.

        `options` is what `options()` gave. Raises LayerlineError.
        """

    def take(self, run: Run, precision: str, file: Path) -> dict[str, Any]:
        """Make `file`, built elsewhere, the run's engine, with all that `build` leaves."""
        raise NotImplementedError

    def plan(self, run: Run, precision: str, options: Mapping[str, Any]) -> list[str]:
        """The commands that `build` would run, as text; none where it builds in this process."""
        return []

    @abstractmethod
    def worker(self) -> Worker:
        """The worker that has tasks latency, profile and outputs."""

    def job_options(self, run: Run, precision: str) -> dict[str, Any]:
        """The worker's `options` for a built engine."""
        return {}

    def inputs(self, run: Run, precision: str) -> list[Path]:
        """The files a build reads."""
        return [
            *with_external_data(self.source(run, precision)),
            nodes_path(run, precision),
            inputs_path(run),
        ]

    def outputs(self, run: Run, precision: str) -> list[Path]:
        """The files a build leaves; the first is the engine."""
        return [
            self.engine(run, precision),
            self.layers(run, precision),
            self.build_record(run, precision),
        ]

    def engine(self, run: Run, precision: str) -> Path:
        """The engine file."""
        return run.file("engines", f"{precision}.{self.name}{self.suffix}")

    def layers(self, run: Run, precision: str) -> Path:
        """The layer list, in the schema of `layers.py`."""
        return run.file("engines", f"{precision}.{self.name}.layers.json")

    def build_record(self, run: Run, precision: str) -> Path:
        """How the engine was built: options, versions, seconds, sizes."""
        return run.file("engines", f"{precision}.{self.name}.build.json")


def load(name: str) -> Backend:
    """The backend of this name; InputError for an unknown one."""
    module, cls = _CLASSES[inference.known(name)].split(":")
    backend: Backend = getattr(importlib.import_module(module), cls)()
    return backend


def choose(name: str | None) -> Backend:
    """The backend asked for, or the first that runs here. ToolMissing where there is none."""
    if name is not None:
        return load(name)
    missing = []
    for candidate in inference.BACKENDS:
        backend = load(candidate)
        why = backend.unavailable()
        if why is None:
            return backend
        missing.append((candidate, why))
    raise ToolMissing(
        "no inference engine runs here: " + ", ".join(f"{n} ({w.reason})" for n, w in missing),
        fix=missing[-1][1].remedy,
    )


def require(backend: Backend) -> None:
    """ToolMissing with its remedy where engines of the backend do not run here."""
    _refuse(backend, backend.cannot_run())


def require_to_build(backend: Backend) -> None:
    """ToolMissing with its remedy where the backend builds no engines here."""
    _refuse(backend, backend.unavailable())


def _refuse(backend: Backend, why: Unavailable | None) -> None:
    if why is not None:
        raise ToolMissing(f"{backend.name}: {why.reason}", fix=why.remedy)


def check_options(backend: Backend, asked: BuildOptions) -> None:
    """InputError where something is asked for that the backend does not have."""
    lacking = [name for name in asked.build if name not in backend.builder]
    if asked.threads is not None and not backend.threaded:
        lacking.append("threads")
    if lacking:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in lacking)
        raise InputError(f"{backend.name} has no {names}", fix="leave it out")


def check_precision(backend: Backend, precision: str) -> None:
    """InputError where the backend has no engines of this precision."""
    if precision not in backend.precisions:
        raise InputError(
            f"{backend.name} builds no {precision} engines",
            fix=f"choose {', '.join(backend.precisions)}",
        )


def nodes_path(run: Run, precision: str) -> Path:
    """The nodes of the precision's own graph where the export wrote them, else nodes.json."""
    own = run.file("export", f"{precision}.nodes.json")
    return own if own.exists() else run.file("export", "nodes.json")


def planned_modules(options: Mapping[str, Any]) -> list[str]:
    """The modules that a build of these options keeps in fp32."""
    return list((options.get("precision_plan") or {}).get("modules_fp32", ()))


def inputs_path(run: Run) -> Path:
    """The inputs that every side is given."""
    return run.file("export", "inputs.npz")


def gpu_models() -> list[str]:
    """Models of the GPUs here, by the driver's files in /proc; engines are built for one."""
    models = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        lines = path.read_text(errors="replace").splitlines()
        models += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return models


def with_external_data(model: Path) -> list[Path]:
    """The ONNX file and, where it is there, the file with its weights (``NAME.onnx.data``)."""
    data = model.with_name(model.name + ".data")
    return [model, data] if data.exists() else [model]
