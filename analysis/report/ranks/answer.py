"""What is said of a job first: who makes whom wait, why, what it would be without; what holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import pyarrow.compute as pc

from ....core.ranks.identity import spelled
from ... import formatting
from ...model.ranks import PARTS, Job, Straggler, WhatIf
from ...ranks.imbalance import LEAST_SHARE
from ...ranks.replay import NO_STRAGGLER

_CAUSES = {
    "compute": "It computes {} longer than the others in a step",
    "copy": "Its copies take {} longer than the others' in a step",
    "host": "Its host takes {} longer in a step than the others' to give it work",
    "data": "Its data loading takes {} longer than the others' in a step",
    "dependency": "Its queued work waits {} longer than the others' in a step",
    "launch": "Its launches take {} longer than the others' in a step",
    "wait": "It waits {} longer than the others for ranks of other groups in a step",
    "transfer": "Its transfers in other groups take {} longer than the others' in a step",
    "unknown": "For {} of a step it is idle or communicates, and the capture does not say why",
}


@dataclass(frozen=True)
class Chip:
    """Something that must hold for the answer to be believed. `ok` None: not known."""

    ok: bool | None
    text: str

    @property
    def sign(self) -> str:
        """✓, ✗ or ?."""
        return "?" if self.ok is None else "✓" if self.ok else "✗"


@dataclass(frozen=True)
class Answer:
    """The heading (its stressed end apart), the line below, and the chips."""

    heading: str
    stress: str
    line: str
    chips: Sequence[Chip]


def answer(job: Job) -> Answer:
    """What is said first."""
    heading, stress = _heading(job)
    line = " ".join((_line(job), *_hidden(job), *_pipeline(job)))
    return Answer(heading, stress, line, list(_chips(job)))


def named(job: Job) -> Straggler | None:
    """The straggler, where it costs enough to be named and is more to blame than others."""
    worst = job.straggler
    if worst is None or worst.share < LEAST_SHARE or not worst.clear:
        return None
    return worst


def _waiting(job: Job) -> float:
    """The share of a step in which a rank waits for another on average."""
    whole = pc.sum(job.ranks["duration_ns"]).as_py()
    return (pc.sum(job.ranks["wait_ns"]).as_py() or 0) / whole if whole else 0.0


def _heading(job: Job) -> tuple[str, str]:
    waits = _waiting(job)
    if len(job.identities) == 1:
        share = _share(job, "transfer_ns", "wait_ns", "communication_ns")
        only = f"Rank {job.identities[0].rank} communicates"
        return only, f"{formatting.percent(share)} of its step unhidden"
    if not len(job.collectives):
        return "The captures hold no communication:", "who waits for whom is not known"
    if not pc.count(job.collectives["instance"]).as_py():
        return _unknown(job)
    if job.iterations != (None,) and not pc.count(job.collectives["iteration"]).as_py():
        stress = f"they wait {formatting.percent(waits)} of a step, and no call tells in which"
        return "Who makes the others wait is not known:", stress
    if (worst := named(job)) is not None:
        by = formatting.percent(worst.share)
        if worst.usual:
            return f"Rank {worst.rank} makes the others wait", f"{by} of a step"
        some = f"In {worst.steps_worst} of {worst.steps} steps"
        return f"{some} rank {worst.rank} makes the others wait:", f"{by} of all their time"
    if _share(job, "communication_ns") > max(waits, LEAST_SHARE):
        return _unknown(job)
    if waits >= LEAST_SHARE and 2 * _unready(job) > waits:
        stress = f"{formatting.percent(_share(job, 'idle_host_ns', 'unready_ns'))} of a step"
        return "The ranks' hosts hold up their devices:", stress
    if waits < LEAST_SHARE:
        return "No rank waits", f"more than {formatting.percent(LEAST_SHARE)} of a step"
    return "No one rank holds up the others:", f"they wait {formatting.percent(waits)} of a step"


def _unknown(job: Job) -> tuple[str, str]:
    share = formatting.percent(_share(job, "communication_ns"))
    what = "is communication without a known partner"
    alone = job.collectives.filter(pc.is_null(job.collectives["instance"]))
    some, steps = pc.count_distinct(alone["iteration"]).as_py(), len(job.iterations)
    if 0 < some < steps:
        heading = f"In {some} of {steps} steps it is not known who waits for whom:"
        return heading, f"{share} of all time {what}"
    return "Who waits for whom is not known:", f"{share} of a step {what}"


def _share(job: Job, *columns: str) -> float:
    whole = pc.sum(job.ranks["duration_ns"]).as_py()
    part = sum(pc.sum(job.ranks[c]).as_py() or 0 for c in columns)
    return part / whole if whole else 0.0


def _unready(job: Job) -> float:
    """The share of a step in which a rank waits while its own host has nothing more for it."""
    return _share(job, "unready_ns")


def _hidden(job: Job) -> Iterator[str]:
    """How much of the waiting is nobody's fault, where that is worth a sentence."""
    if (unready := _unready(job)) >= LEAST_SHARE:
        part = formatting.percent(unready / _waiting(job))
        vain = "of the time in which ranks wait, their own hosts have nothing more for them."
        yield f"In {part} {vain}"


def _line(job: Job) -> str:
    parts = []
    if (worst := named(job)) is not None:
        parts.append(_why(worst))
        found = _assumed(job, NO_STRAGGLER)
        if found is not None:
            took, less = formatting.time(found.unchanged_ns), formatting.time(found.step_ns)
            would = f"as long, {took}" if less == took else f"{less} instead of {took}"
            spread = _spread(found, "median" if worst.usual else "mean")
            parts.append(f"Without it a step would take {would}{spread}.")
        return " ".join(parts)
    free = _assumed(job, "free communication")
    step_ns = job.step_ns if free is None else free.unchanged_ns
    which = "mean" if free is None else "median"
    now, then = formatting.time(step_ns), None if free is None else formatting.time(free.step_ns)
    parts.append(f"A step takes {now} ({which}).")
    if then is not None and then != now:
        parts.append(f"With communication for free it would take {then}.")
    return " ".join(parts)


def _pipeline(job: Job) -> Iterator[str]:
    """The bubble of the ranks of a pipeline beside the ideal schedule's, where that is known."""
    known = [(one.share, one.ideal) for one in job.bubbles if one.ideal is not None]
    if known:
        bubble, ideal = (formatting.percent(fmean(of)) for of in zip(*known, strict=True))
        mean = f" (mean of {len(known)} ranks)" if len(known) > 1 else ""
        yield f"The pipeline's bubble is {bubble} of a step{mean}, {ideal} by the ideal schedule."


def _why(worst: Straggler) -> str:
    assert worst.cause is not None  # else it is not clear who it is
    if worst.cause == "compute" and worst.work is not None and worst.work_ratio is not None:
        ratio = formatting.ratio(worst.work_ratio)
        return f"Its {worst.work} take {ratio} the others' time."
    return _CAUSES[worst.cause].format(formatting.time(worst.excess_ns[worst.cause])) + "."


def _spread(found: WhatIf, which: str) -> str:
    """`which` of the replayed steps it is, and half of their range."""
    if len(found.by_step) < 2:
        return ""
    half = (max(found.by_step) - min(found.by_step)) / 2
    return f" ({which} of {len(found.by_step)} steps, ±{formatting.time(half)})"


def _assumed(job: Job, name: str) -> WhatIf | None:
    return next((w for w in job.what_if if w.name == name), None)


def _chips(job: Job) -> Iterator[Chip]:
    there = len(job.identities)
    if job.world is None:
        yield Chip(None, f"{there} ranks; how many there are is not known")
    elif job.missing:
        which = f"rank{'s' if len(job.missing) > 1 else ''} {spelled(job.missing[:500])}"
        yield Chip(False, f"{there} of {job.world} ranks: without {which}")
    else:
        yield Chip(True, f"{there} of {job.world} ranks")
    total = len(job.collectives)
    matched = pc.count(job.collectives["instance"]).as_py()
    if total:
        by_order = pc.sum(pc.equal(job.collectives["matched_by"], "order")).as_py() or 0
        how = f", {by_order:,} of them by order" if by_order else ""
        what = f"{matched:,} of {total:,} communications matched{how}"
        yield Chip(True if matched == total else False if not matched else None, what)
    else:
        yield Chip(None, "no communication in the captures")
    if there > 1:
        yield _clocks(job)
    yield Chip(sums_exactly(job), "steps add up exactly")
    if (worst := named(job)) is not None:
        often = worst.steps_worst * 2 > worst.steps
        what = f"rank {worst.rank} costs the most in {worst.steps_worst} of {worst.steps} steps"
        yield Chip(True if often else None, what)
    lacking = sum(one.collectives_without_interval for one in job.identities)
    if lacking:
        yield Chip(None, f"{lacking:,} communications have no interval")


def _clocks(job: Job) -> Chip:
    parts = {c.part for c in job.clocks.values()}
    if None in parts or len(parts) > 1:
        return Chip(False, "clocks not aligned")
    known = [c.uncertainty for c in job.clocks.values()]
    widest = max((u for u in known if u is not None), default=None)
    if widest is None or None in known:
        return Chip(None, "clocks aligned by too few collectives to say how surely")
    return Chip(True, f"clocks aligned, ±{formatting.time(widest)}")


def sums_exactly(job: Job) -> bool:
    """Whether the parts of each step add up to it."""
    data = job.ranks
    whole = data["duration_ns"].to_numpy()
    parts = sum(data[c].to_numpy() for c in PART_COLUMNS)
    return bool((whole == parts).all())


PART_COLUMNS = tuple(f"{part}_ns" for part in PARTS)
