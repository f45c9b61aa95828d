"""A side with its operations reduced to sums, ready for comparison."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...core.stats import Stat
from ..costs import modules
from ..costs.iterations import Sums, stat, sums
from ..model import comparison
from ..model.side import SideData


@dataclass(frozen=True)
class Column:
    """A side with its matrix."""

    data: SideData
    sums: Sums
    total: int | None  # median per iteration

    def costs(self, regions: Sequence[Collection[str]]) -> list[comparison.Cost | None]:
        """The cost of each region, null where nothing ran for it."""
        return [
            None if b is None else as_cost(b.own, b.upper, self.total)
            for b in modules.bounds(self.sums, regions)
        ]


def reduced(side: SideData) -> Column:
    """Reduce a side's operations."""
    made = sums(side.ops, side.labels)
    total = stat(made.total()) if made.iterations else None
    return Column(side, made, total.median if total else None)


def as_cost(own: Stat, upper: Stat, total: int | None) -> comparison.Cost:
    """A cost of the report, in [own, upper]; its share is of `total`, null where that is not its
    whole."""
    return comparison.Cost(
        own=own.median,
        own_low=own.low,
        own_high=own.high,
        shared=upper.median - own.median,
        share=upper.median / total if total else None,
        upper_low=upper.low,
        upper_high=upper.high,
    )
