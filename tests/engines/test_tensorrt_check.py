"""The network that TensorRT parsed beside the ONNX file: what differs is refused before a build."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import layerline.engines.launch as launch_module
from layerline.core.errors import InputError
from layerline.core.resolve.model import parse_network
from layerline.engines.backend import Worker
from layerline.engines.launch import call

WORKERS = Path(launch_module.__file__).parent / "workers"
SCRIPT = WORKERS / "tensorrt_worker.py"


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The worker's module, as a plain script imports it; nothing of it is left behind."""
    monkeypatch.syspath_prepend(str(WORKERS))
    before = set(sys.modules)
    yield __import__("tensorrt_check")
    for name in set(sys.modules) - before:
        if (WORKERS / f"{name}.py").exists():
            del sys.modules[name]


# The norm of a Llama: opset 18 gives the mean's axes as an input.
NORM = {
    "opset": 18,
    "inputs": ["x"],
    "nodes": [
        {"name": "norm/Pow", "module": "norm", "inputs": ["x", "two"], "outputs": ["square"]},
        {"name": "norm/ReduceMean", "module": "norm", "inputs": ["square", "axes"],
         "outputs": ["mean"]},
        {"name": "norm/Add", "module": "norm", "inputs": ["mean", "eps"], "outputs": ["sum"]},
    ],
    "tensors": {
        "x": {"dtype": "float32", "shape": [1, 128, 64]},
        "square": {"dtype": "float32", "shape": [1, 128, 64]},
        "mean": {"dtype": "float32", "shape": [1, 128, 1]},
        "sum": {"dtype": "float32", "shape": [1, 128, 1]},
    },
}  # fmt: skip


def parsed(**shapes: Any) -> dict[str, Any]:
    """The network's tensors as the file has them, but for those given."""
    tensors: dict[str, Any] = {**NORM["tensors"]}  # type: ignore[dict-item]
    return {**tensors, **{n: {"dtype": "float32", "shape": s} for n, s in shapes.items()}}


def test_a_mean_over_everything_is_named_with_its_module_and_the_fix(check: Any) -> None:
    wrong = parsed(mean=[1, 1, 1], sum=[1, 1, 1])
    with pytest.raises(Exception, match="norm/ReduceMean") as e:
        check.require_same(NORM, wrong, False, "tensorrt 8.6.0", "export again with --opset 17")
    error: Any = e.value
    assert error.exit_code == 2
    assert "(module norm)" in error.what and "tensorrt 8.6.0" in error.what
    assert "mean is [1, 1, 1] instead of [1, 128, 1]; so are 1 tensors after it" in error.what
    assert error.fix == "export again with --opset 17"


def test_a_network_as_in_the_file_is_right(check: Any) -> None:
    assert check.require_same(NORM, parsed(), True, "tensorrt 8.6.0", "") == 4


def one(check: Any, ours: dict[str, Any], theirs: dict[str, Any], typed: bool = True) -> bool:
    """Whether a tensor `t`, `ours` in the file and `theirs` in the network, is held to differ."""
    node = {"name": "m/Op", "module": "m", "inputs": [], "outputs": ["t"]}
    document = {"nodes": [node], "tensors": {"t": ours}}
    return bool(list(check.differences(document, {"t": theirs}, typed)))


@pytest.mark.parametrize(
    ("ours", "theirs", "differs"),
    [
        ([1, 128, 1], [1, 1, 1], True),
        ([1, 128], [], True),  # without the kept dimensions
        ([1, 128], [1, 128, 1], True),
        ([4, 4, 2], [3, 3, 3], True),
        ([None, 128], [None, 128], False),
        ([1, None], [1, 7], False),  # open in the file, known to TensorRT
        ([1, 7], [1, None], False),  # and the other way
        ([None, 128, 1], [None, 1, 1], True),  # an open one excuses no other
        ([1, 7], None, False),  # TensorRT knows not even the rank
        ([], [1], False),  # a scalar
        ([1], [], False),
        ([2], [], True),
    ],
)
def test_shapes(check: Any, ours: Any, theirs: Any, differs: bool) -> None:
    kind = "float32"
    found = one(check, {"dtype": kind, "shape": ours}, {"dtype": kind, "shape": theirs})
    assert found is differs


@pytest.mark.parametrize(
    ("ours", "theirs", "typed", "differs"),
    [
        ("int64", "int32", True, False),  # narrowed on purpose up to TensorRT 9
        ("bool", "int32", True, False),
        ("float64", "float32", True, False),
        ("float32", "float16", True, True),
        ("float32", "float16", False, False),  # a flag of the build decides
        ("float64", "float16", True, True),
        ("bool", "float32", False, True),
        ("int64", "float32", False, True),
        ("float16", "int32", False, True),
        ("float8e4m3fn", "fp8", True, False),  # no name here for it
        ("float32", None, True, False),
    ],
)
def test_types(check: Any, ours: str, theirs: Any, typed: bool, differs: bool) -> None:
    found = one(check, {"dtype": ours, "shape": [1]}, {"dtype": theirs, "shape": [1]}, typed)
    assert found is differs


def test_a_tensor_that_the_other_side_does_not_have_is_no_difference(check: Any) -> None:
    tensors = {"(Unnamed Layer* 3) [Shuffle]_output": {"dtype": "float32", "shape": [9]}}
    assert list(check.differences(NORM, tensors, True)) == []
    without = {"nodes": NORM["nodes"]}  # a nodes.json of an older export
    assert list(check.differences(without, parsed(mean=[1, 1, 1]), True)) == []


def test_types_and_shapes_as_tensorrt_says_them(check: Any) -> None:
    class Unranked:  # what the bindings of a tensor of unknown rank do
        dtype = "DataType.HALF"

        @property
        def shape(self) -> Any:
            raise ValueError("__len__() should return >= 0")

    known = SimpleNamespace(dtype="DataType.INT64", shape=(-1, 7))
    assert check.tensor_type(known) == {"dtype": "int64", "shape": [None, 7]}
    assert check.tensor_type(Unranked()) == {"dtype": "float16", "shape": None}


def test_network_json_with_and_without_tensors_is_read() -> None:
    tensors = {"x": {"dtype": "float32", "shape": [1, None]}, "y": {"dtype": None, "shape": None}}
    document: dict[str, Any] = {"schema_version": 1, "layers": []}
    assert parse_network(document) == parse_network({**document, "tensors": tensors})


# --- the worker, with a library whose parser leaves out a reduction's axes -----------------------

FAKE = """
import json, pathlib
__version__ = "8.6.0"
class ILogger:
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)
    def __init__(self): pass
class BuilderFlag: FP16 = 1
class NetworkDefinitionCreationFlag: EXPLICIT_BATCH = 0
class Tensor:
    dtype = "DataType.FLOAT"
    def __init__(self, name, shape): self.name, self.shape = name, tuple(shape)
class Layer:
    num_inputs, num_outputs = 0, 1
    type = "LayerType.REDUCE"
    def __init__(self, name, output): self.name, self.output = name, output
    def get_output(self, i): return self.output
class Network:
    def __init__(self): self.layers, self.inputs = [], []
    num_layers = property(lambda self: len(self.layers))
    num_inputs = property(lambda self: len(self.inputs))
    def get_layer(self, i): return self.layers[i]
    def get_input(self, i): return self.inputs[i]
class OnnxParser:
    def __init__(self, network, logger): self.network = network
    def parse_from_file(self, path):
        given = json.loads(pathlib.Path(path).read_text())
        self.network.inputs.append(Tensor("x", given["x"]))
        for name, tensor, shape in given["layers"]:
            self.network.layers.append(Layer(name, Tensor(tensor, shape)))
        return True
class Builder:
    def __init__(self, logger): pass
    def create_network(self, flags): return Network()
    def build_serialized_network(self, network, config): raise SystemExit("was built")
"""


def test_the_worker_refuses_before_it_builds(tmp_path: Path) -> None:
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake/tensorrt.py").write_text(FAKE)
    layers = [("norm/Pow", "square", [1, 128, 64]), ("norm/ReduceMean", "mean", [1, 1, 1])]
    (tmp_path / "x.onnx").write_text(json.dumps({"x": [1, 128, 64], "layers": layers}))
    (tmp_path / "nodes.json").write_text(json.dumps(NORM))
    options = {name: str(tmp_path / f"{name}.json") for name in ("nodes", "network")}
    job = {
        "task": "build", "engine": str(tmp_path / "x.engine"), "inputs": "inputs.npz",
        "precision": "fp32", "warmup": 0, "iterations": {"min": 1, "max": 1}, "target": 1.0,
        "seconds": 5, "threads": 1, "raw": None,
        "options": {"backend": "tensorrt", "onnx": str(tmp_path / "x.onnx"),
                    "compute_capability": "90",  # no GPU is asked for
                    "remedy": "export again with --opset 17", **options},
    }  # fmt: skip
    worker = Worker((sys.executable, str(SCRIPT)), {"PYTHONPATH": str(tmp_path / "fake")})
    with pytest.raises(InputError, match=r"norm/ReduceMean \(module norm\)") as e:
        call(worker, job)
    assert e.value.exit_code == 2 and e.value.fix == "export again with --opset 17"
    assert not (tmp_path / "x.engine").exists() and not (tmp_path / "network.json").exists()
