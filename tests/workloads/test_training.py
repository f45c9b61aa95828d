"""The loop: what it computes, and the order in which it calls plug-ins."""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from layerline.workloads.loop import train
from layerline.workloads.plugin import Plugin
from layerline.workloads.training import Training


def training(accumulate: int = 1) -> Training:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    batches = [{"input": torch.randn(5, 4), "target": torch.randn(5, 3)} for _ in range(8)]
    result = Training(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        itertools.cycle(batches),
        lambda output, batch: torch.nn.functional.mse_loss(output, batch["target"]),
        torch.device("cpu"),
        accumulate=accumulate,
    )
    result.forward = lambda batch: model(batch["input"])  # type: ignore[method-assign]
    return result


class Recorder(Plugin):
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def open(self, training: Training) -> None:
        self.log.append(f"{self.name} open")

    @contextlib.contextmanager
    def _around(self, what: str) -> Iterator[None]:
        self.log.append(f"{self.name} {what}(")
        yield
        self.log.append(f"{self.name} ){what}")

    def step(self, number: int) -> contextlib.AbstractContextManager[None]:
        return self._around(str(number))

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        return self._around(name)

    def close(self) -> None:
        self.log.append(f"{self.name} close")


def test_plugins_see_steps_and_phases_the_first_outermost() -> None:
    log: list[str] = []
    list(train(training(), 1, [Recorder("a", log), Recorder("b", log)]))
    assert log[:6] == ["a open", "b open", "a 0(", "b 0(", "a data(", "b data("]
    assert log[6:8] == ["b )data", "a )data"]
    phases = [line[2:-1] for line in log if line.startswith("a ") and line.endswith("(")]
    assert phases == ["0", "data", "forward", "loss", "backward", "optimizer"]
    assert log[-2:] == ["b close", "a close"]


def test_plugins_are_closed_when_a_step_fails() -> None:
    log: list[str] = []
    broken = training()
    broken.loss = lambda output, batch: output.reshape(7).sum()
    with pytest.raises(RuntimeError, match="shape"):
        list(train(broken, 2, [Recorder("a", log)]))
    assert log[-1] == "a close"


def test_micro_batches_make_the_step_of_one_large_batch() -> None:
    several, one = training(accumulate=4), training()
    large = [next(several.batches) for _ in range(4)]
    several.batches = iter(large)
    one.batches = iter([{k: torch.cat([batch[k] for batch in large]) for k in ("input", "target")}])
    (a,), (b,) = train(several, 1), train(one, 1)
    assert torch.allclose(a.loss, b.loss)
    for p, q in zip(several.model.parameters(), one.model.parameters(), strict=True):
        assert torch.allclose(p, q)


class Held:
    """What a weak reference can be made of."""


class Graphs(Plugin):
    """At each border of a phase: how many graphs are alive."""

    def __init__(self, graphs: list[Any]) -> None:
        self.graphs, self.seen = graphs, list[tuple[str, int]]()

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self.seen.append((name, self._alive()))
        yield
        self.seen.append((f"after {name}", self._alive()))

    def _alive(self) -> int:
        return sum(ref() is not None for ref in self.graphs)

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        return self._phase(name)


def test_the_graph_is_freed_in_a_phase_the_last_one_beside_the_optimizers_kernels() -> None:
    """To free it holds the host up: outside of the phases it would be time of nothing, and before
    the optimizer's kernels are launched the device would wait for it."""
    watched, nodes = training(accumulate=2), list[Any]()
    loss = watched.loss

    def keeping(output: Any, batch: Any) -> torch.Tensor:
        result = loss(output, batch)
        held = result.grad_fn.metadata["held"] = Held()  # lives as long as the graph's node
        nodes.append(weakref.ref(held))
        return result

    watched.loss = keeping
    graphs = Graphs(nodes)
    [done] = train(watched, 1, [graphs])
    assert not done.loss.requires_grad
    assert [n for name, n in graphs.seen if name == "after backward"] == [0, 1]
    assert graphs.seen[-2:] == [("optimizer", 1), ("after optimizer", 0)]


def test_no_plugin_changes_what_is_computed() -> None:
    plain = [float(s.loss) for s in train(training(), 9)]
    watched = [float(s.loss) for s in train(training(), 9, [Recorder("a", [])])]
    assert plain == watched
    assert plain[8] < plain[0]  # the same batch again
