"""Sentences about latencies that have not settled, and about what made them so."""

from __future__ import annotations

from .report import answer, show
from .report.view import Ratio, View

SHOWN = 4
BUSY = "busy machine"
WHOLE = ("inference", "step")  # what stands for itself; the others are parts of a step


def not_settled(view: View, first: Ratio | None) -> list[str]:
    """The series that have not settled, besides those that the first sentence tells; and, of all
    of them, whether the machine had other work."""
    return [*_series(view, first), *_busy(view)]


def _series(view: View, first: Ratio | None) -> list[str]:
    told = {first["over"], first["under"]} if first else _series_alone(view)
    # Phases of a step after what stands for itself: that is what is shown first.
    ordered = sorted(view["sides"], key=lambda s: s["phase"] not in WHOLE)
    loose = [
        (s["label"], answer.unsettled(s))
        for s in ordered
        if s["key"] not in told and answer.unsettled(s)
    ]
    if not loose:
        return []
    said = [f"{label} {faults[0]}" for label, faults in loose[:SHOWN]]
    more = len(loose) - len(said)
    if more:
        said.append(f"and {more} more (see the ledger)")
    return [f"Latencies that have not settled: {'; '.join(said)}."]


def _series_alone(view: View) -> set[str]:
    """The sides that have a sentence each where nothing is compared (`headline`)."""
    known = [s for s in view["sides"] if s["latency"]["median"] is not None]
    return {s["key"] for s in [s for s in known if s["phase"] in WHOLE] or known}


def _busy(view: View) -> list[str]:
    row = next((c for c in view["comparability"] if c["what"] == BUSY), None)
    loose = {s["key"] for s in view["sides"] if answer.unsettled(s)}
    if row is None or loose.isdisjoint(row["sides"]):
        return []
    # The row has the load of the first side of each kind.
    loads = []
    for kind in ("engine", "eager"):
        mine = [s for s in view["sides"] if s["side"] == kind and s["key"] in row["sides"]]
        if mine and row[kind] != show.UNKNOWN:
            loads.append(f"{mine[0]['label']}: {row[kind]}")
    return [
        f"The machine had other work beside latencies that have not settled "
        f"({', '.join(loads)}): measure again when it is idle (layerline profile --force)."
    ]
