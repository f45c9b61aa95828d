"""What the icicles are drawn of: the leaves of each side's partition, by module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.comparison import Comparison
from . import drawing


def of(comparison: Comparison, modules: Mapping[str, int]) -> dict[str, Any]:
    """By the key "sides", for each side its total, what that is of, and its leaves: ns, the
    position of the part in "parts", the positions of its modules or its label; null where no time
    is known. "parts": name and look."""
    kinds = drawing.colours(comparison)
    parts: dict[tuple[str, str], int] = {}
    sides: list[dict[str, Any] | None] = []
    for side in comparison.sides:
        partition = comparison.partitions.get(side.key)
        if partition is None or not partition.leaves:
            sides.append(None)
            continue
        looks = {p.name: drawing.look(p.name, p.kind, kinds) for p in partition.parts}
        leaves = []
        for leaf in partition.leaves:
            part = parts.setdefault((leaf.part, looks[leaf.part]), len(parts))
            members = [modules[m] for m in leaf.modules if m in modules]
            leaves.append([leaf.ns, part, members or leaf.label or ""])
        sides.append({"total": partition.total, "of": partition.of, "leaves": leaves})
    return {"parts": [list(p) for p in parts], "sides": sides}
