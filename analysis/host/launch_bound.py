"""Whether a side is bound by launches: by a capture, and by what was measured without nsys.

- traced: 1 - busy / issue of the capture (`calls`): the share of the issue time in which the
  device has nothing to do, were it never to wait for anything else. Tracing makes launches dearer,
  so this is an upper bound;
- unprofiled: 1 - queued / latency where inferences were measured queued (`bound`); else
  1 - busy / latency, the share of the unprofiled latency that the kernels do not fill.

Both are held against the same limit, `LAUNCH_BOUND`. The verdict is that of the unprofiled
share; the capture confirms it, or is said not to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.stats import Stat, summarise
from ..model import comparison
from .calls import Measured


@dataclass(frozen=True)
class Unprofiled:
    """The share without nsys, and its source: "queued", "busy", or None."""

    share: float | None
    source: str | None


def unprofiled(
    bound: float | None, latency: Sequence[int], measured: Measured | None
) -> Unprofiled:
    """The best share that is known: of queued inferences, else of the busy time in the latency."""
    if bound is not None:
        return Unprofiled(bound, "queued")
    whole, busy = summarise(latency), _stat(measured, "busy")
    if whole is None or busy is None or not whole.median:
        return Unprofiled(None, None)
    return Unprofiled(max(0.0, 1 - busy.median / whole.median), "busy")


def describe(
    measured: Measured, bound: float | None, latency: Sequence[int]
) -> comparison.HostSide:
    """The host block of a side."""
    issue, busy = _stat(measured, "issue"), _stat(measured, "busy")
    traced = None
    if issue is not None and busy is not None and issue.median:
        traced = max(0.0, 1 - busy.median / issue.median)
    best = unprofiled(bound, latency, measured)
    is_bound = None if best.share is None else best.share >= LAUNCH_BOUND
    confirmed = None
    if is_bound is not None and traced is not None:
        # A capture that finds launches dear proves nothing: tracing makes them so.
        confirmed = (
            None
            if traced >= LAUNCH_BOUND and not is_bound
            else is_bound == (traced >= LAUNCH_BOUND)
        )
    return comparison.HostSide(
        iterations=len(measured.iterations),
        values={k: _stat(measured, k) for k in measured.values},
        missing=dict(measured.missing),
        traced_share=traced,
        unprofiled_share=best.share,
        unprofiled_source=best.source,
        launch_bound=is_bound,
        confirmed=confirmed,
    )


def _stat(measured: Measured | None, name: str) -> Stat | None:
    values = None if measured is None else measured.values.get(name)
    return None if values is None else summarise(values)


# Above it the engine's latency is not that of its kernels.
LAUNCH_BOUND = 0.3


def bound(latency: Sequence[int], device: Sequence[int]) -> float | None:
    """The share of the latency in which the device waits for launches: 1 - queued / latency.

    None where either was not measured; 0 where the difference is the clock's noise.
    """
    whole, alone = summarise(latency), summarise(device)
    if whole is None or alone is None or not whole.median:
        return None
    return max(0.0, 1 - alone.median / whole.median)
