"""What colours the boxes: a value for each box, from tables of the run.

Cost is taken of the operations of one side (table `ops`), so it is as exact for a box as anywhere
else: in [own, own + shared] where fused layers span boxes. Bytes at the peak and changed elements
add up over modules. Boxes of the same module's own operations have one value: tables tell modules
apart, not the places in the dataflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from ...core.documents import ModuleError
from .. import formatting
from ..costs.columns import changes
from ..costs.iterations import labels, stat, sums
from ..costs.modules import bounds
from .model import ModuleGraph


@dataclass(frozen=True)
class Shade:
    """`value`: what the colour tells. `short`: of it in the box; `full`: a line of its title."""

    value: float
    short: str
    full: str


@dataclass(frozen=True)
class Shading:
    """`of`: shades by id of the box; a box without one is not known. `title`: what they are of.
    `spelled`: how a value of the scale is written."""

    title: str
    of: Mapping[str, Shade]
    spelled: Callable[[float], str]

    @property
    def most(self) -> float:
        """The largest value, the end of the scale."""
        return max((s.value for s in self.of.values()), default=0.0)


def cost(graph: ModuleGraph, ops: pa.Table, title: str) -> Shading:
    """Shares of the operation time. `ops`: of one source, and of one phase or of a whole step.
    Where layers are shared with other boxes the colour is of the most that a box may cost."""
    found = sums(ops, labels(ops))
    total = stat(found.total()) if found.iterations else None
    if total is None:
        return Shading(title, {}, formatting.percent)
    units = found.units()
    regions = [[u for u in units if box.holds(u)] for box in graph.boxes]
    shades = {}
    for box, cost in zip(graph.boxes, bounds(found, regions, total.median), strict=True):
        if cost is None or cost.share is None or cost.own.median is None:
            continue
        least, most = cost.own.median, cost.upper.median
        low, high = formatting.percent(least / total.median), formatting.percent(cost.share)
        exact = not cost.shared
        times = formatting.time(most) if exact else formatting.time_range(least, most)
        shades[box.id] = Shade(
            cost.share,
            high if exact else f"{low} – {high}",
            f"{times} of {formatting.time(total.median)}, {high if exact else f'{low} – {high}'}",
        )
    return Shading(title, shades, formatting.percent)


def error(graph: ModuleGraph, errors: Mapping[str, ModuleError], title: str) -> Shading:
    """The largest relative error of the outputs of the modules of each box."""
    shades = {}
    for box in graph.boxes:
        known = [(e, m) for m in box.modules if (e := errors.get(m)) and e.error_out is not None]
        if box.kind != "module" or not known:
            continue
        worst, module = max(known, key=lambda k: k[0].error_out or 0)
        value = worst.error_out or 0.0
        wrong = ", the first wrong one" if worst.first_wrong else ""
        shades[box.id] = Shade(value, f"{value:.2g}", f"error {value:.2g} in {module}{wrong}")
    return Shading(title, shades, lambda v: f"{v:.2g}")


def memory(graph: ModuleGraph, at_peak: Mapping[str, int], title: str) -> Shading:
    """Bytes that are alive at the peak, by module that allocated them."""
    shades = {}
    for box in graph.boxes:
        held = [n for m, n in at_peak.items() if box.holds(m)]
        if held:
            total = sum(held)
            shades[box.id] = Shade(total, formatting.size(total), f"{total:,} bytes at the peak")
    return Shading(title, shades, formatting.size)


def hotness(graph: ModuleGraph, parameters: pa.Table, title: str) -> Shading:
    """The share of a module's elements that changed, mean of the steps (table `parameters`).

    Steps that were skipped change nothing and count as steps. Rows of which that is not known are
    left out, and the title of the box says how many."""
    moved = changes(parameters)
    shades = {}
    for box in graph.boxes:
        held = [c for m, c in moved.items() if box.holds(m)]
        changed, of = sum(c.changed for c in held), sum(c.elements for c in held)
        unknown = sum(c.unknown for c in held)
        if of:
            text = f"{changed:,} of {of:,} elements changed, over all steps"
            text += f"; of {unknown} more rows it is not known" if unknown else ""
            shades[box.id] = Shade(changed / of, formatting.percent(changed / of), text)
    return Shading(title, shades, formatting.percent)
