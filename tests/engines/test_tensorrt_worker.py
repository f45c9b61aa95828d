"""The TensorRT worker's parts that need no GPU: names, messages, options, errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import layerline.engines.launch as launch_module
from layerline.core.errors import InputError, ToolMissing
from layerline.engines.backend import Worker
from layerline.engines.launch import call
from layerline.engines.tensorrt_backend import TensorRTBackend, TensorRTRTXBackend

WORKERS = Path(launch_module.__file__).parent / "workers"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers are scripts that import each other by bare name; leave nothing of them behind."""
    monkeypatch.syspath_prepend(str(WORKERS))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if (WORKERS / f"{name}.py").exists():
            del sys.modules[name]


def module(name: str) -> Any:
    return __import__(name)


# --- names of layers ----------------------------------------------------------------------------


class Layer:
    def __init__(self, name: str, kind: str, inputs: list[str], outputs: list[str]) -> None:
        self.name, self.type = name, f"LayerType.{kind}"
        self._inputs = [SimpleNamespace(name=t) for t in inputs]
        self._outputs = [SimpleNamespace(name=t) for t in outputs]
        self.num_inputs, self.num_outputs = len(inputs) + 1, len(outputs)

    def get_input(self, i: int) -> Any:
        return self._inputs[i] if i < len(self._inputs) else None  # optional inputs are null

    def get_output(self, i: int) -> Any:
        return self._outputs[i]


class Network:
    def __init__(self, *layers: Layer) -> None:
        self.layers, self.num_layers = layers, len(layers)

    def get_layer(self, i: int) -> Layer:
        return self.layers[i]


NODES = [
    {"name": "a/Gemm", "outputs": ["x"]},
    {"name": "a/Softmax", "outputs": ["y"]},
]
NETWORK = (
    ("a.weight", "CONSTANT", [], ["w"]),
    ("ONNXTRT_cast", "CAST", ["w"], ["w2"]),  # a helper: read by the Gemm only
    ("a/Gemm", "MATRIX_MULTIPLY", ["in", "w2"], ["x"]),
    ("(Unnamed Layer* 3) [Shuffle]", "SHUFFLE", ["x"], ["s"]),  # read by the next helper
    ("(Unnamed Layer* 4) [SoftMax]", "SOFTMAX", ["s"], ["y"]),  # writes the node's tensor
    ("both", "IDENTITY", ["in"], ["z"]),  # read by nothing
)


def test_every_layer_gets_its_node_and_helpers_are_renamed_after_it() -> None:
    names, network = module("tensorrt_network"), Network(*(Layer(*e) for e in NETWORK))
    layers = names.describe(network)
    names.assign_nodes(layers, NODES)
    assert [e["node"] for e in layers] == [
        None, "a/Gemm", "a/Gemm", "a/Softmax", "a/Softmax", None,
    ]  # fmt: skip
    assert names.rename(network, layers, NODES) == 3
    found = [layer.name for layer in network.layers]
    assert found == [
        "a.weight", "a/Gemm_helper_2", "a/Gemm", "a/Softmax", "a/Softmax_helper_2", "both",
    ]  # fmt: skip
    assert len(set(found)) == len(found)
    assert [e.get("parser_name") for e in layers][1] == "ONNXTRT_cast"
    assert layers[2]["inputs"] == ["in", "w2"]


def test_a_helper_of_two_nodes_is_nobodys() -> None:
    names = module("tensorrt_network")
    network = Network(
        Layer("helper", "CAST", ["in"], ["t"]),
        Layer("a/Gemm", "MATRIX_MULTIPLY", ["t"], ["x"]),
        Layer("a/Softmax", "SOFTMAX", ["t"], ["y"]),
    )
    layers = names.describe(network)
    names.assign_nodes(layers, NODES)
    assert layers[0]["node"] is None
    assert names.rename(network, layers, NODES) == 0
    assert network.layers[0].name == "helper"


# --- messages -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("- 3 weights are affected", "- 17 weights are affected"),
        ("onnx2trt_utils.cpp:374: It has INT64", "onnx2trt_utils.cpp:9: It has INT64"),
        ("Unused input 'a' of layer \"b\"", "Unused input 'c' of layer \"d\""),
        ("[engine.cpp::enqueue::12] Error 1", "[api.cpp::load::999] Error 2"),
    ],
)  # fmt: skip
def test_messages_that_say_the_same_are_one_kind(one: str, other: str) -> None:
    kind = module("tensorrt_api").message_kind
    assert kind(one) == kind(other)


def test_messages_that_say_something_else_are_not() -> None:
    kind = module("tensorrt_api").message_kind
    assert kind("weights are affected") != kind("weights are fine")
    assert len(kind("x" * 1000)) == 160


def test_a_verbose_log_lists_layers_with_commas_in_their_names() -> None:
    log = module("tensorrt_log_layers")
    text = (
        "Layers:\nName: a, b+c, LayerType: gemm, Inputs: [ { Name: x, Dimensions: [1,64], Strides: "
        "[64,1], StrideOrder: [1,0], Datatype: Half, Format: (Linear) Row major linear format }], "
        "Outputs: [ { Name: y, Dimensions: [], Strides: [], StrideOrder: [], Datatype: Float, "
        "Format: (Linear) Row major linear format }], TacticName: t, StreamId: 0, Metadata: "
        "[ONNX Layer: m/Gemm]\x1f[ONNX Layer: m/Add]\n\nBindings:\nx\n"
    )
    (layer,) = log.document(text)["Layers"]
    assert (layer["Name"], layer["LayerType"], layer["TacticName"]) == ("a, b+c", "gemm", "t")
    assert [(t["Name"], t["Dimensions"], t["Format/Datatype"]) for t in layer["Inputs"]] == [
        ("x", [1, 64], "Half")
    ]
    assert layer["Outputs"][0]["Dimensions"] == []
    assert layer["Metadata"] == "[ONNX Layer: m/Gemm]\x1f[ONNX Layer: m/Add]"
    assert log.document("Some other message") is None
    assert log.document(None) is None


# --- the worker's errors, with a library that stands in for TensorRT ----------------------------

FAKE = """
class ILogger:
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)
    def __init__(self): pass
class BuilderFlag: FP16 = 1
__version__ = "8.6.0"
class Runtime:
    def __init__(self, logger): self.logger = logger
    def deserialize_cuda_engine(self, plan):
        self.logger.log(ILogger.ERROR, plan.decode())
        return Engine() if plan.startswith(b"context: ") else None
class Engine:
    def create_execution_context(self): return None
"""
FAKE_CUDA = """
import cuda_driver
class Cuda:
    def __init__(self, device=0):
        if FREE is None:
            raise cuda_driver.CudaError("cuDevicePrimaryCtxRetain", 2, "CUDA_ERROR_OUT_OF_MEMORY")
    def memory(self): return FREE << 20, 80 << 30
cuda_driver.Cuda = Cuda
"""


def job(engine: Path, task: str = "latency", **options: Any) -> dict[str, Any]:
    return {
        "task": task, "engine": str(engine), "inputs": "inputs.npz", "precision": "fp16",
        "warmup": 0, "iterations": {"min": 1, "max": 1}, "target": 1.0, "seconds": 5,
        "threads": 1, "raw": None, "options": {"backend": "tensorrt", **options},
    }  # fmt: skip


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A folder with a stand-in for TensorRT."""
    folder = tmp_path / "fake"
    folder.mkdir()
    (folder / "tensorrt.py").write_text(FAKE)
    return folder


def worker(fake: Path, *, gpu: bool, free: int | None = 40 << 10) -> Worker:
    """The worker with the stand-in; with `gpu`, with a CUDA driver that only says how many MiB are
    free; null: not enough for a context."""
    script = WORKERS / "tensorrt_worker.py"
    if not gpu:
        return Worker((sys.executable, str(script)), {"PYTHONPATH": str(fake)})
    start = fake / "start.py"
    start.write_text(
        f"import runpy, sys\nsys.path.insert(0, {str(WORKERS)!r})\nFREE = {free}\n{FAKE_CUDA}\n"
        f"runpy.run_path({str(script)!r}, run_name='__main__')\n"
    )
    return Worker((sys.executable, str(start)), {"PYTHONPATH": str(fake)})


def no_gpu() -> bool:
    return not Path("/dev/nvidiactl").exists()


@pytest.mark.skipif(not no_gpu(), reason="this machine has a GPU")
def test_without_a_driver_it_is_exit_3_with_the_remedy(tmp_path: Path, fake: Path) -> None:
    with pytest.raises(ToolMissing, match=r"no CUDA driver|no usable GPU") as e:
        call(worker(fake, gpu=False), job(tmp_path / "x.engine"))
    assert e.value.fix == "run this stage on a machine with a GPU"


def test_without_tensorrt_it_is_exit_3_with_the_remedy(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "tensorrt.py").write_text("raise ImportError('libnvinfer.so.8: cannot open')")
    with pytest.raises(ToolMissing, match=r"libnvinfer\.so\.8") as e:
        call(worker(hidden, gpu=False), job(tmp_path / "x.engine"))
    assert "TRT_PYTHON" in (e.value.fix or "")


@pytest.mark.parametrize(
    ("said", "error", "what", "fix"),
    [
        ("Serialized Engine Version (228) does not match Current Version (239)", ToolMissing,
         "built for another GPU or TensorRT", "build the engine again"),
        ("The engine plan file is generated on an incompatible device, expecting compute 8.9",
         ToolMissing, "built for another GPU or TensorRT", "build the engine again"),
        ("getPluginCreator could not find plugin: CustomGelu", ToolMissing, "needs a plugin",
         "install the plugin"),
        ("CUDA: out of memory", ToolMissing, "out of GPU memory", "free the GPU"),
        ("Assertion magicTagRead failed. Magic tag does not match", InputError, "is not an engine",
         "build it again"),
    ],
)  # fmt: skip
def test_an_engine_that_does_not_load_says_why(
    tmp_path: Path, fake: Path, said: str, error: type[Exception], what: str, fix: str
) -> None:
    engine = tmp_path / "x.engine"
    engine.write_text(said)
    with pytest.raises(error, match=what) as e:
        call(worker(fake, gpu=True), job(engine))
    assert fix in str(getattr(e.value, "fix", ""))


@pytest.mark.parametrize(
    ("said", "free", "error", "what"),
    [
        ("Cuda Runtime (invalid resource handle)", 700, ToolMissing,
         "only 0.7 GiB of the GPU's 80.0 GiB of memory were free when it began"),
        ("context: Error Code 1: Cudnn", 700, ToolMissing, "only 0.7 GiB of the GPU's"),
        ("context: Error Code 1: Cudnn", 40 << 10, ToolMissing, "gives no context to run it"),
        ("Magic tag does not match", 700, InputError, "is not an engine"),
        ("Current Version (239)", 700, ToolMissing, "built for another GPU or TensorRT"),
        ("any", None, ToolMissing, "out of GPU memory .*CUDA_ERROR_OUT_OF_MEMORY"),
    ],
)  # fmt: skip
def test_an_engine_that_does_not_load_on_a_full_gpu_names_the_memory(
    tmp_path: Path, fake: Path, said: str, free: int | None, error: type[Exception], what: str
) -> None:
    engine = tmp_path / "x.engine"
    engine.write_text(said)
    with pytest.raises(error, match=what) as e:
        call(worker(fake, gpu=True, free=free), job(engine))
    assert ("free the GPU" in str(getattr(e.value, "fix", ""))) == ("GPU's" in what or free is None)


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("Error Code 2: OutOfMemory (no further information)", True),
        ("Cuda Runtime (out of memory)", True),
        ("cudaErrorMemoryAllocation", True),
        ("CUDA_ERROR_OUT_OF_MEMORY", True),
        ("CUBLAS_STATUS_ALLOC_FAILED", True),
        ("Requested amount of GPU memory (9 bytes) could not be allocated.", True),
        ("without a layout for this memory format", False),
        ("Cuda Runtime (invalid resource handle)", False),
    ],
)
def test_what_says_that_memory_ran_out(text: str, memory: bool) -> None:
    assert module("gpu_memory").ran_out(text) is memory


# --- the backend --------------------------------------------------------------------------------


def test_trt_python_that_is_nowhere_is_a_missing_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRT_PYTHON", "/nowhere/python3")
    from layerline.engines.backend import BuildOptions

    for backend in (TensorRTBackend(), TensorRTRTXBackend()):
        why = backend.unavailable()
        assert why is not None and "/nowhere/python3 is not there" in why.reason
        with pytest.raises(ToolMissing, match="/nowhere/python3 is not there"):
            backend.options(BuildOptions())


def test_a_wrong_optimisation_level_is_refused_before_anything_starts() -> None:
    from layerline.engines.backend import BuildOptions

    with pytest.raises(InputError, match="optimisation level 'all'"):
        TensorRTBackend().options(BuildOptions(optimization_level="all"))


def test_a_build_that_fails_says_why_as_far_as_tensorrt_does() -> None:
    build = module("tensorrt_build")
    failed = build._build_failure(SimpleNamespace(errors=["cudaErrorMemoryAllocation"]))
    assert failed.exit_code == 3 and "workspace" in failed.fix
    assert build._build_failure(SimpleNamespace(errors=[])).what.endswith("gives no reason")


def test_a_build_that_fails_on_a_full_gpu_names_the_memory() -> None:
    """TensorRT says `invalid resource handle` there, and nothing of memory."""
    build = module("tensorrt_build")
    said = SimpleNamespace(errors=["Cuda Runtime (invalid resource handle)"])
    full = build._build_failure(said, (700 << 20, 80 << 30))
    assert "only 0.7 GiB of the GPU's 80.0 GiB of memory were free when it began" in full.what
    assert "invalid resource handle" in full.what and "free the GPU" in full.fix
    for memory in ((40 << 30, 80 << 30), None):
        assert "memory" not in build._build_failure(said, memory).what


@pytest.mark.parametrize(
    ("failed", "says"), [((1 << 30, 80 << 30), True), ((3 << 30, 80 << 30), False), (None, False)]
)
def test_a_gpu_that_filled_up_during_the_build_is_named_too(
    monkeypatch: pytest.MonkeyPatch, failed: tuple[int, int] | None, says: bool
) -> None:
    build = module("tensorrt_build")
    monkeypatch.setattr(build.cuda_driver, "memory", lambda: failed)
    said = SimpleNamespace(errors=["Error Code 1: Cask"])
    found = build._build_failure(said, (40 << 30, 80 << 30))
    assert ("only 1.0 GiB" in found.what and "when it failed" in found.what) is says
    # A build that needs no GPU does not ask for one.
    assert "memory" not in build._build_failure(said, None).what


def test_without_a_builder_the_reason_is_what_the_library_said() -> None:
    build = module("tensorrt_build")

    def none(logger: Any) -> None:
        raise TypeError("factory function returned nullptr")

    with pytest.raises(Exception, match="factory function returned nullptr"):
        build._builder(SimpleNamespace(Builder=none), SimpleNamespace(errors=[]), None)


@pytest.mark.parametrize(
    ("fails", "answer"),
    [({}, (3, 9)), ({"cuDevicePrimaryCtxRetain": 2}, (0, 9)), ({"cuMemGetInfo_v2": 709}, None)],
)
def test_the_memory_of_a_gpu_too_full_for_a_context_is_none_free(
    monkeypatch: pytest.MonkeyPatch, fails: dict[str, int], answer: tuple[int, int] | None
) -> None:
    driver = module("cuda_driver")

    class Library:
        def __getattr__(self, name: str) -> Any:
            def call(*arguments: Any) -> int:
                if name == "cuDeviceGetCount":
                    arguments[0]._obj.value = 1
                if name == "cuDeviceTotalMem_v2":
                    arguments[0]._obj.value = 9
                if name == "cuMemGetInfo_v2":
                    arguments[0]._obj.value, arguments[1]._obj.value = 3, 9
                return fails.get(name, 0)

            self.__dict__[name] = call
            return call

    monkeypatch.setattr(driver.ctypes, "CDLL", lambda name: Library())
    assert driver.memory() == answer


def test_the_worker_runs_where_python_hides_its_folder(tmp_path: Path, fake: Path) -> None:
    """PYTHONSAFEPATH leaves a script's folder off the path."""
    bad = tmp_path / "job.json"
    bad.write_text(json.dumps({"task": "nonsense", "result": str(tmp_path / "r.json")}))
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(fake)}
    command = [sys.executable, str(WORKERS / "tensorrt_worker.py"), str(bad)]
    subprocess.run(command, env=environment, check=True)
    assert json.loads((tmp_path / "r.json").read_text())["ok"] is False
