"""Layers of two engines of one model against each other: two builds, two precisions.

Engines fuse differently, so layers have other names. Those of one name are compared; of the
others, those that share a node of the model (by the nodes that a tool tells, or by the parts of
their names) are put together on both sides until nothing is shared any more: what stands in one
line did the same work. Nothing is joined by its place in a list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.labels import labelled
from ...core.resolve.flow import connected
from ...core.resolve.spelling import base, foreign_range, metadata_names, parts, reformat_of
from ...core.stats import less, sum_all

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Together:
    """The layers of both sides that did the same work; one side may have none.

    `a_ns`, `b_ns`: their time in one iteration, None where it is not known (0 for no layer).
    `changes`: what else differs, as (what, A's, B's): precision, tactic.
    """

    a: tuple[str, ...]
    b: tuple[str, ...]
    a_ns: float | None
    b_ns: float | None
    changes: tuple[tuple[str, str, str], ...] = ()

    @property
    def more_ns(self) -> float | None:
        """B's time less A's."""
        return less(self.b_ns, self.a_ns)

    @property
    def differs(self) -> bool:
        """Whether layers, precisions or tactics are not the same."""
        return self.a != self.b or bool(self.changes)


def together(a: Sequence[Row], b: Sequence[Row]) -> list[Together]:
    """All layers of A and B, each once: what changed most first, then in A's order."""
    sides = (_labelled(a), _labelled(b))
    same = [label for label in sides[0] if label in sides[1]]
    found = [_together([sides[0][n]], [sides[1][n]], (n,), (n,)) for n in same]
    rest = [{n: r for n, r in side.items() if n not in set(same)} for side in sides]
    for labels_a, labels_b in _components(*rest):
        rows_a, rows_b = ([side[n] for n in own] for side, own in zip(
            rest, (labels_a, labels_b), strict=True))  # fmt: skip
        found.append(_together(rows_a, rows_b, tuple(labels_a), tuple(labels_b)))
    return sorted(found, key=lambda t: -abs(t.more_ns or 0))


def _labelled(rows: Sequence[Row]) -> dict[str, Row]:
    """Rows by the layer's name; the second of one name is `NAME #2`, movement stands apart."""
    seen: Counter[str] = Counter()
    found = {}
    for row in rows:
        name = (row["layer"] or "") + (" [movement]" if row["kind"] == "movement" else "")
        found[labelled(name, seen[name], seen[name] > 0)] = row
        seen[name] += 1
    return found


def _nodes(row: Row) -> set[str]:
    """What a layer is made of, as far as it says; a reformat is of nothing but itself."""
    name = row["layer"] or ""
    if reformat_of(name) is not None or row["kind"] == "movement":
        return set()
    if row["nodes"]:
        return set(row["nodes"])
    told = set(metadata_names(name)) | set(foreign_range(name) or ())
    return told or {base(part).removesuffix(")").removeprefix("PWN(") for part in parts(name)}


def _components(a: Mapping[str, Row], b: Mapping[str, Row]) -> list[tuple[list[str], list[str]]]:
    """The labels of A and B that share nodes, directly or through others."""
    rows = [(i, n, row) for i, side in enumerate((a, b)) for n, row in side.items()]
    having: dict[str, list[int]] = {}
    for at, (_, _, row) in enumerate(rows):
        for node in _nodes(row):
            having.setdefault(node, []).append(at)
    pairs = ((first, other) for first, *others in having.values() for other in others)
    groups = [[rows[at][:2] for at in group] for group in connected(range(len(rows)), pairs)]
    return [([n for i, n in of if i == 0], [n for i, n in of if i == 1]) for of in groups]


def _together(
    a: Sequence[Row], b: Sequence[Row], labels_a: tuple[str, ...], labels_b: tuple[str, ...]
) -> Together:
    medians = all(r["median_ns"] is not None for r in (*a, *b))
    times = [sum_all(_time(r, medians) for r in rows) for rows in (a, b)]
    changes = []
    for column, what in (("precision_in", "reads"), ("precision_out", "writes"),
                         ("compute_precision", "computes in"), ("tactic", "tactic")):  # fmt: skip
        x, y = ({str(r[column]) for r in rows if r[column]} for rows in (a, b))
        if x and y and x != y:
            changes.append((what, "+".join(sorted(x)), "+".join(sorted(y))))
    return Together(labels_a, labels_b, times[0], times[1], tuple(changes))


def _time(row: Row, medians: bool) -> float | None:
    """The time of a layer in one iteration: its median, or its mean."""
    if medians:
        return row["median_ns"]  # type: ignore[no-any-return]
    if row["total_ns"] is None or not row["calls"]:
        return None
    return float(row["total_ns"] / row["calls"])
