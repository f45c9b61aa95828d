"""Counting changed bits: planted changes are all found, by both counters, in every dtype."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels_on_cpu import COMPILER, KernelsOnCpu

from layerline.profile.eager.parameters import counters as change_counters
from layerline.profile.eager.parameters.counters import Counter, Cuda, Torch, defaults
from layerline.profile.eager.parameters.index import Parameter, parameters

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


class Model(torch.nn.Module):
    """An embedding and tensors that begin anywhere, so that some are not aligned."""

    def __init__(self, dtype: torch.dtype, sizes: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(11, 5, dtype=dtype)
        for number, (size, offset) in enumerate(sizes):
            tensor = torch.randn(size + offset).to(dtype)[offset:]
            self.register_parameter(f"p{number}", torch.nn.Parameter(tensor))
        for parameter in self.parameters():
            parameter.grad = torch.randn(parameter.shape).to(dtype)


def counter_of(kind: str, members: list[Parameter], chunks: list[list[Parameter]]) -> Counter:
    if kind == "kernels":
        return Cuda(members, chunks, CPU, 4, KernelsOnCpu())  # type: ignore[arg-type]
    return Torch(host=kind == "host")


def bits_of(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's own memory as unsigned integers."""
    integers = change_counters._bits(tensor.detach())
    return integers.numpy().view(f"u{tensor.element_size()}")


sizes = st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 3)), min_size=1, max_size=4)


@pytest.mark.parametrize("kind", ["torch", "host", pytest.param("kernels", marks=needs_compiler)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(max_examples=15, deadline=None)
@given(sizes=sizes, seed=st.integers(0, 2**32 - 1), split=st.integers(0, 4))
def test_every_planted_bit_is_found(
    kind: str, dtype: torch.dtype, sizes: list[tuple[int, int]], seed: int, split: int
) -> None:
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed % 1000)
    model = Model(dtype, sizes)
    members = parameters(model, torch.optim.SGD(model.parameters()))
    chunks = [c for c in (members[:split], members[split:]) if c]
    counter = counter_of(kind, members, chunks)
    for slot in range(2):  # the second step finds nothing of the first
        figures = defaults(members, CPU)
        counter.begin(slot)
        before = {}
        planted, changed_rows = {}, {}
        for chunk in chunks:
            counter.before(chunk, figures)
            for member in chunk:
                at, flat = member.about.index, bits_of(member.tensor).reshape(-1)
                before[at] = member.tensor.detach().double().numpy().copy(), flat.copy()
                n = min(len(flat), int(rng.integers(0, 6)))
                places = rng.choice(len(flat), n, replace=False) if n else np.array([], int)
                width = 8 * member.tensor.element_size()
                for place in places:
                    flat[place] ^= flat.dtype.type(1) << flat.dtype.type(rng.integers(0, width))
                planted[at] = n
                changed_rows[at] = len(set((places // 5).tolist()))
            counter.after(chunk, figures)
        counter.end(figures)
        assert figures[:, 0].tolist() == [planted[m.about.index] for m in members]
        table = next(m.about.index for m in members if m.about.module == "table")
        assert figures[table, 4] == changed_rows[table]
        for member in members:
            at = member.about.index
            with np.errstate(all="ignore"):
                now, (old, bits) = member.tensor.detach().double().numpy(), before[at]
                same = (bits_of(member.tensor).reshape(-1) == bits).reshape(now.shape)
                change = np.where(same, 0, now - old)
                gradient = member.tensor.grad.double().numpy()  # type: ignore[union-attr]
                wanted = [(x**2).sum() for x in (change, gradient, old)]
            got = figures[at, 1:4].tolist()
            for g, w in zip(got, wanted, strict=True):
                # A sum without a value has none here either.
                assert g == pytest.approx(w, rel=1e-9) or not (np.isfinite(g) or np.isfinite(w))


@pytest.mark.parametrize("kind", ["torch", "host", pytest.param("kernels", marks=needs_compiler)])
def test_a_change_is_one_of_bits_not_of_values(kind: str) -> None:
    model = Model(torch.float32, [(4, 0)])
    members = parameters(model, torch.optim.SGD(model.parameters()))
    at = next(m for m in members if m.about.parameter == "p0")
    with torch.no_grad():
        model.p0.copy_(torch.tensor([0.0, float("nan"), 1.0, float("nan")]))
    counter, figures = counter_of(kind, members, [members]), defaults(members, CPU)
    counter.begin(0)
    counter.before(members, figures)
    with torch.no_grad():
        model.p0[0] = -0.0
        bits_of(model.p0)[1] ^= 1  # another NaN
    counter.after(members, figures)
    counter.end(figures)
    assert figures[at.about.index, 0] == 2
    others = [m.about.index for m in members if m is not at]
    assert figures[others, 0].tolist() == [0] * len(others)


@pytest.mark.parametrize("kind", ["torch", pytest.param("kernels", marks=needs_compiler)])
def test_rows_with_a_gradient_are_those_of_the_words_that_were_read(kind: str) -> None:
    for sparse in (False, True):
        table = torch.nn.Embedding(50, 7, sparse=sparse)
        table(torch.tensor([3, 9, 9, 44])).sum().backward()
        members = parameters(table, torch.optim.SGD(table.parameters()))
        counter, figures = counter_of(kind, members, [members]), defaults(members, CPU)
        counter.begin(0)
        counter.before(members, figures)
        with torch.no_grad():
            table.weight[9] += 1
        counter.after(members, figures)
        counter.end(figures)
        changed, _, gradient, _, rows, touched = figures[0].tolist()
        assert (changed, rows, touched) == (7, 1, 3)
        assert gradient == pytest.approx(7 * (1 + 4 + 1))


@needs_compiler
def test_kernels_leave_a_parameter_without_gradient_alone() -> None:
    model = Model(torch.float32, [(100, 0), (200, 0)])
    model.p0.grad = None
    members = parameters(model, torch.optim.SGD(model.parameters()))
    counter, figures = counter_of("kernels", members, [members]), defaults(members, CPU)
    counter.begin(0)
    counter.before(members, figures)
    counter.after(members, figures)
    counter.end(figures)
    row = next(m.about.index for m in members if m.about.parameter == "p0")
    assert figures[row].tolist() == [0, 0, -1, -1, -1, -1]


def test_tensors_that_kernels_cannot_read_are_counted_by_operators() -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turned = torch.nn.Parameter(torch.randn(6, 4).t())
            self.gaps = torch.nn.Parameter(torch.randn(6, 4)[:, ::2])
            self.complex = torch.nn.Parameter(torch.randn(5, dtype=torch.complex64))

    model = Odd()
    members = parameters(model, torch.optim.SGD(model.parameters()))
    assert [Cuda.takes(m, CPU) for m in members] == [True, False, False]
    counter, figures = Torch(), defaults(members, CPU)
    counter.before(members, figures)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter[(0,) * parameter.dim()] += 1
    counter.after(members, figures)
    assert figures[:, 0].tolist() == [1, 1, 1]
