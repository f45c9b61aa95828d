"""The least set of modules to keep in fp32, found from the errors by module.

Every try is an engine that was built, run and measured, so they are few. Modules are tried in the
order of the error that each adds, the smallest that holds a fault before those around it: first
more of them until the engine is right (1, 2, 4, ..., then by bisection), then each is left out
once. What lies behind values that are not finite has no error that tells anything: when nothing
known helps, the errors are measured again with what is kept so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...core.documents import ModuleError
from ...core.module_paths import inside
from ...core.stats import Stat

MOST_TRIES = 24
# Of what a module adds, one of its parts adds so much that the fault is in the part.
EXPLAINED = 0.5
# What modules add is equal within this factor.
EQUAL = 1.25

Modules = tuple[str, ...]


class Candidate(NamedTuple):
    """A module, and why it is one. `sure`: it makes values that are not finite, and no part of it
    does."""

    module: str
    why: str
    sure: bool


class Trial(NamedTuple):
    """An engine that keeps `modules` in fp32: the figures of its outputs, its latency, and why it
    is wrong; empty where it is right."""

    modules: Modules
    figures: Mapping[str, Any]
    latency: Stat | None
    why: str

    @property
    def passes(self) -> bool:
        """Whether the outputs are right."""
        return not self.why


@dataclass
class Found:
    """What was found. `after` None: no set that was tried makes the engine right, and `why` says
    what ended the search."""

    before: Trial
    after: Trial | None = None
    why: str = ""
    trials: list[Trial] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)


class _Enough(Exception):
    """The bound of tries is reached."""


def added(row: ModuleError) -> float | None:
    """The error that a module adds to what it is given, as if the two were independent; infinite
    where it makes values that are not finite. None where nothing is known of its output, or its
    input is not known to be finite while its output is not."""
    given, got = row.error_in, row.error_out
    if row.nonfinite:
        return math.inf if given is not None else None
    if got is None:
        return None
    return math.sqrt(max(0.0, got**2 - (given or 0.0) ** 2))


def candidates(rows: Iterable[ModuleError]) -> list[Candidate]:
    """Those that add most first, of equal ones the last: the least lies between it and the outputs,
    and a large residual hides what those before it add. A module whose part adds what it adds comes
    after all that have no such part. The root is none: all of it in fp32 is another precision."""
    known = [(r, a) for r in rows if r.module and (a := added(r)) is not None and a > 0]

    def explained(row: ModuleError, amount: float) -> bool:
        return any(
            other.module != row.module
            and inside(other.module, row.module)
            and (part == math.inf or part >= EXPLAINED * amount)
            for other, part in known
        )

    def rank(at: int) -> tuple[bool, float, int]:
        return explained(*known[at]), -_size(known[at][1]), -at

    return [
        Candidate(row.module, _reason(row), amount == math.inf and not explained(row, amount))
        for row, amount in (known[at] for at in sorted(range(len(known)), key=rank))
    ]


def _size(amount: float) -> float:
    """Equal for amounts that are."""
    return amount if amount == math.inf else round(math.log(amount, EQUAL))


def _reason(row: ModuleError) -> str:
    given = "unknown" if row.error_in is None else f"{row.error_in:.2g}"
    if row.nonfinite:
        return f"makes {row.nonfinite:,} values that are not finite; error {given} in"
    return f"error {row.error_out:.2g} out, {given} in"


def search(
    errors: Callable[[Modules], Sequence[ModuleError]],
    try_plan: Callable[[Modules], Trial],
    most: int = MOST_TRIES,
) -> Found:
    """The least set found within `most` tries. `errors` measures the engine that keeps these."""
    tried: dict[frozenset[str], Trial] = {}

    def attempt(modules: Sequence[str]) -> Trial:
        chosen = _outermost(modules)
        key = frozenset(chosen)
        if key not in tried:
            if len(tried) >= most:
                raise _Enough
            tried[key] = try_plan(chosen)
        return tried[key]

    found = Found(attempt(()))
    best: Trial | None = None
    try:
        if found.before.passes:
            best = found.before
        else:
            best = _grown(errors, attempt, found.reasons)
            while best is not None:
                smaller = _without_one(best, attempt)
                if smaller is None:
                    break
                best = smaller
        if best is None:
            found.why = "no set of modules whose errors are known makes it right"
    except _Enough:
        right = [t for t in tried.values() if t.passes]
        best = min(right, key=lambda t: len(t.modules), default=None)
        found.why = f"stopped after {most} tries"
    found.after, found.trials = best, list(tried.values())
    return found


def _grown(
    errors: Callable[[Modules], Sequence[ModuleError]],
    attempt: Callable[[Sequence[str]], Trial],
    reasons: dict[str, str],
) -> Trial | None:
    """The shortest beginning of the ranked modules that makes it right; None where none does."""
    kept: list[str] = []
    while True:
        fresh = [
            c
            for c in candidates(errors(attempt(kept).modules))
            if not any(inside(c.module, k) for k in kept)
        ]
        if not fresh:
            return None
        reasons |= {c.module: c.why for c in fresh if c.module not in reasons}
        ranked = [c.module for c in fresh]
        # Such a fault hides all behind it, of which nothing is known yet: it is taken out first.
        sure = [c.module for c in fresh if c.sure]
        low, size = 0, 1
        while True:
            high = min(size, len(ranked))
            right = attempt([*kept, *ranked[:high]])
            if right.passes or high == len(ranked) or (sure and high >= len(sure)):
                break
            low, size = high, size * 2
        if right.passes:
            return _bisected(kept, ranked, low, high, attempt, right)
        kept += sure or ranked


def _bisected(
    kept: Sequence[str],
    ranked: Sequence[str],
    low: int,
    high: int,
    attempt: Callable[[Sequence[str]], Trial],
    right: Trial,
) -> Trial:
    """`ranked[:high]` passes and `ranked[:low]` does not."""
    while high - low > 1:
        middle = (low + high) // 2
        trial = attempt([*kept, *ranked[:middle]])
        if trial.passes:
            high, right = middle, trial
        else:
            low = middle
    return right


def _without_one(best: Trial, attempt: Callable[[Sequence[str]], Trial]) -> Trial | None:
    """It with one module less, where that is right too; the last that was added goes first."""
    for module in reversed(best.modules):
        left = [m for m in best.modules if m != module]
        if left and (trial := attempt(left)).passes:
            return trial
    return None


def _outermost(modules: Iterable[str]) -> Modules:
    """Each once, without those inside others."""
    chosen = tuple(dict.fromkeys(modules))
    return tuple(m for m in chosen if not any(o != m and inside(m, o) for o in chosen))
