"""What is said of kernels that ran beside communication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.compute as pc

from ... import formatting
from ...model.ranks import Job
from ...ranks.beside import COLUMNS


@dataclass(frozen=True)
class Slowed:
    """Of a rank's mean step: how many kernels ran beside communication, how many of them can be
    compared with the same work alone, and how much longer these took, also as a ratio; None where
    there is none."""

    kernels: float
    compared: float
    longer_ns: float | None
    ratio: float | None

    def words(self) -> str:
        """``1.28× over 1,230 kernels``."""
        return f"{formatting.ratio(self.ratio)} over {_kernels(self.compared)}"

    def uncompared(self) -> str | None:
        """How many of them did not run often enough alone; None for none."""
        return None if self.kernels == self.compared else _count(self.kernels - self.compared)


def _count(mean: float) -> str:
    return formatting.number(round(mean) if mean >= 10 else round(mean, 1))


def _kernels(mean: float) -> str:
    return f"{_count(mean)} kernel{'' if mean == 1 else 's'}"


def of_ranks(job: Job) -> dict[int, Slowed]:
    """By rank; without those of which nothing is known."""
    sums = job.ranks.filter(pc.is_valid(job.ranks["beside_kernels"])).group_by("rank")
    columns = [(name, "sum") for name in COLUMNS] + [("beside_kernels", "count")]
    return {row["rank"]: _slowed(row) for row in sums.aggregate(columns).to_pylist()}


def _slowed(row: Mapping[str, int | None]) -> Slowed:
    kernels, _, compared, took, longer = (row[f"{name}_sum"] for name in COLUMNS)
    steps = row["beside_kernels_count"]
    assert kernels is not None and compared is not None and took is not None and steps
    if longer is None:
        return Slowed(kernels / steps, 0, None, None)
    ratio = took / (took - longer) if took > longer else None
    return Slowed(kernels / steps, compared / steps, longer / steps, ratio)


def line(ranks: Mapping[int, Slowed]) -> str | None:
    """Of the rank that it costs most; None where no kernel ran beside communication."""
    known = {r: one for r, one in ranks.items() if one.longer_ns is not None}
    if known:
        rank = max(known, key=lambda r: known[r].longer_ns or 0)
        one = known[rank]
        longer = (one.longer_ns or 0) > 0
        by = f"{formatting.time(one.longer_ns)} longer" if longer else "no longer"
        return f"rank {rank} computes {by} beside communication ({one.words()})"
    kernels = max((one.kernels for one in ranks.values()), default=0)
    if not kernels:
        return None
    return (
        f"{_kernels(kernels)} ran beside communication, "
        "none of them also alone: what that costs is not known"
    )
