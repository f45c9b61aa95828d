"""What nsys says of its own captures: warnings and errors, as its exports have them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import precision_views
import pytest
import rendering
from nsys_build import Export, convert

from layerline.analysis.host import capture as capture_
from layerline.analysis.readers import registry
from layerline.analysis.readers.nsys import diagnostics, sqlite
from layerline.analysis.readers.nsys import host as host_
from layerline.analysis.report import sentences
from layerline.analysis.scrub import pipeline

INFO, WARNING, ERROR, VERBOSE = 1, 2, 3, 4
LIBRARY = "/opt/tool dir/target/libInjectionCuDNN64_91.so"
UNSUPPORTED = (
    "Tracing cuDNN library version 91.9 is currently not supported.Loading "
    f"'{LIBRARY}' failed: /opt/tool/libInjectionCuDNN64_91.so: cannot open shared object file."
)
SYMBOLS = (
    "cuDNN symbols found in /srv/venv/lib/libcudnn.so.9 symbol table. No cuDNN trace will be "
    "generated from that library. Was cuDNN statically linked?"
)
HABITUAL = (
    "Not all CUDA events might have been collected.",
    "cuDNN profiling might have not been started correctly.",
    "No cuDNN events collected. Does the process use cuDNN?",
    "Scheduling information is absent. The thread activity is deduced.",
)
TRACED = ("nsys", "profile", "--trace=cuda,cudnn,cublas,osrt,nvtx")


def capture(path: Path, *said: tuple[Any, str | None], extra: str = "") -> Path:
    """An export with one kernel and these diagnostics."""
    made = Export()
    made.launch(0)
    made.write(path, extra=extra)
    with sqlite3.connect(path) as db:
        db.execute(
            "create table DIAGNOSTIC_EVENT (timestamp int, timestampType int, source int, "
            "severity int, text text, globalPid int)"
        )
        db.executemany("insert into DIAGNOSTIC_EVENT values (0, 1, 1, ?, ?, 7)", said)
    db.close()
    return path


def host(path: Path, command: Sequence[str] = TRACED) -> host_.Host:
    found = capture_.read(path, command)
    assert found is not None
    return found


def texts(path: Path) -> list[str]:
    with sqlite.source(path) as source:
        return [d.text for d in diagnostics.read(source)]


def test_only_warnings_and_errors_are_read_and_each_once(tmp_path: Path) -> None:
    said = [(INFO, "i"), (WARNING, "w"), (ERROR, "e"), (VERBOSE, "v"), (0, "u"), (WARNING, "w")]
    path = capture(tmp_path / "c.sqlite", *said, (WARNING, None), (None, "n"), ("2", "b"))
    assert texts(path) == ["w", "e", "b"]  # the column makes a number of the last one's "2"


def test_an_export_without_the_table_or_its_columns_says_nothing(tmp_path: Path) -> None:
    made = Export()
    made.launch(0)
    assert texts(made.write(tmp_path / "a.sqlite")) == []
    extra = "create table DIAGNOSTIC_EVENT (text text); insert into DIAGNOSTIC_EVENT values ('x')"
    assert texts(made.write(tmp_path / "b.sqlite", extra=extra)) == []
    assert host(tmp_path / "b.sqlite").diagnostics == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Loading '{LIBRARY}' failed", "Loading 'libInjectionCuDNN64_91.so' failed"),
        ("found in /srv/venv/lib/libcudnn.so.9 symbol", "found in libcudnn.so.9 symbol"),
        ("/a/b.so: cannot open", "b.so: cannot open"),
        (r"see C:\Users\someone\log.txt for it", "see log.txt for it"),
        ("see https://docs.nvidia.com/nsight/x.html", "see https://docs.nvidia.com/nsight/x.html"),
        ("I/O and read/write", "I/O and read/write"),
        ("two\nlines\tof it", "two lines of it"),
    ],
)
def test_paths_are_cut_to_the_names_of_files(text: str, expected: str) -> None:
    assert diagnostics.shortened(text) == expected


def test_a_library_that_nsys_could_not_trace_says_so(tmp_path: Path) -> None:
    said = [(WARNING, t) for t in (SYMBOLS, UNSUPPORTED, *HABITUAL)]
    found = host(capture(tmp_path / "c.sqlite", *said))
    assert found.missing["cuDNN"] == (
        "nsys could not trace it (Tracing cuDNN library version 91.9 is currently not supported)"
    )
    assert found.missing["cuBLAS"] == (
        "asked for; nsys recorded no call into cuBLAS and does not say whether it could"
    )
    assert capture_.warned(found) == []
    # Without the command that made it, too.
    assert host(tmp_path / "c.sqlite", ()).missing == {
        **host_.read(tmp_path / "c.sqlite").missing,
        "cuDNN": found.missing["cuDNN"],
    }


def test_the_reason_goes_as_far_as_the_sentence_that_gives_it(tmp_path: Path) -> None:
    found = host(capture(tmp_path / "c.sqlite", (WARNING, SYMBOLS)))
    assert found.missing["cuDNN"] == (
        "nsys could not trace it (cuDNN symbols found in libcudnn.so.9 symbol table. "
        "No cuDNN trace will be generated from that library)"
    )


def test_that_there_were_no_events_proves_no_failure_to_trace(tmp_path: Path) -> None:
    """TensorRT without cuDNN: nsys says what it says of every library that is never loaded."""
    found = host(capture(tmp_path / "c.sqlite", *((WARNING, t) for t in HABITUAL)))
    assert "does not say whether it could" in found.missing["cuDNN"]
    assert capture_.warned(found) == []


def test_what_was_not_asked_for_is_not_blamed_on_nsys(tmp_path: Path) -> None:
    path = capture(tmp_path / "c.sqlite", (WARNING, UNSUPPORTED))
    found = host(path, ["nsys", "profile", "--trace=cuda,nvtx"])
    assert found.missing["cuDNN"] == "not traced (--trace=cuda,nvtx)"


def test_a_library_that_was_traced_in_part_is_a_warning(tmp_path: Path) -> None:
    extra = (
        "create table CUDNN_EVENTS (start int, end int, globalTid int, nameId int);"
        "insert into CUDNN_EVENTS values (1, 2, 3, 10);"
    )
    found = host(capture(tmp_path / "c.sqlite", (WARNING, SYMBOLS), extra=extra))
    assert "cuDNN" not in found.missing
    (warning,) = capture_.warned(found)
    assert warning.startswith("nsys warned: cuDNN symbols found in libcudnn.so.9 symbol table.")


@pytest.mark.parametrize(
    ("severity", "text", "expected"),
    [
        (WARNING, "CUPTI buffers were exhausted.", "nsys warned: CUPTI buffers were exhausted"),
        (WARNING, "120 events were dropped.", "nsys warned: 120 events were dropped"),
        (ERROR, "Cannot attach.", "nsys reported an error: Cannot attach"),
        (WARNING, "CUDA device 0: Unified Memory trace is not supported.", None),
        (INFO, "Buffers will be flushed.", None),
    ],
)
def test_errors_and_lost_events_are_told(
    tmp_path: Path, severity: int, text: str, expected: str | None
) -> None:
    found = host(capture(tmp_path / "c.sqlite", (severity, text)))
    assert capture_.warned(found) == ([expected] if expected else [])


def test_many_are_counted_and_long_ones_are_cut(tmp_path: Path) -> None:
    said = [(ERROR, f"{n} lost" + " x" * 400) for n in range(25)]
    told = capture_.warned(host(capture(tmp_path / "c.sqlite", *said)))
    assert len(told) == 21 and told[-1] == "nsys said 5 more such things"
    assert max(map(len, told)) < 350 and told[0].endswith("…")


def test_the_ledger_says_once_what_a_capture_lost() -> None:
    said = "nsys warned: 120 events were dropped"
    view = precision_views.three_precisions()
    for side in view["sides"]:
        side["warned"] = [said]
    written = sentences.of(rendering.comparison(view))
    (found,) = [s for s in written if s.check == "capture by nsys"]
    assert (found.text, found.sides) == (f"{said}.", "every side")
    assert (found.tone, found.tabled) == ("none", False)


def test_what_nsys_says_of_two_captures_is_not_joined() -> None:
    view = precision_views.three_precisions()
    for side, number in zip(view["sides"], (120, 140), strict=False):
        side["warned"] = [f"nsys warned: {number} events were dropped"]
    written = sentences.of(rendering.comparison(view))
    assert {s.text: s.sides for s in written if s.check == "capture by nsys"} == {
        "nsys warned: 120 events were dropped.": "ONNX Runtime CUDA fp32",
        "nsys warned: 140 events were dropped.": "ONNX Runtime CUDA tf32",
    }


def test_versions_of_two_captures_are_no_range() -> None:
    view = precision_views.three_precisions()
    first, second, *rest = view["sides"]
    for side, version in ((first, "91.4"), (second, "91.9")):
        why = f"nsys could not trace it (version {version} is not supported)"
        side["host"] |= {"missing": {"cuDNN": why}}
    for side in rest:
        side["host"] = None
    written = sentences.of(rendering.comparison(view))
    told = {s.text: s.sides for s in written if "unknown" in s.text}
    assert told == {
        "cuDNN is unknown: nsys could not trace it (version 91.4 is not supported).":
            "ONNX Runtime CUDA fp32",
        "cuDNN is unknown: nsys could not trace it (version 91.9 is not supported).":
            "ONNX Runtime CUDA tf32",
    }  # fmt: skip


@pytest.mark.parametrize("form", ["sqlite", "parquet", "arrow file", "arrow stream"])
def test_every_export_has_them_as_notes(tmp_path: Path, form: str) -> None:
    path = capture(tmp_path / "c.sqlite", (WARNING, HABITUAL[0]), (ERROR, "It failed."))
    found = registry.read(path if form == "sqlite" else convert(path, tmp_path / "c", form))
    assert found.notes[-2:] == [
        "nsys warned: Not all CUDA events might have been collected",
        "nsys reported an error: It failed",
    ]


def test_a_parquet_export_whose_texts_are_all_null_says_nothing(
    tmp_path: Path,
) -> None:
    path = capture(tmp_path / "c.sqlite", (WARNING, None))
    found = registry.read(convert(path, tmp_path / "c", "parquet"))
    assert found.main.num_rows == 1
    assert not any("nsys warned" in n for n in found.notes)


def test_scrub_leaves_the_reason_and_takes_the_person(tmp_path: Path) -> None:
    home = "/home/" + "j.secret"
    mine = UNSUPPORTED.replace("/opt/tool dir", home)
    path = capture(tmp_path / "c.sqlite", (WARNING, mine), (WARNING, SYMBOLS))
    before = host(path)
    out, _ = pipeline.scrub(path, tmp_path / "out.sqlite")
    assert b"j.secret" in path.read_bytes() and b"j.secret" not in out.read_bytes()
    assert host(out).missing == before.missing
    assert registry.read(out).notes == registry.read(path).notes
    assert not any("/" in n for n in registry.read(path).notes if n.startswith("nsys warned"))
