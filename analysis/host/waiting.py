"""Where the steps of a capture by torch.profiler wait, for the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..model.waiting import Waiting
from ..readers.torch.events import DEVICE, PYTHON, Events
from ..readers.torch.nesting import Nesting
from ..readers.torch.trace import launches
from . import idle, waits
from .waits import Placed


def of(
    events: Events,
    nesting: Nesting,
    placed: Placed,
    facts: Mapping[str, Any],
    steps: Mapping[int, int],
    lines: waits.Lines | None = None,
) -> Waiting | None:
    """Waits and idle time per step; None without a step. `facts`: of `attribution.eager`, with
    phases and steps; `steps`: ns by iteration."""
    if not steps:
        return None
    launch, _ = launches(events)
    idled = idle.idle(events, launch, placed, facts["phases"], facts["steps"])
    return Waiting(
        on_device=bool(np.isin(events.kind, DEVICE).any()),
        stacks=bool((events.kind == PYTHON).any()),
        waits=waits.waits(events, launch, nesting, placed, steps, lines),
        idle=idled.by_phase,
        stretches=idled.stretches,
        iterations=len(steps),
    )
