"""Two runs of one model as one comparison: each side of A beside the same side of B."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log
from typing import Any

from ...core.accuracy.limits import DEFAULTS, Asked
from ..costs.measured import MeasuredSide
from ..model.comparison import Comparison, Difference, Ratio, Side, Skipped
from ..model.side import Model, SideFacts
from . import build, comparability, lead, ratios, runs

A, B = "A", "B"
# What is said of each run alone, and bends the comparison of two as well.
_BENDS = ("busy machine", "GPU slowed down")
NOISE = Difference(
    "noise from run to run",
    "not measured",
    "not measured",
    "Intervals hold within a run; two runs of the same may differ by more.",
    (),
)


@dataclass(frozen=True)
class OfRun:
    """What was read of one run; `name`: as it was given."""

    name: str
    sides: Sequence[MeasuredSide]
    model: Model
    facts: Sequence[SideFacts]
    record: Mapping[str, Any]
    skipped: Sequence[Skipped] = ()


def together(a: OfRun, b: OfRun, generated: str, limits: Asked = DEFAULTS) -> Comparison:
    """The comparison, in which B's sides are held against A's of the same key."""
    of_a, of_b = _marked(a.sides, A), _marked(b.sides, B)
    beside = {old.key: new for old, new in zip(b.sides, of_b, strict=True)}
    pairs = {
        new.key: beside[old.key].key
        for old, new in zip(a.sides, of_a, strict=True)
        if old.key in beside
    }
    ordered: list[MeasuredSide] = []
    by_key = {s.key: s for s in of_b}
    for side in of_a:
        ordered += [side, *([by_key[pairs[side.key]]] if side.key in pairs else [])]
    ordered += [s for s in of_b if s not in ordered]
    context = build.Context(
        generated=generated,
        manifest={x: r.record for x, r in _runs(a, b)},
        comparability=list(_differences(a, b)),
        skipped=[replace(s, what=f"{x}: {s.what}") for x, r in _runs(a, b) for s in r.skipped],
        load={
            f"{k}/{x}": v for x, r in _runs(a, b) for k, v in comparability.load(r.facts).items()
        },
    )
    built = build.build(
        ordered, _model(a, b), context, limits=limits, pairing=partial(_ratios, pairs)
    )
    return replace(built, runs=(a.name, b.name))


def _runs(a: OfRun, b: OfRun) -> list[tuple[str, OfRun]]:
    return [(A, a), (B, b)]


def _marked(sides: Iterable[MeasuredSide], run: str) -> list[MeasuredSide]:
    return [
        replace(s, side=replace(s.side, run=run, label=f"{s.side.label} ({run})")) for s in sides
    ]


def _model(a: OfRun, b: OfRun) -> Model:
    """The modules of both, A's order first."""
    paths = list(dict.fromkeys([*a.model.paths, *b.model.paths]))
    return Model(a.model.title, paths, {**b.model.classes, **a.model.classes})


def _ratios(pairs: Mapping[str, str], sides: Sequence[Side]) -> list[Ratio]:
    """The ratios that are sure first, the largest change first; then the fastest engine."""
    right = {s.key: s for s in sides}
    both = [(a, b) for a, b in pairs.items() if a in right and b in right]
    found = ratios.of_pairs(sides, both)

    def rank(r: Ratio) -> tuple[bool, bool, float, int]:
        sure = r.low is not None and not lead.alike(r)
        whole = right[r.under].phase in ("inference", "step")
        change = -abs(log(r.ratio)) if sure and r.ratio > 0 else 0.0
        return not sure, not whole, change, right[r.under].latency.median or 0

    ordered = sorted(found, key=rank)
    return [replace(r, lead=i == 0) for i, r in enumerate(ordered)]


def _differences(a: OfRun, b: OfRun) -> Iterator[Difference]:
    """What the runs do not have in common; then what bends one of them."""
    keys = [f"{s.key}/{x}" for x, r in _runs(a, b) for s in r.sides]
    facts = [r.record.get("facts") or {} for _, r in _runs(a, b)]
    for names, effect in (
        (runs.MUST_AGREE, "Times of the two are not those of one thing."),
        (runs.SHOULD_AGREE, "It may be why they differ."),
    ):
        for name, x, y in runs.disagreements(facts[0], facts[1], names):
            yield Difference(name, comparability.text(x), comparability.text(y), effect, keys)
    for letter, run in _runs(a, b):
        for found in comparability.differences(run.facts):
            if found.what not in _BENDS:
                continue
            value = next(v for v in (found.engine, found.eager) if v != "–")
            cells = (value, "–") if letter == A else ("–", value)
            bent = [f"{k}/{letter}" for k in found.sides]
            yield Difference(found.what, *cells, found.effect, bent)
    yield replace(NOISE, sides=keys)
