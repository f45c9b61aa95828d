"""A capture at the fraction against one of every launch, as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ...core.errors import one_line
from .. import formatting
from ..formatting import percent

MOST = 20  # metrics and layers that are listed unless all are asked for; the JSON has all
NAMED = 3  # metrics that are zero in both, likewise
WIDTH = 160  # of a line without all, where no terminal says otherwise
HEAD = ("worst", "p90", "median", "layers", "metric", "worst layer")
_FIGURES = (0, 1, 2, 3)


def text(found: dict[str, Any], *, every: bool = False, width: int | None = None) -> Iterator[str]:
    """What was saved, the metrics that differ most, and the layers beyond the limit. `every`: all
    of them, names whole; else the worst, in lines of `width` characters."""
    room = WIDTH if width is None else width
    for line in lines(found, every=every):
        yield one_line(line)
    ordered = _rows(sorted(found["metrics"].items(), key=lambda item: -_size(item[1]["worst"])))
    rows = ordered if every else _merged(ordered)
    shown = rows if every else rows[:MOST]
    if shown:
        yield ""
        yield from formatting.lines(HEAD, shown, _FIGURES, None if every else room)
        yield from _left("rows of metrics", len(rows) - len(shown))
    layers = found["beyond"] if every else _by_layer(found["beyond"])
    beyond = layers if every else layers[:MOST]
    if beyond:
        yield ""
    for x in beyond:
        before = f"{_percent(x['relative'])}  {x['metric']}{x.get('more', '')} of "
        after = f": {x['fraction']:g}, and {x['every']:g} where every launch was replayed"
        layer = one_line(x["layer"])
        name = layer if every else formatting.fitted(layer, room - len(before) - len(after))
        yield one_line(f"{before}{name}{after}")
    yield from _left("layers", len(layers) - len(beyond))


def _rows(shown: list[tuple[str, Any]]) -> list[list[str]]:
    rows = []
    for metric, of in shown:
        worst = of["worst"] or {}
        cells = [_percent(worst.get("relative")), _percent(of["p90"]), _percent(of["median"])]
        rows.append([*cells, str(of["count"]), one_line(metric), one_line(worst.get("layer", ""))])
    return rows


def _merged(rows: list[list[str]]) -> list[list[str]]:
    """Rows of one figure each: a cycle count moves a dozen rates by the same share."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for *figures, metric, layer in rows:
        alike.setdefault((*figures, layer), []).append(metric)
    return [[*key[:-1], f"{names[0]}{_more(names)}", key[-1]] for key, names in alike.items()]


def _by_layer(beyond: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The worst metric of each layer, with how many more are beyond the limit."""
    of: dict[str, list[dict[str, Any]]] = {}
    for x in beyond:
        of.setdefault(x["layer"], []).append(x)
    return [{**rows[0], "more": _more(rows)} for rows in of.values()]


def _more(names: Sequence[Any]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _left(what: str, count: int) -> Iterator[str]:
    if count:
        yield f"… and {count} more {what} that differ less: --all prints them, -o writes all"


def lines(found: dict[str, Any], *, every: bool = True) -> list[str]:
    """Sentences: what was saved, the differences over all, what was left out."""
    whole = found["differences"]
    said = [
        f"{found['fraction']} against {found['every']}",
        f"replayed: {_percent(found['replayed_share'])} of the launches "
        f"({found['replayed']} of {found['launches']})",
        f"time: {_percent(found['profiled_ratio'])} from profiler start to stop, "
        f"{_percent(found['whole_ratio'])} with the start of the program",
        f"differences of layers: median {_percent(whole['median'])}, p90 {_percent(whole['p90'])}"
        f"{_worst(whole, every=every)}; replayed in both: median "
        f"{_percent(found['noise']['median'])}, p90 {_percent(found['noise']['p90'])}",
        f"{len(found['beyond_layers'])} of {found['layers']} layers have a metric beyond "
        f"{percent(found['limit'])}",
    ]
    zero = found["zero_in_both"]
    if zero:
        named = zero if every or len(zero) <= NAMED + 1 else zero[:NAMED]
        more = f" and {len(zero) - len(named)} more" if len(named) < len(zero) else ""
        said.append(f"zero in both, so not in these numbers: {', '.join(named)}{more}")
    return said


def _worst(of: dict[str, Any], *, every: bool) -> str:
    worst = of["worst"]
    if worst is None:
        return ""
    layer = worst["layer"] if every else formatting.fitted(worst["layer"], 60)
    return f", worst {_percent(worst['relative'])} ({worst['metric']} of {layer})"


def _size(worst: dict[str, Any] | None) -> float:
    """A metric that only the whole capture has at zero is further off than any other."""
    if worst is None:
        return -math.inf
    return math.inf if worst["relative"] is None else float(worst["relative"])


def _percent(share: float | None) -> str:
    return "unknown" if share is None else percent(share)
