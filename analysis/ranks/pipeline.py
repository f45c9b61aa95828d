"""The bubble of a pipeline: what of a step is neither a forward or backward part nor a transfer.

A stage's bubble is its step less the union of its actions (F, B, W) and of its sends and receives'
transfers; what an action waits for a message, as it does on a CPU, is bubble too. On p ranks, with
m micro-batches, the ideal schedule of equal stages whose transfers take no time leaves
(p - 1) / (m + p - 1) of the step, by GPipe (Huang et al., NeurIPS 2019, section 2.3) and by 1F1B
alike; with v stages a rank, interleaved or looped, (p - 1) / (v m + p - 1) (Narayanan
et al., Efficient large-scale language model training on GPU clusters, SC 2021, section 2.2; there
as (p - 1) / (v m) of the time without a bubble). What a schedule that does a backward in two parts
(I, then W) leaves goes by how long the parts take: it has no such formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ...core.intervals import Ints, covered, union
from ..model.ranks import COMMUNICATION, Bubble, Group, RankCapture
from .waits import difference, intersection

Intervals = tuple[Ints, Ints]


def bubble(capture: RankCapture, transfers: Intervals, waits: Intervals) -> Bubble | None:
    """The bubble of a rank, the mean over its steps, without its ideal; None where it runs no
    pipeline. `transfers` and `waits`: those of its sends and receives, on its own clock."""
    spans = capture.spans
    kinds = spans["kind"].to_pylist()
    chosen = np.array([k in ("F", "B", "W") for k in kinds], dtype=bool)
    if not chosen.any():
        return None
    start, end = spans["start"].to_numpy()[chosen], spans["end"].to_numpy()[chosen]
    kind = np.array(kinds, dtype=object)[chosen]
    at, until, what = (capture.segments[c].to_numpy() for c in ("start", "end", "kind"))
    exposed = at[what == COMMUNICATION], until[what == COMMUNICATION]
    acts = difference(union(start, end), intersection(exposed, waits))
    busy = union(*(np.concatenate(of) for of in zip(acts, transfers, strict=True)))
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
    own = tuple(sorted({s for s in told if s is not None}))
    each = [round(x / steps) for x in sums.tolist()]
    micro = of_micro // max(len(own), 1)
    return Bubble(capture.rank, own, each[0], each[1], each[2], each[3], each[4], micro,
                  split="W" in kinds)  # fmt: skip


def with_ideal(
    bubbles: Sequence[Bubble],
    sizes: Mapping[int, set[int | None]],
    groups: Mapping[str, Group],
    whole: bool,
) -> list[Bubble]:
    """The bubbles with that of the ideal schedule, where it is known on how many ranks it runs.

    `sizes`: for each rank, of the groups in which it sends and receives; `whole`: every rank of the
    job is there, and with it every stage."""
    stages = 1 + max((s for b in bubbles for s in b.stages), default=-1)
    result = []
    for one in bubbles:
        own = len(one.stages)
        ranks = stages // own if whole and own and stages % own == 0 else None
        if ranks is None:
            ranks = _only(sizes[one.rank]) or _depth(groups)
        if ranks is not None and ranks > 1 and one.microbatches and not one.split:
            ideal = (ranks - 1) / (one.microbatches * max(own, 1) + ranks - 1)
            one = replace(one, ranks=ranks, ideal=ideal)
        result.append(one)
    return result


def _depth(groups: Mapping[str, Group]) -> int | None:
    """How many ranks a pipeline has: those of the groups that are called so, else of the only size
    of group that there is."""
    several = [g for g in groups.values() if g.ranks and len(g.ranks) > 1]
    named = [
        g for g in several
        if "pp" in g.about.lower().replace("-", "_").split("_") or "pipe" in g.about
    ]  # fmt: skip
    return _only({len(g.ranks or ()) for g in named or several})


def _only(sizes: set[int | None] | set[int]) -> int | None:
    return next(iter(sizes)) if len(sizes) == 1 else None
