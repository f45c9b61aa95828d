"""The first screen of a batch sweep: what each batch does, and how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ... import formatting
from ...formatting import time
from ...model.comparison import Sweep, SweepBest, SweepPoint
from .. import sweep as rows
from .chips import BAD, GOOD, UNSURE, Chip
from .drawing import Bar
from .words import NEUTRAL, Answer


def answer(best: SweepBest) -> Answer:
    """Which batch does the most."""
    if best.of == 1:
        end = ", the only one tried"
    elif best.alike:
        end = f", no more than at {best.alike[-1]}"
    else:
        end = ", the most and the largest tried" if best.last else ", the most"
    figure = f"{rows.rate(best.tokens_per_second)} tokens/s"
    return Answer(f"{best.label} does ", figure, f" at batch {best.batch}{end}", NEUTRAL)


def line(best: SweepBest, points: Sequence[SweepPoint]) -> str:
    """How sure that is, and what one inference takes there."""
    sure = rows.rates(best.tokens_low, best.tokens_high)
    found = next(p for p in points if p.batch == best.batch)
    interval = "no interval" if sure == formatting.UNKNOWN else f"95 %: {sure} tokens/s"
    least = min((p for p in points if p.latency.median), key=lambda p: p.batch)
    return (
        f"{time(found.latency.median)} for an inference ({interval}); at batch {least.batch} "
        f"{time(least.latency.median)}."
    )


def chips(sweep: Sweep, points: Sequence[SweepPoint]) -> Iterator[Chip]:
    """Whether the points can be believed, and are all there."""
    loose = sum(p.target_met is False for p in points)
    if loose:
        yield Chip(UNSURE, f"{loose} of {len(points)} wider than asked", "sweep")
    else:
        yield Chip(GOOD, f"{len(points)} batches settled", "sweep")
    if sweep.remarks:
        yield Chip(BAD, "the run itself measured otherwise", "sweep")
    if sweep.skipped:
        yield Chip(UNSURE, f"{len(sweep.skipped)} not measured", "sweep")


def throughput(points: Sequence[SweepPoint], best: int) -> list[Bar]:
    """Tokens in a second by batch."""
    return _bars(
        points,
        best,
        lambda p: (p.tokens_per_second, p.tokens_low, p.tokens_high),
        rows.rate,
        "tokens/s",
    )


def latencies(points: Sequence[SweepPoint], best: int) -> list[Bar]:
    """What one inference takes by batch."""
    return _bars(
        points,
        best,
        lambda p: (p.latency.median, p.latency.low, p.latency.high),
        lambda ns: time(None if ns is None else round(ns)),
        "",
    )


def _bars(
    points: Sequence[SweepPoint],
    best: int,
    values: Callable[[SweepPoint], tuple[float | None, float | None, float | None]],
    text: Callable[[float | None], str],
    unit: str,
) -> list[Bar]:
    known = {p.batch: values(p) for p in points}
    most = max((v for of in known.values() for v in of if v is not None), default=1) or 1
    found = []
    for batch, (middle, low, high) in sorted(known.items()):
        sure = None
        if low is not None and high is not None:
            sure = (round(100 * low / most, 3), round(100 * (high - low) / most, 3))
        found.append(
            Bar(
                name=f"batch {batch:,}",
                text=f"{text(middle)} {unit}".rstrip(),
                exact=f"{text(low)} to {text(high)} {unit}".rstrip() if sure else "no interval",
                left=0,
                width=round(100 * (middle or 0) / most, 3),
                sure=sure,
                cls="under" if batch == best else "k",
                href="#sweep",
                interval=f"{text(low)} to {text(high)}" if sure else "",
            )
        )
    return found
