"""What bounds a module or layer, in one sentence."""

from __future__ import annotations

from .. import formatting
from ..model.counters import CountedRow

PEAKS = {"tensor": "the tensor peak", "fp32": "the fp32 peak", "memory": "the DRAM bandwidth"}

# Ratios of bytes or FLOP to their floor within this are not worth a word.
CLOSE = 0.05


def sentence(row: CountedRow) -> str:
    """What bounds a row and how its work compares with the floor, in plain words."""
    parts = [_bound(row), *_against(row)]
    return "; ".join(parts)


def _bound(row: CountedRow) -> str:
    bound, shares = row.bound, row.shares
    if bound is None:
        unknown = f"what bounds it is unknown ({row.why})" if row.why else "unknown"
        busy = next(iter(row.pipes.items()), None)
        return (
            f"{unknown}; busiest pipe: {busy[0]}, {formatting.percent(busy[1] / 100)}"
            if busy
            else unknown
        )
    if bound in PEAKS:
        return f"{bound}-bound, {formatting.percent(shares[bound])} of {PEAKS[bound]}"
    near = max((k for k, v in shares.items() if v is not None), key=lambda k: shares[k] or 0)
    most = f"at most {formatting.percent(shares[near])} of {PEAKS[near]}"
    if bound == "launch":
        return f"launch-bound, its kernels are too short to reach a peak: {most}"
    return f"latency-bound, it waits: {most}"


def _against(row: CountedRow) -> list[str]:
    parts = []
    times = row.times_bytes
    if times is not None:
        if times > 1 + CLOSE:
            parts.append(f"moves {formatting.ratio(times)} the bytes it must")
        elif times < 1 - CLOSE:
            moved = formatting.ratio(times)
            parts.append(f"moves {moved} the bytes of its tensors, the rest stays in caches")
        else:
            parts.append("moves the bytes it must")
    elif row.bytes is not None and row.kind != "kernel":
        parts.append("the bytes it must move are unknown")
    # Fewer are no news: special functions and integers are not counted as FLOP.
    times = row.times_flop
    if times is not None and times > 1 + CLOSE:
        parts.append(f"computes {formatting.ratio(times)} the FLOP of its nodes")
    return parts
