"""Paths of modules, as ``named_modules`` gives them: ``transformer.h.0.attn``; the root is ""."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def parent(path: str) -> str:
    """The module around `path`; the root's is the root."""
    return path.rpartition(".")[0]


def child(path: str, name: str) -> str:
    """The path of a module's child, or parameter: its name alone where the module is the root."""
    return f"{path}.{name}" if path else name


def depth(path: str) -> int:
    """How many modules are around `path`: 0 for the root."""
    return path.count(".") + 1 if path else 0


def ancestors(path: str) -> list[str]:
    """`path` and the modules around it, innermost first, the root ("") last."""
    paths = [path]
    while path:
        path = parent(path)
        paths.append(path)
    return paths


def inside(path: str, module: str) -> bool:
    """Whether `path` is `module` or lies in its subtree."""
    return module in ("", path) or path.startswith(module + ".")


def common_parent(paths: Iterable[str]) -> str:
    """The innermost module whose subtree holds every path; one path is its own."""
    parts = [p.split(".") if p else [] for p in paths]
    shortest = min(parts, key=len)
    same = 0
    while same < len(shortest) and all(p[same] == shortest[same] for p in parts):
        same += 1
    return ".".join(shortest[:same])


def tree(paths: Iterable[str]) -> list[str]:
    """The paths with everything around them, in preorder; numbers in numeric order."""
    every = {a for p in paths for a in ancestors(p)} | {""}
    return sorted(every, key=_order)


def _order(path: str) -> list[tuple[int, int, str]]:
    if not path:
        return []
    return [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in path.split(".")]


def ordered_tree(model: Sequence[str], others: Iterable[str]) -> list[str]:
    """Preorder in the model's own order (registration), with `others` where they belong."""
    rank = {p: i for i, p in enumerate(model)}
    children: dict[str, list[str]] = {}
    for path in tree([*model, *others]):
        if path:
            children.setdefault(parent(path), []).append(path)
    last = len(rank)
    result: list[str] = []
    stack = [""]
    while stack:
        path = stack.pop()
        result.append(path)
        below = sorted(children.get(path, ()), key=lambda p: (rank.get(p, last), _order(p)))
        stack.extend(reversed(below))
    return result


NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


def kind_of(path: str) -> str:
    """A module's kind: its path with every number replaced, ``transformer.h.*.attn``."""
    return NUMBER.sub("*", path)


def kinds(modules: Iterable[str]) -> dict[str, list[str]]:
    """Kind to its modules, in the order of the modules; the root has no kind."""
    members: dict[str, list[str]] = {}
    for module in modules:
        if module:
            members.setdefault(kind_of(module), []).append(module)
    return members
