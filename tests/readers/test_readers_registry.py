"""Which reader takes a file, and what is said about files that none takes."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sqlite3

import pytest

from layerline.analysis.readers import base, bounded, registry
from layerline.analysis.readers.nsys import sqlite
from layerline.core.errors import InputError

PROFILE = '[ { "count" : 2 }\n, { "name" : "a", "timeMs" : 2, "averageMs" : 1 } ]'


def test_every_reader_exists_and_says_what_it_is():
    kinds = []
    for name in registry.READERS:
        reader = registry.load(name)
        assert reader.DESCRIPTION
        kinds.append(reader.KIND)
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"Layers": ["a"], "Bindings": []}', "trt-layers"),
        (PROFILE, "trt-profile"),
        ('{"a": [0.1, 0.2]}', "trt-profile"),
        ('[{"startEnqMs" : 0, "latencyMs" : 1}]', "trt-profile"),
        ('{"segments": [], "device_traces": []}', "memory-snapshot"),
        ('{"traceEvents": [], "schemaVersion": 1}', "torch-trace"),
        ('[{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]', "torch-trace"),
        (
            '[{"cat" : "Session","pid" :1,"tid" :1,"dur" :1,"ts" :1,"ph" : "X","name" :'
            '"model_loading_uri","args" : {}}]',
            "onnxruntime-profile",
        ),
        ('==PROF== Connected\n"ID","Process ID","Process Name","Host Name"\n', "ncu-csv"),
    ],
)
def test_kinds_are_told_by_content_whatever_the_name(tmp_path, text, kind):
    for name, data in (("x.nsys-rep", text.encode()), ("y.json", gzip.compress(text.encode()))):
        path = tmp_path / name
        path.write_bytes(data)
        assert kind == registry.identify(path).KIND


def test_no_two_readers_claim_one_file(tmp_path):
    """The order of asking decides nothing for files of the kinds that are alike."""
    for text in (
        '{"Layers": ["a"]}',
        PROFILE,
        '{"traceEvents": []}',
        '{"segments": [], "device_traces": []}',
    ):
        head = base.Head(tmp_path, text.encode(), len(text))
        assert sum(reader.sniff(head) for reader in registry.readers()) == 1, text


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.nsys-rep", b"\x01\x00\x00\x00" * 50, "nsys export --type sqlite"),
        ("a.qdrep", b"\x01\x00\x00\x00" * 50, "nsys export --type sqlite"),
        ("a.engine", b"ftrt\x00\x00" * 50, "is a TensorRT engine"),
        ("a.onnx", b"\x08\x08\x12\x07pytorch\x1a\x052.1.0" + b"\x00" * 50, "is an ONNX model"),
        ("a.pt", b"PK\x03\x04" + b"\x00" * 50, "is a zip archive"),
        ("a", b"\x00\x01\x02" * 50, "is binary data of no known kind"),
        ("a.log", b"&&&& RUNNING TensorRT.trtexec [TensorRT v8601]\n", "is a trtexec log"),
        ("a.txt", b"  scale (1, 1, 1)x(1, 1, 1), Context 1, Stream 7, Device 0, CC 9.0\n", "text page"),  # noqa: E501
        ("a.csv", b'"Kernel Name","f"\n"Address","Source"\n"0x0","LDC"\n', "source page"),
        ("a.csv", b"a,b,c\n1,2,3\n", "is of no known kind; known kinds are"),
        ("a.json", b'{"shape": [1], "layer_types": {}}', "begins with shape, layer_types"),
        ("n.json", b'{"schema_version": 1, "nodes": []}', "is a nodes.json"),
        (
            "e.json",
            json.dumps({"schema": "1.1.1-chakra", "pid": 1, "nodes": []}).encode(),
            "execution trace",
        ),
        ("out.json", b'[\n  { "name" : "y"\n  , "dimensions" : "1x2"\n , "values" : [ 1, 2 ] } ]', "--exportOutput"),  # noqa: E501
        ("s.csv", b'"Process ID","Process Name","Host Name","Kernel Name","Invocations","Section Name"\n', "summary"),  # noqa: E501
        ("l.log", b'==PROF== Connected to process 1 (/bin/x)\n==PROF== Profiling "a" - 0: 100%\n', "without a table"),  # noqa: E501
        ("p.log", b"==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", "counters"),
        ("p.pickle", pickle.dumps({"a": 1}), "not an allocator snapshot"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named(tmp_path, name, data, says):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError) as e:
        registry.read(path)
    assert says in e.value.line()
    assert e.value.exit_code == 2 and "\n" not in e.value.line()


def test_directories_are_named(tmp_path):
    with pytest.raises(InputError, match="empty directory"):
        registry.read(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match="run directory"):
        registry.read(tmp_path)


def test_a_model_made_by_onnx_is_named(tmp_path):
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info("x", 1, [1])
    graph = onnx.helper.make_graph([], "g", [value], [value])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "model")
    with pytest.raises(InputError, match="ONNX"):
        registry.read(tmp_path / "model")


def test_an_ordinary_database_is_no_nsys_export(tmp_path):
    with sqlite3.connect(tmp_path / "a.sqlite") as db:
        db.execute("create table t (a)")
    db.close()
    with pytest.raises(InputError):
        registry.read(tmp_path / "a.sqlite")


class Meddling:
    """A reader during whose work the file is changed."""

    KIND = "meddling"
    DESCRIPTION = "for this test"

    def __init__(self, meddle):
        self.meddle = meddle

    def sniff(self, head):
        return True

    def read(self, path):
        self.meddle(path)
        bounded.read_bytes(path)
        return base.Artefact("meddling", {"t": base.pa.table({"a": [1]})})


@pytest.mark.parametrize(
    ("meddle", "says"),
    [
        (os.unlink, "changed while it was read|no such file"),
        (lambda path: path.write_text("another length"), "changed while it was read"),
    ],
)
def test_a_file_that_vanishes_or_changes_while_read(tmp_path, monkeypatch, meddle, says):
    path = tmp_path / "a"
    path.write_text("content")
    monkeypatch.setattr(registry, "readers", lambda: iter([Meddling(meddle)]))
    with pytest.raises(InputError, match=says):
        registry.read(path)


def test_an_artefact_has_a_main_table():
    with pytest.raises(ValueError, match="at least one"):
        base.Artefact("x", {})
    first, second = base.pa.table({"a": [1]}), base.pa.table({"b": [1]})
    assert base.Artefact("x", {"first": first, "second": second}).main is first


def test_text_that_a_library_cannot_decode_is_one_line(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_text("content")
    monkeypatch.setattr(
        registry, "readers", lambda: iter([Meddling(lambda _: b"\xec1".decode("utf-8"))])
    )
    with pytest.raises(InputError, match="not UTF-8"):
        registry.read(path)


@pytest.mark.parametrize("where", ["connect", "execute"])
def test_a_database_whose_error_is_no_text_is_one_line(tmp_path, monkeypatch, where):
    """sqlite3 decodes SQLite's own messages, which may quote undecodable bytes of the file."""
    broken = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    class Connection:
        closed = False

        def execute(self, _):
            raise broken

        def close(self):
            self.closed = True

    connection = Connection()

    def connect(*_, **__):
        if where == "connect":
            raise broken
        return connection

    monkeypatch.setattr(sqlite.sqlite3, "connect", connect)
    with pytest.raises(InputError, match="invalid start byte"):
        sqlite.SqliteSource(tmp_path / "a.sqlite")
    assert connection.closed is (where == "execute")
