"""`engines --precision-plan`: modules of a half engine that stay in fp32, with ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import planted_models
import pytest
from click.testing import CliRunner

from layerline.core.accuracy.precision_plan import kept_nodes
from layerline.core.nodes import load
from layerline.engines import kept_fp32
from layerline.engines.command import engines

pytest.importorskip("onnxruntime")


def plan(path: Path, *modules: str, **other: Any) -> Path:
    document = {"schema_version": 1, "precision": "fp16", "backend": "onnxruntime"}
    document["modules_fp32"] = [{"module": m, "why": "planted"} for m in modules]
    path.write_text(json.dumps({**document, **other}))
    return path


def build(run: Path, *arguments: str) -> Any:
    more = ["--backend", "onnxruntime", "--precision", "fp16", "--threads", "1", *arguments]
    return CliRunner().invoke(engines, ["--run", str(run), *more])


def logits(run: Path) -> Any:
    """What the built engine gives, loaded with every optimisation off."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        str(run / "engines/fp16.onnxruntime.onnx"), options, providers=["CPUExecutionProvider"]
    )
    with np.load(run / "export/inputs.npz") as given:
        return session.run(None, dict(given))[0].astype(np.float64)


def error(a: Any, b: Any) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.parametrize(
    ("planted", "module"),
    [({"scale": 400.0}, "layer.norm"), ({"hidden_row": True}, "layer.attn")],
    ids=["squares overflow in a norm", "a row that sees nothing has the mask's -3.4e38"],
)
def test_the_module_kept_in_fp32_makes_the_engine_right(
    tmp_path: Path, planted: dict[str, Any], module: str
) -> None:
    run = planted_models.write_run(tmp_path / "run", **planted)
    expected = planted_models.reference(
        planted.get("scale", 1.0), hidden_row=planted.get("hidden_row", False)
    )
    assert build(run).exit_code == 0
    wrong = logits(run)
    assert np.isnan(wrong).any() or error(wrong, expected) > 0.5
    done = build(run, "--precision-plan", str(plan(tmp_path / "plan.json", module)))
    assert done.exit_code == 0, done.output
    assert error(logits(run), expected) < 0.01
    record = json.loads((run / "engines/fp16.onnxruntime.build.json").read_text())
    assert record["options"]["precision_plan"] == {"file": "plan.json", "modules_fp32": [module]}
    layers = json.loads((run / "engines/fp16.onnxruntime.layers.json").read_text())["layers"]
    assert [la["name"] for la in layers if not la["modules"]] == []


def test_a_plan_makes_the_engine_stale_and_so_does_leaving_it_out(tmp_path: Path) -> None:
    run = planted_models.write_run(tmp_path / "run")
    given = ["--precision-plan", str(plan(tmp_path / "plan.json", "layer.norm"))]
    assert "up to date" not in build(run).output
    assert "up to date" in build(run).output
    assert "up to date" not in build(run, *given).output
    assert "up to date" in build(run, *given).output
    assert "up to date" not in build(run).output


@pytest.mark.parametrize(
    ("modules", "other", "said"),
    [
        (["layer.nrom"], {}, "the nearest is layer.norm"),
        (["layer.norm"], {"backend": "tensorrt"}, "is a plan for tensorrt, not onnxruntime"),
        (["layer.norm"], {"precision": "bf16"}, "is a plan for bf16, which is not asked for"),
        (["layer.norm"], {"precision": "fp32"}, "only fp16 and bf16 engines keep modules in fp32"),
        (["layer.norm"], {"schema_version": 9}, "schema version 9"),
        ([], {}, "names no module"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(
    tmp_path: Path, modules: list[str], other: dict[str, Any], said: str
) -> None:
    run = planted_models.write_run(tmp_path / "run")
    done = build(run, "--precision-plan", str(plan(tmp_path / "plan.json", *modules, **other)))
    assert done.exception is not None
    assert getattr(done.exception, "exit_code", None) == 2
    assert said in str(done.exception)
    assert not (run / "engines").exists()


def test_casts_stand_around_the_modules_and_weights_are_those_of_the_float_file(
    tmp_path: Path,
) -> None:
    import onnx
    from onnx import TensorProto, numpy_helper

    export = planted_models.write_run(tmp_path / "run") / "export"
    kept = kept_fp32.kept(export / "fp16.nodes.json", ["layer.norm"])
    kept_fp32.write(export / "fp16.onnx", kept, tmp_path / "planned.onnx")
    model = onnx.load(str(tmp_path / "planned.onnx"))
    onnx.checker.check_model(model, full_check=True)
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    types = {v.name: v.type.tensor_type.elem_type for v in graph.value_info}
    norm = [n for n in graph.node if n.name in kept]
    assert {types[t] for n in norm for t in n.output} == {TensorProto.FLOAT}
    others = [n for n in graph.node if n.name not in kept and n.op_type != "Cast"]
    halves = {types[t] for n in others for t in n.output if t in types and t != "mask0"}
    assert halves == {TensorProto.FLOAT16}
    weights = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    with_float = onnx.load(str(export / "fp32.onnx")).graph.initializer
    full = {i.name: numpy_helper.to_array(i) for i in with_float}
    assert np.array_equal(weights["layer.norm.weight/fp32"], full["layer.norm.weight"])
    assert "layer.norm.weight" not in weights
    assert weights["head.weight"].dtype == np.float16


def renumbered(path: Path, names: dict[str, str]) -> None:
    """A file whose initializers have other names."""
    import onnx

    model = onnx.load(str(path))
    for stored in model.graph.initializer:
        stored.name = names.get(stored.name, stored.name)
    for node in model.graph.node:
        node.input[:] = [names.get(t, t) for t in node.input]
    onnx.save(model, str(path))


def kept_constants(export: Path, *modules: str) -> dict[tuple[str, int], Any]:
    """What kept nodes read of initializers, by node and place."""
    import onnx
    from onnx import numpy_helper

    kept = kept_fp32.kept(export / "fp16.nodes.json", modules)
    kept_fp32.write(export / "fp16.onnx", kept, export / "planned.onnx")
    graph = onnx.load(str(export / "planned.onnx")).graph
    stored = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    read = ((n, i, t) for n in graph.node if n.name in kept for i, t in enumerate(n.input))
    return {(n.name, i): stored[t] for n, i, t in read if t in stored}


def test_a_constant_of_the_float_file_is_taken_by_its_node_and_not_by_its_number(
    tmp_path: Path,
) -> None:
    """Kind: each export numbers its constants, so 1e-6 in one has the name of 1 in the other."""
    export = planted_models.write_run(tmp_path / "run") / "export"
    before = kept_constants(export, "layer.norm")
    renumbered(export / "fp32.onnx", {"epsilon": "nought", "nought": "epsilon"})
    after = kept_constants(export, "layer.norm")
    assert after[("layer.norm/Add", 1)] == np.float32(1e-6)
    assert after[("layer.norm/Max", 1)] == 0
    assert {k: v.tobytes() for k, v in after.items()} == {k: v.tobytes() for k, v in before.items()}


def test_what_only_has_the_name_of_a_constant_is_not_taken(tmp_path: Path) -> None:
    """Where the node has another name in the float file, its half value stays."""
    import onnx

    export = planted_models.write_run(tmp_path / "run") / "export"
    file = export / "fp32.onnx"
    renumbered(file, {"epsilon": "layer.norm.weight", "layer.norm.weight": "epsilon"})
    model = onnx.load(str(file))
    for node in model.graph.node:
        node.name += "_1"
    onnx.save(model, str(file))
    found = kept_constants(export, "layer.norm")
    assert found[("layer.norm/Add", 1)] == np.float32(np.float16(1e-6))
    weight = found[("layer.norm/Mul", 1)]
    assert weight.dtype == np.float32
    assert np.array_equal(weight, weight.astype(np.float16).astype(np.float32))


def test_constants_that_are_one_in_half_are_two_again_in_fp32(tmp_path: Path) -> None:
    """Kind: an epsilon of 1e-12 and a zero are both 0 in half, and the exporter stores one."""
    import onnx
    from onnx import numpy_helper

    export = planted_models.write_run(tmp_path / "run") / "export"
    full = onnx.load(str(export / "fp32.onnx"))
    (epsilon,) = [i for i in full.graph.initializer if i.name == "epsilon"]
    epsilon.CopyFrom(numpy_helper.from_array(np.array(1e-12, np.float32), "epsilon"))
    onnx.save(full, str(export / "fp32.onnx"))
    renumbered(export / "fp16.onnx", {"epsilon": "nought"})
    half = onnx.load(str(export / "fp16.onnx"))
    (first, *_) = [i for i in half.graph.initializer if i.name == "nought"]
    half.graph.initializer.remove(first)  # epsilon's; the other is 0
    onnx.save(half, str(export / "fp16.onnx"))
    found = kept_constants(export, "layer.norm")
    assert found[("layer.norm/Add", 1)] == np.float32(1e-12)
    assert found[("layer.norm/Max", 1)] == 0


@pytest.mark.parametrize("half", [-65504.0, -np.inf])
def test_the_least_number_of_half_is_that_of_fp32_again(tmp_path: Path, half: float) -> None:
    """Kind: a mask of finfo.min, which is another number in each precision, or infinite."""
    import onnx
    from onnx import numpy_helper

    export = planted_models.write_run(tmp_path / "run") / "export"
    for file, value in (("fp16", np.float16(half)), ("fp32", np.float32(-3.4e38))):
        model = onnx.load(str(export / f"{file}.onnx"))
        (stored,) = [i for i in model.graph.initializer if i.name == "nought"]
        stored.CopyFrom(numpy_helper.from_array(np.array(value), "nought"))
        onnx.save(model, str(export / f"{file}.onnx"))
    assert kept_constants(export, "layer.norm")[("layer.norm/Max", 1)] == np.float32(-3.4e38)


def test_what_makes_the_mask_of_a_kept_module_is_kept_and_no_activation_is(tmp_path: Path) -> None:
    """The embedding feeds the norm, the norm the attention: neither is made of constants alone."""
    export = planted_models.write_run(tmp_path / "run") / "export"
    tensors = json.loads((export / "fp16.nodes.json").read_text())["tensors"]
    graph = load(export / "fp16.nodes.json")
    attention = {n.name for n in graph.nodes if n.module == "layer.attn"}
    assert set(kept_nodes(graph, tensors, ["layer.attn"])) == attention | {
        "/Where",
        "/Cast",
        "/Min",
    }
    norm = {n.name for n in graph.nodes if n.module == "layer.norm"}
    assert set(kept_nodes(graph, tensors, ["layer.norm"])) == norm
    assert set(kept_nodes(graph, {}, ["layer.attn"])) == attention


class _Layer:
    def __init__(self, inputs: list[str], outputs: list[str]) -> None:
        self.precision: str | None = None
        self.types: dict[int, str] = {}
        self._in, self._out = inputs, outputs
        self.num_inputs, self.num_outputs = len(inputs), len(outputs)

    def get_input(self, i: int) -> Any:
        return SimpleNamespace(dtype=self._in[i])

    def get_output(self, i: int) -> Any:
        return SimpleNamespace(dtype=self._out[i])

    def set_output_type(self, i: int, kind: str) -> None:
        self.types[i] = kind


def test_tensorrt_layers_of_kept_nodes_are_constrained_where_they_have_floats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(Path(kept_fp32.__file__).parent / "workers"))
    import tensorrt_network

    made = [
        ("n/Pow", "ELEMENTWISE", _Layer(["f"], ["f"])),
        ("n/Shape", "SHAPE", _Layer(["f"], ["i"])),
        ("n/Gather", "GATHER", _Layer(["i", "i"], ["i"])),
        ("n/Less", "ELEMENTWISE", _Layer(["f", "f"], ["b"])),
        ("n/Cast", "CAST", _Layer(["f"], ["f"])),
        ("m/Pow", "ELEMENTWISE", _Layer(["f"], ["f"])),
        (None, "CONSTANT", _Layer([], ["f"])),
    ]
    described = [{"index": i, "node": n, "kind": k} for i, (n, k, _) in enumerate(made)]
    trt = SimpleNamespace(DataType=SimpleNamespace(FLOAT="f", HALF="h"))
    network = SimpleNamespace(get_layer=lambda i: made[i][2])
    nodes = ["n/Pow", "n/Shape", "n/Gather", "n/Less", "n/Cast"]
    assert tensorrt_network.keep_fp32(trt, network, described, nodes) == 2
    constrained = {n: (la.precision, la.types) for n, _, la in made if la.precision is not None}
    assert constrained == {"n/Pow": ("f", {0: "f"}), "n/Less": ("f", {})}
