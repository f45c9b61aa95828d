"""Tables of ranks for tests: rows written out, on the clock of all unless said otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from layerline.analysis.model import ranks
from layerline.analysis.model.ranks import Clock, Identity, RankCapture
from layerline.analysis.ranks.matching import Matched

Row = tuple[int, int | None, int | None]


def rows(*those: Row) -> pa.Table:
    """Communications: rank, start, end."""
    columns = zip(*those, strict=True) if those else ([], [], [])
    return pa.table([pa.array(c, pa.int64()) for c in columns], ["rank", "start", "end"])


def matched(*instance: int) -> Matched:
    """The instance of each communication."""
    n = len(instance)
    return Matched(np.array(instance, np.int64), ["sequence"] * n, [True] * n, [])


def one_clock(count: int, **more: int) -> dict[int, Clock]:
    """Ranks with one clock."""
    return {r: Clock(part=0, **more) for r in range(count)}


def capture(
    rank: int,
    steps: Sequence[tuple[int | None, int, int]],
    segments: Sequence[tuple[int, int]],
    spans: Sequence[tuple[str, int, int]] = (),
    ahead: int = 0,
) -> RankCapture:
    """A capture of steps (iteration, start, end), of segments (kind, end), the first of which
    begins with the first step, and of spans (kind, start, end). `ahead`: how far its clock is."""
    begins = [min(start for _, start, _ in steps), *(end for _, end in segments)]
    of_segments = [
        {"start": begin + ahead, "end": end + ahead, "kind": kind}
        for begin, (kind, end) in zip(begins, segments, strict=False)
    ]
    of_steps = [{"iteration": i, "start": a + ahead, "end": b + ahead} for i, a, b in steps]
    of_spans = [{"kind": k, "start": a + ahead, "end": b + ahead} for k, a, b in spans]
    return RankCapture(
        Identity(source=f"{rank}.json", tool="torch", rank=rank),
        pa.Table.from_pylist([], ranks.COLLECTIVES),
        pa.Table.from_pylist(of_segments, ranks.SEGMENTS),
        pa.Table.from_pylist(of_steps, ranks.STEPS),
        pa.Table.from_pylist(of_spans, ranks.SPANS),
        pa.Table.from_pylist([], ranks.WORK),
        pa.Table.from_pylist([], ranks.OPERATIONS),
    )
