"""What else is known of each module, beside its time: columns of the tree.

All are of a module with all that is in it. The optimizer's time is shared out by the number of
parameters: it is one launch for many of them (foreach, fused), so that is an estimate, and a weight
that two modules share counts in each. Bytes at the peak belong to the module that allocated them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from ...core.module_paths import ancestors
from ..model.comparison import Column
from .iterations import Key, stat
from .measured import MeasuredSide

OPTIMIZER = "optimizer"


def optimizer(side: MeasuredSide, parameters: Mapping[str, int]) -> Column | None:
    """The optimizer's time of a training step; `parameters`: how many each module has, with all
    that is in it, and the model (path ""). None where either is not known."""
    total, key = parameters.get("", 0), Key(None, OPTIMIZER)
    if side.side.phase != "step" or not total or key not in side.sums.keys:
        return None
    time = stat(side.sums.matrix[side.sums.keys.index(key)])
    if time is None:
        return None
    return Column(
        key=f"optimizer/{side.side.precision}",
        title="optimizer, about",
        note="An estimate: the time of the optimizer, shared out by the number of parameters; a "
        "weight that two modules share counts in each.",
        precision=side.side.precision,
        unit="ns",
        values={m: round(time.median * n / total) for m, n in parameters.items() if n},
    )


def memory(precision: str | None, at_peak: Mapping[str, int]) -> Column:
    """Bytes alive at the peak; `at_peak`: by the module that allocated them."""
    return Column(
        key=f"memory/{precision}",
        title="memory at the peak",
        note="Bytes that are alive when most are, by the module that allocated them.",
        precision=precision,
        unit="bytes",
        values=summed(at_peak.items()),
    )


def hotness(precision: str | None, parameters: pa.Table) -> Column:
    """The share of elements that an optimizer step changes; table `parameters`."""
    moved = changes(parameters)
    changed = summed((m, c.changed) for m, c in moved.items())
    elements = summed((m, c.elements) for m, c in moved.items())
    return Column(
        key=f"hotness/{precision}",
        title="changed in a step",
        note="The share of the elements of its parameters that an optimizer step changes, mean of "
        "the steps.",
        precision=precision,
        unit="share",
        values={m: changed[m] / n for m, n in elements.items() if n},
    )


def summed(values: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Each module with all that is in it."""
    found: dict[str, int] = {}
    for module, value in values:
        for path in ancestors(module):
            found[path] = found.get(path, 0) + value
    return found


def peak(table: pa.Table) -> dict[str, int]:
    """Bytes by module that are alive when most are (table `memory` of one process, in its order);
    the module "unknown" is that of bytes whose module is not known. Of equal peaks the first of the
    last step that has one, as on the page of memory."""
    sign = {"before": 1, "alloc": 1, "free_requested": -1}
    rows = table.select(["iteration", "action", "bytes", "module"]).to_pylist()
    rows = [r for r in rows if r["action"] in sign and r["bytes"]]
    total = most = best = 0
    step = None
    for number, row in enumerate(rows, 1):
        total += sign[row["action"]] * row["bytes"]
        if total > most or (total == most and row["iteration"] != step):
            most, best, step = total, number, row["iteration"]
    alive: dict[str, int] = {}
    for row in rows[:best]:
        module = row["module"] if row["module"] is not None else "unknown"
        alive[module] = alive.get(module, 0) + sign[row["action"]] * row["bytes"]
    return {m: n for m, n in alive.items() if n}


class Changes:
    """Elements that changed and that there are, over all steps, and rows of which that is not
    known."""

    def __init__(self) -> None:
        self.changed = self.elements = self.unknown = 0


def changes(parameters: pa.Table) -> dict[str, Changes]:
    """By module, of its own parameters. Steps that were skipped change nothing, and count."""
    found: dict[str, Changes] = {}
    for row in parameters.select(["module", "elements", "changed"]).to_pylist():
        of = found.setdefault(row["module"] or "", Changes())
        if row["changed"] is None or row["elements"] is None:
            of.unknown += 1
        else:
            of.changed += row["changed"]
            of.elements += row["elements"]
    return found


def present(columns: Sequence[Column | None]) -> list[Column]:
    """Those that say something."""
    return [c for c in columns if c is not None and c.values]
