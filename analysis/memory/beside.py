"""Whether what lies beside a snapshot is of the same recording."""

from __future__ import annotations

import numpy as np

from ...core.documents import Memory
from .history import CPU, History

_SECOND = 1_000_000_000  # clocks of the allocator and of the marks differ by far less


def of_another(history: History, meta: Memory) -> str | None:
    """Why it is of another recording; None where nothing speaks against it."""
    kind, _, number = (meta.device or "").partition(":")
    here = "cpu" if history.device == CPU else "cuda"
    if (kind or here) != here or (number and number != str(history.device)):
        this = "the CPU" if here == "cpu" else f"device {history.device}"
        return f"it is of {meta.device}, and this is {this}"
    times = history.time_ns[history.time_ns >= 0]
    marks = meta.marks.time_ns
    if len(times) and marks:
        late = times.min() > max(marks) + _SECOND
        if late or times.max() < min(marks) - _SECOND:
            return f"its steps are {'before the first' if late else 'after the last'} event"
    full = meta.most_events is not None and history.events >= meta.most_events
    used = [b[0] for s in meta.start.segments for b in s.blocks if b[3]]
    if used and not full:  # else the events that tell of them may be lost
        older = history.address[history.born < 0]
        told = int(np.isin(np.unique(used), older).sum())
        if told < len(set(used)) / 2:
            return (
                f"of {len(set(used))} blocks that were in use when recording began the snapshot "
                f"has {told}"
            )
    return None
