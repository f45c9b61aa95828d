"""What makes a number doubtful, in words: every text of the report takes them from here."""

from __future__ import annotations

from ...core.documents import ModuleError
from .. import formatting
from ..comparison import lead
from ..model.comparison import Side

ALIKE = "not distinguishable"
UNCHECKED = "outputs not checked"
CROWDED = "the machine was too busy"


def precision(side: Side) -> str:
    """That an engine computed little or nothing in its precision; empty where it did."""
    lack = lead.lack(side)
    if lack is None:
        return ""
    which = f"only {formatting.percent(lack.share)}" if lack.share else "nothing"
    if lack.unknown:
        which += " that can be told"
    return f"{which} was computed in {side.precision}"


def precision_in_full(side: Side) -> str:
    """As `precision`, with what it computed in instead."""
    lack = lead.lack(side)
    if lack is None:
        return ""
    others = ", ".join(f"{formatting.percent(share)} {p}" for p, share in lack.others.items())
    return f"{precision(side)} (by time, {others})"


def outputs(side: Side) -> str:
    """That an engine computes something else than eager, or that it is unknown whether it does;
    empty where it is known to compute the same."""
    verdict = side.outputs
    if side.unchecked:
        return UNCHECKED
    if verdict is None or verdict.ok:
        return ""
    if verdict.wrong:
        return f"does not compute what eager does: {verdict.why}"
    return f"unknown whether it computes what eager does: {verdict.why}"


def error(m: ModuleError) -> str:
    """The error of a module's output, and of what it was given; empty where it is unknown."""
    if m.nonfinite:
        got = f"{m.nonfinite:,} values not finite"
    elif m.error_out is not None:
        got = f"error {m.error_out:.2g}"
    else:
        return ""
    given = "" if m.error_in is None else f", in {m.error_in:.2g}"
    return f"{got}{given}{': first wrong' if m.first_wrong else ''}"


def where(side: Side) -> str:
    """In which module an engine goes wrong; empty where that is not known."""
    first = next((m for m in side.errors.values() if m.first_wrong), None)
    return f"it goes wrong in {first.module or 'the model'} ({error(first)})" if first else ""


def series(side: Side) -> list[str]:
    """What is wrong with each of the side's series."""
    words = {"latency": "it", "traced": "while traced it", "queued": "queued it"}
    return [f"{it} {fault}" for which, it in words.items() for fault in lead.faults(side, which)]


def first_fault(side: Side) -> str:
    """The side with what is wrong with its latency first of all; empty where it has settled."""
    faults = lead.faults(side)
    return f"{side.label} {faults[0]}" if faults else ""


def of_sides(over: Side | None, under: Side | None) -> list[str]:
    """What a reader must know of two sides before believing their ratio."""
    notes = [precision(under)] if under else []
    if over and (lack := precision(over)):
        notes.append(f"{over.label}: {lack}")
    notes += [f"{s.label}: {said}" for s in (under, over) if s and (said := outputs(s))]
    unsettled = [s.label for s in (under, over) if s and lead.faults(s)]
    if unsettled:
        notes.append(f"not settled: {', '.join(unsettled)}")
    return [n for n in notes if n]
