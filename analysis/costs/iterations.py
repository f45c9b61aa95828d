"""Per-iteration sums of operation time by the set of modules that the operation serves.

The one reduction everything else is made of: ``ops`` rows become a matrix of integer nanoseconds,
one row per distinct set of modules (or per name where there is no module), one column per
iteration. Own, shared, blocks, kinds and coverage are sums over its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core import tables
from ...core.series import in_order
from ...core.stats import Stat
from ...core.tables import DEVICE_KINDS, UNRESOLVED

# Of a training step, in the order in which they run.
PHASES = ("data", "forward", "loss", "recompute", "backward", "optimizer", "other")
Ints = np.ndarray[Any, np.dtype[np.int64]]
# The columns that sums are made of.
SUMMED = ["kind", "phase", "iteration", "duration_ns", "self_ns", "modules"]
TIME = "_time"
_SEPARATOR = "\x1f"


@dataclass(frozen=True)
class Key:
    """What a row of the matrix stands for.

    `modules`: the module paths, sorted; None where no module is known. `label`: why not, e.g.
    "unresolved", "loss", "gradient accumulation"; None where `modules` is not.
    """

    modules: tuple[str, ...] | None
    label: str | None = None


@dataclass(frozen=True)
class Sums:
    """`matrix[k, i]`: integer nanoseconds of key k in iteration i. `unknown`: rows without a time.

    An operation that did not run in an iteration took 0 ns there: that is known. A key that never
    ran is not in `keys` at all.
    """

    keys: tuple[Key, ...]
    iterations: tuple[int, ...]
    matrix: Ints
    unknown: int = 0

    def total(self) -> Ints:
        """Nanoseconds of every operation, per iteration."""
        total: Ints = self.matrix.sum(axis=0)
        return total

    def where(self, chosen: list[bool]) -> Ints:
        """Nanoseconds of the chosen keys, per iteration."""
        total: Ints = self.matrix[np.array(chosen, dtype=bool)].sum(axis=0)
        return total

    def resolved(self) -> Ints:
        """Nanoseconds that belong to modules, per iteration."""
        return self.where([k.modules is not None for k in self.keys])

    def units(self) -> tuple[str, ...]:
        """Every module path that an operation names, sorted."""
        return tuple(sorted({m for k in self.keys for m in k.modules or ()}))


def stat(samples: Any) -> Stat | None:
    """Summary of a vector of per-iteration sums, in the order of the iterations."""
    return _stat(np.asarray(samples, dtype=np.int64).tobytes())


@lru_cache(maxsize=8192)
def _stat(samples: bytes) -> Stat | None:
    """Kept, for modules that hold one another often cost the same, and the tree, the kinds and the
    table of modules ask for each several times."""
    return in_order(np.frombuffer(samples, dtype=np.int64).tolist())


def timed_rows(ops: pa.Table) -> pa.Table:
    """The rows whose times add up, with those times in the column `TIME`.

    Where a capture has device rows (kernels, copies), device time is what is measured and the
    host's operators that launched it are not added to it. Engine nodes and CPU operators, which
    nest (If and Loop, linear and addmm), count with their self time; a node without one with its
    duration.
    """
    kinds = set(pc.unique(ops["kind"]).to_pylist())
    if kinds & set(DEVICE_KINDS):
        rows = tables.of_kinds(ops, DEVICE_KINDS)
        return rows.append_column(TIME, rows["duration_ns"])
    if "node" in kinds:
        rows = tables.of_kinds(ops, ["node"])
        return rows.append_column(TIME, pc.coalesce(rows["self_ns"], rows["duration_ns"]))
    rows = tables.of_kinds(ops, ["op"])
    return rows.append_column(TIME, rows["self_ns"])


def iterations_of(ops: pa.Table) -> tuple[pa.Table, Ints]:
    """The rows that belong to an iteration, and its number for each.

    A capture that marks no iteration is one iteration (0): then there is one sample and no
    interval. Otherwise rows outside every iteration (start-up, teardown) are left out.
    """
    if ops["iteration"].null_count == len(ops):
        return ops, np.zeros(len(ops), dtype=np.int64)
    inside = ops.filter(pc.is_valid(ops["iteration"]))
    return inside, inside["iteration"].to_numpy()


def sums(ops: pa.Table, labels: pa.Array | pa.ChunkedArray | None = None) -> Sums:
    """Reduce `ops` (one source, precision and phase) to its matrix.

    `labels` (one string per row of `ops`) names the rows without a module; without it they are
    all "unresolved".
    """
    if labels is None:
        labels = pa.repeat(UNRESOLVED, len(ops))
    # Only what is needed: filtering lists and texts of a large table takes long.
    rows, iteration = iterations_of(timed_rows(ops.select(SUMMED).append_column("_label", labels)))
    unknown = rows[TIME].null_count
    if unknown:
        known = pc.is_valid(rows[TIME])
        rows, iteration = rows.filter(known), iteration[known.to_numpy()]
    codes, keys = _keys(rows)
    numbers, matrix = by_iteration(codes, len(keys), iteration, rows[TIME].to_numpy())
    return Sums(tuple(keys), tuple(numbers), matrix, unknown)


def by_iteration(codes: Ints, count: int, iteration: Ints, ns: Ints) -> tuple[list[int], Ints]:
    """The numbers of the iterations, ascending, and a row of ns in each for each of `count` codes.

    `codes`, `iteration` and `ns`: those of each operation.
    """
    numbers, columns = np.unique(iteration, return_inverse=True)
    matrix = np.zeros((count, len(numbers)), dtype=np.int64)
    np.add.at(matrix, (codes, columns), ns)
    return numbers.tolist(), matrix


def phase_shares(ops: pa.Table) -> dict[str, float]:
    """The share of each phase in the operation time of the same iteration; mean over iterations.

    Every operation has one phase, so the shares of an iteration add up to 1, and so do their
    means (shares of medians would not: a phase may be at its longest where the others are not).
    Iterations without operation time are left out; a phase that is not known is "other". Ordered
    as `PHASES`. Empty where nothing is known.
    """
    rows, iteration = iterations_of(timed_rows(ops.select(SUMMED)))
    code, phases = tables.codes(pc.fill_null(rows["phase"], "other"))
    ns = pc.fill_null(rows[TIME], 0).to_numpy()
    _, matrix = by_iteration(code, len(phases), iteration, ns)
    totals = matrix.sum(axis=0)
    if not totals.any():
        return {}
    shares = (matrix[:, totals > 0] / totals[totals > 0]).mean(axis=1)
    of_phase = dict(zip(phases, shares.tolist(), strict=True))
    order = {name: i for i, name in enumerate(PHASES)}
    return dict(sorted(of_phase.items(), key=lambda p: (order.get(p[0], len(order)), p[0])))


def _keys(rows: pa.Table) -> tuple[Ints, list[Key]]:
    """A code per row and the key of each code; lists with the same members in another order,
    or with repetitions, are one key."""
    # "m" marks a list of modules, so that [""] (the root module) is not mistaken for [] (none).
    has_modules = pc.fill_null(pc.greater(pc.list_value_length(rows["modules"]), 0), False)
    joined = pc.binary_join(rows["modules"], _SEPARATOR)
    text = pc.if_else(
        has_modules,
        pc.binary_join_element_wise("m", joined, ""),
        pc.binary_join_element_wise("l", rows["_label"], ""),
    )
    code, entries = tables.codes(text)
    distinct: dict[Key, int] = {}
    translate = []
    for entry in entries:
        if entry[0] == "m":
            key = Key(tuple(sorted(set(entry[1:].split(_SEPARATOR)))))
        else:
            key = Key(None, entry[1:])
        translate.append(distinct.setdefault(key, len(distinct)))
    return np.array(translate, dtype=np.int64)[code], list(distinct)


def labels(ops: pa.Table, name: str | None = None) -> pa.Array:
    """A name per row for those without a module: the row that it belongs to (`name`, else what
    `layer` says), or "unresolved" where no rule found one."""
    known = pc.fill_null(pc.not_equal(ops["rule"], UNRESOLVED), False)
    row = pc.fill_null(ops["layer"], "no module") if name is None else name
    return pc.if_else(known, row, UNRESOLVED)
