"""The batch sweep of a run: latency and throughput per batch, and which batch does the most.

Throughput is batch over the median latency, its interval that of the latency; where inferences
were also measured with a full queue, what that gives stands beside it. Pure but for `load`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.sweep import remark
from ..model.comparison import Side, Sweep


def beside(sweep: Sweep, sides: Sequence[Side], batch: Any, sequence: Any) -> list[str]:
    """Remarks on the points at the run's own `batch` and `sequence` whose latency is not that of
    the run's own side (`Side.latency`), by more than both intervals."""
    own = {f"{s.precision}.{s.backend}": s.latency.figures() for s in sides if s.task == "engine"}
    found = [
        remark(p.label, p.batch, p.latency.figures(), own.get(p.key))
        for p in sweep.points
        if (p.batch, p.sequence) == (batch, sequence)
    ]
    return [line for line in found if line]
