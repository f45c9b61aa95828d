"""Ranks in an nsys report: by their processes, and NCCL's calls by its own payloads."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from joined import of_files
from nsys_build import Export, tid

from layerline.analysis.captures import rank_nsys
from layerline.core.errors import InputError

KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FIRST = 1 << 24
MS = 1_000_000
# Schemas of NCCL as nsys 2026.1 exports them: name, type and offset of each entry.
ENTRIES = {
    FIRST: [("NCCL communicator ID", 18, None), ("No. of ranks", 5, 8), ("Rank", 5, 12),
            ("CUDA device", 5, 16)],
    FIRST + 5: [("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8)],
    FIRST + 9: [("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8),
                ("Peer rank", 5, 16)],
}  # fmt: skip


def payload(schema: int, form: str, *values: int) -> bytes:
    data = struct.pack(form, *values)
    return struct.pack("<4Q", 1, schema, len(data), 32) + data


def report(
    path: Path, *, blobs: bool = True, ranks: Sequence[int] = (0, 1), made: bool = True
) -> Path:
    """Two ranks of which the second computes 3 ms for 1, then one all-reduce of 4 MB and 1 ms.
    `made`: the communicator is made in the capture; else PyTorch's ranges are around the call."""
    export = Export()
    rows = []
    for r in ranks:
        process, communicator = 100 + r, 0xABC0 + (r if made else 0)
        compute = (1 + 2 * r) * MS
        export.launch(10 * MS, compute, name="gemm", process=process, start=10 * MS, deviceId=r)
        start, end = 10 * MS + compute, 14 * MS
        called = 10 * MS + 1000
        export.launch(called + 10, end - start, name=KERNEL, process=process, start=start,
                      streamId=20, deviceId=r)  # fmt: skip
        if made:
            whose = payload(FIRST, "<Qiii", communicator, 2, r, r)
            rows.append((MS, 2 * MS, tid(1, process), whose))
        else:
            about = ("record_param_comms, op_id = 7", "nccl:all_reduce, op_id = 8")
            for outer, name in zip((20, 10), about, strict=True):
                export.range(name, called - outer, called + 100 + outer, process=process)
        wait = {"name": "cudaStreamSynchronize_v3020", "duration": end - called - 200}
        export.call(called + 200, None, process=process, **wait)
        asked = payload(FIRST + 5, "<QQ", communicator, 4_000_000)
        rows.append((called, called + 100, tid(1, process), asked))
    export.write(path)
    with sqlite3.connect(path) as db:
        names = [row[1] for row in db.execute("pragma table_info(NVTX_EVENTS)")]
        if not names:
            db.execute(
                "create table NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, "
                "globalTid INTEGER, binaryData BLOB)"
            )
        elif "binaryData" not in names:
            db.execute("alter table NVTX_EVENTS add column binaryData BLOB")
        db.execute(
            "create table NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId INTEGER, "
            "idx INTEGER, type INTEGER, name TEXT, offset INTEGER)"
        )
        db.executemany(
            "insert into NVTX_PAYLOAD_SCHEMA_ENTRIES values (1, ?, ?, ?, ?, ?)",
            [(s, i, kind, name, at) for s, entries in ENTRIES.items()
             for i, (name, kind, at) in enumerate(entries)],
        )  # fmt: skip
        if blobs:
            db.executemany(
                "insert into NVTX_EVENTS (start, end, eventType, globalTid, binaryData) "
                "values (?, ?, 59, ?, ?)",
                rows,
            )
    return path


def test_nccls_payloads_give_rank_group_and_size(tmp_path: Path) -> None:
    job = of_files([report(tmp_path / "node.sqlite")])
    assert [(one.rank, one.world) for one in job.identities] == [(0, 2), (1, 2)]
    rows = job.collectives.to_pylist()
    assert [(r["rank"], r["operation"], r["bytes"], r["group"]) for r in rows] == [
        (0, "all-reduce", 4_000_000, "0:0-1"),
        (1, "all-reduce", 4_000_000, "0:0-1"),
    ]
    assert [r["wait_ns"] for r in rows] == [2 * MS, 0]
    assert {r["transfer_ns"] for r in rows} == {MS}
    # One report has one clock, however few collectives there are.
    assert {c.offset for c in job.clocks.values()} == {0}
    assert job.straggler is not None
    assert (job.straggler.rank, job.straggler.cause) == (1, "compute")


def test_ranks_of_an_earlier_communicator_meet_by_its_number(tmp_path: Path) -> None:
    """As where cudaProfilerApi begins the capture. How many ranks it has nobody says."""
    names = [tmp_path / f"train.rank{r}.sqlite" for r in (0, 1)]
    job = of_files([report(p, ranks=[r], made=False) for r, p in enumerate(names)])
    rows = job.collectives.to_pylist()
    assert [(r["operation"], r["bytes"], r["group"], r["group_size"]) for r in rows] == [
        ("all-reduce", 4_000_000, f"{0xABC0:016x}", None)
    ] * 2
    assert [(r["wait_ns"], r["transfer_ns"], r["known_by"]) for r in rows] == [
        (2 * MS, MS, "record"), (0, MS, "record"),
    ]  # fmt: skip
    assert job.world is None


def test_without_payloads_kernels_are_known_by_name_and_ranks_by_gpu(tmp_path: Path) -> None:
    job = of_files([report(tmp_path / "node.sqlite", blobs=False)])
    assert [one.rank for one in job.identities] == [0, 1]
    assert {(r["known_by"], r["instance"]) for r in job.collectives.to_pylist()} == {("name", None)}
    notes = [note for one in job.identities for note in one.notes]
    assert any("--include-blobs=true" in note for note in notes)
    assert any("rank 1 is the process on GPU 1" in note for note in notes)


def test_a_report_named_after_another_rank_than_it_holds_is_refused(tmp_path: Path) -> None:
    path = report(tmp_path / "train.rank3.sqlite", ranks=[0])
    with pytest.raises(InputError, match="is named rank 3, but is rank 0 of 2"):
        rank_nsys.read(path)


def test_each_ranks_host_waits_in_its_own_calls(tmp_path: Path) -> None:
    captures = rank_nsys.read(report(tmp_path / "node.sqlite"))
    called = 10 * MS + 1000
    for capture in captures:
        spans = capture.spans.select(["kind", "name", "start", "end"]).to_pylist()
        wait = {"name": "cudaStreamSynchronize_v3020", "start": called + 200, "end": 14 * MS}
        assert spans == [{"kind": "sync", **wait}]
