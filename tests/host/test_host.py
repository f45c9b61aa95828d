"""The host side of captures: made by hand, so that every figure can be counted."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from nsys_build import PROCESS, Export, tid

from layerline.analysis.attribution import eager_nsys
from layerline.analysis.host import calls, launch_bound
from layerline.analysis.host import capture as capture_
from layerline.analysis.readers.nsys import host as host_
from layerline.analysis.report import sentences
from layerline.core import tables
from layerline.core.errors import InputError

OSRT = "create table OSRT_API (start int, end int, eventClass int, globalTid int, nameId int)"
NAMES = {1: "poll", 2: "ioctl", 3: "sem_wait", 4: "cublasGemmEx"}


def system(*rows: tuple[str, int, int, int], table: str = "OSRT_API", cls: int = 27) -> str:
    """SQL for calls (name, start, end, thread)."""
    lines = [OSRT.replace("OSRT_API", table)]
    number = {n: i for i, n in NAMES.items()}
    for name, start, end, thread in rows:
        values = f"{start}, {end}, {cls}, {tid(thread)}, {number[name]}"
        lines.append(f"insert into {table} values ({values})")
    return ";".join(lines) + ";"


STRINGS = ";".join(f"insert or ignore into StringIds values ({i}, '{n}')" for i, n in NAMES.items())


def capture(tmp_path: Path, extra: str = "") -> Path:
    """Two iterations of two kernels: the host needs 60 ns for what runs 20 ns.

    launches [0, 10] and [50, 60], kernels [12, 22] and [62, 72]; the second 1000 later.
    """
    made = Export()
    for i in (0, 1000):
        for k, at in enumerate((i, i + 50)):
            made.call(at, i + k + 1, duration=10)
            made.kernel(at + 12, at + 22, i + k + 1)
        # Waits for the device until 30 after the last kernel; what is outside is not counted.
        made.call(i + 65, i + 9, name="cudaStreamSynchronize_v3020", duration=37)
        made.call(i + 20, i + 8, name="cudaMemcpyAsync_v3020", duration=4)
    return made.write(tmp_path / "c.sqlite", extra=f"{STRINGS};{extra}")


def operations(starts: tuple[int, ...] = (12, 62), **more: Any) -> Any:
    """`ops` of that capture, as attribution gives them."""
    rows = [
        {
            "kind": "kernel",
            "iteration": n,
            "start_ns": 1000 * n + at,
            "duration_ns": 10,
            "correlation": 1000 * n + k + 1,
            "process": PROCESS,
            **more,
        }
        for n in (0, 1)
        for k, at in enumerate(starts)
    ]
    return tables.table("ops", rows)


def measured(path: Path, ops: Any = None) -> calls.Measured:
    found = calls.measure(operations() if ops is None else ops, host_.read(path))
    assert found is not None
    return found


def test_every_figure_of_two_iterations(tmp_path: Path) -> None:
    found = measured(capture(tmp_path))
    assert found.iterations == [0, 1]
    expected = {
        "launches": 2,
        "operations": 2,
        "issue": 60,  # 0 to 60
        "launch": 20,
        "copy": 4,
        "synchronise": 7,  # 65 to 72, where the last kernel ends
        "other": 0,
        "span": 60,  # 12 to 72
        "busy": 20,
        "idle": 40,  # 22 to 62
        "idle_for_host": 38,  # 22 to 60, when the next launch had returned
        "gaps": 1,
    }
    assert {k: found.values[k] for k in expected} == {k: [v, v] for k, v in expected.items()}


def test_what_was_not_recorded_is_null_and_says_why(tmp_path: Path) -> None:
    found = measured(capture(tmp_path))
    assert [found.values[k] for k in ("cuBLAS", "cuDNN", "waits")] == [None, None, None]
    assert found.missing["cuBLAS"] == "no table CUBLAS_EVENTS: not traced, or no call was seen"
    assert "OSRT_API" in found.missing["waits"]


def test_the_command_says_whether_it_was_asked_for(tmp_path: Path) -> None:
    path = capture(tmp_path)
    some = capture_.read(path, ["nsys", "profile", "--trace=cuda,nvtx,cublas"])
    assert some is not None
    assert some.missing["cuBLAS"] == (
        "asked for; nsys recorded no call into cuBLAS and does not say whether it could"
    )
    assert some.missing["cuDNN"] == "not traced (--trace=cuda,nvtx,cublas)"
    assert capture_.read(tmp_path / "none.sqlite", ()) is None
    assert capture_.read(tmp_path / "c.json", ()) is None


def test_waits_count_on_the_launching_thread_within_the_iteration(tmp_path: Path) -> None:
    """poll 30 to 45 counts; of sem_wait 65 to 90 the 7 until the end; ioctl is no wait; nor does
    another thread's poll count."""
    waits = system(
        *(("poll", 30, 45, 1), ("ioctl", 46, 49, 1), ("poll", 0, 72, 2), ("sem_wait", 65, 90, 1))
    )
    assert measured(capture(tmp_path, waits)).values["waits"] == [15 + 7, 0]


def test_the_marks_of_the_tracer_are_no_calls(tmp_path: Path) -> None:
    marks = system(("poll", 10, 70, 1), cls=31)
    assert measured(capture(tmp_path, marks)).values["waits"] == [0, 0]


def test_nested_calls_of_a_library_count_once(tmp_path: Path) -> None:
    rows = (("cublasGemmEx", 0, 30, 1), ("cublasGemmEx", 5, 20, 1), ("cublasGemmEx", 25, 35, 1))
    blas = system(*rows, table="CUBLAS_EVENTS", cls=29)
    assert measured(capture(tmp_path, blas)).values["cuBLAS"] == [35, 0]


def test_operations_that_overlap_are_busy_once(tmp_path: Path) -> None:
    """[12, 22] and [15, 25]: 13 ns, no gap."""
    found = measured(capture(tmp_path), operations((12, 15)))
    assert (found.values["busy"], found.values["gaps"]) == ([13, 13], [0, 0])


def test_launches_of_the_next_iteration_are_not_this_ones(tmp_path: Path) -> None:
    """The first iteration's second kernel runs until 2000; the next is issued from 1000 on."""
    ops = operations().to_pylist()
    ops[1]["duration_ns"] = 2000 - 62
    found = measured(capture(tmp_path), tables.table("ops", ops))
    assert (found.values["launch"], found.values["copy"]) == ([20, 20], [4, 4])
    assert found.values["synchronise"] == [37, 7]  # the whole call now lies in the iteration


def test_a_graph_is_one_launch_of_many_operations(tmp_path: Path) -> None:
    ops = operations().to_pylist()
    for row in ops:
        row["correlation"] = 1000 * row["iteration"] + 1
    found = measured(capture(tmp_path), tables.table("ops", ops))
    assert (found.values["launches"], found.values["operations"]) == ([1, 1], [2, 2])


def test_equal_ids_of_two_processes_are_told_apart_or_not_at_all(tmp_path: Path) -> None:
    path = capture(tmp_path)
    with sqlite3.connect(path) as db:
        table = "CUPTI_ACTIVITY_KIND_RUNTIME"
        columns = "start, end, eventClass, globalTid, correlationId, nameId, returnValue"
        other = f"start + 3, end + 3, eventClass, {tid(1, 7)}, correlationId, nameId, 0"
        db.execute(f"insert into {table} ({columns}) select {other} from {table}")
    assert measured(path).values["issue"] == [60, 60]
    assert calls.measure(operations(process=None), host_.read(path)) is None


def test_an_iteration_with_an_operation_that_nobody_launched_is_left_out(tmp_path: Path) -> None:
    ops = operations().to_pylist()
    ops[0]["correlation"] = 77
    assert measured(capture(tmp_path), tables.table("ops", ops)).iterations == [1]


def test_eager_captures_have_the_same_block(tmp_path: Path) -> None:
    """Two launches at 100 and 600, of 5 ns each; kernels [300, 350] and [700, 750]."""
    made = Export()
    for n in range(3):
        begin = 10_000 * n
        made.range(f"layerline/iteration/{n}", begin, begin + 5000)
        made.range("layerline/phase/inference", begin + 1, begin + 4999)
        made.range("layerline/module/fc", begin + 10, begin + 1000)
        made.range("aten::mm, op_id = 3", begin + 20, begin + 900)
        made.launch(begin + 100, 50, start=begin + 300)
        made.launch(begin + 600, 50, start=begin + 700)
    path = made.write(tmp_path / "eager.sqlite")
    ops = eager_nsys.read(path, {"precision": "fp32"}).main
    found = capture_.block(capture_.read(path, ()), ops, [1000] * 7)
    assert found is not None and found.iterations == 3
    medians = {k: v.median for k, v in found.values.items() if v}
    assert (medians["issue"], medians["launch"]) == (505, 10)
    assert (medians["busy"], medians["idle"], medians["idle_for_host"]) == (100, 350, 255)
    assert (found.unprofiled_share, found.unprofiled_source) == (pytest.approx(0.9), "busy")


def test_a_file_that_is_no_export_is_refused(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "x.sqlite")
    db.execute("create table t (a)")
    db.commit()
    db.close()
    with pytest.raises(InputError):
        host_.read(tmp_path / "x.sqlite")


# busy 20, issue 60: the capture says that the device has nothing to do in 67 %.
@pytest.mark.parametrize(
    ("latency", "queued", "share", "source", "is_bound", "confirmed"),
    [
        ([100] * 9, [20] * 9, 0.8, "queued", True, True),
        ([100] * 9, [90] * 9, 0.1, "queued", False, None),  # tracing alone makes it so
        ([80] * 9, [], 0.75, "busy", True, True),
        ([21] * 9, [], 1 / 21, "busy", False, None),
        ([], [], None, None, None, None),
    ],
)
def test_the_verdict_and_what_it_rests_on(
    tmp_path: Path,
    latency: Any,
    queued: Any,
    share: Any,
    source: Any,
    is_bound: Any,
    confirmed: Any,
) -> None:
    host = host_.read(capture(tmp_path))
    found = capture_.block(host, operations(), latency, queued)
    assert found is not None
    assert found.traced_share == pytest.approx(2 / 3)
    assert found.unprofiled_share == (None if share is None else pytest.approx(share))
    assert found.unprofiled_source == source
    assert (found.launch_bound, found.confirmed) == (is_bound, confirmed)


def test_a_capture_that_does_not_show_why_is_said_to(tmp_path: Path) -> None:
    """Issued in 60 ns, busy for 60: yet the unprofiled device waits for half of the latency."""
    made = calls.Measured([0], {"issue": [60], "busy": [60], "launches": [2]})
    found = launch_bound.describe(made, 0.5, [100] * 9)
    assert (found.launch_bound, found.confirmed) == (True, False)
    assert "does not show why" in sentences.host(found, {}).form
