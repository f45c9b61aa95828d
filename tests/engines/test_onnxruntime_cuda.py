"""The CUDA provider of ONNX Runtime, as far as it goes without a GPU: what it is told, what lacks.

A stand-in takes the place of the library and of the driver, and keeps what it is given.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from engine_models import NODES, write_run

import layerline.engines.launch as launch_module
from layerline.core import nodes as nodes_
from layerline.core.errors import InputError, ToolMissing
from layerline.core.resolve import RawLayer
from layerline.core.run import Run, open_run
from layerline.engines import backend as backends
from layerline.engines import onnxruntime_cuda_backend
from layerline.engines.command import engines
from layerline.engines.layers import EngineLayer
from layerline.engines.onnxruntime_cuda_backend import OnnxRuntimeCudaBackend
from layerline.export import inference

WORKERS = Path(launch_module.__file__).parent / "workers"
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


# --- the backend ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "source", "tf32"),
    [("fp32", "fp32.onnx", "0"), ("tf32", "fp32.onnx", "1"), ("fp16", "fp16.onnx", "1"),
     ("bf16", "bf16.onnx", "1")],
)  # fmt: skip
def test_each_precision_has_its_file_and_its_tf32(
    tmp_path: Path, precision: str, source: str, tf32: str
) -> None:
    """ONNX Runtime allows TF32 unless it is told not to: an "fp32" engine would be tf32."""
    backend, run = OnnxRuntimeCudaBackend(), Run(tmp_path)
    assert backend.source(run, precision).name == source
    told = backend.job_options(run, precision)
    assert told["providers"] == [CUDA, CPU]
    assert told["provider_options"] == [{"device_id": "0", "use_tf32": tf32}, {}]


def test_it_is_a_backend_by_its_name() -> None:
    assert isinstance(backends.load("onnxruntime-cuda"), OnnxRuntimeCudaBackend)
    assert backends.load("onnxruntime").name == "onnxruntime"


def test_wheel_without_the_provider_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(inference, "no_gpu", lambda: None)
    monkeypatch.setattr(inference, "CUDA_PROVIDER", "libnot_there.so")
    why = OnnxRuntimeCudaBackend().unavailable()
    assert why is not None
    assert "no CUDA provider" in why.reason
    assert "pip uninstall onnxruntime" in why.remedy


def test_machine_without_a_gpu_is_exit_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    monkeypatch.setattr(inference, "CUDA_PROVIDER", "_pybind_state.py")
    gone = inference.Unavailable("no NVIDIA GPU here", "run this stage on a machine with a GPU")
    monkeypatch.setattr(inference, "no_gpu", lambda: gone)
    path = write_run(tmp_path / "run", ("fp32",))
    command = ["--run", str(path), "--precision", "fp32", "--backend", "onnxruntime-cuda"]
    result = CliRunner().invoke(engines, command)
    assert isinstance(result.exception, ToolMissing)
    assert result.exception.exit_code == 3
    assert "machine with a GPU" in result.exception.line()


def test_options_of_another_builder_are_refused() -> None:
    with pytest.raises(InputError, match="workspace-mib"):
        OnnxRuntimeCudaBackend().options(backends.BuildOptions(build={"workspace_mib": 1}))


def test_nodes_on_the_cpu_are_kept_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    probed = {
        "fc/MatMul": {"op": "MatMul", "provider": CUDA},
        "x/NonZero": {"op": "NonZero", "provider": CPU},
    }
    assert OnnxRuntimeCudaBackend()._facts(probed, "fp16") == {"on_cpu": {"x/NonZero": "NonZero"}}
    assert "1 of 2 nodes run on the CPU (NonZero)" in capsys.readouterr().err
    assert OnnxRuntimeCudaBackend()._facts({"a": {"provider": CUDA}}, "fp16") == {"on_cpu": {}}


def test_a_product_that_may_be_tf32_is_not_called_fp32() -> None:
    layers = [
        EngineLayer(RawLayer(name="m", op=op), compute_precision=precision)
        for op, precision in (("MatMul", "fp32"), ("Add", "fp32"), ("MatMul", "fp16"))
    ]
    opened = [onnxruntime_cuda_backend._open(layer).compute_precision for layer in layers]
    assert opened == [None, "fp32", "fp16"]


# --- the worker ----------------------------------------------------------------------------------


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A worker's module by its bare name; nothing of them is left behind."""
    monkeypatch.syspath_prepend(str(WORKERS))
    before = set(sys.modules)
    yield __import__
    for name in set(sys.modules) - before:
        if (WORKERS / f"{name}.py").exists():
            del sys.modules[name]


class Driver:
    """Counts calls; events are 1000 ns apart; the gate opens by itself where a run waits."""

    def __init__(self) -> None:
        self.free = [10_000, 7_000]
        self.gate_opened = 0
        self.waits_inside = False
        self.log: list[str] = []

    def stream(self) -> int:
        return 77

    def memory(self) -> tuple[int, int]:
        return (self.free.pop(0) if len(self.free) > 1 else self.free[0]), 80 << 30

    def device_facts(self) -> dict[str, Any]:
        return {"name": "a GPU", "cuda_driver": "13.0"}

    def bus_id(self) -> str:
        return "0000:3B:00.0"

    def synchronize(self, stream: int) -> None:
        self.log.append(f"wait {stream}")

    def event(self) -> int:
        return 1

    def record(self, event: int, stream: int) -> None:
        assert stream == 77
        self.log.append("event")

    def wait(self, event: int) -> None:
        pass

    def elapsed_ns(self, start: int, end: int) -> int:
        return 1000

    def gate(self) -> Any:
        driver = self

        class Gate:
            opened_by_itself = 0

            def close(self, stream: int) -> None:
                driver.log.append("close")

            def open(self) -> None:
                driver.log.append("open")
                self.opened_by_itself += driver.waits_inside

        return Gate()

    def profiler_start(self) -> None:
        self.log.append("start")

    def profiler_stop(self) -> None:
        self.log.append("stop")

    def to_host(self, array: Any, address: int) -> None:
        array[...] = np.array([0x3F80, 0xC000], np.uint16)  # 1.0 and -2.0


class Value:
    def __init__(self, kind: str = "tensor(float)") -> None:
        self.kind = kind

    def data_type(self) -> str:
        return self.kind

    def shape(self) -> list[int]:
        return [2]

    def data_ptr(self) -> int:
        return 4096

    def numpy(self) -> Any:
        return np.array([3.0, 4.0], np.float32)


class Library:
    """An onnxruntime that has, or only claims to have, the CUDA provider."""

    __version__ = "1.31.1"
    cuda_version = "13.0"

    def __init__(self, *, available: bool = True, starts: bool = True, kind: str = "") -> None:
        self.available, self.starts = available, starts
        self.kind = kind or "tensor(float)"
        self.fails = ""
        self.sessions: list[dict[str, Any]] = []
        self.bound: list[tuple[Any, ...]] = []
        self.runs: list[Any] = []
        self.__file__ = "/nonexistent/onnxruntime/__init__.py"
        errors = {n: type(n, (Exception,), {}) for n in ("Fail", "InvalidArgument", "EPFail")}
        self.capi = SimpleNamespace(onnxruntime_pybind11_state=SimpleNamespace(**errors))
        self.GraphOptimizationLevel = SimpleNamespace(ORT_DISABLE_ALL=0, ORT_ENABLE_ALL=99)
        self.SessionOptions = SimpleNamespace
        self.OrtValue = SimpleNamespace(
            ortvalue_from_numpy=lambda a, device, number: ("value", a.dtype.name, device, number)
        )

    def run(self, binding: Any, options: Any = None) -> None:
        if self.fails:
            raise self.capi.onnxruntime_pybind11_state.Fail(self.fails)
        self.runs.append(options)

    def RunOptions(self) -> Any:  # noqa: N802
        entries: dict[str, str] = {}
        return SimpleNamespace(add_run_config_entry=entries.__setitem__, entries=entries)

    def get_build_info(self) -> str:
        return "build"

    def get_available_providers(self) -> list[str]:
        return [CUDA, CPU] if self.available else [CPU]

    def InferenceSession(self, path: str, options: Any, **given: Any) -> Any:  # noqa: N802
        self.sessions.append(given)
        library = self

        class Binding:
            def bind_ortvalue_input(self, *what: Any) -> None:
                library.bound.append(("input", *what))

            def bind_output(self, *what: Any) -> None:
                library.bound.append(("output", *what))

            def bind_ortvalue_output(self, *what: Any) -> None:
                library.bound.append(("kept output", what[0]))

            def clear_binding_outputs(self) -> None:
                pass

            def get_outputs(self) -> list[Value]:
                return [Value(library.kind)]

        return SimpleNamespace(
            get_inputs=lambda: [SimpleNamespace(name="ids", type="tensor(int64)")],
            get_outputs=lambda: [SimpleNamespace(name="logits")],
            get_providers=lambda: [CUDA, CPU] if self.starts else [CPU],
            get_provider_options=lambda: {
                CUDA: {"use_tf32": "0", "user_compute_stream": "77"},
                CPU: {},
            },
            io_binding=Binding,
            run_with_iobinding=self.run,
        )


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    np.savez(tmp_path / "inputs.npz", ids=np.arange(2))
    return {
        "engine": "e.onnx",
        "inputs": str(tmp_path / "inputs.npz"),
        "precision": "fp32",
        "warmup": 2,
        "iterations": {"min": 6, "max": 6},
        "target": 0.02,
        "seconds": 5,
        "threads": 1,
        "raw": None,
        "options": OnnxRuntimeCudaBackend().job_options(Run(tmp_path), "fp32"),
    }


@pytest.fixture
def stand_in(worker: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a library and a driver in place; gives the worker's module."""

    def put(library: Library, driver: Driver) -> Any:
        module = worker("onnxruntime_cuda_worker")
        monkeypatch.setattr(module, "Cuda", lambda: driver)
        monkeypatch.setattr(module.sessions, "load", lambda fix: library)
        return module

    return put


def test_everything_is_on_the_device_and_on_the_timed_stream(
    stand_in: Any, job: dict[str, Any]
) -> None:
    library, driver = Library(), Driver()
    found = stand_in(library, driver).latency(job)
    (given,) = library.sessions
    assert given["providers"] == [CUDA, CPU]
    cuda = {"device_id": "0", "use_tf32": "0", "user_compute_stream": "77"}
    assert given["provider_options"] == [cuda, {}]
    assert given["enable_fallback"] == 0
    assert library.bound == [
        ("input", "ids", ("value", "int64", "cuda", 0)),
        ("output", "logits", "cuda", 0),
        ("kept output", "logits"),
    ]
    first, *others = library.runs
    assert first is None  # allocates, and waits
    assert {o.entries["disable_synchronize_execution_providers"] for o in others} == {"1"}
    assert found["latency_ns"] == [1000] * 6
    assert found["queued_ns"] == [1000] * 6
    assert len(found["host_ns"]) == 6
    facts = found["facts"]
    assert facts["clock"] == "device events"
    assert facts["throughput_per_second"] > 0
    assert facts["device_bytes"] == 3000
    assert facts["device"]["name"] == "a GPU"
    assert facts["provider_options"][CUDA] == {"use_tf32": "0"}
    json.dumps(found)


def test_engine_that_waits_for_the_device_has_no_queued_time(
    stand_in: Any, job: dict[str, Any]
) -> None:
    """A node on the CPU waits for a copy in the middle: the gate opens by itself after a second,
    and what is measured then is no device time."""
    library, driver = Library(), Driver()
    driver.waits_inside = True
    found = stand_in(library, driver).latency(job)
    assert "queued_ns" not in found
    assert found["facts"]["queued"] is False
    assert driver.log.count("close") == 1


def test_provider_that_silently_fell_back_is_exit_3(stand_in: Any, job: dict[str, Any]) -> None:
    """ONNX Runtime leaves out a provider whose libraries are missing, and runs on the CPU."""
    module = stand_in(Library(starts=False), Driver())
    with pytest.raises(module.common.WorkerError) as e:
        module.latency(job)
    assert e.value.exit_code == 3
    assert "does not load" in e.value.what
    assert "onnxruntime-gpu[cuda,cudnn]" in e.value.fix


def test_cpu_wheel_is_exit_3(stand_in: Any, job: dict[str, Any]) -> None:
    module = stand_in(Library(available=False), Driver())
    with pytest.raises(module.common.WorkerError) as e:
        module.latency(job)
    assert e.value.exit_code == 3
    assert "pip uninstall onnxruntime" in e.value.fix


def test_full_gpu_is_exit_3_and_speaks_of_the_batch(stand_in: Any, job: dict[str, Any]) -> None:
    library = Library()
    library.fails = "Failed to allocate memory for 9 bytes"
    module = stand_in(library, Driver())
    with pytest.raises(module.common.WorkerError) as e:
        module.latency(job)
    assert (e.value.exit_code, e.value.what) == (3, "out of GPU memory")
    assert "smaller batch" in e.value.fix


@pytest.mark.parametrize(
    ("said", "free", "what"),
    [
        ("CUDNN failure 1001: CUDNN_STATUS_NOT_INITIALIZED ; GPU=0", 700 << 20,
         "out of GPU memory (only 0.7 GiB of the GPU's 80.0 GiB of memory were free when it began"),
        ("CUDNN failure 1001: CUDNN_STATUS_NOT_INITIALIZED ; GPU=0", 40 << 30, "does not run"),
        ("no kernel for Foo(1) in CUDAExecutionProvider", 700 << 20, "does not run"),
    ],
)  # fmt: skip
def test_a_gpu_with_little_memory_is_named_where_cuda_failed(
    stand_in: Any, job: dict[str, Any], said: str, free: int, what: str
) -> None:
    """cuDNN and cuBLAS say there that they are not initialised, and nothing of memory."""
    library, driver = Library(), Driver()
    library.fails, driver.free = said, [free]
    module = stand_in(library, driver)
    with pytest.raises(module.common.WorkerError) as e:
        module.latency(job)
    assert what in e.value.what
    assert said in e.value.what


def test_no_driver_is_exit_3(worker: Any) -> None:
    place = worker("onnxruntime_cuda_worker")
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    with pytest.raises(place.WorkerError) as e:
        place.Gpu()
    assert e.value.exit_code == 3


def test_bfloat16_outputs_are_widened(stand_in: Any, job: dict[str, Any], tmp_path: Path) -> None:
    """numpy has no bfloat16; the upper half of a float has the same value."""
    job["raw"] = str(tmp_path / "outputs.npz")
    stand_in(Library(kind="tensor(bfloat16)"), Driver()).TASKS["outputs"](job)
    with np.load(job["raw"]) as found:
        assert found["logits"].tolist() == [1.0, -2.0]
        assert found["logits"].dtype == np.float32


def test_trace_holds_the_measured_runs_alone(stand_in: Any, job: dict[str, Any]) -> None:
    library, driver = Library(), Driver()
    job["iterations"] = {"min": 3, "max": 3}
    found = stand_in(library, driver).trace(job)
    inside = driver.log[driver.log.index("start") : driver.log.index("stop")]
    assert inside.count("close") == inside.count("open") == 3
    assert found["latency_ns"] == [1000] * 3
    facts = found["facts"]
    assert facts["queued"] is True
    assert facts["runs_before"] == len(library.runs) - 3
    assert all(before <= after for before, after in facts["clock_readings"])
    assert len(facts["clock_readings"]) + 6 == inside.count("event")


def test_profile_lets_launches_wait_and_says_so(
    stand_in: Any, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    module = stand_in(Library(), Driver())
    seen: dict[str, Any] = {}

    def profile(_job: Any, place: Any) -> dict[str, Any]:
        import os

        seen["waits"] = os.environ.get("CUDA_LAUNCH_BLOCKING")
        return {"facts": {}}

    monkeypatch.setattr(module.shared, "profile", profile)
    facts = module.profile(job)["facts"]
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    assert seen["waits"] == "1"
    assert facts == {"clock": "host", "launches_wait": True}


def test_layers_of_the_tiny_model_are_resolved_whoever_runs_them(tmp_path: Path) -> None:
    """The shared code path: the CPU's saved graph with the CUDA provider's record of a run."""
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    run = open_run(write_run(tmp_path / "run", ("fp32",)), create=True)
    model = onnx.load(str(run.file("export", "fp32.onnx")))
    graph = nodes_.load(run.file("export", "nodes.json"))
    probed = {n[0]: {"op": n[1], "provider": CUDA, "inputs": ["float"], "outputs": ["float"]}
              for n in NODES}  # fmt: skip
    by = {
        precision: OnnxRuntimeCudaBackend()._layers(model, probed, graph, precision)
        for precision in ("fp32", "tf32")
    }
    head = {p: next(x for x in found if x.raw.name == "head/MatMul") for p, found in by.items()}
    assert head["fp32"].compute_precision == "fp32"
    assert head["tf32"].compute_precision is None
    assert {x.tactic for x in by["fp32"]} == {CUDA}
