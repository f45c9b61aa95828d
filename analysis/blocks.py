"""Blocks: the smallest sets of modules whose time is exact.

Units are the module paths that operations name (also those of modules with children: the
residual addition of ``transformer.h.0`` is its own). Units that share a layer are linked; a
connected component is a block. No layer crosses a block's border, so its time needs no split, and
the blocks of one side add up to all its resolved time.
"""

from __future__ import annotations

from collections.abc import Iterable

from .sums import Key


def blocks(keys: Iterable[Key]) -> list[tuple[str, ...]]:
    """The connected components, each sorted, in the order of their first members."""
    parent: dict[str, str] = {}

    def root(unit: str) -> str:
        while parent[unit] != unit:
            parent[unit] = parent[parent[unit]]
            unit = parent[unit]
        return unit

    for key in keys:
        for module in key.modules or ():
            parent.setdefault(module, module)
        for module in (key.modules or ())[1:]:
            parent[root(module)] = root((key.modules or ())[0])
    found: dict[str, list[str]] = {}
    for unit in sorted(parent):
        found.setdefault(root(unit), []).append(unit)
    return sorted(tuple(members) for members in found.values())


def common_parent(paths: Iterable[str]) -> str:
    """The innermost module whose subtree holds every path; one path is its own."""
    parts = [p.split(".") if p else [] for p in paths]
    shortest = min(parts, key=len)
    same = 0
    while same < len(shortest) and all(p[same] == shortest[same] for p in parts):
        same += 1
    return ".".join(shortest[:same])
