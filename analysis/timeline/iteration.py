"""The one iteration of a capture that a timeline shows, and what of it can be drawn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median_low

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.tables import DEVICE_KINDS
from ..costs.iterations import TIME, by_iteration, iterations_of, timed_rows

_NAMED = 5  # names of what is not drawn that a note has
_NESTING = ("node", "op")  # kinds that nest: their self times add up


@dataclass(frozen=True)
class Chosen:
    """`drawn`: the rows of iteration `number` (None: the capture marks none and is one) that have
    a start and a duration, by start. `kinds`: those of the measured operations, device operations
    where there are any. `notes`: what is left out, a line each."""

    drawn: pa.Table
    number: int | None
    of: int
    kinds: tuple[str, ...]
    notes: tuple[str, ...]
    undrawn: int = 0
    undrawn_ns: int = 0
    median: bool = True

    def measured(self) -> pa.Table:
        """The rows whose times the tables add up."""
        return self.drawn.filter(pc.is_in(self.drawn["kind"], pa.array(self.kinds)))

    def others(self) -> pa.Table:
        """The other rows: host operators of a capture on a device."""
        return self.drawn.filter(pc.invert(pc.is_in(self.drawn["kind"], pa.array(self.kinds))))


def choose(ops: pa.Table, iteration: int | None = None) -> Chosen:
    """Choose the iteration whose operation time is the median (of two, the shorter; of equal
    ones, the first), or take `iteration`.

    Rows without a start or duration are not drawn; they are counted, named and summed.
    """
    kinds = _kinds(ops)
    marked = ops["iteration"].null_count < len(ops)
    totals = _totals(ops)
    number = None
    notes = []
    rows = ops
    if marked:
        number = _median(totals) if iteration is None else iteration
        rows = ops.filter(pc.fill_null(pc.equal(ops["iteration"], number), False))
        outside = ops["iteration"].null_count
        if outside:
            notes.append(f"{_count(outside)} in no iteration (start-up, end): not drawn")
    whole = pc.and_(pc.is_valid(rows["start_ns"]), pc.is_valid(rows["duration_ns"]))
    lacking, drawn = rows.filter(pc.invert(whole)), rows.filter(whole)
    lost = int(pc.sum(times(lacking)).as_py() or 0)
    if len(lacking):
        names = Counter(lacking["name"].fill_null("(no name)").to_pylist()).most_common()
        named = ", ".join(f"{n} ({c})" for n, c in names[:_NAMED])
        more = f" and {len(names) - _NAMED} other names" if len(names) > _NAMED else ""
        notes.append(
            f"{_count(len(lacking))} without a start or a duration, {lost} ns: "
            f"not drawn: {named}{more}"
        )
    drawn = drawn.take(pc.sort_indices(drawn, [("start_ns", "ascending")]))
    return Chosen(
        drawn,
        number,
        max(1, len(totals)),
        kinds,
        tuple(notes),
        len(lacking),
        lost,
        iteration is None,
    )


def times(rows: pa.Table) -> pa.ChunkedArray:
    """ns of each row, as the tables add them up: the self time of nodes and operators, which nest
    (a row without one counts whole), the duration of what runs on a device; null where unknown."""
    nests = pc.is_in(rows["kind"], pa.array(_NESTING))
    own = pc.coalesce(rows["self_ns"], rows["duration_ns"])
    return pc.if_else(nests, own, rows["duration_ns"])


def iterations(ops: pa.Table) -> list[int]:
    """The numbers of the iterations that a capture marks, ascending; empty where it marks none."""
    return sorted(pc.unique(ops["iteration"].drop_null()).to_pylist())


def _kinds(ops: pa.Table) -> tuple[str, ...]:
    present = set(pc.unique(ops["kind"]).to_pylist())
    device = (*DEVICE_KINDS, "graph")
    return next((kinds for kinds in (device, ("node",)) if present & {*kinds}), ("op",))


def _totals(ops: pa.Table) -> dict[int, int]:
    rows = timed_rows(ops.select(["kind", "iteration", "duration_ns", "self_ns"]))
    rows, numbers = iterations_of(rows)
    if not len(rows):
        # Operations of other kinds (graphs as a whole) mark iterations too.
        return dict.fromkeys(pc.unique(ops["iteration"].drop_null()).to_pylist(), 0)
    ns = pc.fill_null(rows[TIME], 0).to_numpy()
    distinct, matrix = by_iteration(np.zeros(len(rows), np.int64), 1, numbers, ns)
    return dict(zip(distinct, matrix[0].tolist(), strict=True))


def _median(totals: dict[int, int]) -> int:
    middle = median_low(totals.values())
    return min(i for i, ns in totals.items() if ns == middle)


def _count(n: int) -> str:
    return f"{n} operation" + ("" if n == 1 else "s")
