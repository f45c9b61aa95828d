"""A side of the comparison with the tables that its costs are made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ..model.comparison import Cost, Side
from ..model.layer import Floor
from .iterations import Sums
from .modules import bounds


@dataclass(frozen=True)
class MeasuredSide:
    """`ops`: rows of this source, precision and phase. `labels`: a name for each row of `ops` that
    has no module ("optimizer"; "unresolved" where nothing is known). `sums`: these per iteration.
    `latency_ns`: unprofiled samples in their order. `traced_ns`: latency of the profiled run, and
    `outside_ns`: wall time in no operator, by iteration. `layers`, `nodes`: of an engine.
    `floors`: by layer label.
    """

    side: Side
    ops: pa.Table
    labels: pa.Array | pa.ChunkedArray
    sums: Sums
    latency_ns: Sequence[int] = ()
    traced_ns: Mapping[int, int] = field(default_factory=dict)
    outside_ns: Mapping[int, int] = field(default_factory=dict)
    layers: pa.Table | None = None
    nodes: Sequence[Mapping[str, Any]] = ()
    floors: Mapping[str, Floor] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The side's."""
        return self.side.key

    def share(self, ns: int) -> float | None:
        """The share of a time in that of the side's operations; None where there are none."""
        return ns / self.side.operation_ns if self.side.operation_ns else None

    def costs(self, regions: Sequence[Collection[str]]) -> list[Cost | None]:
        """The cost of each region, None where nothing ran for it."""
        return bounds(self.sums, regions, self.side.operation_ns)
