"""A side with its operations reduced to sums, ready for comparison."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

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
        return modules.bounds(self.sums, regions, self.total)


def reduced(side: SideData) -> Column:
    """Reduce a side's operations."""
    made = sums(side.ops, side.labels)
    total = stat(made.total()) if made.iterations else None
    return Column(side, made, total.median if total else None)
