"""Who makes the host wait and when the device idles: traces made by hand, every figure counted."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import paths
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_by_hand import Trace

from layerline.analysis.attribution.autograd import credit
from layerline.analysis.attribution.eager import of_events
from layerline.analysis.host import waiting
from layerline.analysis.host.idle import longest
from layerline.analysis.host.waits import Placed, written
from layerline.analysis.model.waiting import Waiting
from layerline.analysis.readers.torch.events import read_events
from layerline.analysis.readers.torch.nesting import nest
from layerline.analysis.report import sentences

US = 1000


def of(path: Path) -> Waiting:
    events = read_events(path)
    nesting = nest(events)
    credited = credit(events, nesting)
    facts = of_events(events, {}, nesting, credited).facts
    placed = Placed(credited.module, credited.phase, credited.iteration)
    steps = {s["iteration"]: s["duration_ns"] for s in facts["steps"]}
    found = waiting.of(events, nesting, placed, facts, steps)
    assert found is not None
    return found


def step(trace: Trace, number: int, at: float, *, item: float = 40) -> None:
    """1000 us: data to 200, forward to 600, optimizer to 1000.

    The device works in [250, 350], [420, 500] and [700, 800]."""
    trace.range(f"layerline/iteration/{number}", at, at + 1000)
    trace.frame("train.py(10): step", at, at + 1000)
    trace.range("layerline/phase/data", at, at + 200)
    trace.range("layerline/phase/forward", at + 200, at + 600)
    trace.range("layerline/module/net", at + 205, at + 590)
    trace.frame("torch/nn/modules/module.py(1779): _call_impl", at + 206, at + 589)
    trace.frame("models/net.py(33): forward", at + 207, at + 588)
    trace.op("aten::mm", at + 210, at + 230)
    trace.launch((at + 215, at + 225), (at + 250, at + 350))
    trace.op("aten::relu", at + 400, at + 415)
    trace.launch((at + 402, at + 412), (at + 420, at + 500))
    trace.frame("contextlib.py(132): __enter__", at + 420, at + 560)
    trace.op("aten::item", at + 430, at + 510)
    trace.op("aten::_local_scalar_dense", at + 431, at + 509)
    trace.launch((at + 432, at + 440), (at + 500, at + 500), "cudaMemcpyAsync", "gpu_memcpy")
    trace.call("cudaStreamSynchronize", at + 441, at + 441 + item)
    trace.range("layerline/phase/optimizer", at + 600, at + 1000)
    trace.op("aten::add_", at + 680, at + 695)
    trace.launch((at + 682, at + 692), (at + 700, at + 800))
    trace.call("cudaDeviceSynchronize", at + 800, at + 900)


@pytest.fixture
def found(tmp_path: Path) -> Waiting:
    trace = Trace()
    for number, item in enumerate((40, 50, 60)):
        step(trace, number, 1000 * number, item=item)
    return of(trace.write(tmp_path / "t.json"))


def test_each_cause_is_named_counted_and_timed(found: Waiting) -> None:
    assert [
        (w.cause, w.call, w.module, w.phase, w.count, w.time and w.time.median, w.share)
        for w in found.waits
    ] == [
        ("cudaDeviceSynchronize", "cudaDeviceSynchronize", None, "optimizer", 1, 100 * US, 0.1),
        ("aten::item", "cudaStreamSynchronize", "net", "forward", 1, 50 * US, 0.05),
    ]


def test_the_function_is_the_innermost_that_is_not_pytorchs_or_pythons_own(found: Waiting) -> None:
    by_cause = {w.cause: w.function for w in found.waits}
    assert by_cause == {
        "aten::item": "forward (models/net.py:33)",
        "cudaDeviceSynchronize": "step (train.py:10)",
    }


def test_idle_time_is_counted_once_by_what_the_host_did(found: Waiting) -> None:
    # The device works to 800 of a step; its next work begins at 250 of the next one. Host: 200 in
    # the optimizer, 200 in data, 50 in forward; then 70 in forward (350 to 420); 100 in forward
    # and 100 in the optimizer (500 to 700). The first step begins with 200 and 50.
    medians = {p: e.median for p, e in found.idle.items()}
    assert medians == {"data": 200 * US, "forward": 220 * US, "optimizer": 300 * US}
    assert {p: e.n for p, e in found.idle.items()} == dict.fromkeys(medians, 3)


def test_stretches_in_which_the_device_waits_for_launches(found: Waiting) -> None:
    forward, optimizer = sorted(found.stretches, key=lambda s: s.phase)
    # From 350 to 500: idle to 420, launched at 412, so the device waited 62.
    assert (forward.time, forward.idle, forward.first) == (150 * US, 62 * US, "net")
    # From 500 to 800: idle to 700, launched at 692.
    assert (optimizer.phase, optimizer.time, optimizer.idle) == ("optimizer", 300 * US, 192 * US)
    assert optimizer.first is None and optimizer.operations == 1


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("cudaStreamSynchronize", True),
        ("cudaEventSynchronize", True),
        ("cuCtxSynchronize", True),
        ("hipDeviceSynchronize", True),
        ("cudaMemcpy", True),
        ("cudaMalloc", True),
        ("cudaFree", True),
        ("cudaLaunchKernel", False),
        ("cudaMemcpyAsync", False),
        ("cudaStreamWaitEvent", False),
        ("cudaFuncSetAttribute", False),
        ("cudaMallocAsync", False),
    ],
)
def test_calls_that_wait_by_their_name(name: str, waits: bool, tmp_path: Path) -> None:
    trace = Trace()
    trace.range("layerline/iteration/0", 0, 100)
    trace.launch((1, 2), (3, 4))
    trace.call(name, 10, 20)
    found = of(trace.write(tmp_path / "t.json"))
    assert [w.call for w in found.waits] == ([name] if waits else [])


@pytest.mark.parametrize(("device", "waits"), [((12, 18), True), ((12, 25), False)])
def test_a_copy_that_returns_when_it_is_done_has_waited(
    device: tuple[float, float], waits: bool, tmp_path: Path
) -> None:
    trace = Trace()
    trace.range("layerline/iteration/0", 0, 100)
    trace.launch((10, 20), device, "cudaMemcpyAsync", "gpu_memcpy")
    found = of(trace.write(tmp_path / "t.json"))
    assert [(w.call, w.time and w.time.median) for w in found.waits] == (
        [("cudaMemcpyAsync", 10 * US)] if waits else []
    )


@pytest.mark.parametrize(
    ("operation", "waits"),
    [
        ("Memcpy HtoD (Pageable -> Device)", True),
        ("Memcpy DtoH (Device -> Pageable)", True),
        ("Memcpy HtoD (Pinned -> Device)", False),
        ("Memcpy DtoH (Device -> Pinned)", False),
        ("Memcpy DtoD (Device -> Device)", False),
    ],
)
def test_a_host_that_comes_late_has_not_waited_for_an_asynchronous_copy(
    operation: str, waits: bool, tmp_path: Path
) -> None:
    """A small copy may be done before the call returns, on a host that is slow or busy."""
    trace = Trace()
    trace.range("layerline/iteration/0", 0, 100)
    trace.launch((10, 20), (12, 18), "cudaMemcpyAsync", "gpu_memcpy", operation)
    found = of(trace.write(tmp_path / "t.json"))
    assert [w.call for w in found.waits] == (["cudaMemcpyAsync"] if waits else [])


def test_without_a_device_operators_are_listed_that_would_wait_and_nothing_idles(
    tmp_path: Path,
) -> None:
    trace = Trace()
    trace.range("layerline/iteration/0", 0, 100)
    trace.range("layerline/phase/loss", 0, 100)
    for at in (10, 30):
        trace.frame("train.py(7): log", at, at + 15)
        trace.op("aten::item", at + 1, at + 9)
        trace.op("aten::_local_scalar_dense", at + 2, at + 8)
    found = of(trace.write(tmp_path / "t.json"))
    (wait,) = found.waits
    assert (wait.cause, wait.function, wait.count) == ("aten::item", "log (train.py:7)", 2)
    assert wait.time is None and wait.share is None and wait.call is None
    assert not found.on_device and found.idle == {} and list(found.stretches) == []
    assert list(sentences._notes(found)) == [sentences.NO_DEVICE]


def test_calls_outside_of_iterations_are_of_no_step(tmp_path: Path) -> None:
    trace = Trace()
    trace.launch((1, 2), (3, 4))
    trace.range("layerline/iteration/0", 100, 200)
    trace.call("cudaDeviceSynchronize", 10, 90)
    assert of(trace.write(tmp_path / "t.json")).waits == []


def test_a_real_step_on_an_h100_waits_for_its_loss_scale_and_its_batch() -> None:
    found = of(paths.DATA / "h100_eager/train.fp16.trace.json.gz")
    by_phase = {(w.phase, w.cause, w.call) for w in found.waits}
    assert ("optimizer", "aten::item", "cudaStreamSynchronize") in by_phase
    assert ("data", "aten::to", "cudaStreamSynchronize") in by_phase
    assert not found.stacks and set(found.idle) >= {"data", "forward", "backward", "optimizer"}


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        ("train.py(16): helper", "helper (train.py:16)"),
        ("/home/u/lib/python3.11/site-packages/torch/_tensor.py(9): f", None),
        ("/home/u/lib/python3.11/site-packages/transformers/a.py(9): f",
         "f (/home/u/lib/python3.11/site-packages/transformers/a.py:9)"),
        ("/usr/lib/python3.11/contextlib.py(9): f", None),
        ("threading.py(9): f", None),
        ("profile/train/worker.py(9): f", "f (profile/train/worker.py:9)"),
        ("test.py(3): <lambda>", "<lambda> (test.py:3)"),
        ("<built-in method item of Tensor object at 0x7f>", None),
        ("nn.Module: Linear_0", None),
    ],
)  # fmt: skip
def test_functions_that_a_user_can_change(frame: str, text: str | None) -> None:
    assert written(frame) == text


@given(st.lists(st.integers(-5, 5), max_size=12))
def test_runs_have_the_largest_sum_and_cannot_grow(scores: list[int]) -> None:
    runs = longest(np.array(scores, dtype=np.float64))
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(runs))

    def total(low: int, high: int) -> int:
        return sum(scores[low:high])

    best: Any = max(
        (total(a, b) for a in range(len(scores)) for b in range(a + 1, len(scores) + 1)), default=0
    )
    assert max((total(*r) for r in runs), default=0) == max(best, 0)
    for low, high in runs:
        assert all(total(low, k) > 0 for k in range(low + 1, high + 1))
        assert all(total(k, high) > 0 for k in range(low, high))
    # What is positive lies in a run.
    covered = {k for low, high in runs for k in range(low, high)}
    assert {k for k, s in enumerate(scores) if s > 0} <= covered
