"""Rankings of parameters for a terminal, and as a table for other programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ....core.cli.columns import aligned
from ... import formatting
from ...parameters.history import History
from ...parameters.hotness import STATES, Group, Hotness, block, by_block, by_kind

_COLUMNS = {
    "source": pa.string(), "index": pa.int64(), "parameter": pa.string(), "module": pa.string(),
    "module_class": pa.string(), "kind": pa.string(), "block": pa.int64(), "dtype": pa.string(),
    "elements": pa.int64(), "state": pa.string(), "why": pa.string(), "steps": pa.int64(),
    "share_changed": pa.float64(), "steps_changed": pa.float64(), "changed": pa.int64(),
    "update_over_parameter": pa.float64(), "gradient_norm": pa.float64(), "rows": pa.int64(),
    "rows_changed": pa.float64(), "rows_with_gradient": pa.float64(),
}  # fmt: skip


def table(runs: Sequence[tuple[History, Sequence[Hotness]]]) -> pa.Table:
    """A row per run and parameter, the coldest first."""
    rows = [
        {
            "source": history.source,
            "index": p.about.index,
            "parameter": p.about.path,
            "module": p.about.module,
            "module_class": p.about.module_class,
            "kind": p.kind,
            "block": block(p.about),
            "dtype": p.about.dtype,
            "elements": p.about.elements,
            "state": p.state,
            "why": p.why or None,
            "steps": int(history.stepped.sum()),
            "share_changed": p.share,
            "steps_changed": p.steps_changed,
            "changed": p.changed,
            "update_over_parameter": p.update,
            "gradient_norm": p.gradient,
            "rows": p.about.rows,
            "rows_changed": p.rows_changed,
            "rows_with_gradient": p.rows_with_gradient,
        }
        for history, parameters in runs
        for p in sorted(parameters, key=lambda p: (p.heat, p.about.index))
    ]
    return pa.Table.from_pylist(rows, pa.schema(list(_COLUMNS.items())))


def head() -> list[str]:
    """Headings of `cells`."""
    return ["changed", "steps", "moved", "gradient norm", "elements", "state", "kind", "parameter"]


def cells(one: Hotness) -> list[str]:
    """A parameter's line."""
    rows = ""
    if one.about.rows and one.rows_touched is not None:
        rows = f" ({one.rows_touched:g} of {one.about.rows} rows)"
    return [
        formatting.percent(one.share),
        formatting.percent(one.steps_changed),
        formatting.percent(one.update),
        formatting.number(one.gradient),
        formatting.number(one.about.elements),
        one.state + rows,
        one.kind,
        formatting.visible(one.about.path),
    ]


def lines(
    parameters: Sequence[Hotness], by: str, top: int, width: int | None = None
) -> Iterator[str]:
    """The ranking by parameter, kind or block."""
    if by == "parameter":
        ranked = sorted(parameters, key=lambda p: (p.heat, p.about.index))
        rows = [cells(p) for p in ranked[:top]]
        yield from aligned(head(), _narrow(rows, width), right=range(5))
        if len(ranked) > top:
            yield f"… {len(ranked) - top} hotter ones (--top, or -o for all)"
        return
    groups = by_kind(parameters) if by == "kind" else by_block(parameters)
    states = [s for s in STATES if any(g.count(s) for g in groups)]
    heads = ["changed", "moved", "parameters", "elements", *states, by]
    rows = [_group(g, states) for g in groups]
    yield from aligned(heads, rows, right=range(len(heads) - 1))


def _narrow(rows: Sequence[list[str]], width: int | None) -> list[list[str]]:
    """Names shortened so that lines have about `width` characters."""
    if width is None:
        return list(rows)
    before = sum(max((len(row[c]) for row in rows), default=0) + 2 for c in range(len(head()) - 1))
    return [[*row[:-1], formatting.fitted(row[-1], width - before)] for row in rows]


def _group(group: Group, states: Sequence[str]) -> list[str]:
    return [
        formatting.percent(group.share),
        formatting.percent(group.update),
        str(len(group.members)),
        formatting.number(group.elements),
        *(str(group.count(s) or "") for s in states),
        formatting.visible(group.name) or "(the model)",
    ]
