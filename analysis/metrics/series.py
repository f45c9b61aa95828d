"""One metric over the launches of a capture, as arrays and files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import InputError
from ...core.files import folder as make_folder
from ...core.files import replacing
from ..counters.sums import durations
from ..counters.units import base_unit

# Neither measured nor the kernel's: the device and the tool.
STATIC = ("device__", "numa__", "nvlink__", "c2clink__", "pcie__", "profiler__")


@dataclass(frozen=True)
class Series:
    """A metric's values in the order of launches, in base units.

    `value`: float64, NaN where unknown. `cumulative_time_ns`: ncu's kernel durations summed up to
    and including each launch, NaN from the first unknown one on; not a latency, since kernels
    ran replayed and serialised. `kernel_id`: int64, the launch's number.
    """

    metric: str
    unit: str | None
    value: npt.NDArray[np.float64]
    cumulative_time_ns: npt.NDArray[np.float64]
    kernel_id: npt.NDArray[np.int64]

    @property
    def known(self) -> int:
        """How many launches have a value."""
        return int(np.isfinite(self.value).sum())


def names(counters: pa.Table, *, static: bool = False) -> list[str]:
    """The metrics of a capture that are numbers, sorted; with `static` those of device and tool."""
    numbers = counters.filter(pc.is_valid(counters["value"]))
    metrics = sorted(numbers["metric"].unique().to_pylist())
    return [m for m in metrics if static or not m.startswith(STATIC)]


def every(counters: pa.Table, file: str, *, static: bool = False) -> list[str]:
    """`names`; InputError, about `file`, where there is none: what the file holds instead."""
    metrics = names(counters, static=static)
    if metrics:
        return metrics
    if not static and (left := names(counters, static=True)):
        raise InputError(
            f"holds only attributes of the device and of the tool ({len(left)} of them)",
            file=file,
            fix="name them with --metric, or see `layerline metrics list --static`",
        )
    texts = len(counters["metric"].unique())
    raise InputError(
        "holds no metric that is a number"
        + (f" ({texts} that are text or empty)" if texts else ", only what ncu's rules said"),
        file=file,
        fix="print the raw page (ncu --import REPORT --csv --page raw); "
        "`layerline metrics explain` tells the rules",
    )


def numbers(counters: pa.Table, metrics: Sequence[str], file: str | None = None) -> list[Series]:
    """The series of the metrics named. InputError also where one has no number at all: there is
    nothing to draw or to compute with."""
    several = series(counters, metrics, file)
    for one in several:
        if not one.known:
            raise InputError(
                f"has no number of {one.metric}, in any launch", file=file, fix="name another"
            )
    return several


def series(counters: pa.Table, metrics: Sequence[str], file: str | None = None) -> list[Series]:
    """The series of the metrics named. InputError, about `file`, where the capture lacks one."""
    ids = np.unique(counters["launch"].to_numpy())
    time = durations(counters)
    cumulative = np.cumsum([time.get(int(i), np.nan) for i in ids])
    chosen = counters.filter(pc.is_in(counters["metric"], pa.array(list(metrics), pa.string())))
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in chosen.select(["metric", "launch", "value", "unit"]).to_pylist():
        rows[row["metric"]].append(row)
    several = []
    for metric in metrics:
        if metric not in rows:
            raise InputError(f"has no metric {metric}", file=file, fix=near(metric, counters))
        values = np.full(len(ids), np.nan)
        units: set[str | None] = set()
        for row in rows[metric]:
            if row["value"] is not None:
                factor, base = base_unit(row["unit"])
                values[np.searchsorted(ids, row["launch"])] = row["value"] * factor
                units.add(base)
        if len(units) > 1:
            listed = ", ".join(sorted(str(u) for u in units))
            raise InputError(
                f"gives {metric} in units that cannot be compared ({listed})", file=file
            )
        unit = units.pop() if units else None
        several.append(Series(metric, unit, values, cumulative, ids))
    return several


def file_name(metric: str) -> str:
    """``metric_submetric``: dots become underscores, and what no file name may hold as well."""
    return re.sub(r"[^\w-]", "_", metric)


def paths(metrics: Sequence[str], folder: Path, suffix: str) -> list[Path]:
    """A file in `folder` per metric; InputError, naming both, where two would share one."""
    metric_of: dict[str, str] = {}
    for metric in metrics:
        other = metric_of.setdefault(file_name(metric), metric)
        if other != metric:
            raise InputError(
                f"{other} and {metric} would be one file there",
                file=folder,
                fix="name one of them with --metric, the other into another folder",
            )
    return [folder / f"{file_name(metric)}{suffix}" for metric in metrics]


def write_all(several: Sequence[Series], folder: Path) -> list[Path]:
    """An .npz per series with the arrays value, cumulative_time_ns, kernel_id, unit (text, "" if
    none) and metric; it loads without pickle. InputError where two metrics would share a name."""
    named = paths([one.metric for one in several], folder, ".npz")
    make_folder(folder)
    for one, path in zip(several, named, strict=True):
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(
                file,
                value=one.value,
                cumulative_time_ns=one.cumulative_time_ns,
                kernel_id=one.kernel_id,
                unit=np.str_(one.unit or ""),
                metric=np.str_(one.metric),
            )
    return named


def near(metric: str, counters: pa.Table) -> str:
    """What to do about a metric that a capture lacks: those that it has of like names."""
    import difflib

    known = names(counters)
    stem = [k for k in known if k.startswith(metric.split(".")[0])]
    alike = stem[:3] or difflib.get_close_matches(metric, known, 3)
    lists = "`layerline metrics list` shows all"
    return f"it has {', '.join(alike)}; {lists}" if alike else lists
