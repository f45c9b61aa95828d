"""What a gate says beside its judgement: what else changed, and what is not judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..model.baseline import LATENCY, Baseline, SideSamples
from ..model.verdict import Changed, Judged, Status
from . import runs
from .limits import Limits

SEVERAL = "name several runs of each"
_OF_CPU = {"cpu": "CPU", "cpus_usable": "number of CPUs", "threads": "number of threads"}
_OF_GPU = {"gpu": "GPU"}


def judged_sides(of: Baseline, limits: Limits) -> dict[str, SideSamples]:
    """The sides of a baseline that the limits are of."""
    return {k: s for k, s in of.sides.items() if limits.judges(k)}


def elsewhere(before: Baseline, after: Baseline) -> tuple[str, str]:
    """Why sides on the CPU and on the GPU cannot be compared; empty where they can.

    A device that one of them does not know may be the same one.
    """
    told = []
    for names in (_OF_CPU, _OF_GPU):
        other = [
            f"another {words}: {_word(x)}, now {_word(y)}"
            for name, words in names.items()
            if (x := before.facts.get(name)) is not None
            and (y := after.facts.get(name)) is not None
            and x != y
        ]
        told.append("; ".join(other))
    return told[0], told[1]


def changed(before: Baseline, after: Baseline) -> list[Changed]:
    """What is another than it was, first what makes times those of another thing. A fact that one
    of them lacks is unknown, not another."""
    names = sorted({*before.facts, *after.facts}, key=lambda n: (n not in runs.MUST_AGREE, n))
    pairs = runs.disagreements(before.facts, after.facts, names)
    known = [p for p in pairs if p[1] is not None and p[2] is not None]
    found = [Changed(n, _word(x), _word(y)) for n, x, y in known]
    for key, side in before.sides.items():
        other = after.sides.get(key)
        if other is None:
            continue
        if side.sm_mhz and other.sm_mhz and abs(other.sm_mhz / side.sm_mhz - 1) > 0.01:
            mhz = (f"{s.sm_mhz:g} MHz" for s in (side, other))
            found.append(Changed(f"clock of {key}", *mhz))
        if side.builds and other.builds and set(side.builds) != set(other.builds):
            found.append(Changed(f"engine of {key}", *(s.builds[0][:8] for s in (side, other))))
    return found


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    if isinstance(value, list):
        return " and ".join(map(str, value))
    return str(value)


def remarks(
    before: Baseline, after: Baseline, limits: Limits, judged: Sequence[Judged]
) -> Iterator[str]:
    """What is not judged, and why; what the new side has beside."""
    if unknown := unchecked(before, after, limits):
        yield (
            f"whether outputs are right is known of neither: {_short(', '.join(unknown))} "
            "(layerline profile compares them)"
        )
    untold = (j for j in judged if j.status is Status.UNTOLD and not j.decides)
    single = [j for j in untold if j.what != LATENCY]
    alone = sum(1 for j in single if max(j.units) == 1)
    if alone:
        said = any(SEVERAL in j.fix for j in judged if j.decides)
        what = f"{alone} kinds and modules have one capture each and are not judged"
        yield what if said else f"{what}: {SEVERAL}"
    if len(single) > alone:
        names = ", ".join(j.name or j.what for j in single if max(j.units) > 1)
        yield f"{len(single) - alone} kinds and modules cannot be told: {_short(names)}"
    if lone := _of_one_alone(before, after, limits):
        yield f"{len(lone)} kinds and modules are of one of both alone: {_short(', '.join(lone))}"
    new = [k for k in after.sides if k not in before.sides and limits.judges(k)]
    if new:
        yield f"new, and in no baseline: {_short(', '.join(new))}"
    pairs = [(s, after.sides[k]) for k, s in before.sides.items() if k in after.sides]
    if any(
        a.builds and b.builds and set(a.builds) != set(b.builds)
        and a.build_noise is None and b.build_noise is None
        for a, b in pairs
    ):  # fmt: skip
        yield (
            "engines were built anew, and how far builds lie apart was not measured "
            "(layerline profile --what rebuild)"
        )
    if limits.other_machine and any(elsewhere(before, after)):
        yield "on another machine, as you asked: this compares machines, too"
    if left := before.left_out + after.left_out:
        yield f"{left} cheap modules had no room in a baseline file"


def unchecked(before: Baseline, after: Baseline, limits: Limits) -> list[str]:
    """Engines of both whose outputs neither has held against eager's."""
    return [
        key
        for key in judged_sides(before, limits)
        if key.startswith("engine/")
        and all(key in b.sides and b.sides[key].outputs is None for b in (before, after))
    ]


def _of_one_alone(before: Baseline, after: Baseline, limits: Limits) -> list[str]:
    """Kinds and modules that only one of them has, of sides that both have: the model changed."""
    found: dict[str, None] = {}
    for key, side in before.sides.items():
        if limits.judges(key) and key in after.sides:
            a, b = ({q.key: q for q in s.quantities} for s in (side, after.sides[key]))
            found |= {name: None for what, name in sorted(a.keys() ^ b.keys()) if name}
    return list(found)


def _short(text: str, limit: int = 160) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
