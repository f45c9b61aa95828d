"""Which parameters change, as a page of its own: it opens offline and has no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...parameters import answer
from ...parameters.history import History
from ...parameters.hotness import STATES, Hotness, block, by_block, by_kind
from ..templates import css, environment
from .text import cells, head

ROWS = 400  # of the ranking; the others are in the CSV


def render(runs: Sequence[tuple[History, Sequence[Hotness]]], limit: float) -> str:
    """The page of these runs."""
    return (
        environment()
        .get_template("parameters.html.j2")
        .render(
            runs=[_run(history, parameters, limit) for history, parameters in runs],
            states=STATES,
            head=head(),
            css=css("page.css"),
        )
    )


def _run(history: History, parameters: Sequence[Hotness], limit: float) -> dict[str, Any]:
    first, *more = answer.sentences(history, parameters, limit)
    ranked = sorted(parameters, key=lambda p: (p.heat, p.about.index))
    return {
        "source": history.source,
        "answer": first,
        "more": more,
        "kinds": by_kind(parameters),
        "blocks": by_block(parameters),
        "map": _map(parameters),
        "rows": [cells(p) for p in ranked[:ROWS]],
        "left": max(0, len(ranked) - ROWS),
    }


def _map(parameters: Sequence[Hotness]) -> dict[str, Any] | None:
    """Paths without the block's number down, blocks across; None where there are no blocks."""
    placed: dict[str, dict[int, Hotness]] = {}
    for one in parameters:
        at = block(one.about)
        if at is not None:
            path = one.about.path.replace(f".{at}.", ".*.", 1)
            path = f"*.{path.partition('.')[2]}" if path.startswith(f"{at}.") else path
            placed.setdefault(path, {})[at] = one
    if not placed:
        return None
    blocks = sorted({at for row in placed.values() for at in row})
    return {"blocks": blocks, "rows": [(p, list(_tiles(row, blocks))) for p, row in placed.items()]}


def _tiles(row: dict[int, Hotness], blocks: Sequence[int]) -> Iterator[tuple[float, str] | None]:
    for at in blocks:
        one = row.get(at)
        yield None if one is None else (round(one.heat, 4), f"{one.about.path}: {one.state}")
