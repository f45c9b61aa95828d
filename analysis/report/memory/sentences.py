"""The answer in words: how high the peak is, what it is made of, what lowers it most."""

from __future__ import annotations

from collections import defaultdict

from ....core.module_paths import kind_of
from ....core.stats import ratio
from ... import formatting
from ...memory.explain import Explained, OutOfMemory
from ...memory.peak import NO_MODULE, Check
from ...memory.remedies import Remedy, Tried

# Shares that a sentence says in words, and how far from these they may be.
_SHARES = ((1 / 4, "a quarter"), (1 / 3, "a third"), (1 / 2, "half"), (2 / 3, "two thirds"),
           (3 / 4, "three quarters"))  # fmt: skip
_NEAR = 0.02
MOST, FEW = 0.5, 0.1


def heading(done: Explained) -> str:
    """One sentence."""
    size = formatting.size(done.peak.allocated)
    if not done.with_history:
        return f"{size} are allocated; how much it was before, the snapshot does not tell"
    start = f"The peak is {size}"
    if done.oom is not None:
        asked = f"{formatting.size(done.oom.asked)} were asked for{_free(done.oom)}"
        start = f"Out of memory: {asked}; the peak was {size}"
    if not done.peak.categories:
        return start
    name, held = max(done.peak.categories.items(), key=lambda item: item[1])
    if name == "unknown":
        line, by = done.peak.lines[0]
        share = sum(by.values()) / max(done.peak.allocated, 1)
        if share < FEW:
            return f"{start}, allocated in {len(done.peak.lines):,} places"
        return f"{start}, {share_in_words(share)} of it allocated in {line}"
    part = share_in_words(held / max(done.peak.allocated, 1))
    if name == "other":
        return (
            start
            if done.oom is not None
            else f"{start}, {part} of it neither the model's nor the step's"
        )
    where, these = most_of(done, name), "them" if name.endswith("s") else "it"
    return f"{start}, {part} of it {name}{f', most of {these} in {where}' if where else ''}"


def when(done: Explained) -> str:
    """Of which moment the parts are."""
    return "at the peak" if done.with_history else "in the snapshot"


def _free(oom: OutOfMemory) -> str:
    if oom.free is None:
        return ""
    free = formatting.size(oom.free)
    if oom.free < oom.asked:
        return f" where {free} were free"
    return f", more than this process may have ({free} of the device were free)"


def share_in_words(share: float) -> str:
    """``two thirds``, or ``71.2 %``."""
    for value, name in _SHARES:
        if abs(share - value) <= _NEAR:
            return name
    return formatting.percent(share)


def most_of(done: Explained, category: str) -> str | None:
    """The smallest part of the model that holds most of a category: ``transformer.h.*.attn``."""
    sums: dict[str, int] = defaultdict(int)
    total = 0
    for module, held in done.peak.modules:
        size = held.get(category, 0)
        total += size
        if size and module != NO_MODULE:
            parts = kind_of(module).split(".")
            for n in range(1, len(parts) + 1):
                sums[".".join(parts[:n])] += size
    large = [path for path, size in sums.items() if total and size > MOST * total]
    return max(large, key=lambda path: (path.count("."), path), default=None)


def lead(done: Explained) -> str:
    """What lowers it most, and what that costs."""
    own = [r for r in done.remedies if r.of == "allocated" and not r.already]
    own.sort(key=lambda r: r.name == "batch")  # trains otherwise: only where nothing else helps
    best = next(iter(own), None)
    ready = next((r for r in own if r.why_not is None), None)
    if best is None:
        if done.alone is not None:
            return f"Phases, modules and categories are not known: {done.alone}."
        if done.meta is None:
            return (
                "Phases, modules and categories are not in a snapshot that came alone: record it "
                "with layerline train --profile memory."
            )
        return "Nothing that is known here would lower it."
    text = f"What lowers it most: {best.what}, {_after(best)}."
    if any(r.saves > best.saves for r in own):
        text = f"At the same batch, w{text[1:]}"
    if best is ready or ready is None:
        return text
    return f"{text} What needs nothing else: {ready.what}, {_after(ready)}."


def _after(remedy: Remedy) -> str:
    share = formatting.percent(remedy.saves / max(remedy.before, 1))
    text = f"about {formatting.size(remedy.after)} ({share} less)"
    if remedy.tried is None:
        return f"{text}, {remedy.why_not or 'not tried'}"
    return f"{tried(remedy, remedy.tried)}; estimated {text}"


def tried(remedy: Remedy, done: Tried) -> str:
    """``tried: 10.3 GB, 27.1 % less, step 11 % longer``."""
    after, before = done.peak_bytes, done.base_peak_bytes
    if remedy.of == "reserved" and done.reserved_bytes and done.base_reserved_bytes:
        after, before = done.reserved_bytes, done.base_reserved_bytes
    saved = formatting.percent(abs(before - after) / max(before, 1))
    text = f"tried: {formatting.size(after)}, {saved} {'less' if after <= before else 'more'}"
    if (slower := ratio(done.step, done.base_step)) is not None:
        text += f", {step(*slower)}"
    return text


def step(value: float, low: float | None, high: float | None) -> str:
    """How much longer a step takes, of the ratio of its times: ``step 11 % longer (9 to 13 %)``."""
    if low is None or high is None:
        return "step times not settled"
    if low <= 1 <= high:
        return "step as long as far as can be told"
    word, ends = ("longer", (low, high)) if value > 1 else ("shorter", (high, low))
    parts = [formatting.percent(abs(x - 1)) for x in (value, *ends)]
    return f"step {parts[0]} {word} ({parts[1]} to {parts[2]})"


def check(one: Check) -> str:
    """A check in words."""
    if one.ok is None:
        return f"{one.name}: {formatting.size(one.ours)}, with nothing to compare it with"
    if one.ok:
        return f"{one.name}: equal to {one.source} to the byte ({one.ours:,} B)"
    assert one.ours is not None and one.theirs is not None
    return f"{one.name}: {one.ours:,} B, {one.source} says {one.theirs:,} B: they do not add up"
