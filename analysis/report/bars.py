"""Which modules the bars show: about a dozen that do not overlap and make up nearly all.

Modules of one kind stand as one bar (``transformer.h.*.attn``, the sum that analysis made), the
others for themselves. Starting at the model, the largest bar is replaced by its parts while
there is room, if the parts account for nearly all of it on every side; so no bar counts what
another one counts, and little is left out.
"""

from __future__ import annotations

from typing import TypedDict

from . import show
from .view import Cost, Side, View

ROOM = 12
NEARLY_ALL = 0.9


class Entry(TypedDict):
    """One candidate: a module or a kind."""

    name: str
    count: int
    costs: dict[str, Cost]


def sides(view: View) -> list[Side]:
    """The sides whose bars stand beside each other: engines, eager forward and backward.

    The eager inference stands for its forward where there is one: it is what an engine does.
    """
    measured = {key for m in view["modules"] for key, c in m["costs"].items() if _whole(c)}
    found = [s for s in view["sides"] if s["key"] in measured]
    engines = [s for s in found if s["side"] == "engine"]
    eager = [s for s in found if s["side"] != "engine"]
    chosen = engines[:2]
    for phases in (("inference", "forward"), ("backward",)):
        chosen += next(([s] for p in phases for s in eager if s["phase"] == p), [])
    return chosen or found[:4]


def pattern(path: str) -> str:
    """``transformer.h.0.attn`` → ``transformer.h.*.attn``."""
    return ".".join("*" if part.isdigit() else part for part in path.split("."))


def entries(view: View) -> list[Entry]:
    """The bars, in the order of the model; see the module's docstring."""
    candidates: dict[str, Entry] = {}
    for k in view["kinds"]:
        candidates[k["name"]] = {"name": k["name"], "count": k["count"], "costs": k["costs"]}
    rows = [m for m in view["modules"] if m["kind"] == "module"]
    paths: dict[str, int] = {}
    for m in rows:
        paths[pattern(m["path"])] = paths.get(pattern(m["path"]), 0) + 1
    order: dict[str, int] = {}
    for i, m in enumerate(rows):
        name = pattern(m["path"])
        order.setdefault(name, i)
        if name not in candidates and paths[name] == 1:
            candidates[name] = {"name": name, "count": 1, "costs": m["costs"]}
    parts: dict[str, list[str]] = {name: [] for name in candidates}
    tops: list[str] = []
    for name in candidates:
        parent = _parent(name, candidates)
        (tops if parent is None else parts[parent]).append(name)

    keys = [s["key"] for s in sides(view)]
    shown = [name for name in tops if _largest(candidates[name], keys)]
    while True:
        for name in sorted(shown, key=lambda n: -_largest(candidates[n], keys)):
            inner = [p for p in parts[name] if _largest(candidates[p], keys)]
            if not inner or len(shown) - 1 + len(inner) > ROOM:
                continue
            if _cover(candidates[name], [candidates[p] for p in inner], keys):
                shown.remove(name)
                shown += inner
                break
        else:
            break
    shown.sort(key=lambda n: order.get(n, len(order)))
    return [candidates[name] for name in shown]


def _parent(name: str, candidates: dict[str, Entry]) -> str | None:
    path = name
    while path:
        path = path.rpartition(".")[0]
        if path in candidates and path != name:
            return path
    return None


def _whole(c: Cost | None) -> int:
    if c is None or not show.known(c["own"]):
        return 0
    return (c["own"] or 0) + (c["shared"] or 0)


def _largest(entry: Entry, keys: list[str]) -> int:
    return max((_whole(entry["costs"].get(k)) for k in keys), default=0)


def _cover(whole: Entry, parts: list[Entry], keys: list[str]) -> bool:
    return all(
        sum(_whole(p["costs"].get(k)) for p in parts) >= NEARLY_ALL * _whole(whole["costs"].get(k))
        for k in keys
    )
