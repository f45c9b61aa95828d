"""The host side of an nsys capture: calls into CUDA, its libraries and the system.

Tables (SQLite schema of nsys 2020 to 2026, "Nsight Systems exporter" in the user guide): calls into
CUDA in `CUPTI_ACTIVITY_KIND_RUNTIME`; with ``--trace=cublas``, ``cudnn`` and ``osrt`` also
`CUBLAS_EVENTS`, `CUDNN_EVENTS` and `OSRT_API`, all with start, end (ns), eventClass, globalTid and
nameId. Rows of another class than calls (the start and finish of the tracer itself) are left out.
nsys makes a table when it has a row for it, so an absent one was not traced, or saw no call. Of the
system's calls only those of at least 1 us are recorded (``--osrt-threshold``, default 1000 ns).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from . import diagnostics, schema, sqlite
from .diagnostics import Diagnostic
from .source import NULL, Codes, Filter, Integers, Query, Source, read_distinct

CUDA, SYSTEM = "CUDA", "system"
# ENUM_NSYS_EVENT_CLASS: OSRT runtime, cuDNN, cuBLAS.
TABLES: dict[str, tuple[str, int | None]] = {
    CUDA: (schema.RUNTIME, None),
    SYSTEM: ("OSRT_API", 27),
    "cuDNN": ("CUDNN_EVENTS", 28),
    "cuBLAS": ("CUBLAS_EVENTS", 29),
}
LIBRARIES = ("cuBLAS", "cuDNN")


@dataclass(frozen=True)
class HostCalls:
    """Calls of one table, ordered by start. ns; `thread` is a globalTid, `name` a code into
    `names`; `correlation` is `NULL` where the table has none."""

    start: Integers
    end: Integers
    thread: Integers
    correlation: Integers
    name: Codes
    names: list[str]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Host:
    """The calls by kind (a key of `TABLES`); in `missing` why a kind is missing; in
    `diagnostics` the warnings of nsys itself; `tool`: what recorded them."""

    calls: dict[str, HostCalls]
    missing: dict[str, str] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    tool: str = "nsys"


def read(path: Path) -> Host:
    """The host's calls of an export. InputError where the file is none."""
    with sqlite.source(path) as opened:
        return load(opened)


def load(source: Source, kinds: Collection[str] = TABLES) -> Host:
    """The host's calls of an opened export, of these kinds."""
    calls, missing = {}, {}
    for kind in kinds:
        name, event_class = TABLES[kind]
        table = schema.pick(source.tables, name)
        columns = () if table is None else source.tables[table]
        lacking = [c for c in ("start", "end", "globalTid", "nameId") if c not in columns]
        if table is None:
            missing[kind] = f"no table {name}: not traced, or no call was seen"
        elif lacking:
            missing[kind] = f"{table} has no {', '.join(lacking)}"
        else:
            calls[kind] = _calls(source, table, event_class if "eventClass" in columns else None)
    return Host(calls, missing, diagnostics.read(source))


def _calls(source: Source, table: str, event_class: int | None) -> HostCalls:
    numbers = source.present(table, ("start", "end", "globalTid", "correlationId"))
    where = None if event_class is None else Filter("eventClass", (event_class,))
    raw, _ = read_distinct(source, Query(table, numbers, ("nameId",), where=where))
    start, end = raw["start"], raw["end"]
    correlation = raw.data.get("correlationId", np.full(raw.rows, NULL))
    kept = np.flatnonzero((start != NULL) & (end >= start))
    kept = kept[np.argsort(start[kept], kind="stable")]
    return HostCalls(
        start[kept],
        end[kept],
        raw["globalTid"][kept],
        correlation[kept],
        raw["nameId"][kept],
        [name or "" for name in source.names(raw.values["nameId"])],
    )
