"""`layerline scrub`: what is removed from every kind of capture, and what stays equal."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sqlite3
import string

import nsys_build
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerline.analysis.readers import registry
from layerline.analysis.scrub import pipeline, rescan
from layerline.core.cli.command import main
from layerline.core.errors import CheckFailed, InputError, LayerlineError

USER, HOST = "mgarcia", "frosty-ridge17"
UUID = "4f1c9a52-7d3e-4b8a-9c01-5e6f7a8b9c0d"
TOKEN = "hf_" + "QwErTyUiOpAsDfGhJkLz"
SECRETS = (USER, HOST, UUID, TOKEN, "s3cr3t-value", "10.21.7.93", "3c:ec:ef:12:34:56")

EXTRA = f"""
create table META_DATA_CAPTURE (name text, value text);
insert into META_DATA_CAPTURE values
  ('CAPTURE_EVENT_TYPE', 'Cuda'), ('PROCESS_0:PID', '77'),
  ('PROCESS_0:ENVIRONMENT_VARIABLE', 'HOME="/home/{USER}"'),
  ('PROCESS_0:ENVIRONMENT_VARIABLE', 'WANDB_API_KEY="s3cr3t-value"'),
  ('PROCESS_0:ARGUMENT_0', '/home/{USER}/train.py'), ('PROCESS_0:USER_NAME', '{USER}'),
  ('PROFILING_SESSION_UUID', '{UUID}'), ('DEVICE_DISPLAY_NAME', '{HOST}');
create table TARGET_INFO_SYSTEM_ENV (devStateName text, name text, value text);
insert into TARGET_INFO_SYSTEM_ENV values
  ('Local (CLI)', 'Hostname', '{HOST}'), ('Local (CLI)', 'CpuCores', '16'),
  ('Local (CLI)', 'NvDriverVersion', '580.159.04'),
  ('Local (CLI)', 'DeviceEnvironment', 'PATH=/bin;HF_TOKEN={TOKEN};LOGNAME={USER}'),
  ('Local (CLI)', 'NicInfo', '{{"mac": "3c:ec:ef:12:34:56"}}');
create table PROCESSES (globalPid integer, pid integer, name text);
insert into PROCESSES values (1, 1, 'secretd'), (2, 2, 'python3');
create table ThreadNames (nameId integer, globalTid integer);
insert into ThreadNames values (900, 1), (901, 2);
insert into StringIds values (900, 'secret-daemon'), (901, 'gemm'),
  (902, 'UV=1 PATH=/x TERM=y HOME=/home/{USER} HF_TOKEN={TOKEN} LANG=C');
create table DIAGNOSTIC_EVENT (text text);
insert into DIAGNOSTIC_EVENT values ('see /home/{USER}/x.log on {HOST} at 10.21.7.93');
alter table TARGET_INFO_GPU add column uuid text;
alter table TARGET_INFO_GPU add column busLocation text;
update TARGET_INFO_GPU set uuid = 'GPU-{UUID}', busLocation = '0000:0b:00.0';
"""


def capture(path, name="gemm", extra=EXTRA):
    export = nsys_build.Export()
    export.range("transformer.h.0/attn", 0, 1000)
    export.launch(10, name=name)
    export.launch(40, name="void at::native::copy<float, 4>(int)")
    return export.write(path, extra=extra)


def holds(data, values=SECRETS):
    """Which of `values` a file's bytes hold, also as UTF-16."""
    return [v for v in values if v.encode() in data or v.encode("utf-16-le") in data]


def same(before, after, but=("source",)):
    for name, table in before.tables.items():
        columns = [c for c in table.column_names if c not in but]
        assert table.select(columns).equals(after.tables[name].select(columns)), name
    assert before.facts == after.facts
    assert before.notes == after.notes


# --- nsys ---------------------------------------------------------------------------------------


def test_an_nsys_export_loses_every_secret_and_keeps_its_table(tmp_path):
    path = capture(tmp_path / "a.sqlite")
    assert holds(path.read_bytes()) == list(SECRETS)
    out, found = pipeline.scrub(path, tmp_path / "out.sqlite")
    assert holds(out.read_bytes()) == []
    same(registry.read(path), registry.read(out))
    assert found["META_DATA_CAPTURE", "environment"] == 2
    assert found["TARGET_INFO_GPU.uuid", "uuid"] == 1
    with sqlite3.connect(out) as db:
        kept = dict(db.execute("select name, value from TARGET_INFO_SYSTEM_ENV"))
        assert kept == {"CpuCores": "16", "NvDriverVersion": "580.159.04"}
        assert db.execute("select name, value from META_DATA_CAPTURE").fetchall() == [
            ("CAPTURE_EVENT_TYPE", "Cuda"),
            ("PROCESS_0:PID", "77"),
        ]
        assert db.execute("select name from PROCESSES").fetchall() == [("process1",), ("process2",)]
        said = db.execute("select text from DIAGNOSTIC_EVENT").fetchone()[0]
        assert said == "see /home/user1/x.log on host1 at ip1"


def test_removed_text_does_not_survive_in_free_pages_of_the_input(tmp_path):
    path = capture(tmp_path / "a.sqlite")
    with sqlite3.connect(path) as db:
        db.execute("pragma secure_delete = off")  # some builds of SQLite have it on
        db.execute("create table big (t text)")
        db.executemany("insert into big values (?)", [(f"{HOST}-{i}" * 50,) for i in range(500)])
        db.commit()
        db.execute("drop table big")
    db.close()
    assert path.read_bytes().count(HOST.encode()) > 100
    out, _ = pipeline.scrub(path, tmp_path / "out.sqlite")
    assert HOST.encode() not in out.read_bytes()


def test_a_name_that_a_thread_shares_with_a_kernel_stays_the_kernels(tmp_path):
    path = capture(tmp_path / "a.sqlite", extra="")
    with sqlite3.connect(path) as db:
        shared = db.execute("select id from StringIds where value = 'gemm'").fetchone()[0]
        db.execute("create table ThreadNames (nameId integer, globalTid integer)")
        db.execute("insert into ThreadNames values (?, 1)", (shared,))
    db.close()
    out, _ = pipeline.scrub(path, tmp_path / "out.sqlite")
    same(registry.read(path), registry.read(out))
    with sqlite3.connect(out) as db:
        query = "select value from ThreadNames join StringIds on nameId = id"
        assert db.execute(query).fetchall() == [("thread1",)]
    db.close()


def test_a_secret_in_a_kernels_name_is_renamed_the_same_everywhere(tmp_path, capfd):
    path = capture(tmp_path / "a.sqlite", name=f"k /home/{USER}/a.py")
    assert run(capfd, path, "-o", tmp_path / "o.sqlite")[0] == 0
    names = registry.read(tmp_path / "o.sqlite").main["name"].to_pylist()
    assert names[0] == "k /home/user1/a.py"
    before = registry.read(path)
    same(before, registry.read(tmp_path / "o.sqlite"), but=("source", "name"))


def test_triggers_views_and_blobs_of_a_hostile_export_are_not_copied(tmp_path):
    path = capture(
        tmp_path / "a.sqlite",
        extra="create table T (text text, payload blob);"
        "create view V as select * from T;"
        "create trigger R after insert on T begin insert into T values ('/home/x2y3/q', 1); end;"
        "insert into T values ('a', x'ff00fe');"
        "create index I on T (text)",
    )
    out, found = pipeline.scrub(path, tmp_path / "o.sqlite")
    with sqlite3.connect(out) as db:
        assert db.execute(
            "select count(*) from sqlite_master where type != 'table'"
        ).fetchone() == (0,)
        assert db.execute("select payload from T where text = 'a'").fetchone() == (None,)
    db.close()
    assert found["T.payload", "binary data"] == 1


def test_an_unfinished_write_is_refused(tmp_path):
    path = capture(tmp_path / "a.sqlite")
    (tmp_path / "a.sqlite-wal").write_bytes(b"x" * 40)
    with pytest.raises(InputError, match="wal"):
        pipeline.scrub(path, tmp_path / "o.sqlite")
    assert not (tmp_path / "o.sqlite").exists()


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_directories_of_tables_are_scrubbed_as_the_database_is(tmp_path, suffix):
    capture(tmp_path / "a.sqlite")
    folder = tmp_path / "a"
    folder.mkdir()
    with sqlite3.connect(tmp_path / "a.sqlite") as db:
        for (name,) in db.execute("select name from sqlite_master").fetchall():
            cursor = db.execute(f'select * from "{name}"')
            columns = [c[0] for c in cursor.description]
            table = pa.Table.from_pylist([dict(zip(columns, r, strict=True)) for r in cursor])
            if suffix == ".parquet":
                pq.write_table(table, folder / f"{name}.parquet")
            else:
                with ipc.new_file(str(folder / f"{name}.arrow"), table.schema) as writer:
                    writer.write_table(table)
    db.close()
    out, found = pipeline.scrub(folder, tmp_path / "out")
    same(registry.read(folder), registry.read(out))
    assert found["PROCESSES.name", "process"] == 2
    assert not rescan.scan(out, [("x", s) for s in SECRETS])
    texts = [str(_table(f).to_pylist()) for f in out.iterdir()]
    assert holds("".join(texts).encode()) == []
    assert "secret-daemon" not in "".join(texts) and "gemm" in "".join(texts)


def _table(file):
    return pq.read_table(file) if file.suffix == ".parquet" else ipc.open_file(str(file)).read_all()


# --- JSON, CSV, pickles -------------------------------------------------------------------------

TRACE = {
    "schemaVersion": 1,
    "hostname": HOST,
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
    "env": {"HOME": f"/home/{USER}", "API_KEY": "s3cr3t-value"},
    "trace_id": "8BB81DE9FFC744F3BCF2AFD1BB8BCAD4",
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 1.5,
         "dur": 9.25},
        {"ph": "X", "cat": "kernel", "name": "void k<float>(int)", "pid": 0, "tid": 7, "ts": 4.0,
         "dur": 2.0, "args": {"device": 0, "stream": 7, "correlation": 3}},
        {"ph": "X", "cat": "python_function", "name": f"/home/{USER}/m.py(3): forward", "pid": 7,
         "tid": 7, "ts": 0.5, "dur": 20.0,
         "args": {"Call stack": f"/projects/x/{USER}/b.py(1): f"}},
        {"name": "process_name", "ph": "M", "ts": 0, "pid": 7, "args": {"name": "secret-binary"}},
        {"args": {"name": "other-binary"}, "name": "process_name", "ph": "M", "ts": 0, "pid": 8},
    ],
    "traceName": f"/scratch/{USER}/t.json",
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_keeps_its_operations(tmp_path, packed):
    text = json.dumps(TRACE, indent=1).replace("9.25", "9.2500000000000000001")
    path = tmp_path / ("t.json.gz" if packed else "t.json")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    out, found = pipeline.scrub(path, tmp_path / "o.json.gz" if packed else tmp_path / "o.json")
    data = gzip.decompress(out.read_bytes()) if packed else out.read_bytes()
    assert b"9.2500000000000000001" in data  # numbers keep their digits
    assert holds(data) == []
    assert b"secret-binary" not in data and b"other-binary" not in data
    assert b"8BB81DE9" not in data and b"/scratch" not in data and b"/projects" not in data
    same(registry.read(path), registry.read(out))
    assert found["args.name", "process"] == 2
    after = json.loads(data)
    assert after["env"] == {"HOME": "removed", "API_KEY": "removed"}
    assert after["traceEvents"][2]["name"] == "/home/user1/m.py(3): forward"


def test_json_escapes_hide_nothing(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": "\\/home\\/mgarcia\\/x", "b": "\\u002fhome\\u002fmgarcia", "c": 1}')
    out, _ = pipeline.scrub(path, None)
    assert json.loads(out.read_text()) == {"a": "/home/user1/x", "b": "/home/user1", "c": 1}
    assert out.name == "a.scrubbed.json"


def test_layer_names_that_look_like_paths_and_versions_that_look_like_addresses_stay(tmp_path):
    value = {
        "nodes": ["/transformer/h.0/attn/MatMul", "/model/home/Add", "a::b::c", "dead::beef"],
        "tensorrt": "10.3.0.26",
        "text": "TensorRT 8.6.1.6, cudnn 9.14.0.64-1, libfoo.so.1.2.3.4, 12:34:56, 1.2.3",
        "kernel": "void cutlass::Kernel<(int)128, 0x1f>(at::Tensor@plt) memcpy@GLIBC_2.14",
        "dims": "M=4096 N=4096 K=32 X=1 PATHS",
        "pad_token": "<|endoftext|>",
        "sha256": "ab" * 32,
    }
    path = tmp_path / "a.json"
    path.write_text(json.dumps(value))
    out, found = pipeline.scrub(path, None)
    text = json.loads(out.read_text())
    text["nodes"][1] = "/model/home/Add"  # a module named home is not told from a directory
    assert text == value
    assert sum(found.values()) <= 1


def test_ncu_rows_with_bare_quotes_keep_their_bytes(tmp_path):
    head = '"ID","Process ID","Process Name","Host Name","thread Domain:Push/Pop_Range:PL_Type",'
    head += '"Kernel Name","Context","Stream","Metric Name","Metric Unit","Metric Value"\n'
    row = '"0","7","%s","%s","7 "TensorRT:{"a","b"}:none"","gemm","1","7","x","%%","1,234.5"\n'
    path = tmp_path / "n.csv"
    path.write_text(
        f"==PROF== Connected to process 7 (/opt/x/secret-binary)\n{head}"
        + row % ("secret-binary", HOST)
        + row % ("secret-binary", "127.0.0.1")
    )
    out, found = pipeline.scrub(path, None)
    lines = out.read_text().splitlines(keepends=True)
    assert lines[0].endswith("7 (process1)\n") and lines[1] == head
    assert lines[2] == row % ("process2", "host1")
    assert lines[3] == row % ("process2", "127.0.0.1")
    assert found["Host Name", "host"] == 1


def test_a_snapshot_is_rewritten_without_running_anything(tmp_path):
    frame = {"filename": f"/home/{USER}/a.py", "name": "f", "line": 3}
    snapshot = {
        "segments": [
            {"address": 4096, "total_size": 512, "device": 0, "segment_type": "small",
             "blocks": [{"size": 512, "state": "active_allocated", "frames": [frame]}]}
        ],
    }  # fmt: skip
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    out, _ = pipeline.scrub(path, None)
    assert USER.encode() not in out.read_bytes()
    before, after = registry.read(path), registry.read(out)
    same(before, after, but=("source", "frames"))
    assert after.main["frames"].to_pylist() == ["f (/home/user1/a.py:3)"]
    path.write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(InputError):
        pipeline.scrub(path, None)


# --- a whole run, the command ---------------------------------------------------------------------


def run(capfd, *arguments):
    with pytest.raises(SystemExit) as e:
        main(["scrub", *map(str, arguments)])
    out, err = capfd.readouterr()
    return e.value.code, out, err


def test_a_run_directory_keeps_texts_and_leaves_models_out(tmp_path, capfd):
    folder = tmp_path / "run"
    (folder / "captures").mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps({"schema_version": 1, "command": ["x.py", f"/home/{USER}/r"], "host": HOST})
    )
    capture(folder / "captures" / "a.sqlite")
    (folder / "captures" / "a.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report")
    (folder / "m.onnx").write_bytes(b"\x08\x07")
    (folder / "link").symlink_to("/etc/hostname")
    pq.write_table(
        pa.table({"name": [f"/home/{USER}/x", "gemm"], "n": [1, 2]}), folder / "t.parquet"
    )
    code, shown, said = run(capfd, folder, "-o", tmp_path / "out")
    assert code == 0, said
    files = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*")}
    assert files == {"run.json", "captures", "captures/a.sqlite", "t.parquet"}
    assert "left out m.onnx: a model" in said and "a.nsys-rep" in said and "link" in said
    assert not rescan.scan(tmp_path / "out", [("x", s) for s in SECRETS])
    read = pq.read_table(tmp_path / "out" / "t.parquet").to_pydict()
    assert read == {"name": ["/home/user1/x", "gemm"], "n": [1, 2]}
    for value in SECRETS:
        assert value not in shown + said
    assert run(capfd, "--check", tmp_path / "out")[0] == 0
    assert run(capfd, "--check", folder)[0] == 1


def test_check_does_not_search_what_a_copy_leaves_out(tmp_path, capfd):
    """A model's doc strings may hold a path; no copy of the run holds the model."""
    (tmp_path / "run" / "export").mkdir(parents=True)
    (tmp_path / "run" / "run.json").write_text('{"schema_version": 1}')
    model = tmp_path / "run" / "export" / "fp32.onnx"
    model.write_bytes(f"\x08\x07/home/{USER}/model.py".encode())
    assert rescan.scan(model)["home"] == 1
    code, shown, said = run(capfd, "--check", tmp_path / "run")
    assert code == 0 and "nothing found; not searched: 1 that no copy would hold" in shown
    assert "left out export/fp32.onnx: a model" in said
    (tmp_path / "run" / "notes.txt").write_text(f"see /home/{USER}/x")
    assert run(capfd, "--check", tmp_path / "run")[0] == 1


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path, capfd, monkeypatch):
    """Root may write everywhere: what the system would tell another user is put in its place."""
    (tmp_path / "theirs").mkdir()
    path = capture(tmp_path / "theirs" / "a.sqlite")
    theirs = str(tmp_path / "theirs")
    may = os.access
    monkeypatch.setattr(os, "access", lambda p, mode: str(p) != theirs and may(p, mode))
    for more in ((), ("--in-place",), ("-o", f"{theirs}/new/b.sqlite")):
        code, _, said = run(capfd, path, *more)
        assert code == 2 and f"{theirs}: this folder cannot be written to" in said and "-o" in said
    assert run(capfd, path, "-o", tmp_path / "mine.sqlite")[0] == 0
    assert [p.name for p in path.parent.iterdir()] == ["a.sqlite"]


def test_check_names_kind_and_place_but_not_the_value(tmp_path, capfd):
    path = capture(tmp_path / "a.sqlite")
    before = path.read_bytes()
    code, shown, _ = run(capfd, "--check", path)
    assert code == 1 and "META_DATA_CAPTURE: command line 1, environment 2" in shown
    assert not any(value in shown for value in SECRETS)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    assert run(capfd, "--in-place", path)[0] == 0
    assert run(capfd, "--check", path)[0] == 0


def test_reports_of_nvidia_are_refused_with_the_remedy(tmp_path, capfd):
    (tmp_path / "a.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report 36\0\1")
    code, _, said = run(capfd, tmp_path / "a.nsys-rep")
    assert code == 2 and "export to sqlite first" in said
    (tmp_path / "a.ncu-rep").write_bytes(b"NVR\0\1\2")
    code, _, said = run(capfd, tmp_path / "a.ncu-rep")
    assert code == 2 and "ncu --import a.ncu-rep --csv --page raw" in said


def test_options_that_exclude_each_other_and_the_same_output(tmp_path, capfd):
    path = capture(tmp_path / "a.sqlite")
    assert run(capfd, path, "--check", "--in-place")[0] == 2
    assert run(capfd, path, "-o", path)[0] == 2
    assert run(capfd, tmp_path / "none.json")[0] == 2


def test_an_output_that_still_holds_a_secret_is_not_kept(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"host": HOST, "note": f"ran on {HOST}"}))
    from layerline.analysis.scrub.scrubber import Scrubber

    monkeypatch.setattr(Scrubber, "_text", lambda self, value, place, version=False: value)
    with pytest.raises(CheckFailed, match="still holds"):
        pipeline.scrub(path, tmp_path / "o.json")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_the_second_check_finds_utf16_escapes_and_packed_text(tmp_path):
    for name, data in {
        "utf16": f"x {HOST} y".encode("utf-16-le"),
        "escaped": b'"\\u0066rosty-ridge17"',
        "packed": gzip.compress(HOST.encode()),
    }.items():
        (tmp_path / name).write_bytes(data)
        assert rescan.scan(tmp_path / name, [("host", HOST)])["host"] >= 1, name


# --- any secret in any place ----------------------------------------------------------------------

names = st.text(string.ascii_lowercase, min_size=6, max_size=12).filter(
    lambda n: n not in "removed project"
)
PLACES = (
    lambda s: {"hostname": s.host, "text": f"node {s.host} up"},
    lambda s: {"user": s.user, "x": {"y": [f"by {s.user}", s.user]}},
    lambda s: {"deep": [{"a": f"file:///home/{s.user}/x y"}]},
    lambda s: {"env": {"HF_TOKEN": s.token, "OTHER": s.token}, "note": f"t={s.token}"},
    lambda s: {f"/home/{s.user}/key": 1, "k": f"C:\\Users\\{s.user}\\m.onnx"},
    lambda s: {"log": f"USER={s.user} HOSTNAME={s.host} HF_TOKEN={s.token}"},
    lambda s: {"printed": f"{{'LOGNAME': '{s.user}', 'SECRET': '{s.token}'}}"},
)


class Planted:
    def __init__(self, user, host, token):
        self.user, self.host, self.token = f"u{user}", f"h{host}", f"t{token}9"


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    names, names, names, st.lists(st.sampled_from(PLACES), min_size=1), st.booleans(), st.booleans()
)
def test_planted_secrets_never_survive(tmp_path_factory, user, host, token, places, indent, packed):
    secret = Planted(user, host, token)
    folder = tmp_path_factory.mktemp("s")
    text = json.dumps([p(secret) for p in places], indent=1 if indent else None)
    path = folder / "a.json"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    out, found = pipeline.scrub(path, folder / "b.json")
    data = out.read_bytes()
    data = gzip.decompress(data) if packed else data
    assert holds(data, (secret.user, secret.host, secret.token)) == []
    assert found
    assert not pipeline.check(out)[0]
    json.loads(data)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(names, names, names, st.sampled_from(["NVTX_EVENTS", "StringIds", "OTHER"]))
def test_planted_secrets_never_survive_in_an_export(tmp_path_factory, user, host, token, table):
    secret = Planted(user, host, token)
    folder = tmp_path_factory.mktemp("s")
    path = capture(folder / "a.sqlite", extra=EXTRA.replace(USER, secret.user))
    with sqlite3.connect(path) as db:
        text = f"{secret.user} on {secret.host}, /home/{secret.user}/x, {secret.token}"
        db.execute("create table OTHER (id integer primary key, value any)")
        db.execute(
            "insert into META_DATA_CAPTURE values ('A:DEVICE_DISPLAY_NAME', ?)", (secret.host,)
        )
        db.execute(
            "insert into META_DATA_CAPTURE values ('P:ENVIRONMENT_VARIABLE', ?)",
            (f'X_TOKEN="{secret.token}"',),
        )
        if table == "NVTX_EVENTS":
            db.execute("update NVTX_EVENTS set text = ?", (text,))
        else:
            db.execute(f"insert into {table} (id, value) values (7777, ?)", (text,))
    db.close()
    out, _ = pipeline.scrub(path, folder / "b.sqlite")
    assert holds(out.read_bytes(), (secret.user, secret.host, secret.token, *SECRETS)) == []
    same(registry.read(path), registry.read(out), but=("source", "range", "range_path"))
    assert not pipeline.check(out)[0]


# --- damaged files --------------------------------------------------------------------------------


def _whole(kind, folder):
    if kind == "sqlite":
        return capture(folder / "a.sqlite")
    path = folder / "a"
    if kind == "parquet":
        pq.write_table(pa.table({"name": ["/home/abcdef/x", "b"], "n": [1, 2]}), path)
    elif kind == "pickle":
        path.write_bytes(pickle.dumps({"segments": [{"blocks": [], "a": [1, "x", (2, "y")]}]}))
    else:
        path.write_text(json.dumps(TRACE) if kind == "json" else '"ID","Process ID"\n"0","1"\n')
    return path


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["sqlite", "parquet", "pickle", "json", "csv"]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=8),
    st.floats(0.3, 1),
)
def test_a_damaged_capture_ends_in_one_error_or_a_copy(tmp_path_factory, kind, changes, kept):
    folder = tmp_path_factory.mktemp("d")
    path = _whole(kind, folder)
    data = bytearray(path.read_bytes())
    for at, value in changes:
        data[min(int(at * len(data)), len(data) - 1)] = value
    path.write_bytes(data[: int(len(data) * kept)])
    try:
        out, _ = pipeline.scrub(path, folder / "out")
    except LayerlineError:
        assert [p.name for p in folder.iterdir()] == [path.name]
    else:
        assert out.exists()


@pytest.mark.parametrize(
    ("flag", "left"),
    [
        ("-I/home/{}/include", "-I/home/user1/include"),
        ("-L/Users/{}/lib", "-L/home/user1/lib"),
        ("-isystem/home/{}/x", "-isystem/home/user1/x"),
        (r"-IC:\Users\{}\inc", r"-IC:\Users\user1\inc"),
        (r"-LC:\\Users\\{}\\lib", r"user1"),
        ("/IC:/Users/{}/x", "/IC:/home/user1/x"),
    ],
)
def test_a_compilers_option_hides_no_path(tmp_path, flag, left):
    """It has no space between its letters and the path."""
    path, out = tmp_path / "build.log", tmp_path / "out.log"
    path.write_text(f"nvcc {flag.format(USER)} a.cu\n")
    pipeline.scrub(path, out)
    text = out.read_text()
    assert USER not in text and left in text
    assert not rescan.scan(out)


def test_an_environment_file_is_not_copied(tmp_path):
    run = tmp_path / "run"
    (run / "captures").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    for name in (".env", ".env.local", "train.env"):
        (run / "captures" / name).write_text(f"PASSPHRASE={TOKEN}\n")
    written, _ = pipeline.scrub(run, None)
    assert [p.name for p in written.rglob("*") if p.is_file()] == ["run.json"]


def test_a_target_inside_of_the_source_is_refused(tmp_path):
    run = tmp_path / "run"
    (run / "captures").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"lies in .*run, which is to be copied"):
        pipeline.scrub(run, run / "copy")
    assert not (run / "copy").exists()


def test_what_expands_too_far_is_not_scrubbed(tmp_path):
    """As it is not read."""
    path = tmp_path / "bomb.log.gz"
    path.write_bytes(gzip.compress(b"a" * (80 << 20), 9))
    for read in (lambda: pipeline.scrub(path, tmp_path / "out"), lambda: registry.read(path)):
        with pytest.raises(
            InputError, match=r"expands to more than|is of no known kind|has a line of over"
        ):
            read()


def test_what_is_not_searched_is_said(tmp_path, capsys):
    path = tmp_path / "a.log"
    path.write_text("hello\n")
    with pytest.raises(SystemExit) as e:
        main(["scrub", str(path), "-o", str(tmp_path / "out.log")])
    assert e.value.code in (0, None)
    assert "not searched for: values in base64" in capsys.readouterr().err
