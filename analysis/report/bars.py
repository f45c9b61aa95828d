"""Which modules the bars show: about a dozen that do not overlap and make up nearly all.

Modules of one kind stand as one bar (``transformer.h.*.attn``, the sum that analysis made), the
others for themselves. Starting at the model, the largest bar is replaced by its parts while
there is room, if nearly nothing happens in it outside of them; so no bar counts what another one
counts, and little is left out.
"""

from __future__ import annotations

from typing import TypedDict

from . import show
from .view import Cost, Side, View

ROOM = 12
NEARLY_NOTHING = 0.1


class Entry(TypedDict):
    """One candidate: a module or a kind."""

    name: str
    count: int
    costs: dict[str, Cost]


def sides(view: View) -> list[Side]:
    """The sides whose bars stand beside each other: engines, eager forward and backward.

    The eager inference stands for its forward where there is one: it is what an engine does.
    """
    rows = [m for m in view["modules"] if m["kind"] == "module"]
    measured = {key for m in rows for key, c in m["costs"].items() if _whole(c)}
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


def colours(chosen: list[Side]) -> dict[str, int]:
    """A colour's number by side key: engines have the first two, eager sides the others."""
    engines = [s["key"] for s in chosen if s["side"] == "engine"]
    others = [s["key"] for s in chosen if s["side"] != "engine"]
    first = {key: i % 2 for i, key in enumerate(engines)}
    return first | {key: 2 + i % 4 for i, key in enumerate(others)}


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
    own = _own_operations(view)
    shown = [name for name in tops if _largest(candidates[name], keys)]
    while True:
        for name in sorted(shown, key=lambda n: -_largest(candidates[n], keys)):
            inner = [p for p in parts[name] if _largest(candidates[p], keys)]
            if not inner or len(shown) - 1 + len(inner) > ROOM:
                continue
            if _empty_but_for_parts(name, candidates[name], own, keys):
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


def _own_operations(view: View) -> dict[tuple[str, str], int]:
    """Time of operations that are a module's own and in none of its parts, by pattern and side."""
    found: dict[tuple[str, str], int] = {}
    for m in view["modules"]:
        if m["kind"] == "block" and len(m["members"]) == 1:
            for key, c in m["costs"].items():
                at = (pattern(m["members"][0]), key)
                found[at] = found.get(at, 0) + _whole(c)
    return found


def _empty_but_for_parts(
    name: str, entry: Entry, own: dict[tuple[str, str], int], keys: list[str]
) -> bool:
    return all(
        own.get((name, k), 0) <= NEARLY_NOTHING * _whole(entry["costs"].get(k)) for k in keys
    )
