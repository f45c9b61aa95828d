"""The answer in at most fifteen words, and the line below it.

What is doubtful changes the words ("about 1.6× as fast …, not settled"), not their number. An
engine whose outputs are wrong is compared with nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ....core.accuracy.precision_plan import PLANNED
from ....core.stats import Estimate, ratio
from ... import formatting
from ...comparison import lead
from ...comparison.savings import intervals
from ...formatting import percent, time
from ...model.comparison import Comparison, Ratio, Side
from ...model.partition import GAPS, WAITING, Partition
from .. import doubts
from ..headline import again, amount, medians

MOST_WORDS = 15
NAME_LIMIT = 40
GOOD, BAD, UNSURE, NEUTRAL = "good", "bad", "unsure", "neutral"
# An interval whose end is as many times its beginning leaves only its beginning to tell.
WIDE = 2


class Answer(NamedTuple):
    """`before`, `figure` and `after` are one sentence, of which the figure stands out."""

    before: str
    figure: str
    after: str
    tone: str

    @property
    def text(self) -> str:
        """The whole sentence."""
        return f"{self.before}{self.figure}{self.after}"


@dataclass(frozen=True)
class Device:
    """How two sides compare on the device alone; `queued`: by inferences queued before they begin,
    else by the time of their operations."""

    ratio: float
    queued: bool


def spoken(value: float) -> str:
    """A ratio in two digits, more of them next to 1."""
    if value < 1.095:
        return formatting.ratio(value)
    return f"{value:.1f}×" if value < 9.95 else f"{value:.0f}×"


def compared(comparison: Comparison, r: Ratio, over: Side, under: Side) -> Answer:
    """How fast one side is against the other."""
    if lead.crowded(comparison.load, over, under):
        name = subject(comparison)
        told = f" how fast {under.label} runs {name}" if name else f" how fast {under.label} is"
        return _fitting("too busy to tell", [("The machine was ", told)], UNSURE)
    doubt = _doubt(r, over, under)
    about = "about " if doubt else ""
    device = on_device(comparison, r)
    low, high = r.low, r.high
    if low is not None and high is not None and high > WIDE * low:
        about = "at least "
        value, inverse = low, 1 / high
    else:
        value, inverse = r.ratio, 1 / r.ratio
    name = subject(comparison)
    subject_, tail = under.label, f" as {over.label}"
    if under.run is not None:  # the same side of two runs
        subject_, tail = _of_run(under), f" in {under.run} as in {over.run}"
    tone = UNSURE if doubt else NEUTRAL
    if lead.alike(r) and not lead.same(r):
        other = over.label
        if under.run is not None:
            subject_, other = f"{subject_} in {under.run}", f"that in {over.run}"
        tails = [f" from {other} on {name}" if name else "", f" from {other}"]
        candidates = [(f"{subject_} ", f"{t}{doubt}") for t in tails if t]
        return _fitting("cannot be told apart", [*candidates, (f"{subject_} ", tails[-1])], UNSURE)
    if lead.alike(r):
        near = "about " if doubt else ""
        verb, figure = "runs", f"{near}as fast"
    elif r.ratio < 1:
        verb, figure = "takes", f"{about}{spoken(inverse)} as long"
        tone = tone if doubt else BAD
    else:
        verb, figure = "runs", f"{about}{spoken(value)} as fast"
        tone = tone if doubt else GOOD
    alone = f", {spoken(device.ratio)} on the device" if device and not doubt else ""
    bare = "is" if verb == "runs" else "takes"
    starts = [f"{subject_} {verb} {name} " if name else "", f"{subject_} {bare} "]
    candidates = [(s, f"{tail}{end}") for end in (alone or doubt, doubt) for s in starts if s]
    return _fitting(figure, [*candidates, (starts[-1], tail)], tone)


def _of_run(side: Side) -> str:
    """The side's label without the run that it is of."""
    return side.label.removesuffix(f" ({side.run})")


def _fitting(figure: str, candidates: Sequence[tuple[str, str]], tone: str) -> Answer:
    candidates = [(formatting.opening(b), after) for b, after in candidates]
    for before, after in candidates:
        found = Answer(before, figure, after, tone)
        if len(found.text.split()) <= MOST_WORDS:
            return found
    before, after = candidates[-1]
    return Answer(_cut(before), figure, _cut(after), tone)


def _cut(text: str) -> str:
    """At most five words of a name that has more."""
    words = text.split(" ")
    return text if len(words) <= 5 else " ".join([*words[:4], words[-1]])


def subject(comparison: Comparison) -> str:
    """The model's name, of a path its last part; empty where it would fill the sentence."""
    name = (comparison.title.rpartition(", ")[0] or comparison.title).rpartition("/")[2]
    return "" if len(name) > NAME_LIMIT or " " in name else name


def _doubt(r: Ratio, over: Side, under: Side) -> str:
    if lead.lack(under) is not None:
        return f", barely in {under.precision}"
    if any(s.unchecked for s in (over, under)):
        return ", outputs unchecked"
    if any(s.outputs is not None and s.outputs.ok is None for s in (over, under)):
        return ", outputs unknown"
    if any(lead.faults(s) for s in (over, under)):
        return ", not settled"
    return ", too few samples" if r.low is None or r.high is None else ""


def on_device(comparison: Comparison, r: Ratio) -> Device | None:
    """How the two compare on the device, where that lies outside of the interval of the latencies'
    ratio; None where it does not, or is unknown."""
    parts = [comparison.partitions.get(k) for k in (r.over, r.under)]
    if any(p is None or not p.device for p in parts):
        return None
    sides = {s.key: s for s in comparison.sides}
    pair = [sides[r.over], sides[r.under]]
    queued = all(s.queued.median for s in pair)
    times = [s.queued if queued else Estimate(s.operation_ns) for s in pair]
    found = ratio(*times)
    low, high = (r.ratio if x is None else x for x in (r.low, r.high))
    if found is None or low <= found[0] <= high:
        return None
    return Device(found[0], queued)


def line_of(comparison: Comparison, r: Ratio, over: Side, under: Side) -> Iterator[str]:
    """Both latencies with the interval of their ratio; why the device alone tells another one."""
    times = medians(under, over, "for")
    if lead.crowded(comparison.load, over, under):
        yield f"{times} as it was. Measure again when it is idle: {again(comparison)}."
        return
    if lead.alike(r):
        times += f", {doubts.ALIKE}"
    low, high = r.low, r.high
    if low is not None and high is not None:
        how = "as fast"
        if not lead.alike(r) and r.ratio < 1 and low > 0:  # in the direction of the answer
            low, high, how = 1 / high, 1 / low, "as long"
        ends = formatting.ratio_range(low, high, " to ")
        yield f"{times} (95 %: {ends} {how})."
    else:
        yield f"{times} (no interval)."
    if lead.alike(r) and not lead.same(r):
        yield from _sure(r, over, under)
    device = on_device(comparison, r)
    if device is not None:
        how = "On the device alone" if device.queued else "Operations alone"
        yield f"{how} {formatting.ratio(device.ratio)}: {_waits(comparison, over, under)}."


def _sure(r: Ratio, over: Side, under: Side) -> Iterator[str]:
    """Where a whole that cannot be told differs for sure: the surest kinds that take more, less."""
    known = [
        f"{more} in {places[0].name} ({amount(places[0])})"
        for places, more in ((r.loses, "more"), (r.saves, "less"))
        if places and intervals(places)
    ]
    if known:
        how = "As profiled" + (" in these two runs" if under.run is not None else "")
        if any(c.ok is False for side in (over, under) for c in side.checks):
            how += ", with checks that failed"
        yield f"{how}: {', '.join(known)}."


def _waits(comparison: Comparison, over: Side, under: Side) -> str:
    """Which of the two waits for launches more, and for how much of its latency."""
    shares = [(_idle(comparison.partitions[s.key]), s) for s in (over, under)]
    share, side = max(shares, key=lambda x: x[0])
    if all(s.launch_bound is not None for s in (over, under)):
        return f"{side.label} waits for launches in {percent(share)} of its latency"
    return f"in {percent(share)} of {side.label}'s latency no operation runs"


def _idle(partition: Partition) -> float:
    waits = [p.ns for p in partition.parts if p.kind == WAITING]
    left = waits or [p.ns for p in partition.parts if p.kind == GAPS]
    return max(0.0, sum(left) / partition.total) if partition.total else 0.0


def alone(comparison: Comparison, side: Side) -> Answer:
    """What a side takes that is compared with nothing."""
    partition = comparison.partitions[side.key]
    about = "about " if lead.faults(side) else ""
    name = subject(comparison)
    what = side.label
    if side.phase == "step" and name:
        what = f"A step of {name}"
    if partition.of == "operations":
        what = side.label
        figure = time(partition.total)
        of = "keeps the device busy for" if partition.device else "has operators of"
        return _fitting(figure, [(f"{what} {of} ", ", latency unknown")], NEUTRAL)
    end = ", not settled" if about else " while profiled" if partition.of == "traced" else ""
    runs = f"{what} takes "
    if side.phase != "step" and name:
        runs = f"{what} runs {name} in "
    figure = f"{about}{time(partition.total)}"
    starts = [(runs, end), (f"{what} takes ", end), (f"{side.label} takes ", end)]
    return _fitting(figure, starts, UNSURE if about else NEUTRAL)


def line_alone(comparison: Comparison, side: Side) -> str:
    """Of what, and how sure."""
    partition = comparison.partitions[side.key]
    words = {
        "latency": "Latency while changes of parameters are counted"
        if side.device.get("beside")
        else "Latency without a profiler",
        "traced": "As profiled; without a profiler it was not measured",
        "operations": "Sum of its operations as profiled; its latency was not measured",
    }
    sure = "no interval"
    if partition.low is not None and partition.high is not None:
        sure = f"95 %: {formatting.time_range(partition.low, partition.high, ' to ')}"
    label = f"{side.label}. " if side.phase == "step" else ""
    return f"{label}{words[partition.of]} ({sure})."


def wrong(comparison: Comparison, side: Side) -> Answer:
    """That an engine's times are no result."""
    name = subject(comparison) or "what eager does"
    return _fitting("", [(f"{side.label} does not compute {name}", "")], BAD)


def line_wrong(side: Side) -> str:
    """What is wrong, and the first wrong module."""
    why = side.outputs.why if side.outputs else ""
    where = doubts.where(side)
    said = f"{why}; {where}" if where else why
    return f"{formatting.opening(said)}. Its times are no result."


def repair(side: Side) -> tuple[str, str]:
    """What to do about a wrong engine, and the command."""
    of = f"RUN --precision {side.precision} --backend {side.backend}"
    located = any(m.first_wrong for m in side.errors.values())
    if side.precision in PLANNED:
        return "Find what has to stay in fp32", f"layerline accuracy {of} --plan -o plan.json"
    if located:
        return "Build it again", f"layerline engines {of} --force"
    return "Find the module", f"layerline accuracy {of}"
