"""What a run says about its parameters, as sentences: which kinds of layer are the cold ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from .. import formatting
from .history import History
from .hotness import COLD, NORM, Hotness, by_kind, layer_kind


def sentences(
    history: History, parameters: Sequence[Hotness], limit: float = COLD
) -> Iterator[str]:
    """The answer first; before it what makes it worthless."""
    yield from history.notes
    trained = [p for p in parameters if p.state != "frozen"]
    cold = [p for p in trained if p.cold]
    steps = int(history.stepped.sum())
    what = (
        f"fewer than {formatting.percent(limit)} of their elements change in a step"
        if any(p.share is not None for p in parameters)
        else f"fewer than {formatting.percent(limit)} of steps change them"
    )
    if not steps:
        yield "The optimizer took no step: nothing is known of how hot parameters are."
        return
    if not parameters:
        yield f"No parameter is named: none changed in {steps} step{'s' * (steps != 1)}."
        return
    if cold:
        yield (
            f"{len(cold)} of {len(trained)} trained parameters {_are(cold)} cold ({what}, over "
            f"{steps} step{'s' * (steps != 1)}): {_kinds(cold, trained)}."
        )
    else:
        yield (
            f"None of {len(trained)} trained parameters is cold ({what}, over {steps} "
            f"step{'s' * (steps != 1)})."
        )
    if (norms := _norms(cold, trained)) is not None:
        yield norms
    yield from _coldest(parameters)
    skipped = len(history.steps) - steps
    if skipped:
        were = "step was" if skipped == 1 else "steps were"
        yield f"{skipped} more {were} skipped, in which nothing changed: gradients overflowed."
    yield from _apart(parameters)


def _are(some: Sequence[Hotness]) -> str:
    return "is" if len(some) == 1 else "are"


def _kinds(cold: Sequence[Hotness], trained: Sequence[Hotness]) -> str:
    every = Counter(p.kind for p in trained)
    few = Counter(p.kind for p in cold)
    return ", ".join(f"{n} of {every[k]} {k}" for k, n in few.most_common())


def _norms(cold: Sequence[Hotness], trained: Sequence[Hotness]) -> str | None:
    """Whether layer norms are the cold ones; None where no layer is known to be one."""
    norms = [p for p in trained if layer_kind(p.about.module_class) == NORM]
    if not norms:
        return None
    cold_norms = sum(p.cold for p in norms)
    others = len(cold) - cold_norms
    of = f"{cold_norms} of {len(norms)} layer-norm parameters are cold, and {others} of "
    of += f"{len(trained) - len(norms)} others"
    if not cold_norms:
        return f"Layer norms are not cold: {of}."
    if not others:
        which = {p.about.parameter for p in norms if p.cold}
        alone = f", its {which.pop()}s alone" if len(which) == 1 and cold_norms < len(norms) else ""
        return f"All that is cold is layer norm{alone}: {of}."
    more = cold_norms / len(norms) > others / max(1, len(trained) - len(norms))
    return f"Layer norms are {'colder' if more else 'no colder'} than the rest: {of}."


def _coldest(parameters: Sequence[Hotness]) -> Iterator[str]:
    trained = [p for p in parameters if p.state != "frozen"]
    groups = by_kind(trained)
    if len(groups) < 2:
        return
    if groups[0].share is not None and groups[-1].share is not None:
        yield (
            f"By number the coldest kind is {groups[0].name} ({formatting.percent(groups[0].share)}"
            f" of its elements change in a step), the hottest {groups[-1].name} "
            f"({formatting.percent(groups[-1].share)})."
        )
    sizes = sorted((g.update, g.name) for g in groups if g.update is not None)
    if len(sizes) > 1:
        (least, coldest), (most, hottest) = sizes[0], sizes[-1]
        yield (
            f"By size the coldest kind is {coldest} (a step moves it by "
            f"{formatting.percent(least)} of its norm), the hottest {hottest} "
            f"({formatting.percent(most)})."
        )


def _apart(parameters: Sequence[Hotness]) -> Iterator[str]:
    """Frozen, never touched and sparse ones."""
    for state, words in (
        ("frozen", "frozen"), ("never touched", "never touched"), ("sparse", "sparse"),
    ):  # fmt: skip
        members = [p for p in parameters if p.state == state]
        if members:
            why = Counter(p.why for p in members).most_common(1)[0][0]
            named = formatting.first([p.about.path for p in members], 4)
            yield f"{len(members)} {words} ({why}): {named}."
