"""Sentences about latencies that have not settled, and about what made them so."""

from __future__ import annotations

from .report import answer, show
from .report.view import Ratio, View

SHOWN = 4
BUSY = "busy machine"


def sentences(view: View, first: Ratio | None) -> list[str]:
    """The series that have not settled, besides those that the first sentence tells; and, of all
    of them, whether the machine had other work."""
    return [*_series(view, first), *_busy(view)]


def _series(view: View, first: Ratio | None) -> list[str]:
    told = {first["over"], first["under"]} if first else {s["key"] for s in view["sides"]}
    loose = [
        (s["label"], answer.unsettled(s))
        for s in view["sides"]
        if s["key"] not in told and s["phase"] in ("inference", "step") and answer.unsettled(s)
    ]
    if not loose:
        return []
    said = [f"{label} {faults[0]}" for label, faults in loose[:SHOWN]]
    more = len(loose) - len(said)
    if more:
        said.append(f"and {more} more (see the ledger)")
    return [f"Latencies that have not settled: {'; '.join(said)}."]


def _busy(view: View) -> list[str]:
    row = next((c for c in view["comparability"] if c["what"] == BUSY), None)
    loose = {s["key"] for s in view["sides"] if answer.unsettled(s)}
    if row is None or loose.isdisjoint(row["sides"]):
        return []
    loads = dict.fromkeys(x for x in (row["engine"], row["eager"]) if x != show.UNKNOWN)
    return [
        f"The machine had other work beside latencies that have not settled "
        f"({', '.join(loads)}): measure again when it is idle."
    ]
