"""Builds small nsys exports (SQLite) for tests: what a test says, and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

PROCESS = 1000
KERNEL_COLUMNS = {
    "start": "INTEGER",
    "end": "INTEGER",
    "deviceId": "INTEGER",
    "streamId": "INTEGER",
    "correlationId": "INTEGER",
    "globalPid": "INTEGER",
    "demangledName": "INTEGER",
    "shortName": "INTEGER",
    "graphNodeId": "INTEGER",
}


def tid(thread: int = 1, process: int = PROCESS) -> int:
    """globalTid of a thread (hardware id 1 in the top byte, as nsys writes on Linux)."""
    return (1 << 56) | (process << 24) | thread


def pid(process: int = PROCESS) -> int:
    """globalPid of a process."""
    return (1 << 56) | (process << 24)


@dataclass
class Export:
    """Rows to write. Names are written to StringIds."""

    kernels: list[dict[str, Any]] = field(default_factory=list)
    copies: list[dict[str, Any]] = field(default_factory=list)
    sets: list[dict[str, Any]] = field(default_factory=list)
    graphs: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    ranges: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    _strings: dict[str, int] = field(default_factory=dict)
    _next: int = 0

    def string(self, text: str | None) -> int | None:
        """Id of a name."""
        if text is None:
            return None
        return self._strings.setdefault(text, len(self._strings) + 10)

    def launch(
        self,
        at: int,
        duration: int = 10,
        *,
        name: str = "k",
        thread: int = 1,
        process: int = PROCESS,
        correlation: int | None = None,
        call: str = "cudaLaunchKernel_v7000",
        start: int | None = None,
        **more: Any,
    ) -> None:
        """A kernel of `duration` ns and its launch at `at` ns."""
        self._next += 1
        correlation = self._next if correlation is None else correlation
        self.call(at, correlation, thread=thread, process=process, name=call)
        start = at + 100 if start is None else start
        self.kernel(start, start + duration, correlation, name=name, process=process, **more)

    def kernel(
        self,
        start: Any,
        end: Any,
        correlation: int | None,
        *,
        name: str = "k",
        process: int = PROCESS,
        **more: Any,
    ) -> None:
        """A kernel row."""
        row = {
            "start": start,
            "end": end,
            "deviceId": 0,
            "streamId": 7,
            "correlationId": correlation,
            "globalPid": pid(process),
            "demangledName": self.string(name),
            "shortName": self.string("short " + name),
            "graphNodeId": None,
        }
        self.kernels.append(row | more)

    def copy(self, start: int, end: int, correlation: int) -> None:
        """A copy of 4 bytes to the device."""
        row = {"start": start, "end": end, "deviceId": 0, "streamId": 7, "globalPid": pid()}
        self.copies.append({**row, "correlationId": correlation, "copyKind": 1, "bytes": 4})

    def call(
        self,
        at: Any,
        correlation: int | None,
        *,
        thread: int = 1,
        process: int = PROCESS,
        name: str = "cudaLaunchKernel_v7000",
        duration: int = 5,
    ) -> None:
        """A call into CUDA."""
        self.calls.append(
            {
                "start": at,
                "end": at + duration if isinstance(at, int) else None,
                "eventClass": 0,
                "globalTid": tid(thread, process),
                "correlationId": correlation,
                "nameId": self.string(name),
                "returnValue": 0,
            }
        )

    def range(
        self,
        name: str | None,
        start: Any,
        end: Any,
        *,
        thread: int = 1,
        process: int = PROCESS,
        end_thread: int | None = None,
        kind: int = 59,
        domain: int = 0,
    ) -> None:
        """A range: push/pop (59) or start/end (60)."""
        self.ranges.append(
            {
                "start": start,
                "end": end,
                "eventType": kind,
                "text": None,
                "textId": self.string(name),
                "globalTid": tid(thread, process),
                "endGlobalTid": None if end_thread is None else tid(end_thread, process),
                "domainId": domain,
            }
        )

    def domain(self, number: int, name: str, process: int = PROCESS) -> None:
        """A domain's creation; the name is text in every version."""
        self.range(None, 0, None, kind=75, domain=number, process=process)
        self.ranges[-1]["text"] = name

    def write(
        self,
        path: Path,
        *,
        suffix: str = "",
        drop: Sequence[str] = (),
        meta: str | None = "META_DATA_EXPORT",
        extra: str = "",
        types: dict[str, str] | None = None,
    ) -> Path:
        """Write the export. `suffix` on CUPTI and NVTX tables; `drop` columns; `extra` SQL."""
        db = sqlite3.connect(path)
        db.executescript("pragma synchronous = off; pragma journal_mode = off")
        tables = {
            "CUPTI_ACTIVITY_KIND_KERNEL": self.kernels,
            "CUPTI_ACTIVITY_KIND_MEMCPY": self.copies,
            "CUPTI_ACTIVITY_KIND_MEMSET": self.sets,
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": self.graphs,
            "CUPTI_ACTIVITY_KIND_RUNTIME": self.calls,
            "NVTX_EVENTS": self.ranges,
        }
        for name, rows in tables.items():
            _table(db, name + suffix, rows, drop, types or {})
        _table(db, "CUDA_GRAPH_NODE_EVENTS", self.nodes, drop, types or {})
        db.execute("create table StringIds (id integer primary key not null, value text)")
        db.executemany(
            "insert into StringIds values (?, ?)", [(i, s) for s, i in self._strings.items()]
        )
        db.execute("create table TARGET_INFO_GPU (id integer, name text)")
        db.execute("insert into TARGET_INFO_GPU values (0, 'NVIDIA Test')")
        if meta:
            db.execute(f"create table {meta} (name text, value text)")
            db.execute(f"insert into {meta} values ('EXPORT_PRODUCT_VERSION', '2025.3.1.0')")
        db.executescript(extra)
        db.commit()
        db.close()
        return path


def _table(
    db: sqlite3.Connection,
    name: str,
    rows: list[dict[str, Any]],
    drop: Sequence[str],
    types: dict[str, str],
) -> None:
    if not rows:
        return
    columns = [c for c in rows[0] if c not in drop]
    shown = ", ".join(
        f'"{c}" {types.get(c, "TEXT" if c == "text" else "INTEGER")}' for c in columns
    )
    db.execute(f"create table {name} ({shown})")
    marks = ", ".join("?" for _ in columns)
    db.executemany(f"insert into {name} values ({marks})", [[r[c] for c in columns] for r in rows])


def convert(file: Path, folder: Path, form: str) -> Path:
    """Write each table with rows as a file, as `nsys export --type parquetdir` does."""
    folder.mkdir()
    db = sqlite3.connect(file)
    for (name,) in db.execute("select name from sqlite_master where type = 'table'").fetchall():
        cursor = db.execute(f"select * from {name}")
        columns = [c[0] for c in cursor.description]
        rows = cursor.fetchall()
        if not rows:
            continue
        table = pa.table(
            {c: list(v) for c, v in zip(columns, zip(*rows, strict=True), strict=True)}
        )
        if form == "parquet":
            pq.write_table(table, folder / f"{name}.parquet", row_group_size=2)
        else:
            writer = ipc.new_file if form == "arrow file" else ipc.new_stream
            with writer(folder / f"{name}.arrow", table.schema) as out:
                out.write_table(table)
    db.close()
    return folder
