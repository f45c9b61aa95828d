"""Kernels of inductor to modules: against tables worked out from the generated code, and against
the parameters that the code gives to each kernel."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import inductor_models
import pytest
import torch
from inductor_models import Compiled, compiled, row, tokens

from layerline.core.nodes import Node, NodeGraph
from layerline.engines import inductor_build, inductor_provenance
from layerline.engines.inductor_provenance import Graph
from layerline.engines.workers.common import WorkerError

pytestmark = pytest.mark.slow
MODELS = {
    "gpt2": inductor_models.gpt2,
    "bert": inductor_models.bert,
    "llama": inductor_models.llama,
    "qwen3": inductor_models.qwen3,
}
ADDMM, MM = "aoti_torch_cpu_addmm_out", "aoti_torch_cpu_mm_out"
ATTENTION = "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu"


@pytest.fixture(scope="module")
def of_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Compiled]:
    """Each model compiled once."""
    made: dict[str, Compiled] = {}

    def get(name: str) -> Compiled:
        if name not in made:
            made[name] = compiled(MODELS[name](), tokens(), tmp_path_factory.mktemp(name))
        return made[name]

    return get


def _gpt2_block(i: int, into_ln_1: set[str]) -> list[tuple[str, set[str]]]:
    """What a block runs after its first norm; worked out from the arguments of the calls."""
    h = f"transformer.h.{i}"
    return [
        (ADDMM, {f"{h}.attn.c_attn"}),
        (ATTENTION, {f"{h}.attn"}),
        (ADDMM, {f"{h}.attn.c_proj"}),
        ("norm", into_ln_1 | {h, f"{h}.ln_2"}),
        (ADDMM, {f"{h}.mlp.c_fc"}),
        ("gelu", {f"{h}.mlp.act"}),
        (ADDMM, {f"{h}.mlp.c_proj"}),
    ]


# The sum of both embeddings is kept nowhere in the first block: each kernel that reads it computes
# it again, from the tokens and both tables.
_EMBEDDED = {"transformer", "transformer.wte", "transformer.wpe"}
GPT2 = [
    ("positions", {"transformer"}),
    ("aoti_torch_cpu_cumsum", {"transformer"}),
    ("norm", _EMBEDDED | {"transformer.h.0.ln_1"}),
    _gpt2_block(0, _EMBEDDED)[0],
    # Writes the masks of both blocks, each as its attention wants it.
    ("mask", {"transformer", "transformer.h.0.attn", "transformer.h.1.attn"}),
    *_gpt2_block(0, _EMBEDDED)[1:],
    ("norm", _EMBEDDED | {"transformer.h.0", "transformer.h.1.ln_1"}),
    *_gpt2_block(1, set()),
    ("norm", {"transformer.h.1", "transformer.ln_f"}),
    (MM, {"lm_head"}),
]


def _bert_layer(i: int) -> list[tuple[str, set[str]]]:
    at = f"bert.encoder.layer.{i}"
    attention = f"{at}.attention"
    return [
        *((ADDMM, {f"{attention}.self.{name}"}) for name in ("query", "key", "value")),
        ("mask", {"bert", f"{attention}.self"}),
        (ATTENTION, {f"{attention}.self"}),
        (ADDMM, {f"{attention}.output.dense"}),
        ("norm", {f"{attention}.output", f"{attention}.output.LayerNorm"}),
        (ADDMM, {f"{at}.intermediate.dense"}),
        ("gelu", {f"{at}.intermediate.intermediate_act_fn"}),
        (ADDMM, {f"{at}.output.dense"}),
        ("norm", {f"{at}.output", f"{at}.output.LayerNorm"}),
    ]


_EMBEDDINGS = "bert.embeddings"
_TABLES = ("word_embeddings", "token_type_embeddings", "position_embeddings", "LayerNorm")
BERT = [
    ("norm", {_EMBEDDINGS, *(f"{_EMBEDDINGS}.{name}" for name in _TABLES)}),
    *_bert_layer(0),
    *_bert_layer(1),
    (ADDMM, {"cls.predictions.transform.dense"}),
    ("norm", {"cls.predictions.transform.transform_act_fn", "cls.predictions.transform.LayerNorm"}),
    (ADDMM, {"cls.predictions.decoder"}),
]
_WORDS = {"norm": "native_layer_norm", "gelu": "gelu|tanh", "mask": "where", "positions": "cumsum"}


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="worked out from the code of torch 2.13"
)
@pytest.mark.parametrize(("name", "truth"), [("gpt2", GPT2), ("bert", BERT)])
def test_each_kernel_has_the_modules_that_its_code_computes(
    name: str, truth: list[tuple[str, set[str]]], of_model: Callable[[str], Compiled]
) -> None:
    found = of_model(name).modules()
    assert [modules for _, modules in found] == [modules for _, modules in truth]
    for (kernel, _), (kind, _) in zip(found, truth, strict=True):
        assert re.search(_WORDS.get(kind, re.escape(kind)), kernel), kernel


@pytest.mark.parametrize("name", MODELS)
def test_a_kernel_that_is_given_a_parameter_is_of_its_module(
    name: str, of_model: Callable[[str], Compiled]
) -> None:
    model, seen = of_model(name), 0
    for (layer, call), resolution in zip(model.calls(), model.resolutions, strict=True):
        assert layer == resolution.name
        for parameter in re.findall(r"\bmodel_\w+", call):
            owners = model.parameters.get(parameter)
            if owners is not None:  # else a buffer
                seen += 1
                assert owners & set(resolution.modules), (layer, parameter)
    assert seen >= 20


@pytest.mark.parametrize("name", MODELS)
def test_every_kernel_has_a_module_and_every_extern_call_has_one(
    name: str, of_model: Callable[[str], Compiled]
) -> None:
    model = of_model(name)
    assert [r.name for r in model.resolutions if not r.modules] == []
    for resolution in model.resolutions:
        if inductor_provenance.is_extern(resolution.name):
            assert len(resolution.modules) == 1, resolution
    # Each linear layer runs in one extern call, and each of these runs one.
    of_linear = [n.name for n in model.graph.nodes if n.op in ("aten.linear", "aten.addmm")]
    runs = [n for r in model.resolutions for n in r.nodes if n in set(of_linear)]
    assert sorted(runs) == sorted(of_linear)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_products_run_in_the_precision_that_was_asked_for(name: str, tmp_path: Path) -> None:
    model = compiled(MODELS[name](), tokens(), tmp_path, "bf16")
    assert [r.name for r in model.resolutions if not r.modules] == []
    ran = {x.compute_precision for x in model.layers if "mm" in str(x.raw.op).split("_")}
    assert ran == {"bf16"}


def test_modules_in_a_loop_keep_their_own_numbers(tmp_path: Path) -> None:
    products = [
        m for k, m in compiled(inductor_models.Loop(), row(), tmp_path).modules() if k == ADDMM
    ]
    assert products == [{"layers.1"}, {"layers.2"}, {"layers.0"}]


def test_a_shared_weight_is_of_the_module_that_ran_and_an_alias_of_its_first_name(
    tmp_path: Path,
) -> None:
    found = compiled(inductor_models.Shared(), row(), tmp_path).modules()
    assert [m for k, m in found if k == ADDMM] == [{"a"}, {"b"}, {"a"}]


def test_two_calls_of_one_module_are_two_layers_of_it(tmp_path: Path) -> None:
    model = compiled(inductor_models.Twice(), row(), tmp_path)
    assert [m for _, m in model.modules()] == [{"fc"}, {"act"}, {"fc"}, {"act"}, {"out"}]
    assert len({r.nodes for r in model.resolutions}) == 5


def test_graph_breaks_are_named_with_their_line() -> None:
    (found,) = inductor_build.breaks(inductor_models.Breaks(), row())["graph_breaks"]
    line = Path(inductor_models.__file__).read_text().split('print("between")')[0].count("\n") + 1
    assert found["place"] == f"inductor_models.py:{line} in forward"


def test_code_that_torch_compile_leaves_to_python_whole_is_a_break() -> None:
    (found,) = inductor_build.breaks(inductor_models.Recurrent(), row())["graph_breaks"]
    assert found["place"].startswith("inductor_models.py:")
    assert found["place"].endswith(" in forward")
    assert "LSTM" in found["why"]


def test_a_model_that_compiles_again_is_told() -> None:
    assert inductor_build.breaks(inductor_models.Counts(), row())["recompiles"] == 2
    assert inductor_build.breaks(inductor_models.Twice(), row())["recompiles"] == 0


def test_what_cannot_be_captured_whole_is_refused_in_one_line_with_the_break(
    tmp_path: Path,
) -> None:
    line = Path(inductor_models.__file__).read_text().split("if y.sum() > 0")[0].count("\n") + 1
    with pytest.raises(WorkerError, match=rf"graph break at inductor_models\.py:{line}") as e:
        compiled(inductor_models.Branches(), row(), tmp_path)
    assert "\n" not in e.value.what


def test_our_settings_change_comments_of_the_code_only(tmp_path: Path) -> None:
    compiled(inductor_models.gpt2(), tokens(), tmp_path)
    flat = inductor_build.Flat(
        inductor_models.gpt2().eval().requires_grad_(False), tokens(), lambda names: None
    )
    plain = tmp_path / "plain" / "m.pt2"
    plain.parent.mkdir()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.export.export(flat, tuple(tokens().values()), strict=False)
        torch._inductor.aoti_compile_and_package(
            program,
            package_path=str(plain),
            inductor_configs={"aot_inductor.package_cpp_only": True},
        )
    ours, theirs = _statements(tmp_path / "m.pt2"), _statements(plain)
    assert len(ours) > 500
    assert ours == theirs


def _statements(package: Path) -> list[str]:
    """The lines of generated code in a package that are no comment."""
    with zipfile.ZipFile(package) as archive:
        codes = sorted(n for n in archive.namelist() if n.endswith((".wrapper.cpp", ".kernel.cpp")))
        text = "\n".join(archive.read(n).decode() for n in codes)
    lines = (x.strip() for x in text.splitlines())
    return [x for x in lines if x and not x.startswith("//")]


# --- pure: mappings by hand ---------------------------------------------------------------------


def _graph(*entries: tuple[str, str | None], chain: bool = False) -> Graph:
    """A graph of nodes (torch's name, module); in a `chain` each reads the one before, the first
    ``x``."""
    made: list[Node] = []
    for name, m in entries:
        reads = (made[-1].outputs if made else ("x",)) if chain else ()
        op = f"aten.{inductor_provenance.operator_of(name)}"
        made.append(Node(f"{m or ''}/{name}", op, m, reads, (name,)))
    return Graph(NodeGraph(tuple(made)), {n.outputs[0]: n.name for n in made})


def _typed(graph: Graph, **types: str) -> Graph:
    """The graph with types of its tensors."""
    tensors = {name: {"dtype": dtype, "shape": [2]} for name, dtype in types.items()}
    return replace(graph, nodes=replace(graph.nodes, tensors=tensors))


def test_a_kernel_without_provenance_is_unresolved() -> None:
    graph = _graph(("add", "a"))
    _, (known, unknown) = inductor_provenance.listed(
        {"cppCodeToPost": {"cpp_fused_add_0:1": ["add_1"]}, "postToPre": {"add_1": ["add"]}},
        graph,
        ["cpp_fused_add_0:1", "cpp_fused_add_0:2"],
    )
    assert (known.modules, known.rule) == (("a",), "provenance")
    assert (unknown.modules, unknown.nodes, unknown.rule) == ((), (), "unresolved")


def test_a_node_without_a_module_leaves_its_kernel_unresolved() -> None:
    _, (found,) = inductor_provenance.listed(
        {"cppCodeToPost": {"triton_poi_fused_add_0:1": ["add_1"]}, "postToPre": {"add_1": ["add"]}},
        _graph(("add", None)),
        ["triton_poi_fused_add_0:1"],
    )
    assert (found.rule, found.modules) == ("unresolved", ())


def test_attention_in_products_of_its_own_has_no_type_and_one_in_a_call_has() -> None:
    """PyTorch's own way is a product, a softmax and a product in fp32 where tensors are fp16."""
    sdpa = "scaled_dot_product_attention"
    names = ("x", "linear", sdpa, "linear_1", f"{sdpa}_1")
    made = _graph(*zip(names[1:], "aabb", strict=True), chain=True)
    graph = _typed(made, **dict.fromkeys(names, "float16"))
    posts = {
        "aoti_torch_cuda_addmm_out:1": ["addmm"],
        "aoti_torch_cuda_bmm_out:2": ["bmm"],
        "triton_per_fused__safe_softmax_0:3": ["div"],
        "aoti_torch_cuda_addmm_out:4": ["addmm_1"],
        "aoti_torch_cuda__scaled_dot_product_cudnn_attention:5": [
            "_scaled_dot_product_cudnn_attention"
        ],
    }
    before = {
        "addmm": ["linear"], "bmm": [sdpa], "div": [sdpa], "addmm_1": ["linear_1"],
        "_scaled_dot_product_cudnn_attention": [f"{sdpa}_1"],
    }  # fmt: skip
    layers, found = inductor_provenance.listed(
        {"cppCodeToPost": posts, "postToPre": before}, graph, list(posts)
    )
    assert [r.modules for r in found] == [("a",), ("a",), ("a",), ("b",), ("b",)]
    told = [(x.precision_in, x.precision_out, x.compute_precision) for x in layers]
    half = ("fp16", "fp16", "fp16")
    assert told == [half, (None,) * 3, (None,) * 3, half, half]


def test_a_kernel_reads_the_widest_floating_type_that_comes_into_it() -> None:
    """Not the type of its first node, nor of what it computes inside or makes itself."""
    made = [
        Node("/arange", "aten.arange", "", (), ("arange",)),
        Node("/ge", "aten.ge", "", ("ids", "arange"), ("ge",)),
        Node("/to", "aten.to", "", ("x",), ("to",)),
        Node("/where", "aten.where", "", ("ge", "to"), ("where",)),
        Node("/mul", "aten.mul", "", ("where", "weight"), ("mul",)),
    ]
    names = {n.outputs[0]: n.name for n in made}
    types = {"ids": "int64", "arange": "float64", "ge": "bool", "x": "bfloat16", "to": "float32"}
    kernel = "triton_poi_fused_ge_mul_where_0:1"
    posts = ["ge", "arange", "to", "where", "mul"]
    mappings = {"cppCodeToPost": {kernel: posts}, "postToPre": {p: [p] for p in posts}}
    told = []
    for weight in ("bfloat16", "float32"):
        given = types | {"weight": weight, "where": "float32", "mul": "float32"}
        graph = _typed(Graph(NodeGraph(tuple(made)), names), **given)
        (layer,), _ = inductor_provenance.listed(mappings, graph, [kernel])
        told.append((layer.precision_in, layer.precision_out))
    assert told == [("bf16", "fp32"), ("fp32", "fp32")]
    first = {"cppCodeToPost": {kernel: ["ge", "arange"]}, "postToPre": {"ge": ["ge"]}}
    (layer,), _ = inductor_provenance.listed(first, graph, [kernel])
    assert (layer.precision_in, layer.precision_out) == ("int64", "bool")


def test_a_kernel_that_lays_a_parameter_out_anew_is_of_the_call_that_reads_it() -> None:
    made = [
        Node("conv/conv2d", "aten.conv2d", "conv", ("x", "weight"), ("conv2d",)),
        Node("/cat", "aten.cat", "", ("x", "conv2d"), ("cat",)),
        Node("bn/add", "aten.add", "bn", ("count",), ("add",)),
    ]
    names = {n.outputs[0]: n.name for n in made}
    graph = Graph(NodeGraph(tuple(made)), names, {"primals_1": "x", "primals_2": "weight"})
    posts = {
        "cpp_fused_0:1": ["primals_1", "primals_2"],
        "cpp_fused_add_1:2": ["add", "primals_2"],
        "extern_kernels.convolution:3": ["convolution"],
        "cpp_fused_cat_2:4": ["cat"],
        "cpp_fused_3:5": ["unknown"],
    }
    before = {"convolution": ["conv2d"], "cat": ["cat"], "add": ["add"]}
    mappings = {"cppCodeToPost": posts, "postToPre": before}
    _, found = inductor_provenance.listed(mappings, graph, list(posts))
    assert [r.modules for r in found] == [("conv",), ("conv", "bn"), ("conv",), ("",), ()]


def test_what_prepares_a_convolution_or_a_bias_is_of_the_module_that_reads_it(
    tmp_path: Path,
) -> None:
    model = compiled(inductor_models.Image(), inductor_models.image(), tmp_path)
    # The fused kernel also writes the bias of `fc`, two constants, which are no work beside a norm.
    truth = [{"conv"}, {"conv"}, {"bn", "act", ""}, {"fc"}]
    assert [modules for _, modules in model.modules()] == truth
    assert [x.compute_precision for x in model.layers] == [None, "fp32", None, "fp32"]


def test_types_are_those_that_the_pointers_of_the_code_have(tmp_path: Path) -> None:
    given = {"x": row()["x"].bfloat16()}
    (_, norm) = compiled(inductor_models.Rms(), given, tmp_path / "norm", "bf16").layers
    assert (norm.precision_in, norm.precision_out, norm.compute_precision) == ("bf16", "bf16", None)
    (_, lstm) = compiled(inductor_models.Recurrent(), given, tmp_path / "lstm", "bf16").layers
    assert (lstm.precision_in, lstm.precision_out, lstm.compute_precision) == ("bf16",) * 3


@pytest.mark.parametrize(
    "call",
    ["extern_kernels.addmm:2", "aoti_torch_cpu_addmm_out:2", "aoti_torch_cuda_addmm_out:2",
     "torch.ops.aten.addmm.default:2"],
)  # fmt: skip
def test_an_extern_call_is_of_its_own_node_and_its_input_of_the_kernel_before(call: str) -> None:
    graph = _graph(("linear", "fc"), ("relu", "act"), ("view", "fc"))
    mappings = {
        "cppCodeToPost": {
            "triton_poi_fused_relu_0:1": ["addmm", "relu"],
            call: ["relu", "addmm", "view_3"],
        },
        "postToPre": {"addmm": ["linear", "view"], "relu": ["relu"], "view_3": ["view"]},
    }
    kernels = ["triton_poi_fused_relu_0:1", call]
    _, (before, extern) = inductor_provenance.listed(mappings, graph, kernels)
    assert (before.modules, extern.modules) == (("act",), ("fc",))
    assert extern.nodes == ("fc/linear",)


def test_a_generated_product_is_not_of_what_an_earlier_kernel_computed_for_it() -> None:
    graph = _graph(("layer_norm", "ln"), ("linear", "fc"), ("gelu", "act"), chain=True)
    kernels = ["cpp_fused_native_layer_norm_0:1", "cpp_fused_addmm_gelu_native_layer_norm_1:2"]
    pairs = {"addmm": ["linear"], "gelu": ["gelu"], "var_mean": ["layer_norm"]}
    posts = {kernels[0]: ["var_mean"], kernels[1]: ["addmm", "var_mean", "gelu"]}
    mappings = {"cppCodeToPost": posts, "postToPre": pairs}
    _, (norm, product) = inductor_provenance.listed(mappings, graph, kernels)
    assert (norm.modules, product.modules) == (("ln",), ("fc", "act"))
    # One that no earlier kernel computed is computed in the product.
    _, (alone,) = inductor_provenance.listed(mappings, graph, kernels[1:])
    assert alone.modules == ("ln", "fc", "act")


def test_a_residual_add_fused_with_the_next_norm_is_of_both() -> None:
    graph = _graph(("add", "h.0"), ("layer_norm", "h.1.ln"))
    mappings = {
        "cppCodeToPost": {"triton_per_fused_add_native_layer_norm_0:1": ["add_1", "var_mean"]},
        "postToPre": {"add_1": ["add"], "var_mean": ["layer_norm"]},
    }
    kernel = "triton_per_fused_add_native_layer_norm_0:1"
    _, (found,) = inductor_provenance.listed(mappings, graph, [kernel])
    assert found.modules == ("h.0", "h.1.ln")
