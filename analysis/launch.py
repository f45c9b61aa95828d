"""What the device waits for the host: latency from idle against inferences that were queued whole.

``latency_ns`` of a device engine runs from an event on an idle stream to the event after the last
kernel: launches that the device waits for are in it. ``queued_ns`` is the same between events of a
stream that was held back until everything was queued: the device alone. A capture under nsys queues
too, because tracing makes launches several times as expensive, so it is held against ``queued_ns``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.stats import summarise
from . import closure
from .report.view import Closure


def queued(latency: Mapping[str, Any]) -> Sequence[int]:
    """Device times of queued inferences, from a latency.json; empty where none were measured."""
    return latency.get("queued_ns") or ()


def profiler_cost(traced: Iterable[int], latency: Mapping[str, Any], *, queued: bool) -> Closure:
    """Check (iii) between like and like: a queued trace against queued inferences without nsys.

    `queued`: how the trace was taken; `latency`: a latency.json.
    """
    under = summarise(traced)
    if not queued:
        return closure.profiler_cost(under, summarise(latency.get("latency_ns") or ()))
    if (latency.get("facts") or {}).get("cuda_graph"):
        return closure.unchecked(
            "iii", "the unprofiled run replayed a CUDA graph, the traced one launched kernels"
        )
    if not latency.get("queued_ns"):
        return closure.unchecked(
            "iii", "the traced inferences were queued before they began, unprofiled ones were not"
        )
    return closure.profiler_cost(under, summarise(latency["queued_ns"]))


def bound(latency: Sequence[int], device: Sequence[int]) -> float | None:
    """The share of the latency in which the device waits for launches: 1 - queued / latency.

    Null where either was not measured; 0 where the difference is the clock's noise.
    """
    whole, alone = summarise(latency), summarise(device)
    if whole is None or alone is None or not whole.median:
        return None
    return max(0.0, 1 - alone.median / whole.median)


def device(latency: Mapping[str, Any]) -> dict[str, Any]:
    """What a latency.json says of the device while it ran; only what it says.

    `throughput_per_second` (with a full queue), `cuda_graph`, `sm_mhz`, `memory_mhz`, `power_mw`,
    `celsius` (medians), `throttled` ({reason: share of samples}), `samples`.
    """
    facts = latency.get("facts") or {}
    gpu = facts.get("gpu") or {}
    found = {k: facts.get(k) for k in ("throughput_per_second", "cuda_graph")}
    for key in ("sm_mhz", "memory_mhz", "power_mw", "celsius"):
        found[key] = (gpu.get(key) or {}).get("median")
    found |= {"throttled": gpu.get("throttled"), "samples": gpu.get("samples")}
    return {k: v for k, v in found.items() if v is not None}
