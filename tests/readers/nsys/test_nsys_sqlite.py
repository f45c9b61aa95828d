"""nsys SQLite exports: one test per quirk of the format."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from nsys_build import Export, pid

from layerline.analysis.checks import raw_totals
from layerline.analysis.readers import registry
from layerline.analysis.readers.nsys import host, sqlite
from layerline.analysis.readers.nsys.attribution import attribute
from layerline.analysis.readers.nsys.load import load
from layerline.analysis.readers.nsys.ops import operations
from layerline.analysis.readers.nsys.sqlite import SqliteSource
from layerline.core import tables
from layerline.core.errors import InputError


def rows(path: Path) -> list[dict[str, Any]]:
    return sqlite.read(path).main.to_pylist()


def ranges(path: Path) -> list[str | None]:
    return [r["range"] for r in rows(path)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "capture.sqlite"


def simple() -> Export:
    export = Export()
    export.range("outer", 0, 1000)
    export.range("inner", 100, 200)
    export.launch(150, 30, name="a")
    export.launch(500, 7, name="b")
    return export


def test_a_kernel_has_the_path_of_ranges_around_its_launch_not_around_its_run(file: Path) -> None:
    export = simple()
    export.launch(1500, 5, name="c", start=1600)
    export.launch(199, 5, name="late", start=5000)
    found = {r["name"]: r for r in rows(export.write(file))}
    assert found["a"]["range_path"] == ["outer", "inner"]
    assert found["a"]["range"] == "inner"
    assert found["b"]["range_path"] == ["outer"]
    assert found["c"]["range"] is None
    assert found["c"]["range_path"] is None
    assert found["late"]["range_path"] == ["outer", "inner"]


def test_a_row_says_where_it_ran_and_when(file: Path) -> None:
    export = Export()
    export.launch(10, 25, name="k", deviceId=3, streamId=21)
    found = rows(export.write(file))[0]
    assert (found["device"], found["stream"], found["process"]) == (3, 21, 1000)
    assert (found["start_ns"], found["duration_ns"], found["kind"]) == (110, 25, "kernel")
    assert found["source"] == "capture.sqlite"
    assert found["self_ns"] is None
    assert sqlite.read(file).main.schema.names == tables.SCHEMAS["ops"].names


def test_names_of_ranges_may_be_text_instead_of_ids(file: Path) -> None:
    export = simple()
    for row, name in zip(export.ranges, ("outer", "inner"), strict=True):
        row["text"], row["textId"] = name, None
    assert ranges(export.write(file)) == ["inner", "outer"]


def test_old_exports_have_no_text_id_column(file: Path) -> None:
    export = simple()
    for row, name in zip(export.ranges, ("outer", "inner"), strict=True):
        row["text"] = name
    assert ranges(export.write(file, drop=("textId",))) == ["inner", "outer"]


@pytest.mark.parametrize("suffix", ["_V2", "_V3"])
def test_tables_may_carry_a_version(file: Path, suffix: str) -> None:
    assert ranges(simple().write(file, suffix=suffix)) == ["inner", "outer"]


def test_of_two_versions_of_a_table_the_newer_is_read(file: Path) -> None:
    extra = """create table NVTX_EVENTS_V2 as select * from NVTX_EVENTS_V3;
               update NVTX_EVENTS_V2 set textId = null"""
    assert ranges(simple().write(file, suffix="_V3", extra=extra)) == ["inner", "outer"]


def test_without_ranges_kernels_stay_and_it_is_said(file: Path) -> None:
    export = Export()
    export.launch(10)
    artefact = sqlite.read(export.write(file))
    assert [r["range"] for r in artefact.main.to_pylist()] == [None]
    assert any("no NVTX range" in n for n in artefact.notes)


def test_without_kernels_there_are_no_rows_and_it_is_said(file: Path) -> None:
    export = Export()
    export.call(10, 1)
    artefact = sqlite.read(export.write(file))
    assert artefact.main.num_rows == 0
    assert any("no GPU operation" in n for n in artefact.notes)


def test_launches_without_any_kernel_are_said(file: Path) -> None:
    """Stands for: a table of kernels that another tool emptied, renamed or left out."""
    export = Export()
    export.call(10, 1)
    export.call(20, 2, name="cudaMemcpyAsync_v3020")
    export.copies.append(
        {"start": 30, "end": 40, "correlationId": 2, "globalPid": pid(), "copyKind": 1}
    )
    notes = sqlite.read(export.write(file)).notes
    assert any("no kernel is in the file, and 1 calls" in n for n in notes)


def test_correlation_ids_are_unique_within_a_process_only(file: Path) -> None:
    export = Export()
    export.range("first", 0, 1000, process=1)
    export.range("second", 0, 1000, process=2)
    export.launch(10, name="a", process=1, correlation=5)
    export.launch(10, name="b", process=2, correlation=5)
    found = {r["name"]: (r["range"], r["process"]) for r in rows(export.write(file))}
    assert found == {"a": ("first", 1), "b": ("second", 2)}


def test_a_kernel_whose_launch_is_not_in_the_capture_is_kept_and_counted(file: Path) -> None:
    export = simple()
    export.kernel(300, 340, 77, name="orphan")
    artefact = sqlite.read(export.write(file))
    found = {r["name"]: r for r in artefact.main.to_pylist()}
    assert found["orphan"]["range"] is None
    assert found["orphan"]["duration_ns"] == 40
    assert artefact.facts["operation_ns"] == {"kernel": 30 + 7 + 40}
    assert any("1 of 3 kernel operations have no launch" in n for n in artefact.notes)


def test_a_launch_by_a_call_of_an_unforeseen_name_is_found(file: Path) -> None:
    export = simple()
    export.launch(120, name="odd", call="cuSomethingNew")
    artefact = sqlite.read(export.write(file))
    assert {r["name"]: r["range"] for r in artefact.main.to_pylist()}["odd"] == "inner"
    assert not any("no launch" in n for n in artefact.notes)


def test_of_a_runtime_call_and_the_driver_call_inside_it_the_inner_one_counts(file: Path) -> None:
    export = Export()
    export.range("inner", 105, 200)
    export.call(100, 1, name="cudaLaunchKernel_v7000", duration=50)
    export.call(110, 1, name="cuLaunchKernel", duration=10)
    export.kernel(300, 310, 1)
    assert ranges(export.write(file)) == ["inner"]


def test_the_order_of_rows_in_the_file_does_not_matter(file: Path) -> None:
    export = Export()
    export.range("late", 105, 200)
    export.range("early", 0, 104)
    export.call(110, 1, name="cuLaunchKernel", duration=10)
    export.call(100, 1, name="cudaLaunchKernel_v7000", duration=50)
    export.call(50, 2)
    export.kernel(300, 310, 2, name="b")
    export.kernel(200, 210, 1, name="a")
    found = {r["name"]: r["range"] for r in rows(export.write(file))}
    assert found == {"a": "late", "b": "early"}


def test_correlation_ids_far_apart(file: Path) -> None:
    export = Export()
    export.range("r", 0, 1000)
    export.launch(10, name="a", correlation=3)
    export.launch(2000, name="b", correlation=2**40)
    export.launch(20, name="c", correlation=2**41)
    export.kernel(5, 6, 2**39, name="d")
    found = {r["name"]: r["range"] for r in rows(export.write(file))}
    assert found == {"a": "r", "b": None, "c": "r", "d": None}


def test_a_range_of_another_thread_does_not_hold_a_launch(file: Path) -> None:
    export = Export()
    export.range("other", 0, 1000, thread=2)
    export.launch(10, thread=1)
    assert ranges(export.write(file)) == [None]


def test_a_start_end_range_that_ends_on_another_thread_holds_on_both(file: Path) -> None:
    export = Export()
    export.range("request", 0, 1000, thread=1, end_thread=2, kind=60)
    for thread in (1, 2, 3):
        export.launch(10 + thread, name=f"t{thread}", thread=thread)
    found = {r["name"]: r["range"] for r in rows(export.write(file))}
    assert found == {"t1": "request", "t2": "request", "t3": None}


def test_of_overlapping_start_end_ranges_the_one_that_started_last_is_innermost(file: Path) -> None:
    export = Export()
    export.range("a", 0, 100, kind=60)
    export.range("b", 50, 150, kind=60)
    export.launch(75, name="both")
    export.launch(120, name="only b")
    export.launch(25, name="only a")
    found = {r["name"]: r["range_path"] for r in rows(export.write(file))}
    assert found == {"both": ["a", "b"], "only b": ["b"], "only a": ["a"]}


def test_push_pop_ranges_of_two_domains_may_cross(file: Path) -> None:
    export = Export()
    export.range("x", 0, 100, domain=1)
    export.range("y", 50, 150, domain=2)
    export.range("z", 60, 140, domain=2)
    export.launch(70, name="1")
    export.launch(110, name="2")
    export.launch(145, name="3")
    found = {r["name"]: r["range_path"] for r in rows(export.write(file))}
    assert found == {"1": ["x", "y", "z"], "2": ["y", "z"], "3": ["y"]}


def test_ranges_with_equal_times_have_one_order(file: Path) -> None:
    export = Export()
    export.range("short", 0, 50)
    export.range("push", 0, 100)
    export.range("start", 0, 100, kind=60)
    export.launch(10)
    assert rows(export.write(file))[0]["range_path"] == ["start", "push", "short"]


def test_a_range_holds_its_start_and_not_its_end(file: Path) -> None:
    export = Export()
    export.range("r", 100, 200)
    export.range("empty", 150, 150)
    for at in (99, 100, 150, 199, 200):
        export.launch(at, name=str(at))
    found = {r["name"]: r["range"] for r in rows(export.write(file))}
    assert found == {"99": None, "100": "r", "150": "r", "199": "r", "200": None}


def test_a_range_without_an_end_is_open_to_the_end_of_the_capture(file: Path) -> None:
    export = simple()
    export.range("open", 400, None)
    artefact = sqlite.read(export.write(file))
    found = {r["name"]: r["range_path"] for r in artefact.main.to_pylist()}
    assert found == {"a": ["outer", "inner"], "b": ["outer", "open"]}
    assert any("1 ranges were still open" in n for n in artefact.notes)


def test_a_range_that_ends_before_it_starts_holds_nothing_and_is_counted(file: Path) -> None:
    export = simple()
    export.range("backwards", 600, 100)
    artefact = sqlite.read(export.write(file))
    assert [r["range"] for r in artefact.main.to_pylist()] == ["inner", "outer"]
    assert any("1 ranges have no usable time" in n for n in artefact.notes)


def test_marks_and_counters_are_no_ranges(file: Path) -> None:
    export = simple()
    export.range("mark", 140, None, kind=34)
    export.range("mark with an end", 140, 160, kind=34)
    assert ranges(export.write(file)) == ["inner", "outer"]


def test_a_range_without_a_name_is_still_a_range(file: Path) -> None:
    export = simple()
    export.range(None, 140, 160)
    assert rows(export.write(file))[0]["range_path"] == ["outer", "inner", ""]


@pytest.mark.parametrize(
    ("start", "end", "duration"),
    [
        (None, 10, None),
        (10, None, None),
        ("soon", 10, None),
        (10, b"\x00", None),
        (20, 10, None),
        (10, float("inf"), None),
        (10, float("nan"), None),
        (-(2**63), 2**63 - 1, None),
        (10.0, 25.0, 15),
    ],
)
def test_a_time_that_is_none_is_unknown_never_zero(
    file: Path, start: Any, end: Any, duration: int | None
) -> None:
    export = simple()
    export.kernel(start, end, 1, name="odd")
    artefact = sqlite.read(export.write(file))
    found = {r["name"]: r for r in artefact.main.to_pylist()}
    assert found["odd"]["duration_ns"] == duration
    assert found["a"]["duration_ns"] == 30
    assert any("1 kernel rows have no usable time" in n for n in artefact.notes) == (
        duration is None
    )


def test_a_wrong_type_far_down_the_table_spoils_nothing_before(file: Path) -> None:
    export = Export()
    for i in range(70_000):
        export.kernel(i, i + 1, None)
    export.kernel("text", 5, None, name="odd")
    found = sqlite.read(export.write(file))
    assert found.main.num_rows == 70_001
    assert found.facts["operation_ns"] == {"kernel": 70_000}


def test_missing_columns_of_old_schemas_are_unknown(file: Path) -> None:
    drop = ("endGlobalTid", "domainId", "graphNodeId", "deviceId", "demangledName")
    export = simple()
    found = rows(export.write(file, drop=drop, meta=None))
    assert [r["range"] for r in found] == ["inner", "outer"]
    assert [r["name"] for r in found] == ["short a", "short b"]
    assert [r["device"] for r in found] == [None, None]


def test_without_global_pid_the_only_process_is_meant(file: Path) -> None:
    found = rows(simple().write(file, drop=("globalPid",)))
    assert [r["range"] for r in found] == ["inner", "outer"]
    assert [r["process"] for r in found] == [None, None]


def test_without_global_pid_and_with_two_processes_nothing_is_guessed(file: Path) -> None:
    export = simple()
    export.call(150, 1, process=2)
    assert ranges(export.write(file, drop=("globalPid",))) == [None, None]


def test_copies_and_sets_are_operations_of_their_own_kind(file: Path) -> None:
    export = simple()
    common = {"deviceId": 0, "streamId": 1, "globalPid": pid()}
    for kind, correlation in ((1, 91), (2, 92), (8, 93), (99, 94)):
        export.call(150, correlation, name="cudaMemcpyAsync_v3020")
        times = {"start": 200, "end": 203, "correlationId": correlation}
        export.copies.append({**times, **common, "copyKind": kind})
    export.call(150, 95, name="cudaMemsetAsync_v3020")
    export.sets.append({"start": 200, "end": 204, "correlationId": 95, **common})
    found = [r for r in rows(export.write(file)) if r["kind"] != "kernel"]
    assert [(r["kind"], r["name"]) for r in found] == [
        ("memcpy", "[CUDA memcpy Host-to-Device]"),
        ("memcpy", "[CUDA memcpy Device-to-Host]"),
        ("memcpy", "[CUDA memcpy Device-to-Device]"),
        ("memcpy", "[CUDA memcpy Unknown]"),
        ("memset", "[CUDA memset]"),
    ]
    assert {r["range"] for r in found} == {"inner"}


def test_whole_graphs_are_rows_with_a_note(file: Path) -> None:
    export = simple()
    export.call(150, 50, name="cudaGraphLaunch_v10000")
    export.graphs.append(
        {
            "start": 160,
            "end": 190,
            "deviceId": 0,
            "streamId": 7,
            "correlationId": 50,
            "globalPid": pid(),
            "graphExecId": 4,
        }
    )
    artefact = sqlite.read(export.write(file))
    found = [r for r in artefact.main.to_pylist() if r["kind"] == "graph"]
    assert [(r["name"], r["duration_ns"], r["range"]) for r in found] == [
        ("[CUDA graph 4]", 30, "inner")
    ]
    assert any("--cuda-graph-trace=node" in n for n in artefact.notes)


def test_many_kernels_of_one_graph_launch_share_its_range(file: Path) -> None:
    export = Export()
    export.range("replay", 0, 100)
    export.call(10, 1, name="cudaGraphLaunch_v10000")
    for i in range(3):
        export.kernel(50 + i, 51 + i, 1, name=f"k{i}", graphNodeId=70 + i)
    assert ranges(export.write(file)) == ["replay"] * 3


def test_iterations_and_phases_named_by_this_project_are_columns(file: Path) -> None:
    export = Export()
    export.range("layerline/iteration/3", 0, 1000)
    export.range("layerline/phase/forward", 10, 500)
    export.range("layerline/module/h.0", 20, 100)
    export.launch(50, name="in")
    export.launch(600, name="out")
    found = {r["name"]: (r["iteration"], r["phase"]) for r in rows(export.write(file))}
    assert found == {"in": (3, "forward"), "out": (3, None)}


def test_a_name_that_is_not_utf8_is_shown_not_refused(file: Path) -> None:
    export = simple()
    extra = "update StringIds set value = cast(x'ff6b' as text) where value = 'a'"
    assert rows(export.write(file, extra=extra))[0]["name"] == "�k"


def test_a_name_without_an_entry_is_unknown(file: Path) -> None:
    extra = "delete from StringIds where value = 'a'"
    assert rows(simple().write(file, extra=extra))[0]["name"] is None


def test_text_beside_a_time_that_is_no_integer(file: Path) -> None:
    export = simple()
    export.kernel("x", 1.5, 9)
    export.range("as text", 300, 800)
    export.ranges[-1]["text"] = "as text"
    export.write(file)
    with SqliteSource(file) as source:
        found = operations(attribute(load(source)), file)
    assert found.to_pylist()[1]["range"] == "as text"


def test_reading_leaves_nothing_beside_the_file(tmp_path: Path, file: Path) -> None:
    simple().write(file)
    before = file.read_bytes()
    file.chmod(0o444)
    rows(file)
    assert [p.name for p in tmp_path.iterdir()] == [file.name]
    assert file.read_bytes() == before


def test_a_file_in_wal_mode_is_read_without_making_wal_files(tmp_path: Path, file: Path) -> None:
    simple().write(file, extra="pragma journal_mode = wal")
    with sqlite.source(file) as source:
        assert len(load(source).ranges) == 2
        assert [p.name for p in tmp_path.iterdir()] == [file.name]


def test_a_file_in_the_middle_of_a_write_is_refused(file: Path) -> None:
    simple().write(file)
    db = sqlite3.connect(file)
    db.execute("pragma journal_mode=wal")
    db.execute("pragma wal_autocheckpoint=0")
    db.execute("delete from CUPTI_ACTIVITY_KIND_KERNEL")
    db.commit()
    with pytest.raises(InputError, match="unfinished wal file"):
        sqlite.read(file)
    db.close()


def test_views_are_not_read(file: Path) -> None:
    export = Export()
    export.call(1, 1)
    extra = """create view CUPTI_ACTIVITY_KIND_KERNEL as
      with recursive n(i) as (select 1 union all select i + 1 from n)
      select i as start, i + 1 as "end", 1 as correlationId from n"""
    export.write(file, extra=extra)
    with pytest.raises(InputError, match="has CUPTI_ACTIVITY_KIND_KERNEL as a view"):
        sqlite.read(file)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "end"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId"),
        ("NVTX_EVENTS", "globalTid"),
    ],
)
def test_a_table_that_cannot_be_read_is_not_taken_for_an_empty_one(
    file: Path, table: str, column: str
) -> None:
    simple().write(file, extra=f'alter table {table} rename column "{column}" to other')
    with pytest.raises(InputError, match=f"has a {table} without {column}; export the report"):
        sqlite.read(file)


def test_generated_columns_are_not_read(file: Path) -> None:
    export = simple()
    extra = """create table t (start integer, "end" integer, correlationId integer,
        globalPid integer, demangledName integer generated always as (zeroblob(1000000000)));
      drop table CUPTI_ACTIVITY_KIND_KERNEL; alter table t rename to CUPTI_ACTIVITY_KIND_KERNEL;
      insert into CUPTI_ACTIVITY_KIND_KERNEL (start, "end") values (1, 2)"""
    assert [r["name"] for r in rows(export.write(file, extra=extra))] == [None]


def test_triggers_do_not_run(file: Path) -> None:
    extra = """create trigger t after insert on NVTX_EVENTS
      begin delete from CUPTI_ACTIVITY_KIND_KERNEL; end"""
    assert ranges(simple().write(file, extra=extra)) == ["inner", "outer"]


def test_a_file_name_with_special_characters_is_only_a_name(tmp_path: Path) -> None:
    path = tmp_path / "a?mode=rwc&b#c%20d.sqlite"
    assert ranges(simple().write(path)) == ["inner", "outer"]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_an_sqlite_file_of_something_else_is_refused(file: Path) -> None:
    db = sqlite3.connect(file)
    db.execute("create table cookies (host text)")
    db.commit()
    db.close()
    with pytest.raises(InputError, match="no export of nsys"):
        registry.read(file)


def test_damaged_files_are_one_line_errors(file: Path, tmp_path: Path) -> None:
    export = simple()
    for i in range(3000):
        export.launch(2000 + i)
    whole = export.write(file).read_bytes()
    damaged = tmp_path / "damaged.sqlite"
    for cut in (100, 5000, len(whole) // 2):
        damaged.write_bytes(whole[:cut])
        with pytest.raises(InputError) as caught:
            sqlite.read(damaged)
        assert "\n" not in caught.value.line()
    damaged.write_bytes(whole[:8192] + b"\xff" * 8192 + whole[16384:])
    with pytest.raises(InputError):
        sqlite.read(damaged)


def test_the_registry_takes_it_by_content(tmp_path: Path) -> None:
    path = simple().write(tmp_path / "renamed.bin")
    assert registry.read(path).kind == "nsys-sqlite"


def test_facts_say_what_made_it_and_what_it_holds(file: Path) -> None:
    export = simple()
    export.domain(1, "TensorRT")
    facts = sqlite.read(export.write(file)).facts
    assert facts["nsys_version"] == "2025.3.1.0"
    assert facts["gpus"] == ["NVIDIA Test"]
    assert facts["operations"] == {"kernel": 2}
    assert facts["domains"] == ["TensorRT"]
    assert facts["processes"] == [1000]


def test_the_old_name_of_the_metadata_table(file: Path) -> None:
    facts = sqlite.read(simple().write(file, meta="EXPORT_META_DATA")).facts
    assert facts["nsys_version"] == "2025.3.1.0"


TWICE = "insert into {0} select * from {0}"


def test_kernels_that_are_in_the_file_twice_are_counted_once(file: Path) -> None:
    export = simple()
    export.copies = [{**export.kernels[0], "copyKind": 1}]
    tables_ = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"
    found = sqlite.read(export.write(file, extra=";".join(map(TWICE.format, tables_))))
    assert [r["duration_ns"] for r in found.main.to_pylist()] == [30, 7, 30]
    assert [n for n in found.notes if "repeat" in n] == [
        "2 kernel rows repeat others in every column and are not counted again",
        "1 memcpy row repeats another in every column and is not counted again",
    ]
    assert raw_totals.nsys(file) == {"kernel": 37, "memcpy": 30}


def test_kernels_that_differ_in_a_column_that_nobody_reads_are_two(file: Path) -> None:
    export = simple()
    export.kernels = [{**export.kernels[0], "gridId": n} for n in (1, 2)]
    found = sqlite.read(export.write(file))
    assert len(found.main) == 2 and not [n for n in found.notes if "repeat" in n]
    assert raw_totals.nsys(file) == {"kernel": 60}


def test_ranges_that_are_in_the_file_twice_are_no_range_inside_itself(file: Path) -> None:
    simple().write(file, extra=TWICE.format("NVTX_EVENTS"))
    with SqliteSource(file) as source:
        capture = load(source)
        found = operations(attribute(capture), file)
    assert found["range_path"].to_pylist() == [["outer", "inner"], ["outer"]]
    assert "2 range rows repeat others" in " ".join(capture.notes)


def test_calls_that_are_in_the_file_twice_are_not_made_twice(file: Path) -> None:
    simple().write(file, extra=TWICE.format("CUPTI_ACTIVITY_KIND_RUNTIME"))
    assert len(host.read(file).calls[host.CUDA]) == 2
