"""`layerline scrub` of a job's captures: what tells its ranks apart stays, its hosts do not."""

from __future__ import annotations

import json
import sqlite3
import struct
from pathlib import Path

import nsys_build
import pytest
from click.testing import CliRunner

from layerline.analysis.readers.nsys import nccl, sqlite
from layerline.analysis.scrub import pipeline
from layerline.core.cli.command import cli
from layerline.core.errors import InputError

HOST = "frosty-ridge17"
FIRST = 1 << 24
SECRET = b"\xfe/home/mgarcia\x00\xff"


def export(path: Path) -> Path:
    """An export with a call of NCCL whose payload has a field that is not known, and a blob of
    something else."""
    made = nsys_build.Export()
    made.range("outer", 0, 1000)
    made.launch(10)
    made.write(path)
    payload = struct.pack("<QQ", 0xABC0, 4096) + SECRET.ljust(16, b"\x00")
    # Its domain is an address in the process.
    call = struct.pack("<4Q", 0x7F0012345678, FIRST + 4, len(payload), 32) + payload
    with sqlite3.connect(path) as db:
        db.execute("alter table NVTX_EVENTS add column binaryData BLOB")
        db.execute(
            "create table NVTX_PAYLOAD_SCHEMA_ENTRIES (schemaId INTEGER, idx INTEGER, "
            "type INTEGER, name TEXT, offset INTEGER)"
        )
        entries = [
            ("NCCL communicator ID", 18, None),
            ("Message size [bytes]", 22, 8),
            ("x", 18, 16),
        ]
        db.executemany(
            "insert into NVTX_PAYLOAD_SCHEMA_ENTRIES values (?, ?, ?, ?, ?)",
            [(FIRST + 4, i, kind, name, at) for i, (name, kind, at) in enumerate(entries)],
        )
        db.executemany(
            "insert into NVTX_EVENTS (start, end, globalTid, binaryData) values (?, ?, ?, ?)",
            [(20, 30, 1 << 24, call), (40, 50, 1 << 24, SECRET)],
        )
    return path


def test_nccls_calls_are_told_of_the_copy_and_nothing_else_of_their_bytes(tmp_path: Path) -> None:
    path = export(tmp_path / "own.sqlite")
    out, found = pipeline.scrub(path, tmp_path / "copy.sqlite")
    with sqlite.source(path) as before, sqlite.source(out) as after:
        told = nccl.read(after)
        assert told == nccl.read(before)
    assert [(c.operation, c.communicator, c.bytes) for c in told.calls] == [
        ("AllGather", 0xABC0, 4096)
    ]
    assert found["NVTX_EVENTS.binaryData", "binary data"] == 1
    data = out.read_bytes()
    assert b"mgarcia" not in data and struct.pack("<Q", 0x7F0012345678) not in data


@pytest.mark.parametrize("host", [HOST, "vm"])
def test_the_host_in_a_ranks_file_names_is_replaced_and_they_still_name_each_other(
    tmp_path: Path, host: str
) -> None:
    captures = tmp_path / "run" / "captures"
    captures.mkdir(parents=True)
    (tmp_path / "run" / "manifests").mkdir()
    name = f"train.bf16.rank0001@{host}"
    (captures / f"{name}.meta.json").write_text(json.dumps({"trace": f"{name}.trace.json.gz"}))
    (captures / f"{name}.latency.json").write_text(
        json.dumps({"source": f"{name}.latency.json", "by": "somebody@example.org"})
    )
    out, _ = pipeline.scrub(tmp_path / "run", tmp_path / "copy")
    made = {p.name: json.loads(p.read_text()) for p in (out / "captures").iterdir()}
    assert made == {
        "train.bf16.rank0001@host1.meta.json": {"trace": "train.bf16.rank0001@host1.trace.json.gz"},
        "train.bf16.rank0001@host1.latency.json": {
            "source": "train.bf16.rank0001@host1.latency.json", "by": "email1",
        },
    }  # fmt: skip


def test_copies_of_two_hosts_do_not_replace_each_other(tmp_path: Path) -> None:
    to, paths = tmp_path / "copies", []
    for host in ("frosty-ridge17", "frosty-ridge18"):
        paths.append(tmp_path / f"train.bf16@{host}.sqlite")
        export(paths[-1])
    to.mkdir()
    out, _ = pipeline.scrub(paths[0], None, into=to)
    assert out == to / "train.bf16@host1.sqlite"
    with pytest.raises(InputError, match="may be of another host"):
        pipeline.scrub(paths[1], None, into=to)


def test_ranks_of_two_hosts_that_are_scrubbed_together_stay_of_two_hosts(tmp_path: Path) -> None:
    paths = []
    for rank, host in enumerate(("frosty-ridge17", "frosty-ridge18", "frosty-ridge17")):
        paths.append(tmp_path / f"train.bf16.rank000{rank}@{host}.trace.json")
        paths[-1].write_text(json.dumps({"host_name": host, "traceEvents": []}))
    given = ["-q", "scrub", *map(str, paths), "-o", str(tmp_path / "copies")]
    assert CliRunner().invoke(cli, given).exit_code == 0
    made = {p.name: json.loads(p.read_text()) for p in (tmp_path / "copies").iterdir()}
    assert {name: trace["host_name"] for name, trace in made.items()} == {
        "train.bf16.rank0000@host1.trace.json": "host1",
        "train.bf16.rank0001@host2.trace.json": "host2",
        "train.bf16.rank0002@host1.trace.json": "host1",
    }


def test_a_capture_with_a_host_in_its_name_is_not_scrubbed_in_place(tmp_path: Path) -> None:
    path = export(tmp_path / f"train.bf16@{HOST}.sqlite")
    before = path.read_bytes()
    with pytest.raises(InputError, match="has a host or user in its name"):
        pipeline.scrub(path, None, in_place=True)
    assert path.read_bytes() == before
