"""The headline: how much faster, where, how sure, and whether the numbers add up.

The first sentence is the fastest engine against eager in the same precision, the second where its
time goes. What follows is what a reader must act on or know; all comparisons are in one table
(`report.answer`). Wording follows the intervals: a ratio whose interval holds 1 is "not
distinguishable", a saving whose interval holds 0 is not told, a series that has not settled is
said to be none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .. import formatting
from ..comparison import lead
from ..comparison.lead import _inaccurate
from ..comparison.savings import intervals
from ..formatting import spoken_time as time
from ..host.launch_bound import LAUNCH_BOUND
from ..model.comparison import Check, Comparison, Place, Ratio, Side, Skipped
from . import sweep

GOOD, BAD, NEUTRAL, UNSURE = "good", "bad", "neutral", "unsure"

SHOWN_KINDS, SHOWN_SLOWER = 3, 3

# A compute precision with a smaller share of the time is not worth a sentence.
NOTED_SHARE = 0.01

PRECISION = "precision"


@dataclass(frozen=True)
class Sentence:
    """One sentence of the headline; `tone`: good, bad, neutral or unsure."""

    text: str
    tone: str


def sentences(view: Comparison) -> list[Sentence]:
    """The answer, then only what a reader must act on or know.

    Every comparison is in the table that stands beside them (`report.answer`).
    """
    if view.sides or view.sweep is None:
        found = _of_sides(view)
    else:
        found = [_say(sweep.sentence(best)) for best in view.sweep.best]
    if left := [s for s in view.skipped if s.file]:
        found.insert(1, _unusable(left))
    return found


def _of_sides(view: Comparison) -> list[Sentence]:
    sides = {s.key: s for s in view.sides}
    first = next((r for r in view.ratios if r.lead), None)
    leading = sides[first.under] if first else None
    found = []
    if first:
        over, under = sides[first.over], sides[first.under]
        found += [speed(first, over, under), *filter(None, [savings(first, over, under)])]
    else:
        found += _each_alone(view.sides)
    found += _not_as_asked(view, first)
    found += _slower(view.ratios, sides, first)
    found += [p for s in view.sides if (p := _placement(s))]
    found += [p for s in view.sides if (p := _launches(s))]
    found += [_say(text, UNSURE) for text in not_settled(view, first)]
    found += [p for s in view.sides if (p := _step(s))]
    found += _parity(view.sides, leading)
    found.append(_sums(view.sides))
    return found


def _unusable(listed: Sequence[Skipped]) -> Sentence:
    """That the report is without files of the run, which are listed as skipped."""
    files = list(dict.fromkeys(one.file or "" for one in listed))
    named = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    what = "1 file" if len(files) == 1 else f"{len(files)} files"
    return _say(f"{what} of this run cannot be used, see Skipped: {named}.", BAD)


def _say(text: str, tone: str = NEUTRAL) -> Sentence:
    return Sentence(text, tone)


def _each_alone(sides: Sequence[Side]) -> list[Sentence]:
    """The latency of every side that can stand for itself: phases of a step only without one."""
    known = [s for s in sides if s.latency.median is not None]
    whole = [s for s in known if s.phase in WHOLE]
    return [_alone(s) for s in whole or known]


def _alone(side: Side) -> Sentence:
    latency = side.latency
    text = f"{side.label} takes {time(latency.median)}"
    if latency.low is not None:
        text += f" (95 % interval {time(latency.low)} to {time(latency.high)})"
    loose = lead.unsettled(side)
    if loose:
        text += f"; not settled: {', '.join(loose)}"
    return _say(text + ".")


def speed(ratio: Ratio, over: Side, under: Side) -> Sentence:
    """How many times as fast `under` is as `over`, and how sure that is.

    Good or bad news only where the interval excludes 1 and both series have settled; an engine
    that computed nothing in its precision is no win, however fast.
    """
    value, low, high = ratio.ratio, ratio.low, ratio.high
    times_ = f"{time(under.latency.median)} against {time(over.latency.median)}"
    said = f"{formatting.ratio(value)} as fast as {over.label}"
    doubt, lacks = _doubt(over, under), lead.lacking(under)
    but = f", but {lacks}" if lacks else ""
    if low is None or high is None:
        return _say(
            f"{under.label}: {said} in the median ({times_}), with too few samples "
            f"to say how sure that is{doubt}{but}.",
            UNSURE if doubt else NEUTRAL,
        )
    sure = f"95 % interval {formatting.ratio_range(low, high, ' to ')}"
    if low > 1:
        text = f"{under.label} is {said} ({times_}; {sure}{doubt}){but}."
        return _say(text, UNSURE if doubt else NEUTRAL if but else GOOD)
    if high < 1:
        slower = (
            f"95 % interval {formatting.ratio_range(1 / high, 1 / low, ' to ')}"
            if low > 0
            else sure
        )
        return _say(
            f"{under.label} takes {formatting.ratio(1 / value)} as long as {over.label} "
            f"({times_}; {slower}{doubt}){but}.",
            UNSURE if doubt else BAD,
        )
    return _say(
        f"{under.label} is not distinguishable from {over.label} "
        f"({times_}; ratio {formatting.ratio(value)}, {sure}{doubt}){but}.",
        UNSURE if doubt else NEUTRAL,
    )


def _doubt(*sides: Side) -> str:
    """Which of these have not settled, and what is wrong with each first of all."""
    loose = [(s.label, lead.unsettled(s)) for s in sides]
    said = [f"{label} {faults[0]}" for label, faults in loose if faults]
    return f"; not settled: {'; '.join(said)}" if said else ""


def savings(ratio: Ratio, over: Side, under: Side) -> Sentence | None:
    """Where the time between two sides goes: the kinds of which that is sure, the most first."""
    saves, loses = ratio.saves, ratio.loses
    parts = []
    if saves:
        parts.append("saves most in " + _places(saves))
    if loses:
        parts.append("loses most in " + _places(loses))
    if not parts:
        return None
    known = intervals([*saves, *loses])
    how = "95 % intervals" if known else "too few iterations to say how sure"
    if known and (len(saves) > 1 or len(loses) > 1):
        how += ", ordered by their lower ends"
    text = f"{under.label} {' and '.join(parts)}; {how}"
    undecided = ratio.undecided
    if undecided and known:
        kinds = "one more kind" if undecided == 1 else f"{undecided} more kinds"
        text += f"; of {kinds} the interval contains zero: {lead.ALIKE}"
    if any(c.ok is False for side in (over, under) for c in side.checks):
        return _say(f"As profiled, with checks that failed: {text}.")
    tone = (GOOD if saves else BAD) if known else NEUTRAL
    return _say(f"Operation time per iteration: {text}.", tone)


def _places(found: Sequence[Place]) -> str:
    return ", ".join(f"{p.name} ({_amount(p)})" for p in found[:SHOWN_KINDS])


def _amount(place: Place) -> str:
    """The difference with its interval; the interval alone where shared layers leave bounds."""
    ns, low, high = place.ns, place.low_ns, place.high_ns
    if low is None or high is None:
        return time(ns) if ns is not None else f"at least {time(place.at_least_ns)}"
    ends = formatting.time_range(low, high).replace(" – ", " to ")
    if ns is None:
        return ends
    return time(ns) if time(low) == time(high) else f"{time(ns)}, {ends}"


def _not_as_asked(view: Comparison, first: Ratio | None) -> list[Sentence]:
    """A sentence for each side that ran another precision than was asked for."""
    sides = {s.key: s for s in view.sides}
    found = []
    for side in view.sides:
        led = first is not None and first.under == side.key
        if lead.lacking(side) and not led and not _audited_wrong(side):
            found.append(_say(f"{_against_all(side, view.ratios, sides)}.", BAD))
        elif said := _precision(side):
            found.append(said)
    return found


def _against_all(side: Side, ratios: Sequence[Ratio], sides: Mapping[str, Side]) -> str:
    """How fast a side is that computed nothing in its precision, and against what that counts."""
    said = [
        _alike(r, sides[r.over])
        if lead.alike(r)
        else f"{formatting.ratio(r.ratio)} as fast as {sides[r.over].label}"
        for r in ratios
        if r.under == side.key
    ]
    text = f"{side.label}: {lead.lacking(side)}"
    return f"{text}; it is {' and '.join(said)}" if said else text


def _alike(ratio: Ratio, over: Side) -> str:
    sure = f"95 % interval {formatting.ratio_range(ratio.low, ratio.high, ' to ')}"
    return f"{lead.ALIKE} from {over.label} (ratio {formatting.ratio(ratio.ratio)}, {sure})"


def _audited_wrong(side: Side) -> bool:
    return any(c.name == PRECISION and c.ok is False for c in side.checks)


def _precision(side: Side) -> Sentence | None:
    """A sentence where another precision ran than was asked for."""
    audited = next((c for c in side.checks if c.name == PRECISION), None)
    if audited is not None and audited.ok is False:
        return _say(audited.text, BAD)
    other = {
        p: share
        for p, share in side.precision_run.items()
        if p != side.precision and p != "unknown" and share >= NOTED_SHARE
    }
    if not other or side.task != "engine":
        return None
    ran = ", ".join(f"{formatting.percent(share)} {p}" for p, share in other.items())
    return _say(
        f"{side.label} was asked for {side.precision} and computed, by time, {ran}.",
        BAD if sum(other.values()) > 0.5 else NEUTRAL,
    )


def _slower(
    ratios: Sequence[Ratio], sides: Mapping[str, Side], first: Ratio | None
) -> list[Sentence]:
    """Engines that are slower than what they are compared with, for sure."""
    found = [
        speed(r, sides[r.over], sides[r.under])
        for r in ratios
        if r is not first and r.high is not None and r.high < 1 and not lead.lacking(sides[r.under])
    ]
    if len(found) > SHOWN_SLOWER:
        more = len(found) - SHOWN_SLOWER
        found[SHOWN_SLOWER:] = [_say(f"{more} more comparisons are below 1×: see the table.", BAD)]
    return found


def _placement(side: Side) -> Sentence | None:
    """A sentence where a GPU engine has nodes on the CPU."""
    on_cpu = side.device.get("on_cpu")
    if not on_cpu:
        return None
    ops = ", ".join(f"{op} ×{n}" if n > 1 else op for op, n in on_cpu.items())
    count = sum(on_cpu.values())
    runs = "node runs" if count == 1 else "nodes run"
    return _say(f"{side.label}: {count} {runs} on the CPU ({ops}), with copies around them.")


def _launches(side: Side) -> Sentence | None:
    """A sentence where the device mostly waits for the host."""
    share = side.launch_bound
    if share is None or share < LAUNCH_BOUND:
        return None
    return _say(
        f"{side.label} is bound by launches: for {formatting.percent(share)} of its latency the "
        f"device waits for the host; a CUDA graph or a larger batch would help more than faster "
        f"kernels."
    )


def _step(side: Side) -> Sentence | None:
    """What a training step takes, and which phases its operation time goes to."""
    shares = side.phase_shares
    if side.phase != "step" or not shares:
        return None
    whole, how = side.latency.median, ""
    if whole is None:
        whole, how = side.traced.median, " while profiled"
    loose = lead.unsettled(side)
    if loose and not how:
        how = " (not settled)"
    takes = f" takes {time(whole)}{how}" if whole is not None else ""
    said = ", ".join(f"{name} {formatting.percent(share)}" for name, share in shares.items())
    of = "shares of operation time within an iteration, averaged"
    return _say(f"{side.label}{takes}; {of}: {said}.", UNSURE if loose else NEUTRAL)


def _parity(sides: Sequence[Side], leading: Side | None) -> list[Sentence]:
    """The accuracy of the engine that leads (of all where none does), and of any that fails."""
    found = []
    for side in sides:
        p, wrong = side.parity, _inaccurate(side)
        if wrong:
            found.append(_say(f"{side.label} does not compute what eager does: {wrong}.", BAD))
            continue
        if not p or not formatting.known(p.get("max_abs")) or (leading and side is not leading):
            continue
        text = f"{side.label} differs from eager by at most {p['max_abs']:.2g}"
        if p.get("top1") is not None:
            text += f", top-1 agreement {formatting.percent(p['top1'])}"
        text += " (random weights: this proves little)." if p.get("random_weights") else "."
        found.append(_say(text))
    return found


def _sums(sides: Sequence[Side]) -> Sentence:
    """Whether the numbers add up, all sides together."""
    checks = [(s, c) for s in sides for c in s.checks if c.name != PRECISION]
    bad = [(s, c) for s, c in checks if c.ok is False]
    open_ = sum(c.ok is None for _, c in checks)
    covered = [s.coverage for s in sides if s.coverage is not None]
    worst = ""
    if covered:
        least = min(covered)
        share = "all" if least == 1 else f"at least {formatting.percent(least)} of"
        worst = f"; {share} operation time has its module or row"
    if bad:
        return _say(f"These numbers do not add up: {_failures(bad)}. See the checks.", BAD)
    if not checks or open_ == len(checks):
        return _say(f"Whether the numbers add up was not checked{worst}.")
    text = f"The numbers add up: {len(checks) - open_} checks passed"
    if open_:
        text += f", {open_} could not be made"
    return _say(f"{text}{worst}.", GOOD)


_MEANINGS = {
    "i": "operations are not counted once",
    "ii": "time is outside the operations",
    "iii": "the profiled and the unprofiled run differ",
    "sources": "nsys and torch.profiler tell different kernel times",
}


def _failures(bad: Sequence[tuple[Side, Check]]) -> str:
    """What failed, with the sides, the gravest first."""
    parts = []
    for check in dict.fromkeys([*_MEANINGS, *(c.name for _, c in bad)]):
        sides = [_named(s, c) for s, c in bad if c.name == check]
        if sides:
            more = f" and {len(sides) - 2} more" if len(sides) > 2 else ""
            meaning = _MEANINGS.get(check, f"check {check} failed")
            parts.append(f"{meaning} ({', '.join(sides[:2])}{more})")
    return "; ".join(parts)


def _named(side: Side, check: Check) -> str:
    """The side, with how far apart its runs were where that is what failed."""
    share = check.residual_share
    if check.name != "iii" or share is None:
        return side.label
    return f"{side.label} by {'+' if share > 0 else ''}{formatting.percent(share)}"


SHOWN = 4

BUSY = "busy machine"

WHOLE = ("inference", "step")  # what stands for itself; the others are parts of a step


def not_settled(view: Comparison, first: Ratio | None) -> list[str]:
    """The series that have not settled, besides those that the first sentence tells; and, of all
    of them, whether the machine had other work."""
    return [*_series(view, first), *_busy(view)]


def _series(view: Comparison, first: Ratio | None) -> list[str]:
    told = {first.over, first.under} if first else _series_alone(view)
    # Phases of a step after what stands for itself: that is what is shown first.
    ordered = sorted(view.sides, key=lambda s: s.phase not in WHOLE)
    loose = [
        (s.label, lead.unsettled(s)) for s in ordered if s.key not in told and lead.unsettled(s)
    ]
    if not loose:
        return []
    said = [f"{label} {faults[0]}" for label, faults in loose[:SHOWN]]
    more = len(loose) - len(said)
    if more:
        said.append(f"and {more} more (see the ledger)")
    return [f"Latencies that have not settled: {'; '.join(said)}."]


def _series_alone(view: Comparison) -> set[str]:
    """The sides that have a sentence each where nothing is compared (`headline`)."""
    known = [s for s in view.sides if s.latency.median is not None]
    return {s.key for s in [s for s in known if s.phase in WHOLE] or known}


def _busy(view: Comparison) -> list[str]:
    row = next((c for c in view.comparability if c.what == BUSY), None)
    loose = {s.key for s in view.sides if lead.unsettled(s)}
    if row is None or loose.isdisjoint(row.sides):
        return []
    # The row has the load of the first side of each kind.
    loads = []
    for task, load in (("engine", row.engine), ("eager", row.eager)):
        mine = [s for s in view.sides if s.task == task and s.key in row.sides]
        if mine and load != formatting.UNKNOWN:
            loads.append(f"{mine[0].label}: {load}")
    return [
        f"The machine had other work beside latencies that have not settled "
        f"({', '.join(loads)}): measure again when it is idle (layerline profile --force)."
    ]
