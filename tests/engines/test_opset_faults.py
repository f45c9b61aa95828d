"""What versions of TensorRT compute wrongly is said before a build, with node, module and fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layerline.core.errors import InputError
from layerline.core.files import write_json
from layerline.core.run import Run
from layerline.engines import opset_faults, tensorrt_backend


def document(op: str, inputs: list[str], **attributes: Any) -> dict[str, Any]:
    """A nodes.json of one node of module `norm`."""
    node = {"name": f"norm/{op}", "op": op, "module": "norm", "inputs": inputs, "outputs": ["y"]}
    return {"opset": 18, "nodes": [node], "attributes": {node["name"]: attributes}}


def refused(of: dict[str, Any], version: str, backend: str = "tensorrt") -> bool:
    return bool(list(opset_faults.faults(of, backend, version)))


@pytest.mark.parametrize("op", ["Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"])
def test_a_reduction_with_its_axes_as_an_input(op: str) -> None:
    given = document(f"Reduce{op}", ["x", "axes"])
    assert refused(given, "8.6.1") and refused(given, "9.3.0.post12")
    assert refused(given, "10.1.0") == (op == "LogSumExp")
    assert not refused(given, "10.2.0") and not refused(given, "11.0")
    assert not refused(given, "1.7.1", "tensorrt-rtx")


@pytest.mark.parametrize(
    "given",
    [
        document("ReduceMean", ["x"]),  # axes as an attribute, or over everything as the file says
        document("ReduceMean", ["x", ""]),
        document("ReduceSum", ["x", "axes"]),  # an input since opset 13, which 8.6 knows
        document("ReduceLogSum", ["x", "axes"]),  # computed through ReduceSum
        document("ScatterND", ["x", "i", "u"]),
        document("ScatterND", ["x", "i", "u"], reduction="none"),
        document("Pad", ["x", "pads", "value"]),
        document("Pad", ["x", "pads", "value", ""]),
        document("Resize", ["x", "", "s"], antialias=0),
        document("LayerNormalization", ["x", "scale", "bias"]),
        {"nodes": document("ScatterND", ["x", "i", "u"])["nodes"]},  # without attributes: unknown
    ],
)
def test_what_every_version_computes_is_not_accused(given: dict[str, Any]) -> None:
    for version in ("8.5.3", "8.6.1", "9.0", "10.0.1", "10.16", "11.1"):
        assert not refused(given, version)


@pytest.mark.parametrize(
    ("given", "what", "fix"),
    [
        (document("ScatterElements", ["x", "i", "u"], reduction="add"), "it overwrites instead",
         "--backend onnxruntime-cuda"),
        (document("Resize", ["x", "", "s"], antialias=1), "antialias", "--backend onnxruntime"),
        (document("Pad", ["x", "p", "v", "axes"]), "refused", "--opset 17"),
        (document("Gelu", ["x"]), "does not have", "--opset 17"),
    ],
)  # fmt: skip
def test_what_else_8_6_computes_wrongly_or_refuses(
    given: dict[str, Any], what: str, fix: str
) -> None:
    with pytest.raises(InputError, match=what) as e:
        opset_faults.require_none(given, "tensorrt", "8.6.1")
    assert fix in str(e.value.fix)
    opset_faults.require_none(given, "tensorrt", "10.0.1")


def test_it_is_said_before_any_worker_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(tensorrt_backend, "call", lambda *a, **k: started.append(a))
    given = document("ReduceMean", ["x", "axes"])
    given["nodes"] += [{**given["nodes"][0], "name": "late/ReduceMean", "module": "late"}]
    write_json(tmp_path / "export/nodes.json", given)
    backend = tensorrt_backend.TensorRTBackend()
    monkeypatch.setattr(backend, "_version", lambda: "8.6.1")
    with pytest.raises(InputError) as e:
        backend.build(Run(tmp_path), "fp16", {"version": "8.6.1"})
    assert e.value.line() == (
        "tensorrt 8.6.1 does not compute norm/ReduceMean of module norm as the ONNX file means it: "
        "its axes, an input since opset 18, are left out: it reduces over everything (and 1 nodes "
        "after it); export again with --opset 17"
    )
    assert not started and not (tmp_path / "engines").exists()


@pytest.mark.parametrize(
    ("opset", "backend", "version", "says"),
    [
        (18, "tensorrt", "8.6.1", "export again with --opset 17"),
        (17, "tensorrt", "8.6.1", "build it with --backend onnxruntime-cuda"),
        (18, "tensorrt", "10.9", "export again with --opset 17"),
        (17, "tensorrt-rtx", "1.7", "export again with --opset 18"),
        (None, "tensorrt", "8.6.1", "export again with --opset 17"),  # of an older export
    ],
)
def test_the_remedy_never_names_the_opset_that_the_file_has(
    opset: int | None, backend: str, version: str, says: str
) -> None:
    assert opset_faults.remedy({"opset": opset}, backend, version).startswith(says)
