"""Whether nsys and torch.profiler tell the same kernel time of one eager model."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ...core.stats import median
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
    rows = ops.filter(
        pc.and_(
            pc.equal(ops["kind"], "kernel"),
            pc.and_(pc.is_valid(ops["duration_ns"]), pc.is_valid(ops["iteration"])),
        )
    )
    listed = pc.binary_join(rows["modules"], ", ")
    name = pc.fill_null(pc.coalesce(listed, rows["layer"]), "")
    named = rows.select(["iteration", "duration_ns"]).append_column("name", name)
    summed = named.group_by(["name", "iteration"]).aggregate([("duration_ns", "sum")])
    times: dict[str, dict[int, int]] = {}
    columns = (summed[c].to_pylist() for c in ("name", "iteration", "duration_ns_sum"))
    numbers = sorted(pc.unique(rows["iteration"]).to_pylist())
    for key, iteration, ns in zip(*columns, strict=True):
        for of in (times.setdefault(key, {}), times.setdefault(ALL, {})):
            of[iteration] = of.get(iteration, 0) + ns
    return {n: median(sorted(of.get(i, 0) for i in numbers)) for n, of in times.items()}
