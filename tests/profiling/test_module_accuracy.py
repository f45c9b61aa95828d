"""Faults planted into ONNX files of a small Llama and BERT: each is caught, in its module."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from layerline.analysis.commands.report import report
from layerline.core import files
from layerline.engines.command import engines
from layerline.export.command import export
from layerline.profile.accuracy.command import accuracy
from layerline.profile.command import profile

pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 256}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2, "architectures": ["LlamaForCausalLM"]},
    "bert": {"architectures": ["BertModel"]},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 16, "architectures": ["Qwen3ForCausalLM"]},
}
# Families of which only right engines are tried.
MORE: dict[str, dict[str, Any]] = {
    "gemma2": {"num_key_value_heads": 2, "head_dim": 16, "architectures": ["Gemma2ForCausalLM"]},
    "opt": {"ffn_dim": 128, "word_embed_proj_dim": 64, "architectures": ["OPTForCausalLM"]},
}
NORM, LINEAR, ATTENTION = (
    "model.layers.1.post_attention_layernorm",
    "model.layers.0.mlp.up_proj",
    "model.layers.0.self_attn",
)
Plant = Callable[[Any], None]


def invoke(command: Any, run: Path, *arguments: str) -> Any:
    return CliRunner().invoke(command, ["--run", str(run), *arguments])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "LOCK_PATH", folder / "lock")
        for name, more in {**CONFIGS, **MORE}.items():
            given = {**SIZES, **more, "num_hidden_layers": 2}
            transformers.AutoConfig.for_model(name, **given).save_pretrained(folder / name)
            done = invoke(
                export, folder / f"run-{name}", "--model", str(folder / name), "--batch", "1",
                "--seq", "32", "--opset", "17", "--precision", "fp32,fp16",
            )  # fmt: skip
            assert done.exit_code == 0, done.exception
        yield folder


def nodes_of(model: Any, module: str, *ops: str) -> list[Any]:
    return [n for n in model.graph.node if n.op_type in ops and n.name.rpartition("/")[0] == module]


def weight_of(model: Any, module: str) -> Any:
    (product,) = nodes_of(model, module, "MatMul", "Gemm")
    (stored,) = [i for i in model.graph.initializer if i.name in product.input and len(i.dims) == 2]
    return stored


def through(model: Any, node: Any, at: int, *more: Any) -> None:
    """Let input `at` of a node go through other nodes first, which read "x" and write "y"."""
    before = list(model.graph.node)
    place = before.index(node)
    for n in more:
        n.input[:] = [node.input[at] if t == "x" else t for t in n.input]
        n.output[:] = [f"{node.name}.planted" if t == "y" else t for t in n.output]
    node.input[at] = f"{node.name}.planted"
    ordered = [*before[:place], *more, *before[place:]]
    copies = [type(n).FromString(n.SerializeToString()) for n in ordered]
    model.graph.ClearField("node")
    model.graph.node.extend(copies)


def axes_ignored(model: Any) -> None:
    """What TensorRT 8.6 makes of axes that are an input: the mean of everything."""
    (mean,) = nodes_of(model, NORM, "ReduceMean")
    del mean.attribute[:]
    mean.attribute.append(helper.make_attribute("keepdims", 1))


def weight_swapped(model: Any) -> None:
    stored = weight_of(model, LINEAR)
    values = numpy_helper.to_array(stored)
    stored.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values[::-1]), stored.name))


def not_a_number(model: Any) -> None:
    stored = weight_of(model, "model.layers.1.self_attn.v_proj")
    values = numpy_helper.to_array(stored).copy()
    values[3, 5] = np.nan
    stored.CopyFrom(numpy_helper.from_array(values, stored.name))


def all_masked(model: Any) -> None:
    (softmax,) = nodes_of(model, ATTENTION, "Softmax")
    kind = next(
        (v.type.tensor_type.elem_type for v in model.graph.value_info if v.name in softmax.input),
        TensorProto.FLOAT,
    )
    scalar = numpy_helper.from_array(
        np.array(-np.inf, helper.tensor_dtype_to_np_dtype(kind)), "planted.mask"
    )
    model.graph.initializer.append(scalar)
    through(model, softmax, 0, helper.make_node("Add", ["x", "planted.mask"], ["y"], "planted/Add"))


def overflow(model: Any) -> None:
    """Squares of activations of 2,000 and more in half precision, which ends at 65,504."""
    (mean,) = nodes_of(model, NORM, "ReduceMean")
    scale = numpy_helper.from_array(np.array(1e12, np.float32), "planted.scale")
    model.graph.initializer.append(scale)
    half = helper.make_node("Cast", ["a"], ["b"], "planted/Half", to=TensorProto.FLOAT16)
    whole = helper.make_node("Cast", ["b"], ["c"], "planted/Float", to=TensorProto.FLOAT)
    through(
        model, mean, 0,
        helper.make_node("Mul", ["x", "planted.scale"], ["a"], "planted/Mul"), half, whole,
        helper.make_node("Div", ["c", "planted.scale"], ["y"], "planted/Div"),
    )  # fmt: skip


def transposed(module: str) -> Plant:
    """A square weight the wrong way round. With random weights and few heads attention weighs all
    positions about alike, so the outputs hardly tell."""

    def plant(model: Any) -> None:
        stored = weight_of(model, module)
        values = numpy_helper.to_array(stored)
        assert values.shape[0] == values.shape[1]
        stored.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values.T), stored.name))

    return plant


QUERIES, BERT_QUERIES = "model.layers.1.self_attn.q_proj", "encoder.layer.1.attention.self.query"


def bert_weight_swapped(model: Any) -> None:
    stored = weight_of(model, "encoder.layer.1.intermediate.dense")
    values = numpy_helper.to_array(stored)
    stored.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values[:, ::-1]), stored.name))


@pytest.mark.parametrize(
    ("model", "precision", "plant", "module"),
    [
        ("llama", "fp32", axes_ignored, NORM),
        ("llama", "fp32", weight_swapped, LINEAR),
        ("llama", "fp16", weight_swapped, LINEAR),
        ("llama", "fp16", overflow, NORM),
        ("llama", "fp32", not_a_number, "model.layers.1.self_attn.v_proj"),
        ("llama", "fp32", all_masked, ATTENTION),
        ("bert", "fp32", bert_weight_swapped, "encoder.layer.1.intermediate.dense"),
        # Within the limits of the outputs: only the modules tell.
        ("llama", "fp16", axes_ignored, NORM),
        ("llama", "fp16", transposed(QUERIES), QUERIES),
        ("qwen3", "fp16", transposed(QUERIES), QUERIES),
        ("bert", "fp16", transposed(BERT_QUERIES), BERT_QUERIES),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_a_planted_fault_is_caught_in_its_module(
    exported: Path, tmp_path: Path, model: str, precision: str, plant: Plant, module: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(exported / f"run-{model}", run)
    file = run / f"export/{precision}.onnx"
    loaded = onnx.load(str(file))
    plant(loaded)
    onnx.save(loaded, str(file))
    options = ("--backend", "onnxruntime", "--precision", precision)
    assert invoke(engines, run, *options).exit_code == 0
    done = invoke(profile, run, *options, "--what", "engine")
    assert done.exit_code == 1
    assert "does not compute what eager does" in done.exception.line()
    left = {p.name for p in (run / "captures").iterdir()}
    assert f"{precision}.onnxruntime.latency.json" not in left
    found = json.loads(
        (run / f"captures/{precision}.onnxruntime.accuracy.modules.json").read_text()
    )
    (first,) = [m for m in found["modules"] if m["first_wrong"]]
    assert first["module"] == module
    assert invoke(report, run).exit_code == 1
    said = json.loads((run / "report/summary.json").read_text())["headline"][0]
    assert f"it goes wrong in {module} (" in said
    assert ": first wrong" in (run / "report/index.html").read_text()
    # Alone, on eager's inputs, it is as wrong; no module before it is beyond the limit, but for
    # its own parts.
    assert first["alone_nonfinite"] or first["alone"] > found["limit"]
    before = found["modules"][: found["modules"].index(first)]
    before = [m for m in before if not m["module"].startswith(f"{module}.")]
    assert not [m for m in before if m["nonfinite"] or (m["error_out"] or 0) > found["limit"]]


@pytest.mark.parametrize("model", [*CONFIGS, *MORE])
def test_a_right_engine_is_not_accused(exported: Path, tmp_path: Path, model: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(exported / f"run-{model}", run)
    backend = ("--backend", "onnxruntime")
    assert invoke(engines, run, *backend).exit_code == 0
    quick = ("--what", "engine", "--iterations", "6", "--seconds", "1")
    assert invoke(profile, run, *backend, *quick).exit_code == 0
    done = invoke(accuracy, run, *backend)
    assert done.exit_code == 0 and "first wrong" not in done.output
    for precision in ("fp32", "fp16"):
        path = run / f"captures/{precision}.onnxruntime.accuracy.modules.json"
        found = json.loads(path.read_text())
        assert not [m for m in found["modules"] if m["first_wrong"] or m["nonfinite"]]
        known = [m for m in found["modules"] if m["error_out"] is not None]
        assert len(known) > 0.8 * len(found["modules"])
