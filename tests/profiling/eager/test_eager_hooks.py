"""Ranges around modules: they change nothing, close always, and leave nothing behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from layerline.core import own_ranges  # noqa: E402
from layerline.export.naming import ModuleTree  # noqa: E402
from layerline.profile.eager import hooks  # noqa: E402

nn = torch.nn


class Recorder:
    """Stands in for the profiler: what was opened and closed, in order."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.open: list[str] = []

    @contextlib.contextmanager
    def range_of(self, name: str) -> Iterator[None]:
        self.said.append(name.removeprefix(own_ranges.MODULE))
        self.open.append(name)
        try:
            yield
        finally:
            assert self.open.pop() == name, "ranges nest"


class Output(NamedTuple):
    """An output that is no tensor."""

    value: Any
    text: str


class Net(nn.Module):
    """Calls `a` twice, once by keyword only; `shared` is `a` under another path."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.shared = self.a
        self.b = nn.Sequential(nn.ReLU(), nn.Linear(3, 3))

    def forward(self, x: Any) -> Output:
        return Output(self.b(self.a(input=self.a(x))), "text")


def count_hooks(model: Any) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_one_range_for_each_call_of_each_module() -> None:
    model, seen = Net(), Recorder()
    with hooks.module_ranges(model, seen.range_of) as classes:
        model(torch.ones(2, 3))
    assert seen.said == ["", "a", "a", "b", "b.0", "b.1"]
    assert classes == {"": "Net", "a": "Linear", "b": "Sequential", "b.0": "ReLU", "b.1": "Linear"}
    assert ModuleTree.of(model).aliases == {"a": ("shared",)}


def test_no_value_changes_and_no_hook_is_left() -> None:
    model, x = Net(), torch.randn(2, 3)
    expected = model(x).value
    with hooks.module_ranges(model, Recorder().range_of):
        found = model(x)
        assert count_hooks(model) > 0
    assert torch.equal(found.value, expected)
    assert found.text == "text"
    assert count_hooks(model) == 0


def test_hooks_of_the_user_keep_their_effect() -> None:
    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    model.register_forward_pre_hook(lambda _m, args: (args[0] * 2,))
    model.register_forward_hook(lambda _m, _args, out: out + 1)
    expected = model(x)
    with hooks.module_ranges(model, Recorder().range_of):
        assert torch.equal(model(x), expected)
    assert count_hooks(model) == 2


def test_an_exception_in_forward_closes_every_range() -> None:
    class Fails(nn.Module):
        def forward(self, _x: Any) -> Any:
            raise ValueError("inside")

    model, seen = nn.Sequential(nn.ReLU(), Fails(), nn.ReLU()), Recorder()
    with hooks.module_ranges(model, seen.range_of):
        for _ in range(2):
            with pytest.raises(ValueError, match="inside"):
                model(torch.ones(1))
            assert seen.open == []
    assert seen.said == ["", "0", "1"] * 2
    assert count_hooks(model) == 0


def test_a_capture_that_fails_leaves_no_hook() -> None:
    model = Net()
    with pytest.raises(KeyError), hooks.module_ranges(model, Recorder().range_of):
        raise KeyError
    assert count_hooks(model) == 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_opens_the_ranges_again_and_closes_them(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.Linear(3, 3)
            self.r = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.r(self.l(x)) * 2

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: Any) -> Any:
            return checkpoint(self.block, x, use_reentrant=reentrant)

    model, seen = Model(), Recorder()
    x = torch.randn(2, 3, requires_grad=True)
    model(x).sum().backward()
    expected = model.block.l.weight.grad.clone()
    model.zero_grad()
    with hooks.module_ranges(model, seen.range_of):
        loss = model(x).sum()
        assert seen.said == ["", "block", "block.l", "block.r"]
        loss.backward()
    assert seen.said[4:6] == ["block", "block.l"]
    assert seen.open == []
    assert torch.equal(model.block.l.weight.grad, expected)


def test_a_module_that_calls_itself_nests() -> None:
    class Recursive(nn.Module):
        def forward(self, x: Any, depth: int = 2) -> Any:
            return self(x, depth=depth - 1) + 1 if depth else x

    model, seen = Recursive(), Recorder()
    with hooks.module_ranges(model, seen.range_of):
        model(torch.zeros(1))
    assert seen.said == ["", "", ""]
    assert seen.open == []


def test_nvtx_gives_nothing_back_from_push(monkeypatch: pytest.MonkeyPatch) -> None:
    """range_push returns the depth; a pre-hook that returned it would replace the input."""
    calls: list[Any] = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda name: calls.append(name) or 1)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: calls.append("pop") or 1)
    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    expected = model(x)
    with hooks.module_ranges(model, hooks.nvtx):
        assert torch.equal(model(x), expected)
    assert calls == ["layerline/module/", "pop"]
