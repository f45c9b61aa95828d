"""The latencies of baselines that a gate kept, and of this run, as rows and lines of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ... import formatting
from ...comparison.gate import chain
from ...model.baseline import LATENCY, Baseline

WIDTH, HEIGHT, _EDGE = 160, 28, 3


@dataclass(frozen=True)
class Row:
    """A baseline: when it was made, why it is one, and what each side took."""

    made: str
    why: str
    times: list[str]


@dataclass(frozen=True)
class Trend:
    """`lines`: for each side the points of its line, in a box of `WIDTH` by `HEIGHT`."""

    sides: list[str]
    lines: list[list[tuple[float, float]]]
    rows: list[Row]
    size: tuple[int, int] = (WIDTH, HEIGHT)


def of(before: Baseline, now: Baseline) -> Trend | None:
    """Of the sides of this run that the baseline or one of those before has; None without any."""
    pasts = chain(before, now)
    kept = {key for past in pasts[:-1] for key in past.figures}
    sides = [k for k, s in now.sides.items() if k in kept and s.quantity(LATENCY) is not None]
    if not sides:
        return None
    rows = [
        Row(p.made, p.reason, [formatting.time(p.figures.get(side)) for side in sides])
        for p in pasts
    ]
    rows[-1] = Row(now.made, "this run", rows[-1].times)
    return Trend(sides, [_line([p.figures.get(side) for p in pasts]) for side in sides], rows)


def _line(values: Sequence[int | None]) -> list[tuple[float, float]]:
    """From left to right, the slowest at the top; without what is not known."""
    known = [v for v in values if v is not None]
    low, high = min(known), max(known)
    across = (WIDTH - 2 * _EDGE) / max(len(values) - 1, 1)
    up = (HEIGHT - 2 * _EDGE) / ((high - low) or 1)
    return [
        (round(_EDGE + i * across, 1), round(HEIGHT - _EDGE - (v - low) * up, 1))
        for i, v in enumerate(values)
        if v is not None
    ]
