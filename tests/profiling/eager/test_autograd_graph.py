"""What autograd recorded, with modules: against a model worked out by hand, and the export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from layerline.analysis.graph.contract import contracted
from layerline.core import nodes
from layerline.core.errors import InputError
from layerline.core.nodes import NodeGraph
from layerline.profile.eager.autograd_graph import AutogradGraph, recorded
from layerline.workloads.loop import train
from layerline.workloads.training import Training


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fc(self.norm(x))


class Net(nn.Module):
    def __init__(self, again: bool = False) -> None:
        super().__init__()
        self.emb = nn.Embedding(8, 4)
        self.h = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.emb.weight
        self.again = again

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.emb(ids)
        for block in self.h:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return {"logits": self.head(x), "mask": ids}


def graph(model: nn.Module, *inputs: Any) -> NodeGraph:
    with recorded(model, "net") as document:
        model(*inputs)
    return nodes.parse(json.loads(json.dumps(document)))


IDS = torch.tensor([[1, 2]])


@pytest.mark.parametrize("again", [False, True])
def test_each_module_has_its_operators_and_the_dataflow_is_the_models(again: bool) -> None:
    found = contracted(graph(Net(again), IDS), 2)
    assert {(a.source, a.target, a.kind) for a in found.arrows} == {
        ("module:emb", "module:h.0-1", "data"),
        ("module:h.0-1", "module:h.0-1", "next"),
        ("module:h.0-1", "module:head", "data"),
        ("module:head", "output:logits", "data"),
        ("module:emb", "module:head", "parameter"),
    }
    deeper = contracted(graph(Net(again), IDS), 3)
    own = next(b for b in deeper.boxes if b.kind == "own")
    assert own.path == "h.0-1" and own.ops == {"Add": 2}


def test_no_hook_is_left_and_a_second_forward_changes_nothing() -> None:
    model = Net()
    with recorded(model, "net") as document:
        model(IDS)
        first = json.dumps(document)
        model(IDS)
    assert json.dumps(document) == first
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_operators_of_a_users_own_function_have_a_module_too() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0] * 2

    class Doubling(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return Double.apply(x)  # type: ignore[no-untyped-call]

    model = nn.Sequential(nn.Linear(2, 2), Doubling(), nn.Linear(2, 2))
    found = graph(model, torch.ones(1, 2))
    assert [n.module for n in found.nodes if "Double" in n.name] == ["1"]


def test_a_model_without_gradients_is_refused() -> None:
    model = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(InputError, match="no output of the model has a gradient"):
        graph(model, torch.ones(1, 2))


def test_as_a_plug_in_it_records_the_first_step_of_training(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))

    class Keyed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def forward(self, x: torch.Tensor) -> Any:
            return self.net(x)

    keyed = Keyed()
    training = Training(
        keyed,
        torch.optim.SGD(keyed.parameters(), 0.1),
        iter([{"x": torch.ones(1, 2)}] * 2),
        lambda output, batch: output.sum(),
        torch.device("cpu"),
    )
    path = tmp_path / "train.fp32.graph.json"
    list(train(training, 2, [AutogradGraph(path)]))
    found = nodes.load(path)
    assert [n.module for n in found.nodes if n.op in ("Addmm", "Relu")] == [
        "net.0", "net.1", "net.2",
    ]  # fmt: skip


def test_of_gpt2_it_shows_the_modules_that_the_export_shows() -> None:
    from layerline.export.source import Request, resolve

    spec = resolve(Request("tiny", seq=8))
    model = spec.build(training=True)
    with recorded(model, "tiny") as document:
        model(**{k: torch.tensor(v) for k, v in spec.inputs().items()})
    found = nodes.parse(document)
    assert all(n.module is not None for n in found.nodes)
    # Every module with parameters of its own computes with them.
    owners = {n.rpartition(".")[0] for n, _ in model.named_parameters()}
    assert owners <= {n.module for n in found.nodes}
    assert found.initializers == {n for n, _ in model.named_parameters()}
