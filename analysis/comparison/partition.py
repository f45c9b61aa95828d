"""What a side's time is made of, to the nanosecond, and how one side's becomes another's.

Medians do not add up. So each part is a share of every iteration, the shares of an iteration add
up to 1, and so do their means; these, scaled to the median that is shown and rounded together, are
the parts. On a device kernels take as long with a profiler as without: they are shares of the
operations' median, and what is left of the latency is waiting for launches (latency less what the
same inferences take when they are queued before they begin) and gaps. On a CPU the profiler makes
everything longer: operators are shares of the profiled iteration, scaled to the latency.

Parts are kinds of modules: those of one class (every GPT2Attention), or of one name where classes
are unknown, at the level below a repeated block. Layers that are fused over several kinds are a
part of their own: nothing is divided by a guess. Kinds that are mostly fused with each other on one
side are one step of a waterfall.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from ...core.module_paths import tree
from ...core.resolve.flow import connected
from ...core.stats import Estimate, less, sum_all
from ...core.tables import DEVICE_KINDS
from ..costs.iterations import Key, stat
from ..costs.measured import MeasuredSide
from ..model.partition import (
    FUSED,
    GAPS,
    MODULES,
    OTHER,
    ROW,
    UNRESOLVED,
    WAITING,
    Leaf,
    Part,
    Partition,
    Step,
    Waterfall,
)
from ..model.side import Model

MOST_STEPS = 8
BETWEEN = "between modules"
WAITS = "waiting for launches"
LEFT = {
    "gaps": "gaps and overlap",
    "both": "waiting and gaps",
    "cpu": "outside operators",
    "none": "not profiled",
}
Floats = np.ndarray[Any, np.dtype[np.float64]]


class Kinds:
    """Which kind of modules a module path is of."""

    def __init__(self, paths: Iterable[str], classes: Mapping[str, str | None]) -> None:
        self._classes = classes
        parents: dict[str, list[str]] = {}
        for path in tree(paths):
            if path:
                parents.setdefault(path.rpartition(".")[0], []).append(path.rpartition(".")[2])
        self._inner = set(parents)
        self._lists = {p for p, names in parents.items() if all(map(str.isdecimal, names))}
        self._members: dict[str, dict[str, None]] = {}

    def of(self, path: str) -> str:
        """The kind's key; `name` has its name when all are known."""
        part = self.part(path)
        key = BETWEEN if part is None else self._classes.get(part) or part.rpartition(".")[2]
        self._members.setdefault(key, {})[path if part is None else part] = None
        return key

    def part(self, path: str) -> str | None:
        """The module around `path` that has a kind: below the innermost list of modules that holds
        nothing but lists, else itself; None of what a container does itself."""
        names = path.split(".")
        numbers = [i for i, n in enumerate(names) if n.isdecimal()]
        if numbers:
            at = numbers[0] + 1
            while at + 1 < len(names) and ".".join(names[: at + 1]) in self._lists:
                at += 2
            if at < len(names):
                return ".".join(names[: at + 1])
        return None if path in self._inner else path

    def name(self, key: str) -> str:
        """What the members are all called, else their class."""
        names = {m.rpartition(".")[2] for m in self._members[key]}
        return key if key == BETWEEN or len(names) > 1 else names.pop()

    def members(self, key: str) -> list[str]:
        """The modules of the kind that were asked for."""
        return list(self._members[key])


def partitions(sides: Sequence[MeasuredSide], known: Model) -> dict[str, Partition]:
    """The partition of each side of which a time is known, by its key."""
    units = sorted({u for s in sides for u in s.sums.units()})
    kinds = Kinds([*known.paths, *units], known.classes)
    for unit in units:  # names depend on all members
        kinds.of(unit)
    rank = {p: i for i, p in enumerate(known.paths)}
    found = {s.key: _partition(s, kinds, rank) for s in sides}
    return {key: p for key, p in found.items() if p is not None}


def _partition(side: MeasuredSide, kinds: Kinds, rank: Mapping[str, int]) -> Partition | None:
    device = bool(set(pc.unique(side.ops["kind"]).to_pylist()) & set(DEVICE_KINDS))
    operations = stat(side.sums.total())
    latency, of = side.side.latency, "latency"
    if latency.median is None and not device:
        latency, of = side.side.traced, "traced"
    if latency.median is None:
        latency, of = operations or latency, "operations"
    if latency.median is None:
        return None
    if operations is None:
        parts = [Part(LEFT["none"], GAPS, latency.median, latency.low, latency.high)]
        return Partition(of, device, latency.median, latency.low, latency.high, parts, [])
    whole = operations if device or of == "operations" else latency
    total = side.sums.total().astype(np.float64)
    wall = total if whole is operations else _wall(side, total)
    ran = wall > 0
    if not ran.any():  # operations of no length
        ran, wall = np.ones(len(wall), dtype=bool), np.ones(len(wall))
    shares = side.sums.matrix.astype(np.float64)[:, ran] / wall[ran]
    left = 1 - shares.sum(axis=0)
    rest = [] if whole is operations else [left.mean()]
    ns = rounded([*shares.mean(axis=1), *rest], whole.median or 0)
    parts, names = _parts(side.sums.keys, shares, ns, whole, kinds, rank)
    if whole is operations:
        parts += _on_device(latency, side.side.queued, whole)
    else:
        parts.append(_part(LEFT["cpu"], GAPS, ns[-1], left, whole))
    leaves = [
        Leaf(k.modules or (), k.label, name, n)
        for k, name, n in zip(side.sums.keys, names, ns, strict=False)
    ]
    return Partition(of, device, latency.median, latency.low, latency.high, parts, leaves)


def _wall(side: MeasuredSide, total: Floats) -> Floats:
    """The length of each profiled iteration: its operations and what is outside of them."""
    for known in (side.traced_ns, side.outside_ns):
        if all(i in known for i in side.sums.iterations):
            times = np.array([known[i] for i in side.sums.iterations], dtype=np.float64)
            return times if known is side.traced_ns else total + times
    return total


def _parts(
    keys: Sequence[Key],
    shares: Floats,
    ns: Sequence[int],
    whole: Estimate,
    kinds: Kinds,
    rank: Mapping[str, int],
) -> tuple[list[Part], list[str]]:
    """The parts that operations are of, and the name of each key's."""
    groups: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    of: list[tuple[str, tuple[str, ...]]] = []
    for i, key in enumerate(keys):
        found = tuple(dict.fromkeys(map(kinds.of, key.modules or ())))
        kind = FUSED if len(found) > 1 else MODULES if found else ROW
        if key.label == UNRESOLVED:
            kind = UNRESOLVED
        named = tuple(sorted(found, key=lambda k: (k == BETWEEN, k)))
        of.append((kind, named or (key.label or UNRESOLVED,)))
        groups.setdefault(of[-1], []).append(i)
    names = _names(list(groups), kinds)
    parts = []
    for group, rows in groups.items():
        kind, found = group
        made = _part(names[group], kind, sum(ns[i] for i in rows), shares[rows].sum(axis=0), whole)
        members = (
            kinds.members(found[0])
            if kind == MODULES
            else [m for i in rows for m in keys[i].modules or ()]
        )
        ordered = sorted(dict.fromkeys(members), key=lambda m: (rank.get(m, len(rank)), m))
        serves = map(kinds.name, found) if kind == FUSED else ()
        parts.append(replace(made, modules=tuple(ordered), of=tuple(serves)))
    return parts, [names[g] for g in of]


def _names(
    groups: Sequence[tuple[str, tuple[str, ...]]], kinds: Kinds
) -> dict[tuple[str, tuple[str, ...]], str]:
    """A name for each group, no two alike."""
    names: dict[tuple[str, tuple[str, ...]], str] = {}
    for group in groups:
        kind, found = group
        named = kind in (MODULES, FUSED)
        name = " + ".join(map(kinds.name, found)) if named else found[0]
        if name in names.values():
            name = " + ".join(found)
        while name in names.values():
            name += " (no module)"
        names[group] = name
    return names


def _part(name: str, kind: str, ns: int, shares: Floats, whole: Estimate) -> Part:
    """With the interval of the share's median, times that of the whole; none of no time."""
    middle, around = whole.median or 0, _ends(whole)
    of = _ends(stat(np.rint(shares * middle)))
    if not middle or of is None or around is None:
        return Part(name, kind, ns)
    ends = [x * y / middle for x in (*of, ns) for y in (*around, middle)]
    return Part(name, kind, ns, round(min(ends)), round(max(ends)))


def _ends(of: Estimate | None) -> tuple[int, int] | None:
    """Of the interval, where there is one."""
    if of is None or of.low is None or of.high is None:
        return None
    return of.low, of.high


def _on_device(latency: Estimate, queued: Estimate, operations: Estimate) -> list[Part]:
    """What the latency has besides operations; nothing where it is not known."""
    if latency is operations:
        return []
    if queued.median is None:
        return [_difference(LEFT["both"], GAPS, latency, operations)]
    return [
        _difference(WAITS, WAITING, latency, queued),
        _difference(LEFT["gaps"], GAPS, queued, operations),
    ]


def _difference(name: str, kind: str, a: Estimate, b: Estimate) -> Part:
    ns = (a.median or 0) - (b.median or 0)
    of_a, of_b = _ends(a), _ends(b)
    if of_a is None or of_b is None:
        return Part(name, kind, ns)
    return Part(name, kind, ns, of_a[0] - of_b[1], of_a[1] - of_b[0])


def rounded(shares: Sequence[float], total: int) -> list[int]:
    """Integers next to shares of `total` that add up to it; shares add up to 1. The largest
    remainders are rounded up (Hamilton)."""
    exact = [s * total for s in shares]
    found = [int(np.floor(x)) for x in exact]
    order = sorted(range(len(exact)), key=lambda i: found[i] - exact[i])
    left = total - sum(found)
    for k in range(abs(left)):
        found[order[k % len(order)]] += 1 if left > 0 else -1
    return found


def waterfall(over: Partition | None, under: Partition) -> Waterfall:
    """From `over` to `under`, the largest step first; from nothing where there is no `over`.

    Where one side does not tell waiting from gaps, they are one step. Of more than `MOST_STEPS`
    the smallest are one, "other".
    """
    sides = [p for p in (over, under) if p is not None]
    names = _joined(sides)
    before = _by_name(over.parts, names) if over else {}
    after = _by_name(under.parts, names)
    none = Part("", "", 0, 0, 0)
    steps = []
    for name in dict.fromkeys([*before, *after]):
        a, b = before.get(name, none), after.get(name, none)
        steps.append(
            Step(
                name,
                (a if name in before else b).kind,
                b.ns - a.ns,
                less(b.low, a.high),
                less(b.high, a.low),
                list(dict.fromkeys([*a.modules, *b.modules])),
            )
        )
    steps = sorted((s for s in steps if s.ns), key=lambda s: -abs(s.ns))
    return Waterfall(over.total if over else 0, under.total, _few(steps))


def _joined(sides: Sequence[Partition]) -> dict[str, str]:
    """The name of the step that a part belongs to, by its own name."""
    step = {p.name: p.name for side in sides for p in side.parts}
    pairs = []
    for side in sides:
        with_it: dict[str, int] = {}  # all time in which a kind has a part
        for p in side.parts:
            for name in p.of or [p.name]:
                with_it[name] = with_it.get(name, 0) + p.ns
        for p in side.parts:
            if p.of and all(2 * p.ns >= with_it[name] for name in p.of):
                pairs += [(name, p.name) for name in p.of]
    step |= {name: name for name, _ in pairs}
    single = {k for side in sides for p in side.parts for k in p.of or [p.name]}
    for names in connected(step, pairs):
        if len(names) > 1:
            kinds = sorted((n for n in names if n in single), key=lambda n: (n == BETWEEN, n))
            step |= dict.fromkeys(names, " + ".join(kinds))
    waits = [any(p.kind == WAITING for p in side.parts) for side in sides]
    if not all(waits):
        left = LEFT["both" if any(side.device for side in sides) else "cpu"]
        parts = [p for side in sides for p in side.parts if p.kind in (WAITING, GAPS)]
        step |= dict.fromkeys((p.name for p in parts), left)
    return step


def _by_name(parts: Iterable[Part], names: Mapping[str, str]) -> dict[str, Part]:
    """The parts by the name of their step, those of one step as one."""
    found: dict[str, Part] = {}
    for p in parts:
        name = names[p.name]
        a = found.get(name)
        if a is not None:
            kind = MODULES if FUSED in (a.kind, p.kind) else p.kind
            modules = [*a.modules, *p.modules]
            low, high = sum_all((a.low, p.low)), sum_all((a.high, p.high))
            p = Part(name, kind, a.ns + p.ns, low, high, modules)
        elif p.kind == FUSED and name != p.name:
            p = replace(p, kind=MODULES)
        found[name] = p
    return found


def _few(steps: Sequence[Step]) -> list[Step]:
    """At most `MOST_STEPS`: the others are one."""
    if len(steps) <= MOST_STEPS:
        return list(steps)
    kept, rest = steps[: MOST_STEPS - 1], steps[MOST_STEPS - 1 :]
    low: int | None = 0
    high: int | None = 0
    for s in rest:
        low, high = sum_all((low, s.low)), sum_all((high, s.high))
    return [*kept, Step(OTHER, OTHER, sum(s.ns for s in rest), low, high, (), rest)]
