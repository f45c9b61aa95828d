"""What the device waits for the host: latency from idle against inferences that were queued whole.

``latency_ns`` of a device engine runs from an event on an idle stream to the event after the last
kernel: launches that the device waits for are in it. ``queued_ns`` is the same between events of a
stream that was held back until everything was queued: the device alone. A capture under nsys queues
too, because tracing makes launches several times as expensive, so it is held against ``queued_ns``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core.documents import Measured
from ...core.stats import summarise
from ..formatting import filled, percent
from ..model.comparison import Check, Wording
from . import closure, steadiness

# The device's own time between two kernels of one stream that are both queued: 1 to 1.5 us between
# the end of one and the start of the next in captures of queued engines on an H100.
BETWEEN_NS = 1_500


def profiler_cost(
    traced: Iterable[int], latency: Measured, ops: pa.Table, *, queued: bool
) -> Check:
    """Check (iii) between like and like: a queued trace against queued inferences without nsys; of
    a trace that was not, the kernels against these, as tracing makes the host late.

    `queued`: how the trace was taken; `latency`: a latency.json; `ops`: what was traced.
    """
    under = list(traced)
    if latency.facts.cuda_graph:
        return closure.unchecked(
            "iii",
            "the unprofiled inferences were replays of a CUDA graph, the traced ones were not",
        )
    if not queued and under and (found := alone(ops, latency)):
        return found
    if not queued:
        return cost(under, latency.latency_ns, latency.sizes())
    if not latency.queued_ns:
        return closure.unchecked(
            "iii", "the traced inferences were queued before they began, unprofiled ones were not"
        )
    return cost(under, latency.queued_ns, latency.queued_sizes())


def cost(
    traced: Sequence[int],
    unprofiled: Sequence[int],
    of: Sequence[int] = (),
    waited: int | None = None,
) -> Check:
    """Check (iii) of two series; which of them had not settled is named where it fails.

    `of`: how many of the unprofiled samples each process took; `waited`: for how long the device
    had nothing to do while profiled, ns.
    """
    return closure.profiler_cost(
        summarise(traced),
        steadiness.summary(unprofiled, of),
        steadiness.evidence(
            {"the unprofiled series": (unprofiled, of), "the profiled series": (traced, ())}
        ),
        waited,
    )


def alone(ops: pa.Table, latency: Measured) -> Check | None:
    """`kernels_alone` of operations."""
    counted = pc.value_counts(ops["iteration"].drop_null()).to_pylist()
    counts = {row["values"]: row["counts"] for row in counted}
    return kernels_alone(closure.spans(ops), counts, latency)


def kernels_alone(
    spans: Sequence[closure.Span], counts: Mapping[int, int], latency: Measured
) -> Check | None:
    """Check (iii) of a model that launches as it goes: its traced kernels, without the gaps that
    the tracer's host cost makes, against the same work queued whole without a tracer.

    A kernel takes `BETWEEN_NS` of the queued time besides its own. `spans` and `counts`
    (operations) are by traced iteration. None where nothing was queued.
    """
    alone = summarise(latency.queued_ns)
    busy = sorted((s.operations - s.overlaps, counts.get(s.iteration, 0)) for s in spans)
    if alone is None or not busy:
        return None
    traced, count = busy[(len(busy) - 1) // 2]
    rest = alone.median - traced
    idle = min(max(rest, 0), count * BETWEEN_NS)
    residual = idle - rest
    word = "more" if residual > 0 else "less"
    return closure.judged(
        "iii",
        [
            ("kernels while traced", traced),
            ("between queued kernels", idle),
            ("queued without a tracer", -alone.median),
        ],
        residual,
        alone.median,
        closure.TRACED_TOLERANCE,
        good="The traced kernels take what the device alone needs, whatever the host took.",
        bad=f"the traced kernels take {percent(abs(residual) / alone.median)} {word} than the "
        f"device alone needs, so their times are those of another speed.",
    )


def host_slowed(cost: Check, sources: Sequence[Check]) -> list[Check]:
    """Check (iii) of a device side and the check of its two tracers, which say together what was
    slowed: two tools that cost the host differently and tell the same kernel times did not change
    these, so a traced run of another speed is no verdict on the operations.
    """
    agreed = bool(sources) and all(c.ok is True for c in sources)
    if cost.ok is not False or not agreed or cost.residual_share is None:
        return [cost, *sources]
    word = "longer" if cost.residual_share > 0 else "less"
    form = (
        f"The profiled run took {{}} {word} than the unprofiled one, but this side waits for its "
        "host, and its kernels' times stand: nsys and torch.profiler tell the same."
    )
    wording = Wording(form, [abs(cost.residual_share)])
    text = filled(wording.form, wording.figures)
    return [replace(cost, ok=None, text=text, wording=wording), *sources]


def device(latency: Measured) -> dict[str, Any]:
    """What a latency.json says of the device while it ran; only what it says.

    `throughput_per_second` (with a full queue), `cuda_graph`, `sm_mhz`, `memory_mhz`, `power_mw`,
    `celsius` (medians), `throttled` ({reason: share of samples}), `samples`.
    """
    facts, gpu = latency.facts, latency.facts.gpu
    figures = {
        "throughput_per_second": facts.throughput_per_second,
        "cuda_graph": facts.cuda_graph,
        "sm_mhz": gpu.sm_mhz.median,
        "memory_mhz": gpu.memory_mhz.median,
        "power_mw": gpu.power_mw.median,
        "celsius": gpu.celsius.median,
        "throttled": gpu.throttled,
        "samples": gpu.samples,
    }
    return {k: v for k, v in figures.items() if v is not None}
