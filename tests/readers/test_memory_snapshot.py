"""CUDA allocator snapshots: both schemas, pickle and JSON, and pickles that are attacks."""

from __future__ import annotations

import json
import os
import pickle
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerline.analysis.readers.base import Head
from layerline.analysis.readers.memory import snapshot as snapshot_
from layerline.analysis.readers.memory import stream
from layerline.core.errors import InputError

FRAMES = [
    {"name": "forward", "filename": "model.py", "line": 7},
    {"name": "at::empty", "filename": "??", "line": 0},
]

# 2 MiB in one segment: 512 B in use (of which 500 were asked for), 512 B awaiting free, the rest.
SNAPSHOT = {
    "segments": [
        {
            "device": 0,
            "address": 1 << 40,
            "total_size": 2 << 20,
            "allocated_size": 512,
            "active_size": 1024,
            "requested_size": 500,
            "stream": 3,
            "segment_type": "small",
            "is_expandable": False,
            "frames": [],
            "blocks": [
                {"address": 1 << 40, "size": 512, "requested_size": 500,
                 "state": "active_allocated", "frames": FRAMES},
                {"address": (1 << 40) + 512, "size": 512, "requested_size": 512,
                 "state": "active_awaiting_free", "frames": []},
                {"address": (1 << 40) + 1024, "size": (2 << 20) - 1024, "requested_size": 0,
                 "state": "inactive", "frames": []},
            ],
        }
    ],
    "device_traces": [
        [
            {"action": "alloc", "addr": 1 << 40, "size": 500, "stream": 3,
             "time_us": 1772688692031319, "frames": FRAMES},
            {"action": "oom", "device_free": 5, "size": 9, "stream": 0, "frames": []},
        ],
        [],
    ],
    "allocator_settings": {"max_split_size": -1, "expandable_segments": False, "nested": {"a": 1}},
}  # fmt: skip


def read(tmp_path, data):
    path = tmp_path / "snapshot"
    path.write_bytes(data)
    assert snapshot_.sniff(Head(path, data[:65536], len(data)))
    return snapshot_.read(path)


def check(artefact):
    blocks = artefact.main.to_pylist()
    assert [b["address"] - (1 << 40) for b in blocks] == [0, 512, 1024]
    assert [b["size"] for b in blocks] == [512, 512, (2 << 20) - 1024]
    assert blocks[0]["requested_size"] == 500 and blocks[0]["state"] == "active_allocated"
    assert blocks[0]["frames"] == "forward (model.py:7)\nat::empty"
    assert (blocks[0]["stream"], blocks[0]["segment_type"], blocks[0]["device"]) == (3, "small", 0)
    assert artefact.facts["reserved_bytes"] == 2 << 20
    assert artefact.facts["in_use_bytes"] == 1024
    assert artefact.facts["requested_bytes"] == 1012


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_of_every_binary_protocol(tmp_path, protocol):
    artefact = read(tmp_path, pickle.dumps(SNAPSHOT, protocol))
    check(artefact)
    alloc, oom = artefact.tables["events"].to_pylist()
    assert (alloc["action"], alloc["address"], alloc["event"]) == ("alloc", 1 << 40, 0)
    assert alloc["time_ns"] == 1772688692031319000
    assert (oom["time_ns"], oom["address"], oom["frames"]) == (None, 5, None)
    assert artefact.facts["settings"] == {"max_split_size": -1, "expandable_segments": False}
    assert artefact.notes == []


def test_json(tmp_path):
    check(read(tmp_path, json.dumps(SNAPSHOT).encode()))


def test_before_2_1_blocks_had_a_history_and_no_address(tmp_path):
    segment = {k: v for k, v in SNAPSHOT["segments"][0].items() if k != "blocks"}
    segment["blocks"] = [
        {"size": 512, "state": "active_allocated",
         "history": [{"addr": 1 << 40, "real_size": 500, "frames": FRAMES}]},
        {"size": 512, "state": "active_pending_free", "requested_size": 512},
        {"size": (2 << 20) - 1024, "state": "inactive"},
    ]  # fmt: skip
    check(read(tmp_path, pickle.dumps([segment], 4)))


def test_sizes_that_do_not_add_up_are_said(tmp_path):
    snapshot = {"segments": [{**SNAPSHOT["segments"][0], "total_size": 5}], "device_traces": []}
    artefact = read(tmp_path, pickle.dumps(snapshot))
    assert any("do not add up" in note for note in artefact.notes)


def test_unknown_sizes_are_null(tmp_path):
    block = {"size": 512, "state": "active_allocated"}
    artefact = read(tmp_path, pickle.dumps({"segments": [{"blocks": [block]}]}))
    assert artefact.facts["reserved_bytes"] is None
    assert artefact.facts["requested_bytes"] is None
    assert any("No frames" in note for note in artefact.notes)


class Command:
    def __reduce__(self):
        return os.system, ("touch pwned",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_would_run_a_command_is_named_and_not_run(tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"names (posix|nt)\.system"):
        read(tmp_path, pickle.dumps({"segments": [Command()]}, protocol))
    assert not (tmp_path / "pwned").exists()


def test_globals_of_every_spelling_are_refused(tmp_path):
    attacks = [
        b"\x80\x02cos\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02(cos\nsystem\no.",
        b"\x80\x02(ios\nsystem\n.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02Pid\n.",
        b"\x80\x02K\x01Q.",
        b"\x80\x02]cbuiltins\neval\nq\x00.",
    ]
    for data in attacks:
        with pytest.raises(InputError) as e:
            read(tmp_path, data)
        assert "\n" not in e.value.line()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04K\x01r\xff\xff\xff\xff.",  # a memo of four billion entries
        b"\x80\x04)" + b"\x85" * 1_000_000 + b"}K\x01s.",  # tuples nested a million deep
        b"\x80\x04" + b"]" * 11_000_000 + b".",  # millions of lists
        b"\x80\x04\x8d" + b"\xff" * 8 + b".",  # text of 2**64 bytes
        b"\x80\x04\x8b\xff\xff\xff\x7f" + b"\x01" * 100,  # an integer of 2 GB
        b"\x80\x04\x8a\xff" + b"\x01" * 255 + b".",
        b"\x80\x05\x97.",  # out-of-band buffer
        b"\x80\x04\x8f.",  # sets hash their members
        b"\x80\x04(I1\n.",  # opcodes of protocol 0
        b"\x80\x04]]h\x05e.",  # a memo entry that is not there
        b"\x80\x04.",
        b"\x80\x04",
    ],
    ids=range(12),
)
def test_pickles_made_to_hurt_are_refused_in_little_memory(tmp_path, data):
    tracemalloc.start()
    with pytest.raises(InputError) as e:
        read(tmp_path, data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(data) + 2_000_000
    assert "\n" not in e.value.line()


def test_a_list_that_holds_itself(tmp_path):
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InputError):
        read(tmp_path, pickle.dumps(loop, 4))
    artefact = read(
        tmp_path,
        pickle.dumps({"segments": [], "allocator_settings": {"a": loop}}, 4),
    )
    assert artefact.main.num_rows == 0


def test_integers_and_text_that_no_column_holds(tmp_path):
    segment = {"address": 2**70, "total_size": -1, "device": True, "blocks": [{"size": "x"}]}
    artefact = read(tmp_path, pickle.dumps({"segments": [{**segment, "segment_type": "\ud800"}]}))
    [row] = artefact.main.to_pylist()
    assert (row["segment"], row["size"], row["device"]) == (None, None, None)
    assert row["segment_type"] == "?"


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.floats(allow_nan=False)
    | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4)
    | st.tuples(inner, inner)
    | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=30,
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(plain, st.sampled_from([2, 3, 4, 5]))
def test_every_plain_value_is_loaded_as_it_was(tmp_path_factory, value, protocol):
    """Except bytes in protocol 2, which are a call of a codec or of `bytes`."""
    data = pickle.dumps(value, protocol)
    try:
        loaded = stream.load(data, tmp_path_factory.getbasetemp())
    except InputError as e:
        assert protocol == 2 and ("_codecs" in e.line() or "__builtin__.bytes" in e.line())
    else:
        assert loaded == value


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_damaged_pickles_never_do_more_than_raise(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged"
    content = bytearray(pickle.dumps(SNAPSHOT, data.draw(st.sampled_from([2, 4, 5]))))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.integers(2, len(content)))]))
    try:
        snapshot_.read(path)
    except InputError as e:
        assert "\n" not in e.line()


def test_the_checker_reads_long_arguments(tmp_path):
    text = "x" * 70_000
    data = b"\x80\x03]X" + struct.pack("<I", len(text)) + text.encode() + b"a."
    assert stream.load(data, tmp_path) == [text]


def test_a_pickle_of_texts_without_end_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.pickle"
    path.write_bytes(b"\x80\x04}\x94(\x8c\x08segments](" + b"\x8c\x02ab" * 50 + b"eu.")
    monkeypatch.setattr(stream, "MAX_TEXTS", 20)
    with pytest.raises(InputError, match="over 20 texts"):
        stream.load(path.read_bytes(), path)


def test_rows_are_counted_before_they_are_made(tmp_path, monkeypatch):
    """A pickle of a few bytes can hold one list a million times."""
    events = [{"action": "alloc", "addr": 1, "size": 1}] * 3
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [events] * 4}))
    assert snapshot_.read(path).tables["events"].num_rows == 12
    monkeypatch.setattr(snapshot_, "MAX_EVENTS", 11)
    with pytest.raises(InputError, match="holds 12 blocks and events"):
        snapshot_.read(path)
