"""Graphs that torch.compile compiled for training: kernels of forward and backward to modules,
against tables worked out from the generated code, apart from inductor's provenance."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import inductor_models  # noqa: E402
from torch import nn  # noqa: E402

from layerline.profile.eager.compiled_graphs import Recorder, _Before, _Joint  # noqa: E402

pytestmark = pytest.mark.slow
from_code = pytest.mark.skipif(
    not torch.__version__.startswith(("2.11.", "2.13.")),
    reason="worked out from the code of torch 2.11 and 2.13",
)


def recorded(model: nn.Module, given: dict[str, Any], steps: int = 2) -> Recorder:
    """The record of a few steps of training."""
    torch._dynamo.reset()
    torch._dynamo.utils.clear_compilation_metrics()
    recorder = Recorder(model.train())
    function = recorder.compiled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            output = function(**given)
            getattr(output, "logits", output).float().sum().backward()
    return recorder


@pytest.fixture(scope="module")
def of_model() -> Callable[[str], Recorder]:
    """The record of a model by its name, made once."""

    @functools.cache
    def get(name: str) -> Recorder:
        model = getattr(inductor_models, name)()
        return recorded(model, inductor_models.tokens(), steps=1)

    return get


def modules(recorder: Recorder, phase: str) -> list[tuple[str, set[str]]]:
    """Of the one graph of a phase the kernels, by the operators they are named after."""
    [graph] = [g for g in recorder.graphs if g["phase"] == phase]
    return [(_short(k["name"]), set(k.get("modules", ()))) for k in graph["kernels"]]


def _short(kernel: str) -> str:
    name = kernel.rpartition(":")[0]
    return "fused" if name.startswith("cpp_") else name.removeprefix("extern_kernels.")


class Mlp(nn.Module):
    """Two linear layers with a norm before and a residual connection around."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(16), nn.Linear(16, 32)
        self.act, self.down = nn.Tanh(), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))


@from_code
def test_each_kernel_of_forward_and_backward_has_the_modules_that_its_code_computes() -> None:
    recorder = recorded(Mlp(), inductor_models.row())
    assert modules(recorder, "forward") == [
        ("fused", {"norm"}),
        ("addmm", {"up"}),
        ("fused", {"act"}),
        ("addmm", {"down"}),
        ("fused", {""}),  # the residual connection, of the model's own forward
    ]
    # The gradient of the model's input is not needed: of the norm there are those of its weights.
    assert modules(recorder, "backward") == [
        ("fused", {"down"}),  # the sum for the bias
        ("mm", {"down"}),
        ("fused", {"act", "up"}),  # through tanh, and the sum for the bias below it
        ("mm", {"up"}),
        ("fused", {"norm"}),
        ("mm", {"up"}),
        ("mm", {"down"}),
    ]


@from_code
def test_buffers_that_are_written_back_and_weights_laid_out_anew_are_of_their_modules() -> None:
    recorder = recorded(inductor_models.Image(), inductor_models.image())
    # The first kernel writes the image and the weight anew, the last one counts batches.
    truth = [{"conv"}, {"conv"}, {"bn", "act", ""}, {"fc"}, {"bn"}]
    assert [found for _, found in modules(recorder, "forward")] == truth


def test_code_that_is_not_compiled_at_all_is_named() -> None:
    facts = recorded(inductor_models.Recurrent(), inductor_models.row(), steps=1).facts()
    assert facts["compiled_graphs"] == []
    (found,) = facts["graph_breaks"]
    assert found["place"].startswith("inductor_models.py:")
    assert "LSTM" in found["why"]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_each_linear_layer_has_one_product_forward_and_two_backward(
    name: str, of_model: Callable[[str], Recorder]
) -> None:
    """Those of the gradients of its input and its weight."""
    recorder = of_model(name)
    ahead = [m for kernel, m in modules(recorder, "forward") if kernel in ("mm", "addmm")]
    back = [m for kernel, m in modules(recorder, "backward") if kernel in ("mm", "addmm")]
    model = getattr(inductor_models, name)()
    linear = [p for p, m in model.named_modules() if type(m).__name__ in ("Linear", "Conv1D")]
    assert sorted(map(sorted, ahead)) == sorted([p] for p in linear)
    assert sorted(map(sorted, back)) == sorted([p] for p in linear * 2)


def test_every_kernel_of_real_models_has_a_module(of_model: Callable[[str], Recorder]) -> None:
    for name in ("gpt2", "llama"):
        recorder = of_model(name)
        assert [g["phase"] for g in recorder.graphs] == ["forward", "backward"]
        bare = [k for g in recorder.graphs for k in g["kernels"] if not k.get("modules")]
        assert bare == []
        assert [g["why"] for g in recorder.graphs] == [None, None]
        assert recorder.facts()["graph_breaks"] == recorder.facts()["recompiles"] == []


def test_a_kernel_that_is_given_a_parameter_is_of_its_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forward's parameters by the code: the places of arguments that are the model's."""
    from torch._inductor.compile_fx import compile_fx_inner

    codes: list[str] = []

    def kept(*arguments: Any, **options: Any) -> Any:
        made = compile_fx_inner(*arguments, **options)
        codes.append(made.source_code)
        return made

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx_inner", kept)
    model = inductor_models.gpt2()
    recorder = recorded(model, inductor_models.tokens(), steps=1)
    [forward, _] = recorder.graphs
    # Inputs of the graph come in the order in which forward first reads them.
    order: list[int] = []
    for module in model.modules():
        module.register_forward_pre_hook(
            lambda m, _: order.extend(id(p) for p in m.parameters(recurse=False))
        )
    model(**inductor_models.tokens())
    read = list(dict.fromkeys(order))
    owners: dict[int, set[str]] = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(parameter), set()).add(path.rpartition(".")[0])
    given = {f"primals_{i + 2}": owners[p] for i, p in enumerate(read)}
    seen = 0
    parts = re.split(r"# \[Provenance debug handles\] (\S+)\n", codes[0])[1:]
    by_name = {k["name"]: set(k["modules"]) for k in forward["kernels"]}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        for argument in re.findall(r"\bprimals_\d+", text.splitlines()[0]):
            if argument in given:
                seen += 1
                assert given[argument] & by_name[name], (name, argument)
    assert seen >= 20


class Odd(nn.Module):
    """A language model's head whose vocabulary is no multiple of four, behind two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16)
        self.head = nn.Linear(16, 29, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.down(self.act(self.up(x))))


@pytest.fixture()
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inductor pads products and adds biases in the kernels behind them, as it does on a GPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, at the first import
        from torch._inductor.fx_passes import pad_mm, post_grad

    monkeypatch.setattr(pad_mm, "check_device", lambda *_: True)
    monkeypatch.setattr(pad_mm, "has_triton", lambda: True)
    monkeypatch.setattr(post_grad, "is_gpu", lambda _: True)
    with torch._inductor.config.patch(force_shape_pad=True):
        yield


@from_code
@pytest.mark.usefixtures("as_on_a_gpu")
def test_a_product_whose_bias_a_later_kernel_adds_is_still_its_layers() -> None:
    recorder = recorded(Odd(), {"x": torch.ones(8, 16)})
    assert modules(recorder, "forward") == [
        ("mm", {"up"}),
        ("fused", {"up", "act"}),  # the bias, tanh
        ("addmm", {"down"}),  # what reads it is no pointwise kernel
        ("fused", {"head"}),  # pads the weight
        ("mm", {"head"}),
    ]


@from_code
@pytest.mark.usefixtures("as_on_a_gpu")
def test_padded_products_of_backward_are_of_the_modules_whose_gradients_they_are() -> None:
    recorder = recorded(Odd(), {"x": torch.ones(7, 16)})
    assert [k for g in recorder.graphs for k in g["kernels"] if not k.get("modules")] == []
    back = [m for name, m in modules(recorder, "backward") if name == "mm"]
    # Of `up` there is the gradient of the weight alone: the input needs none.
    assert sorted(map(sorted, back)) == [["down"], ["down"], ["head"], ["head"], ["up"]]
    padded = next(m for name, m in modules(recorder, "backward") if name == "fused")
    assert padded == {"head"}


def test_a_pass_of_the_users_own_runs_in_the_capture_too() -> None:
    ran: list[int] = []
    with torch._inductor.config.patch(joint_custom_pre_pass=lambda graph: ran.append(1)):
        recorder = recorded(Mlp(), inductor_models.row(), steps=1)
    assert ran
    assert [g["why"] for g in recorder.graphs] == [None, None]


def _new(graph: Any, *sources: Any) -> Any:
    """A node that an inductor pattern made, with what torch says it is from."""
    node = graph.call_function(torch.ops.aten.mm.default, ())
    node.meta["from_node"] = list(sources)
    return node


def test_a_node_that_took_the_place_of_nodes_of_two_modules_has_none() -> None:
    from torch.fx.traceback import NodeSource

    graph, joint = torch.fx.Graph(), _Joint()
    olds = [graph.call_function(torch.ops.aten.mm.default, ()) for _ in range(3)]
    for old, path in zip(olds, ("up", "up", "down"), strict=True):
        old.meta["fwd_nn_module_stack"] = {"0": (f"L['self'].{path}", nn.Linear)}
    joint.before(graph)
    first, second, third = map(NodeSource, olds)
    one, both, foreign = _new(graph, first, second), _new(graph, first, third), _new(graph)
    # A node of another graph by the same name, and one that torch says nothing of.
    other = torch.fx.Graph()
    named = _new(graph, NodeSource(other.call_function(torch.ops.aten.mm.default, ())))
    joint.after(graph)
    frame: Any = SimpleNamespace(of=lambda stack: stack["0"][0].rpartition(".")[2])
    nodes = _Before(torch.fx.GraphModule(nn.Module(), graph), frame)._nodes
    found = [nodes[n.name].module for n in (one, both, foreign, named)]
    assert found == ["up", None, None, None]


@from_code
def test_modules_in_a_loop_keep_their_own_numbers_backward_too() -> None:
    recorder = recorded(inductor_models.Loop(), inductor_models.row())
    ran = [m for name, m in modules(recorder, "forward") if name == "addmm"]
    assert ran == [{"layers.1"}, {"layers.2"}, {"layers.0"}]
    back = [m for name, m in modules(recorder, "backward") if name == "mm"]
    assert back == [*[{"layers.0"}] * 2, *[{"layers.2"}] * 2, {"layers.1"}]


@from_code
def test_gradients_of_a_shared_weight_are_of_the_module_whose_product_they_are() -> None:
    """`again` is `a` by another name, and `b` has `a`'s weight: three products make its gradient,
    and two of them add what is there already, which is no module's work."""
    backward = modules(recorded(inductor_models.Shared(), inductor_models.row()), "backward")
    assert [m for name, m in backward if name == "addmm"] == [{"b"}, {"a"}]
    assert [m for name, m in backward if name == "mm"] == [{"a"}, {"b"}]


@from_code
def test_a_module_that_is_called_twice_has_both_calls() -> None:
    recorder = recorded(inductor_models.Twice(), inductor_models.row())
    assert [m for n, m in modules(recorder, "forward") if n == "addmm"] == [{"fc"}, {"fc"}, {"out"}]
    products = [m for n, m in modules(recorder, "backward") if n != "fused"]
    assert products.count({"fc"}) == 3
    assert products.count({"out"}) == 2


def test_a_graph_break_is_named_with_its_line_and_what_follows_has_its_module() -> None:
    recorder = recorded(inductor_models.Breaks(), inductor_models.row())
    [found] = recorder.facts()["graph_breaks"]
    line = _line_of(inductor_models.Breaks, "print(")
    assert found["place"] == f"inductor_models.py:{line} in forward"
    # The second graph names no module: it is what follows the break in the model's own forward.
    assert {g["region"] for g in recorder.graphs} == {"0/0", "1/0"}
    for graph in recorder.graphs:
        [expected] = {"fc"} if graph["region"] == "0/0" else {""}
        assert all(k["modules"] == [expected] for k in graph["kernels"]), graph


def _line_of(of: type, text: str) -> int:
    lines, first = inspect.getsourcelines(of)
    return first + next(i for i, line in enumerate(lines) if text in line)


class Several(nn.Module):
    """Modules of one class, each with a break: what is compiled for one serves the others."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([inductor_models.Breaks() for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def test_a_graph_that_may_be_of_several_modules_names_them_and_is_written_as_the_firsts() -> None:
    recorder = recorded(Several(), inductor_models.row())
    blocks = [f"blocks.{i}" for i in range(3)]
    assert recorder.graphs
    for graph in recorder.graphs:
        assert (graph["any_of"], graph["why"]) == (blocks, None)
        assert all(m.startswith("blocks.0") for k in graph["kernels"] for m in k["modules"])
        assert all(k["modules"] for k in graph["kernels"])
    # Python calls their forwards, and so each call tells which one it is of.
    assert set(blocks) <= set(recorder.left_out())


def test_a_recompile_is_named_with_the_guard_that_failed() -> None:
    recorder = recorded(inductor_models.Counts(), inductor_models.row(), steps=3)
    again = recorder.facts()["recompiles"]
    assert again[0] == {"graph": "0/1", "why": "self.calls == 0"}
    for graph in recorder.graphs:
        assert {m for k in graph["kernels"] for m in k["modules"]} == {"fc", ""}


def test_a_sum_of_gradients_in_a_kernel_of_its_own_is_a_row() -> None:
    class Twins(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.first = (nn.Linear(16, 16, bias=False) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            return torch.cat([self.a(y), self.b(y)])

    recorder = recorded(Twins(), inductor_models.row())
    [graph] = [g for g in recorder.graphs if g["phase"] == "backward"]
    rows = [k["row"] for k in graph["kernels"] if "row" in k]
    sums = [k for k in graph["kernels"] if "add" in k["name"]]
    assert rows == ["gradient sums"] or [k["modules"] for k in sums] in ([["a"]], [["b"]])


def test_what_inductor_does_not_tell_leaves_kernels_unresolved_and_the_training_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any) -> Callable[..., Any]:
        raise ValueError("another version")

    monkeypatch.setattr("layerline.engines.inductor_provenance.listed", broken)
    recorder = recorded(Mlp(), inductor_models.row())
    assert len(recorder.graphs) == 2
    for graph in recorder.graphs:
        assert graph["kernels"] == []
        assert "another version" in graph["why"]
