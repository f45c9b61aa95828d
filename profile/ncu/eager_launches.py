"""The launches of one eager iteration by an nsys capture, each with the module whose work it is.

A launch is told by what ncu's report will know of it (kernel, grid, block, and as `layer` the
module's range or the phase), and by its `place`, PHASE/OPERATOR/CLASS/MODULE, which stands for the
shapes. A backward operator is of the module whose forward operator last started with its sequence
number: PyTorch's ranges (``emit_nvtx``) carry these, ``aten::mm, seq = 12, op_id = 34``; what the
engine does around a node (the cast and the sum to a gradient's shape) is of the node's number.

Work of no module has no shapes to stand for it: one kernel of an optimizer or of a sum of gradients
is the same as no other (place ``#INDEX``), but where the kernel's grid tells how many elements it
has: PHASE/OPERATOR//, without a class and a module.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core import torch_ranges
from ...core.own_ranges import ITERATION, MODULE, PHASE, PREFIX
from ...core.replay.plan import Launch
from .launches import Range, first_iteration, launch_of, open_at

# Kernels of PyTorch whose grid is the number of their elements (or of their chunks of elements)
# over a constant: one function with one grid has the same work but for the last block.
_ELEMENTWISE = re.compile(r"elementwise_kernel|multi_tensor_apply_kernel")


def of_nsys(path: Path, classes: Mapping[str, str] | None = None) -> list[Launch]:
    """The kernels of the first iteration of a capture of `profile.eager.nsys`, as launched.

    `classes`: the class of each module path. InputError where the file holds no iteration.
    """
    chosen, ranges = first_iteration(path)
    inside = _numbered(ranges)
    phases = [r for r in inside if r.text.startswith(PHASE)]
    thread = next(r.thread for r in ranges if r.text.startswith(ITERATION))
    stacks = open_at(inside, [(k[2], k[3]) for k in chosen])
    forwards = _forwards(inside, thread)
    return [
        launch_of(i, k, **_whose(i, k, stack, phases, forwards, classes or {}))
        for i, (k, stack) in enumerate(zip(chosen, stacks, strict=True))
    ]


def _whose(
    index: int,
    kernel: Any,
    stack: list[Range],
    phases: list[Range],
    forwards: Mapping[int, list[tuple[int, str]]],
    classes: Mapping[str, str],
) -> dict[str, Any]:
    """`layer` and `place` of a launch, by the ranges that were open on its thread."""
    at = kernel[2]
    own = [r.text for r in stack if r.text.startswith(PREFIX) and not r.text.startswith(ITERATION)]
    phase = next((r.text for r in phases if r.start <= at <= r.end), None)
    module = next((t.removeprefix(MODULE) for t in reversed(own) if t.startswith(MODULE)), None)
    operators = [_split(r.text) for r in stack if not r.text.startswith(PREFIX)]
    operator = operators[-1][0] if operators else ""
    name = (phase or "").removeprefix(PHASE)
    if module is None and not _is_sum(stack):
        number = next((n for _, n in reversed(operators) if n is not None), None)
        modules = forwards.get(-1 if number is None else number, [])
        module = next((m for start, m in reversed(modules) if start < at), None)
    place = f"#{index}"
    if module is None and operator and _ELEMENTWISE.search(kernel[5]):
        place = f"{name}/{operator}//"
    elif module is not None:
        place = f"{name}/{operator}/{classes.get(module, '')}/{module}"
    return {"layer": own[-1] if own else phase, "place": place}


def _is_sum(stack: list[Range]) -> bool:
    """Whether the innermost range is the engine's own sum of gradients (`torch_ranges.SUMS`)."""
    if len(stack) < 2 or not stack[-2].text.startswith(torch_ranges.EVALUATE):
        return False
    return _split(stack[-1].text)[0] in torch_ranges.SUMS


def _split(text: str) -> tuple[str, int | None]:
    """As `torch_ranges.split`; a node that the engine evaluates by its own name."""
    name, number = torch_ranges.split(text)
    return name.removeprefix(torch_ranges.EVALUATE), number


def _numbered(ranges: list[Range]) -> list[Range]:
    """The ranges by start; the engine's around a node has the number of the node's just inside,
    for its own text has none in PyTorch 2.11."""
    ordered = sorted(ranges, key=lambda r: (r.thread, r.start, -r.end))
    for i, (outer, inner) in enumerate(itertools.pairwise(ordered)):
        if not outer.text.startswith(torch_ranges.EVALUATE) or inner.thread != outer.thread:
            continue
        name, number = torch_ranges.split(outer.text)
        within = _split(inner.text)[1]
        if inner.end <= outer.end and number is None and within is not None:
            ordered[i] = outer._replace(text=f"{name}, seq = {within}")
    return sorted(ordered, key=lambda r: (r.start, -r.end))


def _forwards(ranges: list[Range], thread: int) -> dict[int, list[tuple[int, str]]]:
    """The modules of the operators with each sequence number on the forward's thread, by start, as
    the ranges are."""
    operators = [r for r in ranges if r.thread == thread and not r.text.startswith(PREFIX)]
    modules = [r for r in ranges if r.text.startswith(MODULE)]
    modules_of: dict[int, list[tuple[int, str]]] = defaultdict(list)
    stacks = open_at(modules, [(r.start, thread) for r in operators])
    for r, stack in zip(operators, stacks, strict=True):
        number = _split(r.text)[1]
        if stack and number is not None:
            modules_of[number].append((r.start, stack[-1].text.removeprefix(MODULE)))
    return modules_of
