"""Heads, text, bounded decompression and JSON: what every reader stands on."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import socket
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerline.analysis.readers import base, bounded
from layerline.analysis.readers.bounded import parse_json, parse_json_documents
from layerline.core.errors import InputError

TEXT = b'{"traceEvents": []}' * 10


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


@pytest.mark.parametrize(
    ("compress", "name"),
    [(gzip.compress, "gzip"), (bz2.compress, "bz2"), (lzma.compress, "xz"), (zstd, "zstd")],
)
def test_head_and_contents_are_decompressed_by_content(tmp_path, compress, name):
    path = tmp_path / "no-suffix"
    path.write_bytes(compress(TEXT))
    head = base.read_head(path)
    assert (head.data, head.compression, head.size) == (TEXT, name, path.stat().st_size)
    assert bounded.read_bytes(path) == TEXT
    with bounded.open_text(path) as stream:
        assert stream.read() == TEXT.decode()


def test_concatenated_gzip_members_are_read_on(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"first ") + gzip.compress(b"second"))
    assert bounded.read_bytes(path) == b"first second"


def test_the_head_of_a_large_file_is_64_kib(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(b"x" * 200_000)
    assert len(base.read_head(path).data) == 65536


def test_gzip_bomb_is_refused_without_expanding_it(tmp_path, monkeypatch):
    monkeypatch.setattr(bounded, "RATIO_FLOOR", bounded.MIB)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(8 * bounded.MIB)))  # about 1000 times smaller
    with (
        pytest.raises(InputError, match="expands to more than 200 times"),
        bounded.open_bytes(path) as stream,
    ):
        while stream.read(bounded.MIB):
            pass


def test_the_limit_is_of_decompressed_bytes(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(os.urandom(3 * bounded.MIB)))
    assert len(bounded.read_bytes(path, limit=3 * bounded.MIB)) == 3 * bounded.MIB
    with pytest.raises(InputError, match="more than 2 MiB"):
        bounded.read_bytes(path, limit=2 * bounded.MIB)


@pytest.mark.parametrize("cut", [12, 30, -1])
def test_truncated_compression_is_one_line(tmp_path, cut):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(os.urandom(1000))[:cut])
    with pytest.raises(InputError) as e:
        bounded.read_bytes(path)
    assert "\n" not in e.value.line() and str(path) in e.value.line()


def test_damaged_zstd_is_one_line(tmp_path):
    path = tmp_path / "a.zst"
    path.write_bytes(zstd(os.urandom(500))[:9] + b"damage" * 20)
    with pytest.raises(InputError):
        bounded.read_bytes(path)


def test_a_pipe_nobody_writes_to_does_not_hang(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with pytest.raises(InputError, match="is a pipe"):
        base.read_head(path)


def test_socket_device_missing_empty_and_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("socket")
        with pytest.raises(InputError, match="it is a socket"):
            base.read_head(Path("socket"))
    with pytest.raises(InputError, match="is a device"):
        base.read_head(Path("/dev/null"))
    with pytest.raises(InputError, match="no such file"):
        base.read_head(Path("missing"))
    Path("empty").touch()
    with pytest.raises(InputError, match="is empty"):
        base.read_head(Path("empty"))
    head = base.read_head(tmp_path)
    assert head.is_dir and head.entries == ("empty", "socket") and head.size is None
    with pytest.raises(InputError, match="is a directory"):
        bounded.open_bytes(tmp_path)
    Path("loop").symlink_to("loop")
    with pytest.raises(InputError, match="cannot be read"):
        base.read_head(Path("loop"))


def test_a_name_with_a_zero_byte_is_one_line():
    with pytest.raises(InputError, match="cannot be read"):
        base.read_head(Path("a\0b"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(tmp_path):
    path = tmp_path / "a"
    path.write_text("x")
    path.chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        base.read_head(path)


@pytest.mark.parametrize(
    "data",
    [
        "dauer µs\n".encode(),
        "dauer µs\n".encode("utf-8-sig"),
        "dauer µs\n".encode("utf-16"),
        "dauer µs\n".encode("utf-16-le"),
        "dauer µs\n".encode("utf-16-be"),
        "dauer µs\n".encode("latin-1"),
    ],
)
def test_text_of_every_encoding_is_the_same(tmp_path, data):
    path = tmp_path / "a"
    path.write_bytes(data)
    assert bounded.decode(data) == "dauer µs\n"
    with bounded.open_text(path) as stream:
        assert stream.read() == "dauer µs\n"


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_decoding_never_fails_and_can_be_written_again(data):
    bounded.decode(data).encode("utf-8")


def test_deep_json_is_one_line(tmp_path):
    for deep in (b"[" * 3_000_000, b'{"a":' * 200_000 + b"1" + b"}" * 200_000):
        with pytest.raises(InputError, match=r"deeply|valid JSON"):
            parse_json(deep, tmp_path)


def test_wide_json_is_refused_before_it_is_built(tmp_path):
    data = b"[" + b"{}," * 11_000_000 + b"{}]"
    tracemalloc.start()
    with pytest.raises(InputError, match="values"):
        parse_json(data, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_documents_one_after_the_other(tmp_path):
    assert parse_json_documents(b'[1]\n[2],{"a":1}\n\x00', tmp_path) == [
        [1],
        [2],
        {"a": 1},
    ]
    with pytest.raises(InputError, match="2 JSON documents"):
        parse_json(b"[1][2]", tmp_path)
    with pytest.raises(InputError, match="after 1 whole documents"):
        parse_json_documents(b"[1] [2", tmp_path)


def test_keys_that_come_twice_can_be_refused(tmp_path):
    data = b'{"a": 1, "a": 2}'
    assert parse_json(data, tmp_path) == {"a": 2}
    with pytest.raises(InputError, match="comes twice"):
        parse_json_documents(data, tmp_path, unique_keys=True)


def test_lone_surrogates_become_replacement_characters(tmp_path):
    data = rb'["\ud800x", "\ud83d\ude00", "\\ud800", "\udc00"]'
    assert parse_json(data, tmp_path) == [
        "\ufffdx",
        "\U0001f600",
        "\\ud800",
        "\ufffd",
    ]


@settings(deadline=None)
@given(st.text(alphabet=st.characters(), max_size=20))
def test_every_json_string_can_be_written_as_arrow(text):
    [value] = parse_json(json.dumps([text]).encode(), Path("x"))
    pa.array([value], pa.string())


def test_numbers_of_thousands_of_digits_are_one_line(tmp_path):
    with pytest.raises(InputError, match="not usable JSON"):
        parse_json(b"[" + b"1" * 10_000 + b"]", tmp_path)
