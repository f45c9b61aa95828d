"""Labels of things that share a name: the second is ``NAME #2``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def labelled(name: str, occurrence: int, several: bool) -> str:
    """The label of one. `occurrence` counts those of its name from 0; `several`: whether it is to
    have a number."""
    return f"{name} #{occurrence + 1}" if several else name


def all_labelled(names: Sequence[str]) -> list[str]:
    """The label of each. The first of several is ``NAME #1``."""
    many, seen, labels = Counter(names), Counter[str](), []
    for name in names:
        labels.append(labelled(name, seen[name], many[name] > 1))
        seen[name] += 1
    return labels
