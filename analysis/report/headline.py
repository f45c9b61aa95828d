"""The headline: how much faster, where, how sure, and whether the numbers add up.

The first sentence is the fastest engine against eager in the same precision, the second where its
time goes. What follows is what a reader must act on or know; all comparisons are in one table
(`report.answer`). Wording follows the intervals: a ratio whose interval holds 1 is "not
distinguishable", a saving whose interval holds 0 is not told, a series that has not settled is
said to be none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .. import formatting
from ..comparison import lead
from ..comparison.savings import intervals
from ..formatting import percent
from ..formatting import spoken_time as time
from ..host.launch_bound import LAUNCH_BOUND
from ..model.comparison import IN_PART, Check, Comparison, Place, Ratio, Side, Skipped
from . import doubts, ledger, sweep

GOOD, BAD, NEUTRAL, UNSURE = "good", "bad", "neutral", "unsure"
SHOWN_KINDS, SHOWN_SLOWER, SHOWN_UNSETTLED, SHOWN_FILES = 3, 3, 4, 3
# A compute precision with a smaller share of the time is not worth a sentence.
NOTED_SHARE = 0.01
BUSY = "busy machine"
NO_PHASE = {"other": "no phase"}
WHOLE = ("inference", "step")  # what stands for itself; the others are parts of a step


@dataclass(frozen=True)
class Sentence:
    """One sentence of the headline; `tone`: good, bad, neutral or unsure."""

    text: str
    tone: str = NEUTRAL


def sentences(comparison: Comparison) -> list[Sentence]:
    """The answer, then only what a reader must act on or know.

    Every comparison is in the table that stands beside them (`report.answer`).
    """
    if comparison.sides or comparison.sweep is None:
        found = list(_of_sides(comparison))
    else:
        found = [*map(Sentence, sweep.sentences(comparison.sweep))]
    if left := [s for s in comparison.skipped if s.file and s.what != IN_PART]:
        found.insert(1, _unusable(left))
    if part := next((s for s in comparison.skipped if s.what == IN_PART), None):
        found.insert(0, Sentence(f"{formatting.opening(part.why)}; {part.fix}.", BAD))
    return found


def _of_sides(comparison: Comparison) -> Iterator[Sentence]:
    sides = {s.key: s for s in comparison.sides}
    right = [s for s in comparison.sides if not s.wrong]
    yield from (_wrong(s) for s in comparison.sides if s.wrong)
    first = next((r for r in comparison.ratios if r.lead), None)
    if first:
        over, under = mentioned = [sides[first.over], sides[first.under]]
        yield _told(comparison, first, over, under)
        yield from _savings(first, over, under)
    else:
        mentioned = _whole(right)
        yield from map(_alone, mentioned)
    yield from _not_as_asked(comparison, first)
    yield from _slower(comparison, sides, first)
    yield from (k for s in comparison.sides for k in _kept(s))
    yield from (p for s in right for p in _placement(s))
    yield from (p for s in right for p in _launches(s))
    yield from _unsettled(right, mentioned)
    yield from _busy(comparison)
    yield from (p for s in comparison.sides for p in _step(s, s in mentioned))
    compared = dict.fromkeys(k for r in comparison.ratios for k in (r.under, r.over))
    if left := _unchecked([sides[k] for k in compared if sides[k] not in mentioned]):
        yield Sentence(f"Beside these, {left}.", UNSURE)
    yield from _parity(right, sides[first.under] if first else None)
    yield _sums(comparison.sides)


def _unusable(listed: Sequence[Skipped]) -> Sentence:
    """That the report is without files of the run, which are listed as skipped."""
    files = list(dict.fromkeys(one.file or "" for one in listed))
    what, named = formatting.counted(len(files), "file"), formatting.first(files, SHOWN_FILES)
    return Sentence(f"{what} of this run cannot be used, see Skipped: {named}.", BAD)


def _wrong(side: Side) -> Sentence:
    """That an engine's times are no result, before anything else."""
    where = doubts.where(side)
    said = f"{doubts.outputs(side)}; {where}" if where else doubts.outputs(side)
    return Sentence(f"{side.label} {said}. Its times are no result.", BAD)


def _whole(sides: Sequence[Side]) -> list[Side]:
    """Every side that can stand for itself: phases of a step only where nothing else can."""
    known = [s for s in sides if s.latency.median is not None]
    return [s for s in known if s.phase in WHOLE] or known


def _alone(side: Side) -> Sentence:
    latency = side.latency
    what = side.label
    if side.trains:
        what = f"A step of {side.trains} ({what.removesuffix(' training step')})"
    text = f"{what} takes {time(latency.median)}"
    if latency.low is not None:
        text += f" (95 % interval {time(latency.low)} to {time(latency.high)})"
    if side.time_shares:
        text += f": {_shares({NO_PHASE.get(k, k): v for k, v in side.time_shares.items()})}"
    if faults := lead.faults(side):
        text += f"; not settled: {', '.join(faults)}"
    return Sentence(f"{text}.", UNSURE if faults else NEUTRAL)


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {percent(share)}" for name, share in shares.items())


def _told(comparison: Comparison, ratio: Ratio, over: Side, under: Side) -> Sentence:
    """`speed`, where the machine's load leaves anything to tell."""
    if not lead.crowded(comparison.load, over, under):
        return speed(ratio, over, under)
    times = medians(under, over)
    said = f"{under.label} against {over.label} cannot be told: {doubts.CROWDED}"
    return Sentence(f"{said} while they were measured ({times}).", UNSURE)


def medians(under: Side, over: Side, to: str = "against") -> str:
    """Both latencies: ``1.20 ms against 3.40 ms``."""
    return f"{time(under.latency.median)} {to} {time(over.latency.median)}"


def speed(ratio: Ratio, over: Side, under: Side) -> Sentence:
    """How many times as fast `under` is as `over`, and how sure that is.

    Good or bad news only where the interval excludes 1 and both series have settled; an engine
    that computed nothing in its precision is no win, however fast.
    """
    value, low, high = ratio.ratio, ratio.low, ratio.high
    times = medians(under, over)
    faster = f"{formatting.ratio(value)} as fast as {over.label}"
    faults = "; ".join(filter(None, map(doubts.first_fault, (over, under))))
    doubt = f"; not settled: {faults}" if faults else ""
    lack = doubts.precision_in_full(under)
    unchecked = _unchecked([under, over])
    unknown = [doubts.outputs(s) for s in (under, over) if not s.unchecked]
    but = "".join(f", but {x}" for x in (lack, *unknown, unchecked) if x)
    if low is None or high is None:
        text = (
            f"{under.label}: {faster} in the median ({times}), with no interval to say how sure "
            f"that is{doubt}{but}."
        )
        return Sentence(text, UNSURE if doubt or unchecked else NEUTRAL)
    tone = NEUTRAL
    if low > 1:
        text, tone = f"is {faster} ({times}; {_sure(low, high)}", NEUTRAL if but else GOOD
    elif high < 1:
        slower = _sure(1 / high, 1 / low) if low > 0 else _sure(low, high)
        longer = f"{formatting.ratio(1 / value)} as long as {over.label}"
        text, tone = f"takes {longer} ({times}; {slower}", BAD
    else:
        same = f"is {doubts.ALIKE} from {over.label}"
        text = f"{same} ({times}; ratio {formatting.ratio(value)}, {_sure(low, high)}"
    tone = UNSURE if doubt or (unchecked and tone != BAD) else tone
    return Sentence(f"{under.label} {text}{doubt}){but}.", tone)


def _unchecked(sides: Sequence[Side]) -> str:
    of = " and ".join(s.label for s in sides if s.unchecked)
    return f"the outputs of {of} were not checked" if of else ""


def _sure(low: float | None, high: float | None) -> str:
    return f"95 % interval {formatting.ratio_range(low, high, ' to ')}"


def _savings(ratio: Ratio, over: Side, under: Side) -> Iterator[Sentence]:
    """Where the time between two sides goes: the kinds of which that is sure, the most first."""
    saves, loses = ratio.saves, ratio.loses
    parts = [
        f"{verb} most in {', '.join(f'{p.name} ({amount(p)})' for p in places[:SHOWN_KINDS])}"
        for verb, places in (("saves", saves), ("loses", loses))
        if places
    ]
    if not parts:
        return
    known = intervals([*saves, *loses])
    how = "95 % intervals" if known else "too few iterations to say how sure"
    if known and (len(saves) > 1 or len(loses) > 1):
        how += ", ordered by their lower ends"
    if known and ratio.undecided:
        kinds = "one more kind" if ratio.undecided == 1 else f"{ratio.undecided} more kinds"
        how += f"; of {kinds} the interval contains zero: {doubts.ALIKE}"
    text = f"{under.label} {' and '.join(parts)}; {how}."
    if any(c.ok is False for side in (over, under) for c in side.checks):
        yield Sentence(f"As profiled, with checks that failed: {text}")
    else:
        sure = known and not (over.unchecked or under.unchecked)
        tone = (GOOD if saves else BAD) if sure else NEUTRAL
        yield Sentence(f"Operation time per iteration: {text}", tone)


def amount(place: Place) -> str:
    """The difference with its interval; the interval alone where shared layers leave bounds."""
    ns, low, high = place.ns, place.low_ns, place.high_ns
    if low is None or high is None:
        return time(ns) if ns is not None else f"at least {time(place.at_least_ns)}"
    ends = formatting.time_range(low, high, " to ")
    if ns is None:
        return ends
    return time(ns) if time(low) == time(high) else f"{time(ns)}, {ends}"


def _not_as_asked(comparison: Comparison, first: Ratio | None) -> Iterator[Sentence]:
    """A sentence for each side that ran another precision than was asked for."""
    sides = {s.key: s for s in comparison.sides}
    for side in comparison.sides:
        audit = ledger.check_of(side, ledger.PRECISION)
        wrong = audit is not None and audit.ok is False
        leads = first is not None and first.under == side.key
        if lead.lack(side) and not leads and not wrong:
            yield Sentence(f"{_against_all(side, comparison.ratios, sides)}.", BAD)
        elif audit is not None and wrong:
            yield Sentence(audit.text, BAD)
        elif side.task == "engine":
            yield from _computed(side)


def _against_all(side: Side, ratios: Sequence[Ratio], sides: Mapping[str, Side]) -> str:
    """How fast a side is that computed nothing in its precision, and against what that counts."""
    against = []
    for r in ratios:
        over, value = sides[r.over], formatting.ratio(r.ratio)
        if r.under == side.key and lead.alike(r):
            sure = f"(ratio {value}, {_sure(r.low, r.high)})"
            against.append(f"{doubts.ALIKE} from {over.label} {sure}")
        elif r.under == side.key:
            against.append(f"{value} as fast as {over.label}")
    if against and side.unchecked:
        against[-1] += f" ({doubts.UNCHECKED})"
    text = f"{side.label}: {doubts.precision_in_full(side)}"
    return f"{text}; it is {' and '.join(against)}" if against else text


def _computed(side: Side) -> Iterator[Sentence]:
    """What an engine computed in besides the precision that was asked for."""
    other = {
        p: share
        for p, share in side.precision_run.items()
        if p not in (side.precision, lead.UNKNOWN) and share >= NOTED_SHARE
    }
    if other:
        ran = ", ".join(f"{percent(share)} {p}" for p, share in other.items())
        yield Sentence(
            f"{side.label} was asked for {side.precision} and computed, by time, {ran}.",
            BAD if sum(other.values()) > 0.5 else NEUTRAL,
        )


def _slower(
    comparison: Comparison, sides: Mapping[str, Side], first: Ratio | None
) -> Iterator[Sentence]:
    """Engines that are slower than what they are compared with, for sure."""
    slower = [
        r
        for r in comparison.ratios
        if r is not first and r.high is not None and r.high < 1 and not lead.lack(sides[r.under])
        and not lead.crowded(comparison.load, sides[r.over], sides[r.under])
    ]  # fmt: skip
    for r in slower[:SHOWN_SLOWER]:
        yield speed(r, sides[r.over], sides[r.under])
    if more := len(slower[SHOWN_SLOWER:]):
        yield Sentence(f"{more} more comparisons are below 1×: see the table.", BAD)


def _kept(side: Side) -> Iterator[Sentence]:
    """A sentence where a precision plan keeps modules of an engine in fp32."""
    kept = side.device.get("kept_fp32")
    if kept:
        some = kept if len(kept) <= 3 else [*kept[:2], f"and {len(kept) - 2} more"]
        count = formatting.counted(len(kept), "module")
        yield Sentence(
            f"{side.label} keeps {count} in fp32 by its precision plan: {', '.join(some)}."
        )


def _placement(side: Side) -> Iterator[Sentence]:
    """A sentence where a GPU engine has nodes on the CPU, torch.compile would do otherwise than
    the package that was measured, or did what nobody expects, or what was timed did more."""
    for what in side.device.get("compiled", ()):
        yield Sentence(f"{side.label}: {what}.", UNSURE)
    if side.device.get("beside"):
        text = f"{side.label}: its latency has in it what counting changes of parameters takes"
        yield Sentence(
            f"{text}, in the optimizer's phase; a training without it is shorter.", UNSURE
        )
    for what in side.device.get("otherwise", ()):
        text = f"{side.label}: torch.compile itself {what}; the package that was measured does not."
        yield Sentence(text, UNSURE)
    on_cpu = side.device.get("on_cpu")
    if on_cpu:
        ops = ", ".join(f"{op} ×{n}" if n > 1 else op for op, n in on_cpu.items())
        count = sum(on_cpu.values())
        run = "node runs" if count == 1 else "nodes run"
        yield Sentence(f"{side.label}: {count} {run} on the CPU ({ops}), with copies around them.")


def _launches(side: Side) -> Iterator[Sentence]:
    """A sentence where the device mostly waits for the host."""
    if side.launch_bound is not None and side.launch_bound >= LAUNCH_BOUND:
        yield Sentence(
            f"{side.label} is bound by launches: for {percent(side.launch_bound)} of its latency "
            "the device waits for the host; a CUDA graph or a larger batch would help more than "
            "faster kernels."
        )


def _unsettled(sides: Sequence[Side], mentioned: Sequence[Side]) -> Iterator[Sentence]:
    """The latencies that have not settled, besides those that are mentioned already."""
    # Phases of a step after what stands for itself: that is what is shown first.
    ordered = sorted(sides, key=lambda s: s.phase not in WHOLE)
    faults = [f for s in ordered if s not in mentioned and (f := doubts.first_fault(s))]
    shown = faults[:SHOWN_UNSETTLED]
    if more := len(faults) - len(shown):
        shown.append(f"and {more} more (see the ledger)")
    if shown:
        yield Sentence(f"Latencies that have not settled: {'; '.join(shown)}.", UNSURE)


def _busy(comparison: Comparison) -> Iterator[Sentence]:
    """That the machine had other work, where a latency has not settled."""
    row = next((c for c in comparison.comparability if c.what == BUSY), None)
    if row is None or not any(lead.faults(s) for s in comparison.sides if s.key in row.sides):
        return
    # The row has the load of the first side of each kind.
    loads = []
    for task, load in (("engine", row.engine), ("eager", row.eager)):
        label = next(
            (s.label for s in comparison.sides if s.task == task and s.key in row.sides), None
        )
        if label is not None and load != formatting.UNKNOWN:
            loads.append(f"{label}: {load}")
    yield Sentence(
        "The machine had other work beside latencies that have not settled "
        f"({', '.join(loads)}): measure again when it is idle ({again(comparison)}).",
        UNSURE,
    )


def again(comparison: Comparison) -> str:
    """The command that measures these sides again: of training alone, the one that trains."""
    phases = {"inference" if s.task == "engine" else s.phase for s in comparison.sides}
    return f"layerline {'profile RUN' if 'inference' in phases else 'train …'} --force"


def _step(side: Side, mentioned: bool) -> Iterator[Sentence]:
    """What a training step takes, where nothing said it yet, and which phases its operation time
    goes to."""
    if side.phase != "step" or not side.phase_shares:
        return
    if mentioned:
        yield Sentence(
            f"Operations of {side.label} take {time(side.operation_ns)}; shares by phase, averaged "
            f"over iterations: {_shares(side.phase_shares)}."
        )
        return
    unsettled = bool(lead.faults(side))
    whole, how = side.latency.median, " (not settled)" if unsettled else ""
    if whole is None:
        whole, how = side.traced.median, " while profiled"
    takes = f" takes {time(whole)}{how}" if whole is not None else ""
    yield Sentence(
        f"{side.label}{takes}; shares of operation time within an iteration, averaged: "
        f"{_shares(side.phase_shares)}.",
        UNSURE if unsettled else NEUTRAL,
    )


def _parity(sides: Sequence[Side], leading: Side | None) -> Iterator[Sentence]:
    """The accuracy of the engine that leads (of all where none does), and of any of which it is
    unknown."""
    for side in sides:
        parity = side.parity or {}
        if (unknown := doubts.outputs(side)) and not side.unchecked:
            yield Sentence(f"{side.label}: {unknown}.", UNSURE)
        elif formatting.known(parity.get("max_abs")) and (leading is None or side is leading):
            text = f"{side.label} differs from eager by at most {parity['max_abs']:.2g}"
            if parity.get("top1") is not None:
                text += f", top-1 agreement {percent(parity['top1'])}"
            random = " (random weights: this proves little)"
            yield Sentence(f"{text}{random if parity.get('random_weights') else ''}.")


def _sums(sides: Sequence[Side]) -> Sentence:
    """Whether the numbers add up, all sides together."""
    passed, failed, unknown = ledger.tally(sides)
    covered = [s.coverage for s in sides if s.coverage is not None]
    worst = ""
    if covered:
        least = min(covered)
        share = "all" if least == 1 else f"at least {percent(least)} of"
        worst = f"; {share} operation time has its module or row"
    if failed:
        told = _failures(sides)
        if ledger.profiled_apart(ledger.failing(sides)):
            return Sentence(f"{told[0].upper()}{told[1:]}. See the checks.", BAD)
        return Sentence(f"These numbers do not add up: {told}. See the checks.", BAD)
    if not passed:
        return Sentence(f"Whether the numbers add up was not checked{worst}.")
    text = f"The numbers add up: {passed} checks passed"
    if unknown:
        text += f", {unknown} could not be made"
    return Sentence(f"{text}{worst}.", GOOD)


_MEANINGS = {
    "i": "operations are not counted once",
    "ii": "time is outside the operations",
    "iii": "the profiled and the unprofiled run differ",
    "sources": "nsys and torch.profiler tell different kernel times",
}


def _failures(sides: Sequence[Side]) -> str:
    """What failed, with the sides, the gravest first."""
    failed: dict[str, list[str]] = {check: [] for check in _MEANINGS}
    for side in sides:
        for check in ledger.failing([side]):
            failed.setdefault(check.name, []).append(_named(side, check))
    parts = []
    for name, named in failed.items():
        if named:
            meaning = _MEANINGS.get(name, f"check {name} failed")
            parts.append(f"{meaning} ({formatting.first(named, 2)})")
    return "; ".join(parts)


def _named(side: Side, check: Check) -> str:
    """The side, with how far apart its runs were where that is what failed."""
    share = check.residual_share
    if check.name != "iii" or share is None:
        return side.label
    return f"{side.label} by {'+' if share > 0 else ''}{percent(share)}"
