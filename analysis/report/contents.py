"""What a report shows, chosen and ordered once: the page and the Markdown only lay it out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..model.comparison import Column, Comparison
from . import answer, counted, doubts, ledger, panels, sentences, sweep
from .headline import Sentence

# How the tables of modules and kinds are read.
NOTES = (
    "Percentages are of the side's operations; that of a range is of its upper end.",
    "Each figure, and each end of a range, is the median of its own sums per iteration, so rows "
    "need not add up exactly to the row above, nor the width of a range to what is shared.",
    "Nor do columns: where iterations differ much (two levels, say), forward and backward need not "
    "give the step, nor do percentages, of medians, equal the headline's, the means of the shares "
    "in each iteration.",
    "– : no operation of that side is the row's, not even a shared one: it did not run, or its "
    "nodes were folded into a constant when the engine was built.",
)
LOOSE = (
    "? in a heading: a latency of that side, profiled or not, has not settled (the ledger says "
    "which and why): the medians below may not have either, as their intervals tell."
)


class Section(panels.Panel):
    """A panel, with the ledger of its sides and what is known of modules besides."""

    groups: list[ledger.Group]
    columns: list[Column]


def of(comparison: Comparison, headline: Sequence[Sentence]) -> dict[str, Any]:
    """The variables that both templates use: the comparison, and the rows of text made from it."""
    comparisons = answer.comparisons(comparison)
    unsettled = {s.key: "; ".join(doubts.series(s)) for s in comparison.sides}
    return {
        "comparison": comparison,
        "headline": headline,
        "labels": {s.key: s.label for s in comparison.sides},
        "doubts": unsettled,
        "wrong": {s.key: doubts.outputs(s) for s in comparison.sides if s.wrong},
        "errors": {
            (s.key, path): doubts.error(m) for s in comparison.sides for path, m in s.errors.items()
        },
        "comparisons": comparisons,
        "comparison_table": answer.table(comparisons),
        "panels": [_section(comparison, p) for p in panels.panels(comparison)],
        "column_title": partial(panels.heading, comparison),
        "column_value": panels.value,
        "column_notes": list(dict.fromkeys((c.title, c.note) for c in comparison.columns)),
        "seen": panels.seen,
        "checks": ledger.tally(comparison.sides),
        "sentences": sentences.of(comparison),
        "notes": NOTES,
        "loose": LOOSE if any(unsettled.values()) else "",
        "layers": sorted(comparison.layers, key=lambda r: -(r.time.median or 0)),
        "why": counted.section(comparison),
        "sweep": sweep.section(comparison),
        "waiting": sentences.waiting(comparison),
        "names": partial(panels.names, comparison),
    }


def _section(comparison: Comparison, panel: panels.Panel) -> Section:
    columns = panels.columns(comparison, panel)
    return {**panel, "groups": ledger.groups(panel["sides"]), "columns": columns}
