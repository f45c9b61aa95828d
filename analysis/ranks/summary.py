"""Communications by operation, group and module: the tables of the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ...core.module_paths import kind_of
from ...core.tables import frame
from ..model.ranks import Group, Identity

Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]


def kinds(
    table: pa.Table,
    counted: Flags,
    groups: Mapping[str, Group],
    identities: Sequence[Identity],
    steps: int,
) -> pa.Table:
    """One row for each operation, group, module pattern and size; the most exposed first. Sends and
    receives that one kernel did are one operation, as its time can be no one's alone."""
    data = frame(table)[counted]
    if not len(data):
        return pa.table({})
    data["pattern"] = ["" if m is None else kind_of(m) for m in _texts(data["module"])]
    data["group"] = data["group"].fillna("")
    hosts = {one.rank: one.host for one in identities}
    rows = []
    data["operation"] = _as_one(data)
    keys = ["operation", "group", "pattern", "bytes"]
    for (operation, key, name, size), part in data.groupby(keys, dropna=False, sort=False):
        matched = part["instance"].notna()
        waits = part.groupby("rank")["wait_ns"].mean().dropna()
        worst = None if not len(waits) else int(waits.astype(float).idxmax())
        group = groups.get(key)
        ranks = max(part["rank"].nunique(), 1)
        rows.append(
            {
                "operation": operation,
                "module": name,
                "group": key or None,
                "about": group.about if group else None,
                "scope": _scope(group, hosts),
                "per_step": len(part) / ranks / steps,
                "bytes": None if pd.isna(size) else int(size),
                "transfer_ns": _median(part["transfer_ns"]),
                "duration_ns": _median(part["duration_ns"]),
                "wait_ns": None if worst is None else float(waits[worst]),
                "wait_rank": worst,
                "exposed_ns": _sum(part["exposed_ns"]) / ranks / steps,
                "bus_bandwidth": _bandwidth(part),
                "rows": len(part),
                "matched": int(matched.sum()),
            }
        )
    rows.sort(key=lambda r: (-r["exposed_ns"], r["operation"], r["group"] or ""))
    return pa.Table.from_pylist(rows)


def modules(table: pa.Table, counted: Flags, steps: int, ranks: int) -> pa.Table:
    """Bytes of a rank and exposed time, of a step, for each module that communicates."""
    data = frame(table)[counted]
    data = data[data["module"].notna()]
    rows = []
    for (module, operation), part in data.groupby(["module", "operation"], sort=False):
        known = part["bytes"].notna().all()
        rows.append(
            {
                "module": module,
                "operation": operation,
                "per_step": len(part) / ranks / steps,
                "bytes": round(_sum(part["bytes"]) / ranks / steps) if known else None,
                "exposed_ns": round(_sum(part["exposed_ns"]) / ranks / steps),
            }
        )
    rows.sort(key=lambda r: -r["exposed_ns"])
    return pa.Table.from_pylist(rows)


def _as_one(data: pd.DataFrame) -> pd.Series:
    """The operations, of rows of one kernel those of all of them: ``recv + send``."""
    kernel = ["rank", "stream", "start_ns", "duration_ns"]
    shared = data.duplicated(kernel, keep=False) & data["start_ns"].notna()
    of = data[shared].groupby(kernel, dropna=False)["operation"]
    operations = data["operation"].copy()
    operations[shared] = of.transform(lambda names: " + ".join(sorted(set(names))))
    return operations


def _scope(group: Group | None, hosts: Mapping[int | None, str | None]) -> str | None:
    """Whether a group is within a host; None where the hosts of its ranks are not known."""
    if group is None or group.ranks is None:
        return None
    names = {hosts.get(r) for r in group.ranks}
    if None in names:
        return None
    return "one host" if len(names) == 1 else f"{len(names)} hosts"


def _texts(values: Iterable[Any]) -> list[str | None]:
    return [None if pd.isna(v) else str(v) for v in values]


def _median(values: pd.Series) -> float | None:
    known = values.dropna()
    return float(known.median()) if len(known) else None


def _bandwidth(part: pd.DataFrame) -> float | None:
    """The median over all transfers. One too short to have a bandwidth is faster than those that
    have one: the median of the others would be that of the slow ones."""
    middle = _median(part[part["transfer_ns"].notna()]["bus_bandwidth"].fillna(np.inf))
    return middle if middle is not None and np.isfinite(middle) else None


def _sum(values: pd.Series) -> int:
    return int(values.dropna().sum())
