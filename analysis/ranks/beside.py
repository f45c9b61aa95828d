"""How much longer kernels take beside communication than alone: what hiding it costs.

A kernel of communication holds a part of the device, also while it only waits for its peer, and
what runs beside it has the rest. What a call would take alone is the median of the same work that
ran beside none: of the same kernel, phase, module and grid; where fewer than `LEAST` calls of it
ran alone, of the same place in every block of the model; else of any place. A module or a grid that
is not known is the same as no other. It is time of compute, and no further part of a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...core.module_paths import kind_of
from ...core.tables import frame

LEAST = 3
# What makes two calls the same work, the closest first; and what of it must be known.
_SAME = (
    (("name", "phase", "grid", "module"), "module"),
    (("name", "phase", "grid", "place"), "module"),
    (("name", "phase", "grid"), "grid"),
)
# Of the table `ranks`. All are null where nothing of the kind is known, `slowed_ns` also where no
# kernel can be compared.
COLUMNS = ("beside_kernels", "beside_ns", "compared_kernels", "compared_ns", "slowed_ns")
Figures = Mapping[str, int | None]


def alone_ns(work: pa.Table) -> npt.NDArray[np.float64]:
    """For each row of `model.ranks.WORK`, what one call of it takes alone; NaN: not known."""
    data = frame(work.select(["name", "phase", "module", "grid"]))
    data["place"] = data["module"].map({m: kind_of(m) for m in data["module"].dropna().unique()})
    calls = work["alone"].combine_chunks()
    row = np.repeat(np.arange(len(work)), pc.fill_null(pc.list_value_length(calls), 0))
    taken = pd.Series(calls.flatten().to_numpy())
    expected = np.full(len(work), np.nan)
    for same, needed in _SAME:
        code = data.groupby(list(same), dropna=False, sort=False).ngroup().to_numpy()
        of = taken.groupby(code[row]).agg(["median", "count"]).reindex(code)
        usable = (of["count"].to_numpy() >= LEAST) & data[needed].notna().to_numpy()
        expected = np.where(np.isnan(expected) & usable, of["median"].to_numpy(), expected)
    return expected


def by_step(work: pa.Table, steps: Sequence[int | None]) -> dict[int | None, Figures]:
    """The `COLUMNS` of each step of a rank; (None,) is the whole capture."""
    count, total = (work[c].to_pandas() for c in ("beside_count", "beside_ns"))
    known = count.notna().to_numpy()
    if not known.any():
        return {}
    expected = alone_ns(work)
    figures = pd.DataFrame({"count": count, "total": total, "longer": total - count * expected})
    iteration = work["iteration"].to_pandas()
    result: dict[int | None, Figures] = {}
    for step in steps:
        mine = figures[known & (count > 0) & (True if step is None else iteration == step)]
        compared = mine[mine["longer"].notna()]
        result[step] = {
            "beside_kernels": int(mine["count"].sum()),
            "beside_ns": int(mine["total"].sum()),
            "compared_kernels": int(compared["count"].sum()),
            "compared_ns": int(compared["total"].sum()),
            "slowed_ns": round(compared["longer"].sum()) if len(compared) else None,
        }
    return result
