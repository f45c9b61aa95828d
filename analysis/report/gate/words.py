"""How a verdict is worded, for every form of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ... import formatting
from ...comparison.gate import deepest, device_alone
from ...formatting import percent
from ...model.baseline import LATENCY
from ...model.verdict import CANNOT_TELL, NOT_SLOWER, Changed, Finding, Judged, Status, Verdict

_CAUSE = 160  # characters of a headline
_BARS = "▁▂▃▄▅▆▇█"
_MARKS = {NOT_SLOWER: "✓", CANNOT_TELL: "?"}
_GREW = {"bytes": "larger", "ns": "slower"}
_SHRANK = {"bytes": "smaller", "ns": "faster"}


def headline(verdict: Verdict) -> str:
    """The answer, with what grew: the latency that did most, else the first that is named; and how
    much growth of a latency this comparison sees nearly always. It may see less, by luck:
    `Judged.visible` bounds nothing that was found."""
    text = f"{_MARKS.get(verdict.code, '✗')} {verdict.answer}"
    if verdict.code == NOT_SLOWER and verdict.unchecked:
        text += ", outputs not checked"
    worse, seen = deepest(verdict.of(Status.WORSE)), verdict.visible
    if worse:
        worst = max(worse, key=lambda j: (j.what == "latency", j.change or 0))
        text += f": {change(worst)} in {name(worst)} ({worst.side})"
        if worst.what == "latency":
            seen = (worst, worst.visible) if worst.visible is not None else None
        if seen is None:
            return text
        return f"{text}; of latency {percent(seen[1])} is seen 19 times in 20"
    if (led := leads(verdict)) is not None:
        text += f": {formatting.words(_said(led), _CAUSE)}"
    if seen is None:
        unknown = ": how small a change of latency would be seen is not known"
        return text if led is not None else text + unknown
    judged, share = seen
    whole = "latency" if judged.what == LATENCY else "time on the device"
    often = f"{percent(share)} in {whole} 19 times in 20"
    text += f"{':' if led is None else ';'} this comparison would have seen {often} ({judged.side})"
    return text + _beside(verdict, judged)


def leads(verdict: Verdict) -> Finding | None:
    """What makes the answer where no time is slower: the headline says it, and lists need not."""
    worse = verdict.of(Status.WORSE)
    return None if worse else next(iter(verdict.findings), None)


def others(verdict: Verdict) -> list[Finding]:
    """What the headline does not say."""
    led = leads(verdict)
    return [f for f in verdict.findings if f is not led]


def _beside(verdict: Verdict, judged: Judged) -> str:
    """What is told of the other of latency and time on the device, where one cannot be told."""
    untold = verdict.untold
    if untold and not verdict.findings and all(j.what == LATENCY for j in untold):
        alone = device_alone(judged, verdict.judged)
        others = (device_alone(j, verdict.judged) for j in untold)
        if alone is not None and alone.visible is not None and all(others):
            would = f"would have seen {percent(alone.visible)}"
            return f"; on the device alone {status(alone)} ({would})"
    elsewhere = (j for j in verdict.of(Status.UNTOLD) if not j.decides)
    if verdict.code == NOT_SLOWER and any(j.what == LATENCY for j in elsewhere):
        return "; latency cannot be told"
    return ""


def allowed(of: Judged) -> str:
    """By how much it may grow, and why so much; empty where nothing is known of it."""
    if of.limit is None:
        return ""
    return percent(of.limit) + (f" ({of.limit_of})" if of.limit_of else "")


def change(of: Judged) -> str:
    """``+3.2 % (+2.8 to +3.6 %)``."""
    if of.change is None:
        return "new" if of.after else "unchanged"
    text = signed(of.change)
    if of.high is not None and of.low != of.high:
        text += f" ({'below' if of.low is None else f'{signed(of.low)} to'} {signed(of.high)})"
    return text


def signed(share: float) -> str:
    """A share with its sign."""
    return f"{'+' if share >= 0 else ''}{percent(share)}"


def amount(of: Judged, value: float) -> str:
    """In its unit."""
    return formatting.size(value) if of.unit == "bytes" else formatting.time(value)


def status(of: Judged) -> str:
    """In words of its unit."""
    if of.status is Status.WORSE:
        return _GREW[of.unit]
    return (
        _SHRANK[of.unit]
        if of.status is Status.FASTER
        else {Status.SAME: f"not {_GREW[of.unit]}"}.get(of.status, str(of.status))
    )


def name(of: Judged) -> str:
    """``latency``, ``kind transformer.h.*.attn``."""
    return formatting.visible(f"{of.what} {of.name}".strip())


def line(of: Judged) -> str:
    """One quantity in one line."""
    text = f"{name(of)}: {amount(of, of.before)} → {amount(of, of.after)}, {change(of)}"
    text += f": {status(of)}"
    if of.limit is not None:
        text += f", limit {allowed(of)}"
    if of.visible is not None and of.status is not Status.WORSE:  # that one was seen
        text += f", would have seen {percent(of.visible)}"
    return text + (f" ({of.why})" if of.why else "")


def finding(of: Finding) -> str:
    """With what to do."""
    return formatting.visible(_said(of) + (f"; {of.fix}" if of.fix else ""))


def _said(of: Finding) -> str:
    return f"{of.side}: {of.text}" if of.side else of.text


def changed(of: Sequence[Changed], limit: int = 200) -> str:
    """What is another, in one line."""
    each = (f"{c.name} {c.before} → {c.after}" for c in of)
    return formatting.words(", ".join(each), limit)


def shown(verdict: Verdict) -> list[Judged]:
    """What is worse, named where it is; what decides; what is faster."""
    worse = deepest(verdict.of(Status.WORSE))
    rest = [j for j in verdict.judged if (j.decides or j.what == LATENCY) and j not in worse]
    better = [j for j in deepest(verdict.of(Status.FASTER)) if j not in rest]
    return [*worse, *rest, *better]


def fixes(verdict: Verdict) -> list[str]:
    """What to do about what the headline says and what cannot be told, each once."""
    led = leads(verdict)
    each: list[Finding | Judged] = [*([led] if led else []), *verdict.untold]
    return list(dict.fromkeys(formatting.visible(one.fix) for one in each if one.fix))


def trends(verdict: Verdict) -> list[str]:
    """Latency over the baselines that were kept, of sides that have more than two."""
    return [
        f"{key}: {sparkline(values)} {formatting.time(values[0])} → {formatting.time(values[-1])}"
        for key, values in verdict.trend
        if len(values) > 2
    ]


def sparkline(values: Sequence[float]) -> str:
    """A bar for each value, from the least to the most."""
    low, high = min(values), max(values)
    if high == low:
        return _BARS[0] * len(values)
    top = len(_BARS) - 1
    return "".join(_BARS[round((v - low) / (high - low) * top)] for v in values)


def cut(lines: Iterable[str], room: int, more: str) -> list[str]:
    """As many lines as there is room for; the last one says how many more there are."""
    every = list(lines)
    if len(every) <= room:
        return every
    kept = every[: max(room - 1, 0)]
    return [*kept, f"{more}and {len(every) - len(kept)} more"]
