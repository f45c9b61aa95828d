"""What a report shows, chosen and ordered once: the page and the Markdown only lay it out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from .. import formatting
from ..model.comparison import Comparison
from . import answer, counted, doubts, ledger, panels, sentences, sweep
from .headline import Sentence


def of(view: Comparison, headline: Sequence[Sentence]) -> dict[str, Any]:
    """The variables that both templates use: the view, and the rows of text made from it."""
    comparisons = answer.comparisons(view)
    unsettled = {s.key: "; ".join(doubts.series(s)) for s in view.sides}
    return {
        "view": view,
        "headline": headline,
        "labels": {s.key: s.label for s in view.sides},
        "doubts": unsettled,
        "comparisons": comparisons,
        "comparison_table": answer.table(comparisons),
        "panels": [{**p, "groups": ledger.groups(p["sides"])} for p in panels.panels(view)],
        "seen": panels.seen,
        "checks": ledger.tally(view.sides),
        "sentences": sentences.of(view),
        "notes": [formatting.SHARES, formatting.MEDIANS, formatting.COLUMNS, formatting.NOTHING],
        "loose": formatting.LOOSE if any(unsettled.values()) else "",
        "layers": sorted(view.layers, key=lambda r: -(r.time.median or 0)),
        "why": counted.shown(view),
        "sweep": sweep.shown(view),
        "told": partial(panels.told, view),
    }
