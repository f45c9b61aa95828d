"""Whether nsys and torch.profiler tell the same kernel time of one eager model."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ...core import tables
from ...core.stats import median
from ..costs.iterations import by_iteration
from ..formatting import spoken_time as time
from ..model.comparison import Check
from . import closure

CHECK = "sources"

TOLERANCE = 0.02

ALL = "\0all"  # no module's name


def agreement(profiler: pa.Table, nsys: pa.Table) -> Check:
    """Whether two captures of the same work tell the same kernel time, within 2 %.

    Both are `ops` of one phase, or of a step, from torch.profiler and from nsys; medians over
    iterations of the sums of kernel durations. The largest difference of a module is told too.
    """
    ours, theirs = _kernel_time(profiler), _kernel_time(nsys)
    if not ours or not theirs:
        which = "torch.profiler" if not ours else "nsys"
        return closure.unchecked(CHECK, f"the capture of {which} has no kernel of this phase")
    total, other = ours.pop(ALL), theirs.pop(ALL)
    names = {*ours, *theirs}
    worst = max(names, key=lambda n: (abs(theirs.get(n, 0) - ours.get(n, 0)), n))
    difference = theirs.get(worst, 0) - ours.get(worst, 0)
    return closure.judged(
        CHECK,
        [
            ("kernels by nsys", other),
            ("kernels by torch.profiler", -total),
            ("largest difference of a module or row", difference),
        ],
        other - total,
        total,
        TOLERANCE,
        good=(
            f"nsys and torch.profiler tell the same kernel time; of a single module it differs "
            f"most for {worst or 'the model'}, by {time(difference)}."
        ),
        bad=(f"nsys tells {time(other)} of kernel time and torch.profiler {time(total)}."),
    )


def _kernel_time(ops: pa.Table) -> dict[str, int]:
    """Median over iterations of the kernel time of each module or row, and of `ALL`, in ns."""
    rows = tables.of_kinds(ops, ["kernel"], "duration_ns", "iteration")
    if not len(rows):
        return {}
    listed = pc.binary_join(rows["modules"], ", ")
    code, names = tables.codes(pc.fill_null(pc.coalesce(listed, rows["layer"]), ""))
    iteration, ns = rows["iteration"].to_numpy(), rows["duration_ns"].to_numpy()
    _, matrix = by_iteration(code, len(names), iteration, ns)
    times = [*zip(names, matrix, strict=True), (ALL, matrix.sum(axis=0))]
    return {name: median(sorted(of.tolist())) for name, of in times}
