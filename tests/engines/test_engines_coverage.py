"""Real exports at every optimisation level: no layer without a module, no node without a fate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from layerline.core.run import open_run
from layerline.engines.backend import BuildOptions
from layerline.engines.onnxruntime_backend import LEVELS, OnnxRuntimeBackend

pytest.importorskip("onnxruntime")
pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

NETS = ROOT / "tests" / "support" / "models" / "own_nets.py"
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "llama": {"num_key_value_heads": 2},
    "bert": {},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_is_resolved(tmp_path: Path, family: str) -> None:
    """gpt2 at every level and precision; the others where the most casts and fusions are."""
    from transformers import AutoConfig

    from layerline.export.source import Request
    from layerline.export.stage import Options, Stage

    sizes: dict[str, Any] = {"vocab_size": 99, "tie_word_embeddings": True}
    if family != "gpt2":
        sizes |= {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        sizes |= {"max_position_embeddings": 64, "intermediate_size": 64}
    folder = tmp_path / family
    AutoConfig.for_model(family, **sizes, **FAMILIES[family]).save_pretrained(folder)
    precisions = ["fp32", "fp16"] if family == "gpt2" else ["fp16"]
    run = open_run(tmp_path / "run", create=True)
    options = Options(18, 1e-3, 2_000_000_000, False)
    Stage(run, Request(model=str(folder), seq=8), options).export(precisions)
    backend = OnnxRuntimeBackend()
    for precision in precisions:
        for level in LEVELS if family == "gpt2" else ("disable", "all"):
            facts = backend.build(run, precision, backend.options(BuildOptions(level, 1)))
            listed = json.loads(backend.layers(run, precision).read_text())
            where = f"{precision} {level}"
            assert [r["name"] for r in listed["layers"] if not r["modules"]] == [], where
            assert [n["name"] for n in listed["nodes"] if n["status"] == "missing"] == [], where
            assert facts["reload_max_abs"] == 0.0, where


@pytest.mark.parametrize("net", ["resnet", "yolo", "vit", "unet", "diffusion"])
def test_every_layer_of_a_model_of_ones_own_is_resolved(tmp_path: Path, net: str) -> None:
    """Kind: convolutions in ONNX Runtime's blocked layout, with a sum and an activation fused in,
    and in fp16 with casts around them."""
    from layerline.export.source import Request
    from layerline.export.stage import Options, Stage

    precisions = ["fp32", "fp16"] if net == "resnet" else ["fp32"]
    run = open_run(tmp_path / "run", create=True)
    options = Options(18, 1e-3, 2_000_000_000, False)
    Stage(run, Request(model=f"{NETS}:{net}"), options).export(precisions)
    backend = OnnxRuntimeBackend()
    for precision in precisions:
        backend.build(run, precision, backend.options(BuildOptions("all", 1)))
        listed = json.loads(backend.layers(run, precision).read_text())
        assert [r["name"] for r in listed["layers"] if not r["modules"]] == [], precision
        for layer in listed["layers"]:
            if layer["op"] == "Conv":  # each its own, with the norm that was folded in
                convolutions = [n for n in layer["nodes"] if "/Conv" in n]
                assert len(convolutions) == 1, layer


def test_a_product_is_not_bounded_by_the_tensors_of_the_next() -> None:
    """Two linear layers behind one another, whose reshapes ONNX Runtime makes one (TimeSformer):
    the tensor between them is not the model's, and the first has nothing of the second."""
    from onnx import helper

    from layerline.core.nodes import Node, NodeGraph
    from layerline.engines import layers, onnxruntime_graph

    graph = NodeGraph(
        nodes=(
            Node("a/MatMul", "MatMul", "a", ("x", "v"), ("p",)),
            Node("a/Add", "Add", "a", ("p", "c"), ("q",)),
            Node("b/MatMul", "MatMul", "b", ("q", "w"), ("r",)),
            Node("b/Add", "Add", "b", ("r", "d"), ("y",)),
        ),
        inputs=("x",),
        outputs=("y",),
        initializers=frozenset({"v", "w", "c", "d"}),
    )
    made = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "v", "c"], ["g1"], "a/MatMul/MatMulAddFusion"),
            helper.make_node("Reshape", ["g1", "shape"], ["g2"], "gemm_output_new_reshape"),
            helper.make_node("Gemm", ["g2", "w", "d"], ["y"], "b/MatMul/MatMulAddFusion"),
        ],
        "g", [], [],
    )  # fmt: skip
    found = layers.document(
        "e", "onnxruntime", "fp32",
        onnxruntime_graph.engine_layers(helper.make_model(made), {}, graph), graph,
    )  # fmt: skip
    first, between, second = (list(row["modules"]) for row in found["layers"])
    assert first == between == ["a"] and "b" in second
