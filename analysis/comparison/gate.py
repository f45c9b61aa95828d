"""The judgement of a new measurement by a baseline: pure, of two baselines and limits.

Each quantity has one of three answers. *Worse*: its growth is more than its limit, and no chance
(false discoveries are bounded, apart for whole sides and for their kinds and modules). *Not worse*:
even the upper end of where the growth can lie is within the limit. Else it *cannot be told*, and
what would tell it is said.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import NormalDist

from msgspec import structs

from ...core.stats import quantile
from ..model.baseline import (
    KIND,
    LATENCY,
    MEMORY,
    MODULE,
    OPERATIONS,
    QUEUED,
    Baseline,
    Past,
    Quantity,
    SideSamples,
)
from ..model.verdict import Finding, Judged, Status, Verdict
from .beside import changed, elsewhere, judged_sides, remarks, unchecked
from .limits import SLOWER, Limits, fits, meant, of_sides
from .spread import Change, change, discoveries
from .untold import SURE, Compared, beside_device, by_host, of_host, reason

# False answers "worse" among all that are given, of sides and of their kinds and modules.
RATE = 0.01
# How often a change as large as `visible` is called worse.
POWER = 0.95
_ELSEWHERE = "measure both on one machine with as many threads, or add --other-machine"


def judge(before: Baseline, after: Baseline, limits: Limits, names: tuple[str, str]) -> Verdict:
    """The verdict; `names`: what both are called."""
    found = list(_wholes(before, after, limits))
    compared: list[Compared] = []
    apart = elsewhere(before, after)
    for key, side in judged_sides(before, limits).items():
        other = after.sides.get(key)
        if other is None:
            continue
        why = apart[side.on_gpu is True] if not limits.other_machine else ""
        if why:
            found.append(Finding(key, Status.UNTOLD, why, _ELSEWHERE))
            continue
        found += _side_findings(key, side, other, limits)
        if other.outputs is not None and other.outputs.ok is False:
            continue  # its times are no result
        compared += _compared(key, side, other, before, after, limits)
        found += _unmeasured(key, side, other)
    judged = _judged(compared)
    found += _unmet(limits, judged)
    return Verdict(
        *names,
        judged=judged,
        findings=sorted(found, key=lambda f: f.status is not Status.WORSE),
        changed=changed(before, after),
        remarks=list(remarks(before, after, limits, judged)),
        trend=_trend(before, after),
        unchecked=unchecked(before, after, limits),
    )


def _wholes(before: Baseline, after: Baseline, limits: Limits) -> Iterator[Finding]:
    """What is gone, stale, or was asked for and is not there."""
    for side in judged_sides(before, limits):
        built_again = f" another engines/{side.partition('/')[2].partition('/')[0]}."
        if side not in after.sides and not any(built_again in stale for stale in after.stale):
            why = "; ".join(f"{f}: {w}" for f, w in after.lost.items())
            text = "the baseline has it and the new side does not"
            fix = "build and measure it, or leave it out (--update, --side)"
            yield Finding(side, Status.WORSE, f"{text} ({why})" if why else text, fix)
    for name in limits.require:
        for of, where in ((before, "baseline"), (after, "new side")):
            if not any(meant(name, key) for key in of.sides):
                text = f"is required, and the {where} has none ({of_sides(of.sides)})"
                yield Finding(name, Status.WORSE, text)
    for stale in after.stale:
        yield Finding("", Status.UNTOLD, stale, "measure again (layerline profile)")
    for stale in before.stale:
        yield Finding("", Status.UNTOLD, f"baseline: {stale}", "measure the baseline again")
    for of, where in ((before, "baseline"), (after, "new side")):
        for file, wrong in of.lost.items():
            text = f"{where}: {file} cannot be used ({wrong}), and what it tells is not judged"
            yield Finding("", Status.UNTOLD, text, "copy that file again, or make it again")
    for name in limits.strange_sides(before.sides):
        text = f"is to be judged, and the baseline has none ({of_sides(before.sides)})"
        yield Finding(name, Status.UNTOLD, text)
    if not before.sides:
        yield Finding("", Status.UNTOLD, "the baseline has no side", "measure it again")


def _side_findings(key: str, a: SideSamples, b: SideSamples, limits: Limits) -> Iterator[Finding]:
    where = "layerline accuracy says in which module"
    if b.outputs is not None and b.outputs.ok is False:
        why = b.outputs.why or "its outputs are wrong"
        yield Finding(key, Status.WORSE, f"does not compute what eager does: {why}", where)
    elif a.outputs is not None and b.outputs is None:
        fix = "layerline profile compares them"
        yield Finding(key, Status.UNTOLD, "its outputs were not compared with eager's", fix)
    elif a.outputs and a.outputs.ok and b.outputs and b.outputs.ok is None:
        text = f"whether its outputs are right is not known any more: {b.outputs.why}"
        yield Finding(key, Status.UNTOLD, text, where)
    x, y = (None if s.outputs is None else s.outputs.cosine for s in (a, b))
    if limits.accuracy is not None:
        if x is None or y is None:
            yield Finding(key, Status.UNTOLD, "the cosine of its outputs is not known")
        elif x - y > limits.accuracy:
            text = f"the cosine of its outputs fell from {x:.6g} to {y:.6g}"
            yield Finding(key, Status.WORSE, f"{text}, by more than {limits.accuracy:g}", where)
    if a.coverage and b.coverage:
        one, two = (sum(c) / len(c) for c in (a.coverage, b.coverage))
        if one - two > limits.coverage:
            text = f"modules are known of {two:.1%} of its time, of {one:.1%} before"
            yield Finding(key, Status.WORSE, text, "layerline report says what is unresolved")


def _unmeasured(key: str, a: SideSamples, b: SideSamples) -> Iterator[Finding]:
    """What was measured of the whole side, and is no more."""
    new = {q.key for q in b.quantities}
    for q in a.quantities:
        if q.key not in new and q.what in (LATENCY, QUEUED, MEMORY):
            text = f"{q.what} {q.name}".strip()
            yield Finding(key, Status.UNTOLD, f"its {text} was not measured", "measure it again")


def _compared(
    key: str,
    a: SideSamples,
    b: SideSamples,
    before: Baseline,
    after: Baseline,
    limits: Limits,
) -> Iterator[Compared]:
    in_turn = before.in_turn is not None and before.in_turn == after.in_turn
    several = len(set(a.builds)) > 1 or len(set(b.builds)) > 1
    again = bool(a.builds and b.builds) and set(a.builds) != set(b.builds)
    noise = max(a.build_noise or 0.0, b.build_noise or 0.0) if again and not several else 0.0
    operations = a.quantity("operations")
    total = operations and sum(operations.values) / len(operations.values)
    others = {q.key: q for q in b.quantities}
    by_device = limits.by_device and a.quantity(QUEUED) and b.quantity(QUEUED)
    for quantity in a.quantities:
        other = others.get(quantity.key)
        if other is None:
            continue
        differs = change(quantity, other, in_turn=in_turn, build_noise=noise)
        limit = limits.of(quantity, total or None)
        if quantity.what == OPERATIONS and a.quantity(LATENCY) is None:
            limit = replace(limit, asked=True)  # there is nothing else to tell by
        if by_device and quantity.what in (LATENCY, QUEUED):
            limit = replace(limit, asked=quantity.what == QUEUED)
        yield Compared(key, quantity, other, differs, limit, in_turn)


def _judged(compared: Sequence[Compared]) -> list[Judged]:
    """Judgements of all: false discoveries are bounded in two families."""
    families = (
        [c for c in compared if c.a.what not in (KIND, MODULE)],
        [c for c in compared if c.a.what in (KIND, MODULE)],
    )
    judged = []
    for family in families:
        p = [(c, c.change.p()) for c in family]
        told = [(c, x) for c, x in p if x is not None]
        more = discoveries([x for _, x in told], RATE)
        less = discoveries([c.change.p_less() or 0.0 for c, _ in told], RATE)
        grown = {id(c) for (c, _), one in zip(told, more, strict=True) if one}
        shrunk = {id(c) for (c, _), one in zip(told, less, strict=True) if one}
        judged += [_one(c, id(c) in grown, id(c) in shrunk, max(len(told), 1)) for c in family]
    return [_beside_device(j, judged, compared) for j in judged]


def _beside_device(of: Judged, judged: Sequence[Judged], compared: Sequence[Compared]) -> Judged:
    """A latency beside the time on the device alone, where that is not slower: what grew, or
    scatters, may be the host's."""
    if of.what != LATENCY or device_alone(of, judged) is None:
        return of
    whole, alone = (
        next(c for c in compared if c.side == of.side and c.a.what == what)
        for what in (LATENCY, QUEUED)
    )
    if of.status is Status.WORSE and of_host(whole):
        why, fix = by_host(whole)
    elif of.status is Status.UNTOLD and of.decides:
        why, fix = beside_device(whole, alone, (of.why, of.fix))
    else:
        return of
    return replace(of, status=Status.UNTOLD, why=why, fix=fix)


def _one(c: Compared, grown: bool, shrunk: bool, among: int) -> Judged:
    by, most = c.change.by, c.most
    upper = by + c.change.reach(SURE)
    why = fix = ""
    if grown and by > most:
        status = Status.WORSE
    elif upper <= most:
        status = Status.FASTER if shrunk and -by > most else Status.SAME
    else:
        status = Status.UNTOLD
        why, fix = reason(c)
    scale = c.change.before

    def over(value: float) -> float | None:
        return value / scale if scale and math.isfinite(value) else None

    low = over(by - c.change.reach(SURE))
    return Judged(
        side=c.side,
        what=c.a.what,
        name=c.a.name,
        unit="bytes" if c.a.what == MEMORY else "ns",
        before=scale,
        after=c.change.after,
        change=over(by),
        low=None if low is not None and low <= -1 else low,  # no time is nothing, or below
        high=over(upper),
        limit=over(most),
        limit_of=c.limit.by_floor(scale),
        visible=over(visible(c.change, most, among)),
        status=status,
        # Of what was not asked for by name, one capture each tells nothing, and is no fault; and
        # operations are timed under a profiler, which is noise of its own.
        decides=c.limit.asked or (c.a.what in (QUEUED, MEMORY) and c.change.error is not None),
        units=c.units,
        why=why,
        fix=fix,
    )


def device_alone(of: Judged, judged: Sequence[Judged]) -> Judged | None:
    """The time on the device alone of the same side, where that is not slower."""
    for other in judged:
        if other.side == of.side and other.what == QUEUED:
            return other if other.status in (Status.SAME, Status.FASTER) else None
    return None


def visible(of: Change, most: float, among: int) -> float:
    """The growth, in its unit, that is called worse with a chance of `POWER`: beyond the limit
    `most`, and significant at the level that one of `among` must have.

    By the normal approximation of the noncentral t (Johnson and Welch, Biometrika 31, 1940), with
    the spread, which is estimated, as much larger as it is too small on average, and growing with
    what grew.
    """
    if of.error is None:
        return math.inf
    if not of.error:
        return most + of.allowance
    level, normal = quantile(1 - RATE / among, of.df), NormalDist().inv_cdf(POWER)
    short = 1 - 1 / (4 * max(of.df, 1))
    error = of.error / short
    by_chance = level * short + normal * math.sqrt(1 + level**2 / (2 * of.df))
    size = max(most + normal * error, by_chance * error + of.allowance)
    larger = 1 + size / of.before if of.before else 1.0
    return size * math.sqrt((1 + larger**2) / 2)


def _unmet(limits: Limits, judged: Sequence[Judged]) -> Iterator[Finding]:
    """Limits of kinds and modules that fit none."""
    there = [Quantity(what=j.what, name=j.name, runs=[[0]]) for j in judged
             if j.what in (KIND, MODULE)]  # fmt: skip
    known = {word: None for q in there for word in (q.name.rpartition(".")[2], q.name)}
    for name in limits.names():
        if not any(fits(name, q) for q in there):
            close = " or ".join(difflib.get_close_matches(name, [*SLOWER, *known]))
            text = f"there is no kind or module {name!r} on both sides"
            text += f" (did you mean {close}?)" if close else ""
            fix = "--memory is its limit" if name == MEMORY else "layerline report lists modules"
            yield Finding("", Status.UNTOLD, text, fix)


def _trend(before: Baseline, after: Baseline) -> list[tuple[str, list[int]]]:
    """Latencies by side over the baselines that were kept, for sides that are still there."""
    pasts = chain(before, after)
    keys = [k for k, s in after.sides.items() if s.quantity(LATENCY) is not None]
    return [(k, [p.figures[k] for p in pasts if k in p.figures]) for k in keys]


def chain(before: Baseline, after: Baseline) -> list[Past]:
    """The baselines that were kept, `before` and `after`, in short, the oldest first."""
    return [*before.history, before.past(), after.past()]


def updated(before: Baseline, after: Baseline, reason: str, kept: int) -> Baseline:
    """The new baseline, with the one that it replaces and those before in short."""
    history = [*before.history, before.past()][-kept:]
    return structs.replace(after, reason=reason, limits=before.limits, history=history)


def deepest(judged: Sequence[Judged]) -> list[Judged]:
    """Of modules in one another that are worse, the innermost: these are where it is. Kinds only
    where no module of theirs is named."""
    modules = [j for j in judged if j.what == MODULE]
    inner = [
        j
        for j in modules
        if not any(o.side == j.side and o.name.startswith(f"{j.name}.") for o in modules)
    ]
    rest = [j for j in judged if j.what != MODULE]
    kinds = [j for j in rest if j.what == KIND]
    named = [
        k
        for k in kinds
        if not any(m.side == k.side and _of_kind(m.name, k.name) for m in modules)
        and not any(o.side == k.side and o.name.startswith(f"{k.name}.") for o in kinds)
    ]
    return [j for j in rest if j.what != KIND] + inner + named


def _of_kind(module: str, kind: str) -> bool:
    a, b = module.split("."), kind.split(".")
    return len(a) >= len(b) and all(y in ("*", x) for x, y in zip(a, b, strict=False))
