"""The moment at which most was allocated, and what was alive then."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from ...core.tables import Ints
from .categories import CATEGORIES, Span, Told
from .history import CPU

# Frames that say how something was called, not who called it.
_INSIDE = re.compile(
    r"[(/\\\\](?:torch|accelerate)[/\\\\](?!.*(?:site|dist)-packages)|<frozen |<string>"
)  # a folder named torch above site-packages is nobody's package
_LINE = re.compile(r".*\(.*\.py:\d+\)")
_SOURCE = re.compile(r".*\(.*:\d+\)")  # of C++
# Of C++ stacks (`stacks="all"`): the node of a backward, which has no line of Python around it; and
# the frames that record the stack or look for a block, which are in every stack.
_NODE = re.compile(r"torch::autograd::(?:generated::)?(\w+)::apply\(")
_RECORDER = re.compile(
    r"torch::(unwind|CapturedTraceback)::|.*(::gather_with_cpp\(|CachingAllocator::)"
)
NO_MODULE, MODEL = "(no module)", "(model)"
NO_FRAMES, OLDER = "(no frames)", "(older than the recording)"
AUTOGRAD = "(backward, by autograd's own thread)"  # runs no Python that it could name


@dataclass(frozen=True)
class Check:
    """A sum against an independent figure. `ok`: None where there is nothing to compare with."""

    name: str
    ours: int | None
    theirs: int | None
    source: str

    @property
    def ok(self) -> bool | None:
        """Whether they are equal to the byte."""
        if self.ours is None or self.theirs is None:
            return None
        return self.ours == self.theirs


@dataclass(frozen=True)
class Peak:
    """`state`: 0 before the first event, n after event n - 1. Bytes: `allocated` is the sum of
    `categories` (asked for) and `rounding`; `reserved` and `fragmentation` are None where there is
    no cache. `modules`, `lines`: bytes asked for, by category, the largest first."""

    step: Span
    state: int
    allocated: int
    rounding: int
    reserved: int | None
    categories: dict[str, int]
    modules: list[tuple[str, dict[str, int]]]
    lines: list[tuple[str, dict[str, int]]]
    alive: Ints
    phase: str | None
    checks: list[Check]

    @property
    def fragmentation(self) -> int | None:
        """What is reserved and not allocated."""
        return None if self.reserved is None else self.reserved - self.allocated


def of_step(told: Told, step: Span, live: Ints) -> Peak:
    """The peak of one step: the first of the highest states. `live`: `History.live()`."""
    history = told.history
    within = live[step.begin : step.end + 1]
    state = step.begin + int(np.argmax(within))
    alive = history.alive(state)
    asked = int(history.requested[alive].sum())
    allocated = int(live[state])
    by_module = _by(told, alive, told.module + 1, [NO_MODULE, *(m or MODEL for m in told.modules)])
    by_line = _by(told, alive, *lines_of(told))
    held = np.bincount(told.category[alive], history.requested[alive], len(CATEGORIES))
    at = max(state - 1, step.begin)  # the event that led to it
    in_phase = at < len(told.phase) and told.phase[at] >= 0
    return Peak(
        step=step,
        state=state,
        allocated=allocated,
        rounding=allocated - asked,
        reserved=None if history.reserved is None else int(history.reserved[state]),
        categories={c: int(h) for c, h in zip(CATEGORIES, held, strict=True) if h},
        modules=_sorted(by_module),
        lines=_sorted(by_line),
        alive=alive,
        phase=told.phases[told.phase[at]] if in_phase else None,
        checks=_checks(told, step, allocated),
    )


def highest(told: Told) -> Peak:
    """The peak of the step that has the highest; of several such steps the last, which is the most
    settled."""
    live = told.history.live()
    top = [int(live[s.begin : s.end + 1].max()) for s in told.steps]
    chosen = max(range(len(top)), key=lambda i: (top[i], i))
    return of_step(told, told.steps[chosen], live)


def lines_of(told: Told) -> tuple[Ints, list[str]]:
    """The number of a line for each allocation, and the lines: ``name (file:line)``, the innermost
    one outside of torch; of a backward in C++ its node."""
    history = told.history
    lines = [_line(stack) for stack in history.stacks]
    unknown = [NO_FRAMES, OLDER, AUTOGRAD]
    older = (history.born < 0) & (history.events > 0)
    code = np.where(older, len(lines) + 1, len(lines))
    if lines and history.device != CPU:
        code[told.born_in("backward")] = len(lines) + 2
    code = np.where(history.stack >= 0, history.stack, code)
    distinct = list(dict.fromkeys([*lines, *unknown]))
    number = {text: i for i, text in enumerate(distinct)}
    return np.array([number[t] for t in [*lines, *unknown]])[code], distinct


def _line(stack: str) -> str:
    frames = stack.split("\n")
    python = [f for f in frames if _LINE.match(f)]
    node = next((m[1] for f in frames if (m := _NODE.match(f))), None)
    if node and not python:
        return f"{node} {AUTOGRAD}"
    frames = [f for f in frames if not _RECORDER.match(f)] or frames
    lines = python or [f for f in frames if _SOURCE.match(f)] or frames
    return next((f for f in lines if not _INSIDE.search(f)), lines[0])


def _by(told: Told, alive: Ints, code: Ints, names: list[str]) -> dict[str, dict[str, int]]:
    """Bytes asked for by a code of each allocation, and by category."""
    n = len(CATEGORIES)
    keys = code[alive] * n + told.category[alive]
    sums = np.bincount(keys, told.history.requested[alive])
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for key in np.unique(keys).tolist():
        found[names[key // n]][CATEGORIES[key % n]] = int(sums[key])
    return dict(found)


def _sorted(found: dict[str, dict[str, int]]) -> list[tuple[str, dict[str, int]]]:
    return sorted(found.items(), key=lambda item: (-sum(item[1].values()), item[0]))


def _checks(told: Told, step: Span, top: int) -> list[Check]:
    """None where nothing was recorded: then there is no peak."""
    history, recorded = told.history, step.recorded
    if not history.events:
        return []
    if history.reserved is None:
        return [_counted(told, step)]
    allocated = None if recorded is None else recorded.allocated_peak_bytes
    most = int(history.reserved[step.begin : step.end + 1].max())
    reserved = None if recorded is None else recorded.reserved_peak_bytes
    return [
        Check("peak", top, allocated, "torch.cuda.max_memory_allocated"),
        Check("reserved", most, reserved, "torch.cuda.max_memory_reserved"),
    ]


def _counted(told: Told, step: Span) -> Check:
    """On the CPU the profiler's own count begins with the recording."""
    history, recorded = told.history, step.recorded
    since = np.where(history.born >= 0, history.size, 0)
    top = int(history.live(since)[step.begin + 1 : step.end + 1].max(initial=0))
    theirs = None if recorded is None else recorded.counted_peak_bytes
    return Check("peak since recording began", top, theirs, "torch.profiler's own count")
