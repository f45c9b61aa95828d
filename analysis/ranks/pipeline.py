"""The bubble of a pipeline: what of a step is neither a forward or backward part nor a transfer.

A stage's bubble is its step less the union of its actions (F, B, W) and of its sends and receives'
transfers. With p equal stages, m micro-batches and v chunks a rank the ideal is
(p - 1) / (v m + p - 1) of the step (Narayanan et al., Efficient large-scale language model training
on GPU clusters, SC 2021; there as (p - 1) / m of the ideal time).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...core.intervals import Ints, covered, union
from ..model.ranks import Bubble, RankCapture


def bubbles(
    capture: RankCapture, transfers: tuple[Ints, Ints], stages: int | None
) -> Bubble | None:
    """The bubble of a rank, the mean over its steps; None where it runs no pipeline.

    `transfers`: those of its sends and receives, on its own clock; `stages`: ranks of the pipeline.
    """
    spans = capture.spans
    kinds = spans["kind"].to_pylist()
    chosen = np.array([k in ("F", "B", "W") for k in kinds], dtype=bool)
    if not chosen.any():
        return None
    start, end = spans["start"].to_numpy()[chosen], spans["end"].to_numpy()[chosen]
    kind = np.array(kinds, dtype=object)[chosen]
    busy = union(np.concatenate((start, transfers[0])), np.concatenate((end, transfers[1])))
    sums = np.zeros(5, dtype=np.int64)
    steps, of_micro = 0, 0
    for low, high in zip(*(capture.steps[c].to_pylist() for c in ("start", "end")), strict=True):
        inside = (start >= low) & (start < high)
        if not inside.any():
            continue
        steps += 1
        backward, forward = inside & (kind == "B"), inside & (kind == "F")
        of_micro = max(of_micro, int(forward.sum()))
        first = int(start[backward].min()) if backward.any() else high
        last = max(int(end[forward].max()), first) if forward.any() else first
        idle = [
            max(b - a, 0) - covered(*busy, a, max(a, b))
            for a, b in ((low, high), (low, first), (first, last), (last, high))
        ]
        sums += np.array([high - low, *idle])
    if not steps:
        return None
    told = spans.filter(pa.array(chosen))["stage"].to_pylist()
    own = sorted({s for s in told if s is not None})
    stage, chunks = next(iter(own), None), len(own)
    each = [round(x / steps) for x in sums.tolist()]
    ideal = None
    if stages is not None and stages > 1 and of_micro:
        ideal = (stages - 1) / (of_micro + stages - 1)
    micro = of_micro // max(chunks, 1)
    return Bubble(capture.rank, stage, each[0], each[1], each[2], each[3], each[4], micro, ideal)
