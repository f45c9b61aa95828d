"""`layerline accuracy --plan` on a small Llama whose half engine overflows, in ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from layerline.engines.command import engines
from layerline.export.command import export
from layerline.profile.accuracy.command import accuracy

pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

TOKENS = 32
ATTENTION = "model.layers.0.self_attn"


def invoke(command: Any, run: Path, *arguments: str) -> Any:
    return CliRunner().invoke(command, ["--run", str(run), *arguments])


def exported(folder: Path, scale: float) -> Path:
    """fp32 and fp16 of a Llama whose embedding is `scale` times as large as usual."""
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(scale)
    model.save_pretrained(folder / "llama")
    done = invoke(
        export, folder / "run", "--model", str(folder / "llama"), "--batch", "1",
        "--seq", str(TOKENS), "--opset", "17", "--precision", "fp32,fp16",
        "--set", "attn_implementation=eager",
    )  # fmt: skip
    assert done.exit_code == 0, done.exception
    return folder / "run"


def plant(run: Path, at: Any, *more: tuple[str, list[str], str, str, dict[str, Any]]) -> None:
    """Before a node: (operator, inputs, module, dtype, attributes) in a chain, "x" what it read."""
    path, described = run / "export/fp16.onnx", run / "export/fp16.nodes.json"
    model, document = onnx.load(str(path)), json.loads(described.read_text())
    names = [n.name for n in model.graph.node]
    place = names.index(at.name)
    node = model.graph.node[place]
    read = node.input[0]
    shape = document["tensors"][read]["shape"]
    made = []
    for i, (op, inputs, owner, dtype, attributes) in enumerate(more):
        tensor = f"{at.name}.planted.{i}"
        inputs = [{"x": read, "y": f"{at.name}.planted.{i - 1}"}.get(t, t) for t in inputs]
        name = f"{owner}/{op}_planted_{at.name.replace('/', '_')}_{i}"
        made.append(helper.make_node(op, inputs, [tensor], name, **attributes))
        document["tensors"][tensor] = {"dtype": dtype, "shape": shape}
        document["nodes"].insert(
            place + i,
            {"name": name, "op": op, "module": owner, "inputs": inputs, "outputs": [tensor]},
        )
    node.input[0] = made[-1].output[0]
    document["nodes"][place + len(made)]["inputs"][0] = made[-1].output[0]
    ordered = [*model.graph.node[:place], *made, *model.graph.node[place:]]
    copies = [type(n).FromString(n.SerializeToString()) for n in ordered]
    model.graph.ClearField("node")
    model.graph.node.extend(copies)
    onnx.save(model, str(path))
    described.write_text(json.dumps(document))


def constant(run: Path, name: str, value: Any) -> None:
    path, described = run / "export/fp16.onnx", run / "export/fp16.nodes.json"
    model, document = onnx.load(str(path)), json.loads(described.read_text())
    model.graph.initializer.append(numpy_helper.from_array(value, name))
    document["tensors"][name] = {"dtype": value.dtype.name, "shape": list(value.shape)}
    document["initializers"].append(name)
    onnx.save(model, str(path))
    described.write_text(json.dumps(document))


def search(run: Path, *arguments: str) -> tuple[Any, Path]:
    """Without --precision: a plan is of fp16 by itself."""
    given = ["--backend", "onnxruntime"]
    assert invoke(engines, run, *given, "--precision", "fp16", "--threads", "1").exit_code == 0
    file = run.parent / "plan.json"
    done = invoke(accuracy, run, *given, "--plan", "-o", str(file), *arguments)
    return done, file


def test_norms_whose_squares_overflow_are_found_and_the_plan_builds(tmp_path: Path) -> None:
    """Activations of about 400, whose squares are stored in half: every norm gives zeros. Beside
    such a residual what the layers add is nothing, so the last norm alone decides."""
    run = exported(tmp_path, 20_000)
    constant(run, "nought", np.array(0, np.float16))
    half = {"to": TensorProto.FLOAT16}
    norms = []
    for node in list(onnx.load(str(run / "export/fp16.onnx")).graph.node):
        if node.op_type == "ReduceMean":
            owner = node.name.rpartition("/")[0]
            norms.append(owner)
            plant(
                run, node,
                ("Cast", ["x"], owner, "float16", half),
                ("Max", ["y", "nought"], owner, "float16", {}),
                ("Cast", ["y"], owner, "float32", {"to": TensorProto.FLOAT}),
            )  # fmt: skip
    assert len(norms) == 5
    done, file = search(run)
    assert done.exit_code == 0, (done.exception, done.output)
    plan = json.loads(file.read_text())
    assert [m["module"] for m in plan["modules_fp32"]] == ["model.norm"]
    assert plan["before"]["wrong"] and plan["after"]["wrong"] is None
    assert plan["after"]["cosine"] > 0.999
    for side in ("before", "after"):
        took = plan[side]["latency_ns"]
        assert took["low"] <= took["median"] <= took["high"]
    built = invoke(
        engines, run, "--backend", "onnxruntime", "--precision", "fp16", "--threads", "1",
        "--precision-plan", str(file),
    )  # fmt: skip
    assert built.exit_code == 0, built.exception
    record = json.loads((run / "engines/fp16.onnxruntime.build.json").read_text())
    assert record["options"]["precision_plan"]["modules_fp32"] == ["model.norm"]
    assert record["nodes_fp32"] >= 5


def test_an_attention_whose_mask_is_infinite_in_half_is_found(tmp_path: Path) -> None:
    """The first token sees nothing: in fp32 its row is of equal numbers, in half it is NaN, and all
    that attends to it."""
    run = exported(tmp_path, 1)
    seen = np.ones((1, 1, TOKENS, TOKENS), bool)
    seen[:, :, 0] = False
    for name, value in (
        ("seen", seen),
        ("nought", np.array(0, np.float16)),
        ("zero", np.array(0, np.float32)),
        ("least", np.array(-3.4e38, np.float32)),
    ):
        constant(run, name, value)
    nodes = onnx.load(str(run / "export/fp16.onnx")).graph.node
    (softmax,) = [n for n in nodes if n.op_type == "Softmax" and n.name.startswith(ATTENTION)]
    plant(
        run, softmax,
        ("Where", ["seen", "zero", "least"], "model", "float32", {}),
        ("Cast", ["y"], "model", "float16", {"to": TensorProto.FLOAT16}),
        ("Min", ["y", "nought"], "model", "float16", {}),
        ("Add", ["y", "x"], ATTENTION, "float16", {}),
    )  # fmt: skip
    done, file = search(run, "--min-cosine", "0.9", "--min-top1", "0.9")
    assert done.exit_code == 0, (done.exception, done.output)
    plan = json.loads(file.read_text())
    assert [m["module"] for m in plan["modules_fp32"]] == [ATTENTION]
    assert plan["before"]["nonfinite"] > 0
    assert plan["after"]["nonfinite"] == 0


def test_an_engine_that_is_right_gets_no_plan(tmp_path: Path) -> None:
    done, file = search(exported(tmp_path, 1))
    assert done.exit_code == 0, (done.exception, done.output)
    assert "right without a plan" in done.output
    assert not file.exists()
