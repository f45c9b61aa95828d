"""Check: three checks that can fail, with the terms that should explain the difference.

(i) Each operation counted once: what the tables add up to against what the raw file adds up to.
(ii) The span of one iteration's operations against the latency of the same iteration: operations
less overlaps plus gaps is the span; what the latency has beyond the span is the residual.
(iii) Latency with the profiler against latency without. Two runs differ by what the profiler costs
and by what else changed between them; the check does not tell which, so it says both.

A residual beyond its tolerance makes the check fail: "these numbers do not add up". A check that
could not be made has `ok` None, and its text says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ...core.intervals import length
from ...core.stats import Stat
from ...core.tables import DEVICE_KINDS, by_value
from ..costs.iterations import SUMMED, TIME, iterations_of, labels, sums, timed_rows
from ..formatting import filled, percent
from ..formatting import spoken_time as time
from ..model.comparison import Check, Wording

# Both sides are integers read from the same file; only the rounding of each time to whole
# nanoseconds may differ (1 ns a row on operations of at least 1 us).
COUNTED_TOLERANCE = 1e-3
# Entering and leaving the engine: argument checks, output allocation, the clock's own cost. It is
# a few microseconds whatever the model, hence the absolute part, which tiny models need.
SPAN_TOLERANCE = 0.05
SPAN_FLOOR_NS = 100_000
# Device events lie on the stream beside the work: only the first launch is between them.
DEVICE_FLOOR_NS = 20_000
# Phases are ranges inside the step's range: between them there is only the profiler's own code.
PHASES_TOLERANCE = 0.02
# Beyond it small operations, which pay the profiler most, are visibly inflated.
TRACED_TOLERANCE = 0.10


def failed(text: str) -> str:
    """The sentence of a check that failed."""
    return f"These numbers do not add up: {text}"


def unchecked(check: str, why: str) -> Check:
    """A check that could not be made."""
    return Check(check, [], None, None, None, None, f"Not checked: {why}.")


def judged(
    check: str,
    terms: Sequence[tuple[str, int]],
    residual_ns: int,
    reference_ns: int,
    tolerance: float,
    *,
    good: str | Wording,
    bad: str,
    floor_ns: int = 0,
) -> Check:
    """A check with its verdict: fails when |residual| exceeds both tolerance and floor."""
    share = residual_ns / reference_ns if reference_ns else None
    allowed = max(floor_ns, tolerance * reference_ns)
    ok = abs(residual_ns) <= allowed
    wording = good if isinstance(good, Wording) else Wording(good, ())
    return Check(
        name=check,
        terms=[(name, int(ns)) for name, ns in terms],
        residual_ns=int(residual_ns),
        residual_share=share,
        tolerance=tolerance,
        ok=ok,
        text=filled(wording.form, wording.figures) if ok else failed(bad),
        wording=wording if ok and wording.figures else None,
    )


def middle(residuals: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """The pair (residual, iteration) that a check shows: the lower median; None without any."""
    pairs = sorted(residuals)
    return pairs[(len(pairs) - 1) // 2] if pairs else None


def counted_once(
    counted: Mapping[str, int], raw: Mapping[str, int] | None, lost_ns: int | None = None
) -> Check:
    """Check (i). `counted`: nanoseconds per kind in the tables; `raw`: the same, summed from the
    raw file by other code; `lost_ns`: operations of iterations less what modules, rows and
    unresolved add up to (negative where something was attributed twice).

    The worst kind decides. A kind that only one side has is a difference, not a zero.
    """
    if raw is None:
        return unchecked("i", "the raw capture cannot be summed independently of the reader")
    kinds = sorted({*counted, *raw})
    terms = [(f"{k} in the raw capture", raw.get(k, 0)) for k in kinds]
    terms += [(f"{k} in the tables", -counted.get(k, 0)) for k in kinds]
    differences = {k: raw.get(k, 0) - counted.get(k, 0) for k in kinds}
    if lost_ns is not None:
        terms.append(("attributed to nothing or twice", lost_ns))
        differences["the attribution"] = lost_ns
    worst = max(differences.values(), key=abs, default=0)
    names = ", ".join(k for k, d in differences.items() if d)
    return judged(
        "i",
        terms,
        worst,
        sum(raw.values()),
        COUNTED_TOLERANCE,
        good="Every operation of the capture is counted once.",
        bad=f"the tables and the raw capture differ by {time(worst)} ({names}).",
    )


@dataclass(frozen=True)
class Span:
    """One iteration: `operations` (sum of durations) - `overlaps` + `gaps` = `span`, all in ns."""

    iteration: int
    operations: int
    overlaps: int
    gaps: int
    span: int


def spans(ops: pa.Table) -> list[Span]:
    """The span of every iteration that has operations with start and duration.

    Operations may overlap, on several streams and also on one; overlap is the sum of durations
    less the length of their union. CPU operators nest: only their union counts, so nesting is no
    overlap (the sum is of self times).
    """
    wanted = ["kind", "iteration", "start_ns", "duration_ns", "self_ns"]
    rows = timed_rows(ops.select(wanted)).drop("self_ns").drop_null()
    start, own = rows["start_ns"].to_numpy(), rows[TIME].to_numpy()
    end = start + rows["duration_ns"].to_numpy()
    per_iteration = []
    for number, members in by_value(rows["iteration"].to_numpy()):
        s, e = start[members], end[members]
        union, span = length(s, e), int(e.max() - s.min())
        operations = int(own[members].sum())
        per_iteration.append(Span(number, operations, operations - union, span - union, span))
    return per_iteration


def span_against_latency(
    per_iteration: Sequence[Span],
    latency: Mapping[int, int] | None,
    floor_ns: int = SPAN_FLOOR_NS,
    before: Mapping[int, int] | None = None,
) -> Check:
    """Check (ii). `latency`: nanoseconds by iteration, of the run that was traced; by device
    events `floor_ns` is `DEVICE_FLOOR_NS`. `before`: by iteration, the time of the latency in which
    the host had not launched anything yet, as the capture tells; it is a term of its own.

    The iteration with the median residual is shown, so that its terms add up exactly.
    """
    if not latency:
        return unchecked("ii", "the capture holds no latency of the traced iterations")
    ahead = before or {}
    span_of = {s.iteration: s for s in per_iteration if s.iteration in latency}
    shown = middle((latency[i] - s.span - ahead.get(i, 0), i) for i, s in span_of.items())
    if shown is None:
        return unchecked("ii", "no iteration has both operations with start times and a latency")
    residual, number = shown
    span, total = span_of[number], latency[number]
    share = residual / total if total else 0.0
    return judged(
        "ii",
        [
            ("operations", span.operations),
            ("overlaps", -span.overlaps),
            ("gaps", span.gaps),
            ("span", span.span),
            *((("before the first launch", ahead[number]),) if number in ahead else ()),
            ("latency", total),
        ],
        residual,
        total,
        SPAN_TOLERANCE,
        floor_ns=floor_ns,
        good=Wording(
            "Operations, overlaps and gaps explain {} of the latency of the same iteration.",
            [1 - share],
        ),
        bad=f"{time(residual)} ({percent(share)}) of the latency lie outside the operations' span.",
    )


def phases_against_step(steps: Mapping[int, int], phases: Mapping[str, Mapping[int, int]]) -> Check:
    """Check (ii) of a training step: its phases add up to it.

    Both by iteration, in nanoseconds. The step with the median residual is shown.
    """
    shown = beyond_phases(steps, phases)
    if shown is None:
        return unchecked("ii", "the capture marks no steps or no phases")
    residual, number = shown
    return judged(
        "ii",
        [(name, phase.get(number, 0)) for name, phase in phases.items()]
        + [("step", steps[number])],
        residual,
        steps[number],
        PHASES_TOLERANCE,
        good="The phases add up to the step.",
        bad=f"{time(residual)} of the step lie in no phase.",
    )


def beyond_phases(
    steps: Mapping[int, int], phases: Mapping[str, Mapping[int, int]]
) -> tuple[int, int] | None:
    """What the phases do not fill of the step of the median, and its number."""
    return middle(
        (steps[i] - sum(phase.get(i, 0) for phase in phases.values()), i)
        for i in steps
        if any(i in phase for phase in phases.values())
    )


def operators_against_phase(
    operators: Mapping[int, int], phase: Mapping[int, int], what: str = "phase"
) -> Check:
    """Check (ii) of an eager phase on the CPU: operators and the time outside them make it up.

    `operators`: the sum of self times by iteration; `phase`: the phase's wall time. What is
    outside operators is Python and dispatch, a term; operators that exceed the phase's wall time
    (counted twice, or of another thread) are the residual that fails.
    """
    shown = middle((phase[i] - operators[i], i) for i in phase if i in operators)
    if shown is None:
        return unchecked("ii", f"the capture does not say how long each {what} took")
    outside, number = shown
    excess = min(0, outside)
    return judged(
        "ii",
        [
            ("operators", operators[number]),
            ("outside operators", max(0, outside)),
            (what, phase[number]),
        ],
        excess,
        phase[number],
        PHASES_TOLERANCE,
        good=f"Operators and the time outside them add up to the {what}.",
        bad=f"the operators take {time(-excess)} longer than the {what} that they ran in.",
    )


def profiler_cost(
    traced: Stat | None, unprofiled: Stat | None, evidence: str = "", waited_ns: int | None = None
) -> Check:
    """Check (iii): traced less unprofiled median latency, the profiler's own cost if nothing else
    changed. `evidence`: which series had not settled, and why; empty where both had. `waited_ns`:
    for how long a device waited for its host in the profiled run."""
    if unprofiled is None:
        return unchecked("iii", "no unprofiled latency was measured")
    if traced is None:
        return unchecked("iii", "the profiled run recorded no latency")
    cost = traced.median - unprofiled.median
    share = cost / unprofiled.median if unprofiled.median else 0.0
    word = "longer" if cost >= 0 else "less"
    stands = "The times of single operations are those of the profiled run."
    if waited_ns is not None and 0 < cost <= waited_ns:
        why = (
            "tracing slows the host down, for which the device waited "
            f"{time(waited_ns)} of the profiled run"
        )
        stands = (
            "The times of its kernels are by the device's own clock; a capture by nsys beside it "
            "tells whether they stand."
        )
    elif evidence:
        why = f"a series had not settled ({evidence}), or profiling changed the speed"
    else:
        why = "the machine was not steady from one run to the other, or profiling changed the speed"
    return judged(
        "iii",
        [("traced latency", traced.median), ("unprofiled latency", -unprofiled.median)],
        cost,
        unprofiled.median,
        TRACED_TOLERANCE,
        good=(
            Wording(f"The profiled run took {{}} {word} than the unprofiled one.", [abs(share)])
            if cost
            else "The profiled run took as long as the unprofiled one."
        ),
        bad=(
            f"the profiled run took {percent(abs(share))} {word} than the unprofiled one, more "
            f"than the {percent(TRACED_TOLERANCE)} allowed: {why}. {stands}"
        ),
    )


def counted(ops: pa.Table) -> dict[str, int]:
    """Nanoseconds per kind to hold against the raw file: on a device every row, else the rows of
    iterations (a host trace has start-up in it that no reader keeps)."""
    rows = timed_rows(ops.select(SUMMED))
    if not set(pc.unique(rows["kind"]).to_pylist()) & set(DEVICE_KINDS):
        rows, _ = iterations_of(rows)
    totals = rows.group_by("kind").aggregate([(TIME, "sum")]).to_pylist()
    return {row["kind"]: row[f"{TIME}_sum"] or 0 for row in totals}


def lost(parts: Sequence[pa.Table]) -> int:
    """Time of the operations of iterations less what modules, rows and unresolved get of it."""
    difference = 0
    for part in parts:
        rows, _ = iterations_of(timed_rows(part.select(SUMMED)))
        difference += pc.sum(rows[TIME]).as_py() or 0
        difference -= int(sums(part, labels(part)).total().sum())
    return difference
