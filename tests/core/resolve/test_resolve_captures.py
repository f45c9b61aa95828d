"""Names that TensorRT really wrote, against tables worked out by hand from the graphs.

tests/data/resolve: `tensorrt86_ranges.json` are the NVTX ranges of one inference (TensorRT 8.6,
two-layer GPT-2, H100; three builds), `tensorrt86_nodes.json` the graph of the named build;
`tensorrt_rtx_layers.json` is the engine TensorRT-RTX 1.7 built of the two-layer GPT-2 in
`tensorrt_rtx_nodes.json` (the layer list of its verbose build log, metadata joined by U+001F).
"""

import json
from collections import Counter

import paths
import pytest

from layerline.core import nodes
from layerline.core.resolve import RawLayer, node_status, resolve

DATA = paths.DATA / "resolve"


def ranges(build):
    count = Counter()
    layers = []
    for name in json.loads((DATA / "tensorrt86_ranges.json").read_text())[build]:
        layers.append(RawLayer(name, occurrence=count[name]))
        count[name] += 1
    return layers


def block(b):
    """(rule, modules) of the nine launching ranges of block b, from ln_1's product to its end."""
    p = f"transformer.h.{b}"
    after = "transformer.h.1.ln_1" if b == 0 else "transformer.ln_f"
    yield "elimination", [f"{p}.attn.c_attn"]  # fc__mye…
    if b == 0:
        yield "name", ["transformer"]  # the mask: And_2 and Where
    yield "name", [f"{p}.attn"]
    yield "name", [f"{p}.attn.c_proj"]
    yield "index", [p, f"{p}.ln_2"]
    yield "name", [f"{p}.mlp.c_fc"]
    yield "order", [f"{p}.mlp.act"]  # gelu_mul+…, the same text in both blocks
    yield "name", [f"{p}.mlp.c_proj"]
    yield "index", [p, after]


BY_HAND = [
    ("index", ["transformer.wte", "transformer.wpe", "transformer", "transformer.h.0.ln_1"]),
    *block(0),
    *block(1),
    ("name", ["lm_head"]),
    ("carrier", ["lm_head"]),  # slice__mye…
    ("carrier", ["lm_head"]),  # Reformatting CopyNode for Output Tensor 0
]


def test_every_range_of_a_named_tensorrt_8_engine_gets_its_modules():
    graph = nodes.load(DATA / "tensorrt86_nodes.json")
    found = resolve(ranges("named_trt_fp16"), graph)
    assert [(r.rule, list(r.modules)) for r in found] == BY_HAND
    assert [r.kind for r in found] == ["compute"] * 19 + ["movement"] * 2
    status = node_status(found, graph)
    assert [n for n, s in status.items() if s.status == "missing"] == []
    # One rule per node: the embedding by name although its layer needed the index.
    assert status["transformer.wte/Gather"].rule == "name"
    assert status["transformer.h.0.ln_1/LayerNormalization"].rule == "index"
    # The product by elimination took the Gemm; its Split and the Reshapes vanished into it.
    assert status["transformer.h.1.attn.c_attn/Gemm"].status == "executed"
    assert status["transformer.h.1.attn.c_attn/Split"].layer == "fc__mye10988"
    assert status["lm_head/MatMul"].layer == "lm_head/MatMul_matrix_multiply"
    assert status["lm_head/Transpose"].status == "folded"


def test_the_gelus_are_all_eight_nodes_of_their_module():
    graph = nodes.load(DATA / "tensorrt86_nodes.json")
    gelus = [r for r in resolve(ranges("named_trt_fp16"), graph) if r.rule == "order"]
    for b, r in enumerate(gelus):
        assert r.occurrence == b
        wanted = [n.name for n in graph.nodes if n.module == f"transformer.h.{b}.mlp.act"]
        assert list(r.nodes) == wanted and len(wanted) == 8


@pytest.mark.parametrize("build", ["trt_fp16", "trt_fp32"])
def test_names_of_another_export_are_not_forced_onto_the_graph(build):
    """The same model built under the exporter's names (node_Gemm_41): what resolves rests on
    network index, order and elimination and is right; the other names are unresolved. What a
    normalisation is fused with (node_add_5) is found beside it: no fused layer is one module's."""
    graph = nodes.load(DATA / "tensorrt86_nodes.json")
    found = resolve(ranges(build), graph)
    assert "name" not in {rule for r in found for rule in r.node_rules}
    right = {
        "gelu_mul+": {"transformer.h.0.mlp.act", "transformer.h.1.mlp.act"},
        "node_Gemm_42": {"transformer.h.0.mlp.c_fc"},
        "node_Gemm_48": {"transformer.h.1.mlp.c_fc"},
        "node_linear": {"lm_head"},
        "slice__mye": {"lm_head"},
        "node_Gemm_43": {"transformer.h.0.mlp.c_proj"},
        "node_Gemm_49": {"transformer.h.1.mlp.c_proj"},
    }
    blocks = {
        "node_embedding": {"transformer.wte", "transformer.wpe", "transformer",
                           "transformer.h.0.ln_1"},
        "node_add_5+": {"transformer.h.0", "transformer.h.0.ln_2"},
        "node_add_8+": {"transformer.h.0", "transformer.h.1.ln_1"},
        "node_add_10+": {"transformer.h.1", "transformer.h.1.ln_2"},
        "node_add_13+": {"transformer.h.1", "transformer.ln_f"},
    }  # fmt: skip
    for start, modules in blocks.items():
        (layer,) = (r for r in found if r.name.startswith(start))
        assert (set(layer.modules), layer.rule) == (modules, "elimination"), layer
    right |= blocks
    for r in found:
        allowed = next((m for start, m in right.items() if r.name.startswith(start)), set())
        assert set(r.modules) <= allowed, r
    assert sum(r.rule == "unresolved" for r in found) >= 7


def rtx_layers():
    return [
        RawLayer(e["name"], e["op"], tuple(e["inputs"]), tuple(e["outputs"]), e["metadata"])
        for e in json.loads((DATA / "tensorrt_rtx_layers.json").read_text())
    ]


def rtx_block(b):
    p = f"transformer.h.{b}"
    after = "transformer.h.1.ln_1" if b == 0 else "transformer.ln_f"
    yield [f"{p}.attn.c_attn"]
    yield from [[f"{p}.attn"]] * 4  # product, softmax, product, transpose
    yield [f"{p}.attn.c_proj"]
    yield [p, f"{p}.ln_2"]
    yield [f"{p}.mlp.c_fc", f"{p}.mlp.act"]
    yield [f"{p}.mlp.c_proj"]
    yield [p, after]


def test_every_layer_of_a_tensorrt_rtx_engine_gets_its_modules_from_the_metadata():
    graph = nodes.load(DATA / "tensorrt_rtx_nodes.json")
    found = resolve(rtx_layers(), graph)
    assert [list(r.modules) for r in found] == [
        ["transformer", "transformer.wte", "transformer.h.0.ln_1"],
        *rtx_block(0),
        *rtx_block(1),
        ["lm_head"],
    ]
    transposes = [r for r in found if r.name.startswith("__myl_Tran_")]  # no metadata
    assert [r.nodes for r in transposes] == [
        ("transformer.h.0.attn/Transpose_5",),
        ("transformer.h.1.attn/Transpose_5",),
    ]
    assert {r.kind for r in transposes} == {"movement"}
    assert {s.status for s in node_status(found, graph).values()} == {"executed", "fused"}


def test_tensorrt_rtx_tensor_names_that_only_look_like_the_models_are_not_believed():
    """`addmm_3.1_12_myl0` is what the fused c_fc and GELU write; the model's addmm_3 is another
    product. Without metadata only the layers called by a node resolve, and no product wrongly."""
    graph = nodes.load(DATA / "tensorrt_rtx_nodes.json")
    bare = [RawLayer(x.name, x.op, x.inputs, x.outputs) for x in rtx_layers()]
    told = resolve(rtx_layers(), graph)
    for layer, r, full in zip(bare, resolve(bare, graph), told, strict=True):
        assert set(r.nodes) <= set(full.nodes), layer
        if "/" not in layer.name and "_Tran_" not in layer.name:
            assert r.rule == "unresolved"
            assert "output tensors are not the model's" in r.why
