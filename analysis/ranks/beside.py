"""How much longer kernels take beside communication than alone: what hiding it costs.

A kernel of communication holds a part of the device, also while it only waits for its peer, and
what runs beside it has the rest. What a call would take alone is the median of the same work that
ran beside none: of the same kernel, phase, module and grid; where fewer than `LEAST` calls of it
ran alone, of the same place in every block of the model; else of any place. A module or a grid that
is not known is the same as no other. It is time of compute, and no further part of a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core import tables
from ...core.module_paths import kind_of

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
Ints = npt.NDArray[np.int64]


def alone_ns(work: pa.Table) -> npt.NDArray[np.float64]:
    """For each row of `model.ranks.WORK`, what one call of it takes alone; NaN: not known."""
    codes: dict[str, Ints] = {}
    for name in ("name", "phase", "grid", "module"):
        codes[name], modules = tables.codes(work[name])
    places: dict[str, int] = {}
    place = [places.setdefault(kind_of(module), len(places)) for module in modules]
    codes["place"] = np.array([*place, -1])[codes["module"]]
    calls = work["alone"].combine_chunks()
    row = np.repeat(np.arange(len(work)), pc.fill_null(pc.list_value_length(calls), 0))
    taken = calls.flatten().to_numpy()
    shortest = np.argsort(taken, kind="stable")
    row, taken = row[shortest], taken[shortest]
    expected = np.full(len(work), np.nan)
    for same, needed in _SAME:
        code = _together([codes[name] for name in same])
        median, count = _medians(code[row], taken, int(code.max(initial=-1)) + 1)
        usable = (count[code] >= LEAST) & work[needed].is_valid().to_numpy()
        expected = np.where(np.isnan(expected) & usable, median[code], expected)
    return expected


def _together(columns: Sequence[Ints]) -> Ints:
    """One code for what is equal in all columns of codes, of which -1 is one."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        pair = code * (int(column.max(initial=0)) + 2) + column + 1
        code = tables.codes(pa.array(pair))[0].astype(np.int64)
    return code


def _medians(code: Ints, ordered: Ints, n: int) -> tuple[npt.NDArray[np.float64], Ints]:
    """The median of each of `n` codes' values, which are in order, and how many there are."""
    # Numbers of 16 bits are sorted digit by digit.
    short = code.astype(np.uint16) if n <= 1 << 16 else code
    values = ordered[np.argsort(short, kind="stable")]
    count = np.bincount(code, minlength=n)
    first = np.cumsum(count) - count
    median = np.full(n, np.nan)
    some = count > 0
    low, high = (first + (count - 1) // 2)[some], (first + count // 2)[some]
    median[some] = (values[low] + values[high]) / 2
    return median, count


def by_step(work: pa.Table, steps: Sequence[int | None]) -> dict[int | None, Figures]:
    """The `COLUMNS` of each step of a rank; (None,) is the whole capture."""
    known = work["beside_count"].is_valid().to_numpy()
    if not known.any():
        return {}
    count, total = (pc.fill_null(work[c], 0).to_numpy() for c in ("beside_count", "beside_ns"))
    longer = total - count * alone_ns(work)
    step = np.zeros(len(work), dtype=np.int64)
    if tuple(steps) != (None,):
        place = pc.index_in(work["iteration"], value_set=pa.array(steps, pa.int64()))
        step = place.fill_null(len(steps)).to_numpy()
    mine = known & (count > 0)
    compared = mine & ~np.isnan(longer)

    def sums(values: npt.NDArray[Any], chosen: npt.NDArray[np.bool_]) -> list[int]:
        """By step; exact below 2**53."""
        of_step = np.bincount(step[chosen], values[chosen], len(steps) + 1)[:-1]
        result: list[int] = np.rint(of_step).astype(np.int64).tolist()
        return result

    slowed = [
        ns if n else None
        for ns, n in zip(sums(longer, compared), sums(compared, compared), strict=True)
    ]
    pairs = ((count, mine), (total, mine), (count, compared), (total, compared))
    columns = [sums(*of) for of in pairs]
    each = zip(*columns, slowed, strict=True)
    return {s: dict(zip(COLUMNS, row, strict=True)) for s, row in zip(steps, each, strict=True)}
