"""The peak of a step, of a few allocations written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from layerline.analysis.memory.categories import CATEGORIES, Span, Told
from layerline.analysis.memory.history import CPU, History
from layerline.analysis.memory.peak import (
    AUTOGRAD,
    MODEL,
    NO_FRAMES,
    NO_MODULE,
    OLDER,
    Check,
    highest,
    lines_of,
    of_step,
)
from layerline.core.documents import MemoryStep

EVENTS = 8
# When each is born and freed (numbers of events), and its bytes.
Life = tuple[int, int, int]


def told(
    lives: Sequence[Life],
    steps: Sequence[Span] = (),
    phases: Sequence[str | None] = (None,) * EVENTS,
    stacks: Sequence[str] = (),
    **more: Any,
) -> Told:
    """`more`: other columns of the allocations, and what is known of the whole."""
    born, freed, size = (np.array(c, np.int64) for c in zip(*lives, strict=True))
    n, none = len(lives), np.full(len(phases), -1)
    names = list(dict.fromkeys(p for p in phases if p is not None))
    history = History(
        device=more.get("device", 0), events=len(phases), time_ns=none, mark=none, action=none,
        names=[], event_stack=none, event_address=none, event_size=none,
        reserved=more.get("reserved", np.full(len(phases) + 1, 1000)), address=none,
        requested=np.array(more.get("requested", size)), size=size, born=born, freed=freed,
        stack=np.array(more.get("stack", [-1] * n)), stacks=list(stacks), estimated=0,
    )  # fmt: skip
    return Told(
        history=history,
        steps=list(steps) or [Span(None, 0, len(phases))],
        category=np.array([CATEGORIES.index(c) for c in more.get("category", ["unknown"] * n)]),
        module=np.array(more.get("module", [-1] * n)),
        modules=more.get("modules", []),
        classes=[],
        phase=np.array([-1 if p is None else names.index(p) for p in phases], np.int64),
        event_module=none,
        phases=names,
    )  # fmt: skip


def peak_of(of: Told, step: Span | None = None) -> Any:
    return of_step(of, step or of.steps[0], of.history.live())


STEP = MemoryStep(
    number=3, begin_mark=0, end_mark=1,
    allocated_peak_bytes=34, reserved_peak_bytes=700, counted_peak_bytes=24,
)  # fmt: skip


def test_what_is_alive_at_the_highest_moment_of_the_step_and_at_no_other() -> None:
    """After event 2 there are 10 + 20 + 4; what event 5 makes is of the next step."""
    reserved = np.array([900, 900, 500, 700, 600, 600, 900, 900, 900])
    found = peak_of(
        told(
            [(-1, 3, 10), (2, 4, 20), (5, 8, 100), (0, 8, 4)],
            phases=["a", "b", "forward", "d", "e", "f", "g", "h"],
            requested=[8, 15, 100, 4],
            category=["parameters", "activations", "other", "activations"],
            module=[1, 0, 0, -1],
            modules=["", "h.0"],
            reserved=reserved,
        ),
        Span(3, 2, 5, STEP),
    )
    assert (found.state, found.allocated, found.rounding) == (3, 34, 7)
    assert found.alive.tolist() == [0, 1, 3]
    assert found.phase == "forward"
    assert (found.reserved, found.fragmentation) == (700, 700 - 34)
    assert found.categories == {"parameters": 8, "activations": 19}
    assert found.modules == [
        (MODEL, {"activations": 15}),
        ("h.0", {"parameters": 8}),
        (NO_MODULE, {"activations": 4}),
    ]
    assert found.checks == [
        Check("peak", 34, 34, "torch.cuda.max_memory_allocated"),
        Check("reserved", 700, 700, "torch.cuda.max_memory_reserved"),
    ]
    assert [c.ok for c in found.checks] == [True, True]


def test_without_a_recorded_step_there_is_nothing_to_compare_with() -> None:
    of = told([(0, 8, 4)])
    assert [(c.ours, c.theirs, c.ok) for c in peak_of(of).checks] == [
        (4, None, None),
        (1000, None, None),
    ]
    on_cpu = told([(0, 8, 4)], reserved=None, device=CPU)
    assert [(c.ours, c.theirs) for c in peak_of(on_cpu).checks] == [(4, None)]


@pytest.mark.parametrize(
    ("lives", "step", "count"),
    [
        ([(-1, 8, 1000), (0, 2, 50), (2, 3, 20), (0, 8, 4)], (2, 5), 24),  # right at its beginning
        ([(4, 8, 20), (5, 8, 100), (0, 8, 4)], (2, 5), 24),  # at its end
        ([(0, 8, 4)], (2, 2), 0),  # of no event
    ],
)
def test_on_a_cpu_the_count_is_of_what_the_recording_saw_made(
    lives: list[Life], step: tuple[int, int], count: int
) -> None:
    found = peak_of(told(lives, reserved=None, device=CPU), Span(3, *step, STEP))
    assert (found.reserved, found.fragmentation) == (None, None)
    source = "torch.profiler's own count"
    assert found.checks == [Check("peak since recording began", count, 24, source)]


def test_of_equal_moments_the_first_is_the_peak_and_an_unknown_phase_stays_unknown() -> None:
    found = peak_of(told([(0, 1, 5), (3, 4, 5)], phases=[None, "x", "y", "z"]))
    assert (found.state, found.phase) == (1, None)
    found = peak_of(told([(1, 2, 5)], phases=["x", "y", "z", "z"]))
    assert (found.state, found.phase) == (2, "y")
    found = peak_of(told([(0, 1, 5)], phases=["x", "y"]))
    assert (found.state, found.phase) == (1, "x")


def test_what_was_highest_before_the_first_event_of_the_step_is_of_its_phase() -> None:
    of = told([(-1, 2, 9)], phases=["x", "y", "z", "z"])
    assert peak_of(of, Span(0, 1, 4)).phase == "y"
    assert peak_of(told([(-1, 0, 9)], phases=[])).phase is None


def test_the_step_with_the_highest_peak_is_chosen_and_of_equals_the_last() -> None:
    steps = [Span(0, 0, 2), Span(1, 2, 4), Span(2, 4, 6)]
    low, high = (1, 2, 30), (2, 3, 50)
    assert highest(told([low, high, (4, 6, 20)], steps)).step.number == 1
    assert highest(told([low, high, (4, 6, 50)], steps)).step.number == 2
    # What is made after the last step is of none.
    assert highest(told([(0, 1, 30), (4, 5, 99)], steps[:2])).step.number == 0
    # Made after the last event of the first step: it is of the second.
    assert highest(told([(2, 3, 99), (1, 2, 5)], steps)).step.number == 1
    assert highest(told([(2, 3, 99), (1, 2, 5)], steps[:1])).allocated == 5


RECORDER = "\n".join(
    [
        "torch::unwind::unwind()",
        "torch::CapturedTraceback::gather(bool, bool, bool)",
        "torch::cuda::(anonymous namespace)::gather_with_cpp()",
        "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(int)",
    ]
)
BACKWARD = (
    "at::_ops::div_Tensor::call(int)\n"
    "torch::autograd::generated::DivBackward0::apply(int)\n"
    "torch::autograd::Engine::thread_main(int)"
)


def line_of(stack: str) -> str:
    code, lines = lines_of(told([(0, 8, 1)], stacks=["other (/me/o.py:1)", stack], stack=[1]))
    return lines[code[0]]


@pytest.mark.parametrize(
    ("stack", "line"),
    [
        ("f (/site/torch/nn/f.py:3)\nmine (/me/m.py:2)\nmain (/me/r.py:9)", "mine (/me/m.py:2)"),
        ("at::empty (/src/x.cpp:12)\nmine (/me/m.py:2)", "mine (/me/m.py:2)"),
        ("at::empty (/torch/x.cpp:12)\nmine (/me/m.cc:3)", "mine (/me/m.cc:3)"),
        ("f (/site/torch/nn/f.py:3)\nx (/site/torch/y.py:4)", "f (/site/torch/nn/f.py:3)"),
        ("one without a file\ntwo", "one without a file"),
        (f"{RECORDER}\nat::empty(long)\nrun (/me/r.py:9)", "run (/me/r.py:9)"),
        (f"{RECORDER}\nat::empty(long)\nmain", "at::empty(long)"),
        (f"{RECORDER}\n{BACKWARD}", f"DivBackward0 {AUTOGRAD}"),
        ("torch::autograd::AccumulateGrad::apply(int)\nclone", f"AccumulateGrad {AUTOGRAD}"),
        # On a CPU the thread that called `backward` runs it.
        (f"{RECORDER}\n{BACKWARD}\nrun (/me/r.py:9)", "run (/me/r.py:9)"),
        (RECORDER, "torch::unwind::unwind()"),
    ],
)  # fmt: skip
def test_a_line_is_the_innermost_of_python_outside_of_torch_else_of_anything(
    stack: str, line: str
) -> None:
    assert line_of(stack) == line


def test_what_has_no_frames_says_why() -> None:
    """Born before the recording, at its first event, and in backward; the last has frames."""
    lives = [(-1, 8, 1), (0, 8, 1), (2, 8, 1), (2, 8, 1)]
    phases = ["forward", "forward", "backward", "forward"]
    stacks = ["a (/me/a.py:1)", "b (/me/b.py:1)"]
    more: dict[str, Any] = {"phases": phases, "stack": [-1, -1, -1, 1]}

    def lines(of: Told) -> list[str]:
        code, names = lines_of(of)
        return [names[c] for c in code]

    assert lines(told(lives, stacks=stacks, **more)) == [OLDER, NO_FRAMES, AUTOGRAD, stacks[1]]
    # On a CPU autograd has a name for its lines; without any frames nothing was asked for.
    on_cpu = told(lives, stacks=stacks, device=CPU, **more)
    assert lines(on_cpu) == [OLDER, NO_FRAMES, NO_FRAMES, stacks[1]]
    assert lines(told(lives[:3], phases=phases)) == [OLDER, NO_FRAMES, NO_FRAMES]


def test_allocations_of_one_line_are_summed_up_by_category() -> None:
    """Two stacks with one line, and two categories; equal sums by name."""
    stacks = [
        "f (/torch/f.py:1)\nx (/me/x.py:1)",
        "g (/torch/g.py:1)\nx (/me/x.py:1)",
        "a (/me/a.py:1)",
    ]
    found = peak_of(
        told(
            [(0, 8, n) for n in (1, 2, 4, 7, 9)],
            stacks=stacks,
            stack=[0, 1, 1, 2, -1],
            category=["data", "data", "other", "data", "unknown"],
        )
    )  # fmt: skip
    assert found.lines == [
        (NO_FRAMES, {"unknown": 9}),
        ("a (/me/a.py:1)", {"data": 7}),
        ("x (/me/x.py:1)", {"data": 3, "other": 4}),
    ]
