"""The plug-in that counts changed parameters: it changes nothing, and counts what a copy counts."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from kernels_on_cpu import COMPILER, KernelsOnCpu

from layerline.core.errors import InputError
from layerline.core.tables import read_parquet
from layerline.profile.eager.parameters.plugin import APART, ParameterChanges
from layerline.workloads.loop import step, train
from layerline.workloads.training import Training

Make = Callable[[Any], torch.optim.Optimizer]
STEPS = 12
WORDS = 6  # of 30: the other rows of the embedding have no gradient


class Model(torch.nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32, sparse: bool = False) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(30, 8, sparse=sparse)
        self.norm = torch.nn.LayerNorm(8)
        self.inner = torch.nn.Linear(8, 16)
        self.outer = torch.nn.Linear(16, 3)
        self.unused = torch.nn.Linear(4, 4)
        self.frozen = torch.nn.Linear(4, 4).requires_grad_(False)
        self.to(dtype)

    def forward(self, words: torch.Tensor) -> Any:
        return self.outer(torch.relu(self.inner(self.norm(self.table(words)))))


def training(make: Make, precision: str = "fp32", **model: Any) -> Training:
    torch.manual_seed(0)
    net = Model(**model)
    batches = [
        {"words": torch.randint(0, WORDS, (4, 5)), "wanted": torch.randn(4, 5, 3)} for _ in range(3)
    ]
    return Training(
        net,
        make(net.parameters()),
        itertools.cycle(batches),
        lambda output, batch: torch.nn.functional.mse_loss(output.float(), batch["wanted"]),
        torch.device("cpu"),
        precision,
        beside=frozenset({"wanted"}),
    )


def bits(model: torch.nn.Module) -> list[np.ndarray]:
    """A copy of every parameter's memory."""
    sizes = {2: torch.int16, 4: torch.int32}
    return [
        p.detach().clone().view(sizes[p.element_size()]).numpy().copy() for p in model.parameters()
    ]


def watched(
    plain: Training, folder: Path, steps: int = STEPS, chunk: int | None = None
) -> pa.Table:
    """The table of a training under the plug-in; chunks of at most so many bytes."""
    plugin = ParameterChanges(folder, block=5)
    if chunk is not None:
        plugin._limit = lambda *_: chunk  # type: ignore[method-assign]
    list(train(plain, steps, [plugin]))
    return read_parquet(folder / f"train.{plain.precision}.parameters.parquet", "parameters")


def by_copies(plain: Training, steps: int = STEPS) -> list[list[int]]:
    """Changed elements of each step, by a copy of everything: another way to the same figures."""
    counts = []
    for number in range(steps):
        before = bits(plain.model)
        step(plain, number)
        counts.append([int((a != b).sum()) for a, b in zip(before, bits(plain.model), strict=True)])
    return counts


def counted(table: pa.Table) -> list[list[int]]:
    changed = table["changed"].to_numpy()
    return changed.reshape(-1, len(set(table["index"].to_pylist()))).tolist()


def how_of(folder: Path) -> dict[str, Any]:
    """How changes were counted."""
    how: dict[str, Any] = json.loads((folder / "train.fp32.parameters.index.json").read_text())
    return how["how"]  # type: ignore[no-any-return]


def column(table: pa.Table, path: str, name: str) -> list[Any]:
    """A parameter's values, step by step."""
    return [r[name] for r in table.to_pylist() if f"{r['module']}.{r['parameter']}" == path]


def two_groups(cls: Any, **options: Any) -> Make:
    def make(parameters: Any) -> torch.optim.Optimizer:
        every = list(parameters)
        last = {"params": every[5:], "lr": 3e-3}
        optimizer: torch.optim.Optimizer = cls([{"params": every[:5]}, last], lr=1e-2, **options)
        return optimizer

    return make


O = torch.optim  # noqa: E741
OPTIMIZERS: dict[str, Make] = {
    **{
        c.__name__: two_groups(c)
        for c in sorted(APART - {O.SparseAdam, getattr(O, "Muon", None)}, key=lambda c: c.__name__)
    },
    "AdamW foreach": two_groups(O.AdamW, foreach=True),
    "AdamW fused": two_groups(O.AdamW, fused=True),
    "AdamW amsgrad maximize": two_groups(O.AdamW, amsgrad=True, maximize=True, foreach=True),
    "SGD momentum": two_groups(O.SGD, momentum=0.9, nesterov=True, weight_decay=0.1, fused=True),
    "RMSprop centered": two_groups(O.RMSprop, centered=True, momentum=0.5, foreach=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_the_same_bit_for_bit_and_counts_are_those_of_copies(
    name: str, tmp_path: Path
) -> None:
    make = OPTIMIZERS[name]
    plain, seen, copied = (training(make) for _ in range(3))
    losses = [float(s.loss) for s in train(plain, STEPS)]
    # Chunks of a tensor or two.
    table = watched(seen, tmp_path, chunk=1000)
    assert (
        json.loads((tmp_path / "train.fp32.parameters.index.json").read_text())["how"]["chunks"]
        >= 3
    )
    for a, b in zip(bits(plain.model), bits(seen.model), strict=True):
        assert (a == b).all()
    left, right = plain.optimizer.state_dict(), seen.optimizer.state_dict()
    assert left["param_groups"] == right["param_groups"]
    for of_a, of_b in zip(left["state"].values(), right["state"].values(), strict=True):
        assert all(torch.equal(torch.as_tensor(of_a[k]), torch.as_tensor(of_b[k])) for k in of_a)
    assert counted(table) == by_copies(copied)
    assert len(losses) == STEPS


def test_muon_is_stepped_in_chunks_too(tmp_path: Path) -> None:
    if not hasattr(O, "Muon"):
        pytest.skip("this torch has no Muon")

    def matrices(parameters: Any) -> torch.optim.Optimizer:
        return O.Muon([p for p in parameters if p.dim() == 2], lr=1e-2)

    plain, seen = training(matrices), training(matrices)
    list(train(plain, STEPS))
    assert counted(watched(seen, tmp_path, chunk=1000)) == by_copies(training(matrices))
    assert all((a == b).all() for a, b in zip(bits(plain.model), bits(seen.model), strict=True))


def interleaved(parameters: Any) -> torch.optim.Optimizer:
    """Weights decay and biases do not: groups whose parameters take turns in the model."""
    every = list(parameters)
    groups = [[p for p in every if (p.dim() < 2) is flat] for flat in (True, False)]
    return O.AdamW([{"params": groups[0][::-1], "weight_decay": 0.0}, {"params": groups[1]}])


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("make", [two_groups(O.AdamW), interleaved], ids=["apart", "interleaved"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kernels_count_what_operators_count(
    dtype: torch.dtype, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_operators = watched(training(make, dtype=dtype), tmp_path / "a")
    monkeypatch.setattr(ParameterChanges, "_kernels", lambda self, how: KernelsOnCpu())
    by_kernels = watched(training(make, dtype=dtype), tmp_path / "b", chunk=1000)
    assert counted(by_kernels) == counted(by_operators) == by_copies(training(make, dtype=dtype))
    for name in ("update_norm", "gradient_norm"):
        for a, b in zip(by_kernels[name].to_pylist(), by_operators[name].to_pylist(), strict=True):
            assert a == (None if b is None else pytest.approx(b, rel=1e-9)) or b == 0
    for name in ("rows_changed", "rows_with_gradient"):
        assert by_kernels[name].to_pylist() == by_operators[name].to_pylist()


def test_frozen_unused_and_sparse_parameters_are_told_apart(tmp_path: Path) -> None:
    def without_decay(parameters: Any) -> torch.optim.Optimizer:
        return O.SGD(parameters, lr=0.1)

    table = watched(training(without_decay), tmp_path)
    assert column(table, "frozen.weight", "trainable") == [False] * STEPS
    assert column(table, "frozen.weight", "changed") == [0] * STEPS
    assert column(table, "unused.weight", "trainable") == [True] * STEPS
    assert column(table, "unused.weight", "gradient_norm") == [None] * STEPS
    assert all(0 < n <= WORDS for n in column(table, "table.weight", "rows_changed"))
    assert all(0 < n <= WORDS for n in column(table, "table.weight", "rows_with_gradient"))
    assert set(column(table, "table.weight", "rows")) == {30}
    assert set(column(table, "inner.weight", "rows_changed")) == {None}
    assert min(column(table, "norm.weight", "changed")) > 0


def test_norms_are_those_of_the_tensors(tmp_path: Path) -> None:
    def make(parameters: Any) -> torch.optim.Optimizer:
        return O.SGD(parameters, lr=0.5)

    by_hand = training(make)
    weight = by_hand.model.inner.weight
    old = weight.detach().clone()
    by_hand.gradients(lambda _: contextlib.nullcontext())
    gradient = weight.grad.clone()  # type: ignore[union-attr]
    table = watched(training(make), tmp_path, steps=1)
    norm = lambda t: pytest.approx(float(t.double().norm()), rel=1e-6)  # noqa: E731
    assert column(table, "inner.weight", "gradient_norm") == [norm(gradient)]
    assert column(table, "inner.weight", "parameter_norm") == [norm(old)]
    assert column(table, "inner.weight", "update_norm") == [norm(0.5 * gradient)]


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_the_scaler_skips_changes_nothing(fused: bool, tmp_path: Path) -> None:
    def make(parameters: Any) -> torch.optim.Optimizer:
        return O.AdamW(parameters, lr=1e-2, fused=fused)

    def overflowing() -> Training:
        made = training(make, "fp16")
        made.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
        return made

    table = watched(overflowing(), tmp_path, steps=STEPS)
    counts = counted(table)
    assert counts == by_copies(overflowing())
    skipped = [number for number, of_step in enumerate(counts) if not any(of_step)]
    assert skipped == list(range(len(skipped)))
    assert 0 < len(skipped) < STEPS
    stepped = column(table, "inner.weight", "stepped")
    # A fused optimizer runs and leaves the parameters alone: only then are gradients looked at.
    assert stepped == ([True] * STEPS if fused else [n not in skipped for n in range(STEPS)])
    norms = column(table, "inner.weight", "gradient_norm")
    assert all(0 < norm < 10 for norm in norms[len(skipped) :])  # without the scale


def test_an_optimizer_that_mixes_parameters_is_compared_with_the_host_s_copy(
    tmp_path: Path,
) -> None:
    class Descent(Training):
        def update(self) -> None:
            self.optimizer.step(lambda: self._gradients_again())

        def _gradients_again(self) -> Any:
            self.optimizer.zero_grad()
            batch = {"words": torch.ones(4, 5, dtype=torch.long), "wanted": torch.ones(4, 5, 3)}
            loss = self.loss(self.forward(batch), batch)
            loss.backward()
            return loss

    def lbfgs() -> Training:
        made = training(lambda p: O.LBFGS([x for x in p if x.requires_grad], lr=0.1, max_iter=3))
        made.__class__ = Descent
        return made

    assert counted(watched(lbfgs(), tmp_path, steps=3)) == by_copies(lbfgs(), steps=3)
    how = how_of(tmp_path)
    assert how["steps_apart"] is False


def test_a_subclass_is_not_believed_to_step_parameters_apart(tmp_path: Path) -> None:
    class Mine(O.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            norms = [
                p.grad.norm() for g in self.param_groups for p in g["params"] if p.grad is not None
            ]
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.data -= p.grad / torch.stack(norms).max()

    make: Make = lambda p: Mine(p, lr=1.0)  # noqa: E731
    assert counted(watched(training(make), tmp_path)) == by_copies(training(make))


def test_sparse_gradients_are_counted(tmp_path: Path) -> None:
    make: Make = lambda p: O.SGD(p, lr=0.1)  # noqa: E731
    table = watched(training(make, sparse=True), tmp_path)
    assert counted(table) == by_copies(training(make, sparse=True))
    assert all(0 < n <= WORDS for n in column(table, "table.weight", "rows_with_gradient"))


def test_hooks_of_others_see_the_optimizer_s_own_groups(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def look(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        seen.append((len(list(optimizer.param_groups)), len(optimizer.param_groups[0]["params"])))

    plain = training(two_groups(O.AdamW))
    plain.optimizer.register_step_pre_hook(look)
    plain.optimizer.register_step_post_hook(look)
    groups = plain.optimizer.param_groups
    watched(plain, tmp_path, chunk=1000)
    assert set(seen) == {(2, 5)}
    assert len(seen) == 2 * STEPS  # one step, however many chunks
    assert plain.optimizer.param_groups is groups


def test_a_failing_step_leaves_the_optimizer_as_it_was(tmp_path: Path) -> None:
    plain = training(two_groups(O.AdamW))
    groups = plain.optimizer.param_groups
    plugin = ParameterChanges(tmp_path)
    steps = train(plain, 9, [plugin])
    next(steps)
    plain.optimizer.param_groups[1]["lr"] = "fast"
    with pytest.raises(TypeError):
        next(steps)
    assert plain.optimizer.param_groups is groups
    table = read_parquet(tmp_path / "train.fp32.parameters.parquet", "parameters")
    assert set(table["step"].to_pylist()) == {0}


def test_parameters_are_numbered_alike_whatever_wraps_the_model(tmp_path: Path) -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    make: Make = lambda p: O.SGD(p, lr=0.1)  # noqa: E731
    watched(training(make), tmp_path / "a", steps=1)
    wrapped = training(make)
    wrapped.model.inner = checkpoint_wrapper(wrapped.model.inner)
    watched(wrapped, tmp_path / "b", steps=1)
    a, b = (
        json.loads((tmp_path / x / "train.fp32.parameters.index.json").read_text())["parameters"]
        for x in ("a", "b")
    )
    assert a == b


def test_a_tied_weight_is_one_parameter_with_another_name(tmp_path: Path) -> None:
    plain = training(lambda p: O.SGD(p, lr=0.1))
    plain.model.frozen.bias = plain.model.unused.bias
    watched(plain, tmp_path, steps=1)
    index = json.loads((tmp_path / "train.fp32.parameters.index.json").read_text())["parameters"]
    tied = [p for p in index if p["aliases"]]
    assert [(p["module"], p["parameter"], p["aliases"]) for p in tied] == [
        ("unused", "bias", ["frozen.bias"])
    ]


def test_a_parameter_that_joins_later_is_refused(tmp_path: Path) -> None:
    plain = training(lambda p: O.SGD(p, lr=0.1))
    steps = train(plain, 3, [ParameterChanges(tmp_path)])
    next(steps)
    plain.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(3))]})
    with pytest.raises(InputError, match="after the training began"):
        next(steps)


def test_a_parameter_larger_than_the_memory_is_kept_by_the_host(tmp_path: Path) -> None:
    make: Make = lambda p: O.SGD(p, lr=0.1)  # noqa: E731
    table = watched(training(make), tmp_path, chunk=900)
    how = how_of(tmp_path)
    assert "table.weight" in how["kept_on_host"]
    assert counted(table) == by_copies(training(make))


def test_weights_that_become_nan_have_norms_that_are_nan_not_unknown(tmp_path: Path) -> None:
    table = watched(training(lambda p: O.SGD(p, lr=1e38)), tmp_path, steps=4)
    norms = column(table, "inner.weight", "update_norm")
    assert any(norm is not None and not np.isfinite(norm) for norm in norms)
    assert None not in norms


def test_the_log_has_what_changed_and_nothing_else(tmp_path: Path) -> None:
    table = watched(training(lambda p: O.SGD(p, lr=0.1)), tmp_path, steps=7)
    lines = (tmp_path / "train.fp32.parameter_changes.log").read_text().splitlines()
    for number, (line, counts) in enumerate(zip(lines, counted(table), strict=True)):
        head, _, rest = line.partition(": ")
        assert head.split(", ")[1] == str(number)
        assert rest == " ".join(f"{i}:{n}" for i, n in enumerate(counts) if n)
