"""The launches of one eager iteration by an nsys capture, each with the module whose work it is.

A launch is told by what ncu's report will know of it (kernel, grid, block, and as `layer` the
module's range or the phase), and by its `place`, PHASE/OPERATOR/CLASS/MODULE, which stands for the
shapes. A backward operator is of the module whose forward operator last started with its sequence
number: PyTorch's ranges (``emit_nvtx``) carry these, ``aten::mm, seq = 12, op_id = 34``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerline.core import torch_ranges
from layerline.core.errors import InputError
from layerline.core.own_ranges import ITERATION, MODULE, PHASE, PREFIX

from .ncu_launches import kernels_and_ranges, launch_of
from .ncu_plan import Launch

_EVALUATE = "autograd::engine::evaluate_function: "


@dataclass(frozen=True)
class _Range:
    start: int
    end: int
    thread: int
    text: str


def of_nsys(path: Path, classes: Mapping[str, str] | None = None) -> list[Launch]:
    """The kernels of the first iteration of a capture of `profile.eager_nsys`, as launched.

    `classes`: the class of each module path. InputError where the file holds no iteration.
    """
    kernels, rows = kernels_and_ranges(path)
    ranges = [_Range(r[0], r[1], r[2], r[3]) for r in rows if r[3]]
    iteration = next((r for r in ranges if r.text.startswith(ITERATION)), None)
    if iteration is None:
        raise InputError("holds no iteration", file=path, fix="profile it again with nsys")
    inside = [r for r in ranges if iteration.start <= r.start and r.end <= iteration.end]
    phases = [r for r in inside if r.text.startswith(PHASE)]
    process = iteration.thread >> 24
    chosen = [
        k for k in kernels if k[3] >> 24 == process and iteration.start <= k[2] <= iteration.end
    ]
    if not chosen:
        raise InputError("its first iteration launched no kernel", file=path)
    open_at = _open(inside, [(k[2], k[3]) for k in chosen])
    forwards = _forwards(inside, iteration.thread)
    return [
        launch_of(i, k, **_whose(i, k[2], stack, phases, forwards, classes or {}))
        for i, (k, stack) in enumerate(zip(chosen, open_at, strict=True))
    ]


def _whose(
    index: int,
    at: int,
    stack: list[_Range],
    phases: list[_Range],
    forwards: Mapping[int, list[tuple[int, str]]],
    classes: Mapping[str, str],
) -> dict[str, Any]:
    """`layer` and `place` of a launch at a time, by the ranges that were open on its thread."""
    own = [r.text for r in stack if r.text.startswith(PREFIX) and not r.text.startswith(ITERATION)]
    phase = next((r.text for r in phases if r.start <= at <= r.end), None)
    module = next((t.removeprefix(MODULE) for t in reversed(own) if t.startswith(MODULE)), None)
    operators = [_split(r.text) for r in stack if not r.text.startswith(PREFIX)]
    operator = operators[-1][0] if operators else ""
    if module is None:
        number = next((n for _, n in reversed(operators) if n is not None), None)
        before = [
            m for start, m in forwards.get(-1 if number is None else number, []) if start < at
        ]
        module = before[-1] if before else None
    place = f"#{index}"  # work of no module is the same as no other
    if module is not None:
        name = (phase or "").removeprefix(PHASE)
        place = f"{name}/{operator}/{classes.get(module, '')}/{module}"
    return {"layer": own[-1] if own else phase, "place": place}


def _split(text: str) -> tuple[str, int | None]:
    """As `torch_ranges.split`; a node that the engine evaluates by its own name."""
    name, number = torch_ranges.split(text)
    return name.removeprefix(_EVALUATE), number


def _open(ranges: list[_Range], times: list[tuple[int, int]]) -> list[list[_Range]]:
    """The ranges that were open at each time on its thread, the innermost last."""
    by_thread: dict[int, list[_Range]] = defaultdict(list)
    for r in sorted(ranges, key=lambda r: (r.start, -r.end)):
        by_thread[r.thread].append(r)
    found: list[list[_Range]] = [[] for _ in times]
    stacks: dict[int, list[_Range]] = defaultdict(list)
    position: dict[int, int] = defaultdict(int)
    for i in sorted(range(len(times)), key=lambda i: times[i]):
        at, thread = times[i]
        stack, own = stacks[thread], by_thread[thread]
        while position[thread] < len(own) and own[position[thread]].start <= at:
            opened = own[position[thread]]
            while stack and stack[-1].end < opened.start:
                stack.pop()
            stack.append(opened)
            position[thread] += 1
        while stack and stack[-1].end < at:
            stack.pop()
        found[i] = list(stack)
    return found


def _forwards(ranges: list[_Range], thread: int) -> dict[int, list[tuple[int, str]]]:
    """The modules of the operators with each sequence number on the forward's thread, by start."""
    numbered = []
    for r in sorted(ranges, key=lambda r: r.start):
        if r.thread == thread and not r.text.startswith(PREFIX):
            number = _split(r.text)[1]
            if number is not None:
                numbered.append((r, number))
    stacks = _open(
        [r for r in ranges if r.text.startswith(MODULE)], [(r.start, r.thread) for r, _ in numbered]
    )
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for (r, number), stack in zip(numbered, stacks, strict=True):
        if stack:
            found[number].append((r.start, stack[-1].text.removeprefix(MODULE)))
    return found
