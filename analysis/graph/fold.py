"""Repeated blocks as one: ``h.0`` to ``h.11`` become ``h.0-11``, if they are built alike.

Alike: the same modules of the same classes inside. Blocks that differ stay apart: a model of two
kinds of blocks in a row of one has two runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import groupby
from typing import Any

from ...core.module_paths import child, tree


def folded(classes: Mapping[str, str | None], opened: Collection[str] = ()) -> dict[str, str]:
    """The path under which each module is shown, for those of `classes` and the ones around them.

    `opened`: modules that stay apart; of one that holds the blocks, all its blocks do.
    """
    children: dict[str, list[str]] = {}
    paths = tree(classes)
    for path in paths[1:]:
        around, _, name = path.rpartition(".")
        children.setdefault(around, []).append(name)

    @cache
    def built(path: str) -> Any:
        inside = tuple((n, built(child(path, n))) for n in children.get(path, ()))
        return classes.get(path), inside

    def runs(path: str) -> Iterator[list[str]]:
        def alike(name: str) -> Any:
            below = child(path, name)
            alone = not name.isdecimal() or path in opened or below in opened
            return name if alone else built(below)

        for _, run in groupby(children.get(path, ()), alike):
            yield list(run)

    shown: dict[str, str] = {}
    todo = [([""], "")]
    while todo:
        members, path = todo.pop()
        shown.update(dict.fromkeys(members, path))
        # The members are alike, so the first one tells how all of them fold.
        for run in runs(members[0]):
            name = run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}"
            todo.append(([child(m, n) for m in members for n in run], child(path, name)))
    return shown
