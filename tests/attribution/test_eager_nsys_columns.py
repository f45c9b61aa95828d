"""Ranges, launches and operations of nsys as columns of a profiler trace, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from nsys_build import Export, pid

from layerline.analysis.attribution import eager_nsys
from layerline.analysis.readers.nsys import sqlite
from layerline.analysis.readers.nsys.capture import Calls
from layerline.analysis.readers.nsys.load import load
from layerline.analysis.readers.torch.events import (
    KERNEL,
    MEMCPY,
    MEMSET,
    OP,
    RANGE,
    RUNTIME,
    Events,
)
from layerline.analysis.readers.torch.nesting import nest
from layerline.core.torch_ranges import EVALUATE

Row = dict[str, Any]
UNKNOWN = -1


def read(export: Export) -> tuple[Events, Calls]:
    with TemporaryDirectory() as folder:
        path = export.write(Path(folder) / "c.sqlite")
        with sqlite.source(path) as source:
            capture = load(source)
            calls = eager_nsys.launch_calls(capture)
        return eager_nsys.events(capture, calls, path), calls


def rows(export: Export, *columns: str) -> list[tuple[Any, ...]]:
    """The name, and these columns, of each event that is no domain's."""
    events, _ = read(export)
    return [
        (events.names[events.name[i]], *(int(getattr(events, c)[i]) for c in columns))
        for i in range(len(events))
    ]


def test_push_and_pop_ranges_of_the_default_domain_are_operators_and_own_ranges() -> None:
    """Not those of a library's domain, nor start/end ranges, nor what has no end or no name."""
    export = Export()
    export.range("layerline/phase/forward", 10, 90)
    export.range("aten::mm, seq = 5, op_id = 7", 20, 60)
    export.range("aten::mm, seq = 6, op_id = 8", 61, 65)
    export.range("loose", 30, 40, kind=60)
    export.range("of a library", 31, 41, domain=4)
    export.range("never ends", 32, None)
    export.range(None, 33, 43)
    export.range("layerline", 70, 80, domain=0)
    assert rows(export, "kind", "start", "duration", "sequence") == [
        ("layerline/phase/forward", RANGE, 10, 80, UNKNOWN),
        ("aten::mm", OP, 20, 40, 5),
        ("aten::mm", OP, 61, 4, 6),
        ("layerline", OP, 70, 10, UNKNOWN),
    ]


def test_operations_are_those_of_a_device_with_their_place() -> None:
    """What has no start is left out, what has no end has no duration; graphs are none."""
    export = Export()
    export.kernel(100, 110, 31, name="gemm", deviceId=2, streamId=9)
    export.kernel(200, None, None, name="open")
    export.kernel(None, 50, 33, name="lost")
    copy = {"start": 120, "end": 125, "deviceId": 1, "streamId": 8, "correlationId": 32,
            "globalPid": pid(), "copyKind": 1, "bytes": 4}  # fmt: skip
    export.copies.append(copy)
    export.sets.append({k: v for k, v in copy.items() if k != "copyKind"} | {"start": 121})
    columns = ("kind", "start", "duration", "correlation", "stream", "device")
    found = rows(export, *columns)
    assert found[:2] == [
        ("gemm", KERNEL, 100, 10, 31, 9, 2), ("open", KERNEL, 200, UNKNOWN, UNKNOWN, 7, 0),
    ]  # fmt: skip
    assert [r[1:] for r in found[2:]] == [(MEMCPY, 120, 5, 32, 8, 1), (MEMSET, 121, 4, 32, 8, 1)]
    events, _ = read(export)
    assert (events.process == events.thread).all() and len(set(events.process.tolist())) == 1
    for column in (events.index, events.forward_thread, events.number, events.geometry):
        assert set(column.tolist()) == {UNKNOWN}
    assert set(events.communication.tolist()) == {UNKNOWN}


def test_threads_and_processes_are_those_of_the_capture() -> None:
    export = Export()
    export.range("a", 10, 20, thread=1)
    export.range("b", 11, 19, thread=2)
    export.range("c", 12, 18, thread=1, process=2000)
    export.launch(13, 5, thread=2)
    events, _ = read(export)
    process, thread = events.process.tolist(), events.thread.tolist()
    # Ranges a, b, c; the launch; the kernel.
    assert process[0] == process[1] == process[3] == process[4] != process[2]
    assert thread[1] == thread[3] and len({*thread[:3], thread[4]}) == 4
    places = [events.places[p] for p in process]
    assert places[0] == (1 << 32) | 1000 and places[2] == (1 << 32) | 2000


def test_launches_are_calls_without_a_length() -> None:
    export = Export()
    export.launch(13, 5, correlation=44)
    call, _ = rows(export, "kind", "start", "duration", "correlation")
    assert call == ("launch", RUNTIME, 13, 0, 44)


def test_calls_of_other_names_count_where_an_operation_has_no_launch_among_the_known() -> None:
    export = Export()
    export.launch(13, 5, correlation=44, thread=2)
    export.call(14, 45, name="cudaMalloc_v3020", thread=3)
    _, calls = read(export)
    assert calls.correlation.tolist() == [44]
    export.launch(20, 5, correlation=46, call="unforeseen_v1")
    events, calls = read(export)
    assert sorted(calls.correlation.tolist())[-2:] == [45, 46]
    at = {c: i for i, c in enumerate(calls.correlation.tolist())}
    assert calls.start[[at[44], at[45], at[46]]].tolist() == [13, 14, 20]
    launched = np.flatnonzero(events.kind == RUNTIME)
    threads = [events.places[t] & 0xFFFFFF for t in events.thread[launched].tolist()]
    found = dict(zip(events.correlation[launched].tolist(), threads, strict=True))
    assert found == {44: 2, 45: 3, 46: 1}


def numbers(export: Export) -> list[tuple[str, int, int]]:
    """Name, sequence number and forward thread of each range."""
    events, _ = read(export)
    threads = eager_nsys._forward_threads(events, nest(events))
    return [
        (events.names[n].removeprefix(EVALUATE), int(s), int(t))
        for n, s, t in zip(events.name.tolist(), events.sequence.tolist(), threads, strict=True)
    ]


def test_an_evaluated_node_has_the_number_of_the_range_just_inside_it() -> None:
    """On its own thread, and not beyond its end; its own number stays."""
    export = Export()
    export.range(EVALUATE + "A, op_id = 1", 10, 90)
    export.range("A, seq = 5, op_id = 2", 20, 80)
    export.range("aten::mm, seq = 9, op_id = 3", 30, 40)
    export.range(EVALUATE + "B, op_id = 4", 100, 120)
    export.range("later, seq = 6, op_id = 5", 121, 130)
    export.range(EVALUATE + "C, op_id = 6", 200, 220)
    export.range("elsewhere, seq = 7, op_id = 7", 205, 215, thread=2)
    export.range(EVALUATE + "D, seq = 8, op_id = 8", 300, 320)
    export.range("D, seq = 4, op_id = 9", 300, 320)
    export.range("E, seq = 3, op_id = 10", 400, 420)
    export.range("E, seq = 3, op_id = 11", 405, 410)
    assert numbers(export) == [
        ("A", 5, 1), ("A", 5, 1), ("aten::mm", 9, -1), ("B", -1, -1), ("later", 6, -1),
        ("C", -1, -1), ("elsewhere", 7, -1), ("D", 8, 1), ("D", 4, -1), ("E", 3, -1),
        ("E", 3, -1),
    ]  # fmt: skip


def test_the_node_of_an_evaluation_is_the_range_of_its_name_and_number_right_inside() -> None:
    export = Export()
    export.range(EVALUATE + "A, seq = 5", 10, 90)
    export.range("B, seq = 5", 20, 80)
    export.range("A, seq = 5", 30, 70)  # not right inside
    export.range(EVALUATE + "C, seq = 6", 110, 190)
    export.range("C, seq = 6", 110, 190)
    assert numbers(export) == [
        ("A", 5, 1), ("B", 5, -1), ("A", 5, -1), ("C", 6, 1), ("C", 6, 1),
    ]  # fmt: skip


def test_a_capture_without_ranges_or_operations_has_no_events() -> None:
    export = Export()
    export.range("only", 0, 1)
    assert [r[0] for r in rows(export)] == ["only"]
    empty = Export()
    empty.kernel(100, 110, 31)
    assert [r[0] for r in rows(empty)] == ["k"]


def test_a_capture_is_charged_as_a_trace_is() -> None:
    """A node's kernels go to the module of its forward, also of the number 0."""
    export = Export()
    export.range("layerline/phase/forward", 0, 200)
    export.range("layerline/module/fc", 30, 180)
    export.range("aten::mm, seq = 0, op_id = 1", 40, 100)
    export.launch(50, 10, name="forward")
    export.range("layerline/phase/backward", 300, 900)
    export.range(f"{EVALUATE}MmBackward0, op_id = 2", 310, 400, thread=2)
    export.range("MmBackward0, seq = 0, op_id = 3", 310, 390, thread=2)
    export.launch(340, 20, name="backward", thread=2)
    with TemporaryDirectory() as folder:
        path = export.write(Path(folder) / "c.sqlite")
        found = eager_nsys.read(path, {"precision": "fp32"})
    kernels = [r for r in found.main.to_pylist() if r["kind"] == "kernel"]
    columns = ("name", "modules", "rule", "phase", "precision", "source", "layer")
    assert [tuple(r[c] for c in columns) for r in kernels] == [
        ("forward", ["fc"], "range", "forward", "fp32", "c.sqlite", "aten::mm"),
        ("backward", ["fc"], "sequence", "backward", "fp32", "c.sqlite", "MmBackward0"),
    ]
    assert [p["phase"] for p in found.facts["phases"]] == ["forward", "backward"]
    assert not any("number" in note for note in found.notes)
