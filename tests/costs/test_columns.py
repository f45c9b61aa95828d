"""What is known of modules beside their times: sums over subtrees, and nothing made up."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import rendering
from run_by_hand import outcome, write_run

from layerline.analysis import pipeline
from layerline.analysis.costs import columns
from layerline.analysis.report import summary_json
from layerline.analysis.rundir import age
from layerline.core.run import Run
from layerline.core.tables import table, write_parquet


def changed(*rows: tuple[str, int | None, int | None]) -> pa.Table:
    modules, elements, changes = zip(*rows, strict=True)
    columns = {"module": list(modules), "elements": list(elements), "changed": list(changes)}
    numbers = {
        "source": ["s"] * len(rows),
        "step": [0] * len(rows),
        "index": list(range(len(rows))),
    }
    return table("parameters", {**columns, **numbers})


def test_a_module_has_what_is_in_it() -> None:
    column = columns.hotness("fp32", changed(("a.b", 10, 5), ("a.c", 30, 0), ("d", 10, 10)))
    assert column.values == {
        "": 15 / 50, "a": 5 / 40, "a.b": 0.5, "a.c": 0.0, "d": 1.0,
    }  # fmt: skip


def test_what_is_not_known_is_not_counted_as_unchanged() -> None:
    column = columns.hotness("fp32", changed(("a", 10, 5), ("a", 10, None), ("b", 10, None)))
    assert column.values == {"a": 0.5, "": 0.5}


def test_memory_is_that_of_the_peak() -> None:
    assert columns.memory("fp32", {"a.b": 3, "a": 4, "c": 5}).values == {
        "": 12, "a": 7, "a.b": 3, "c": 5,
    }  # fmt: skip


def memory(*rows: tuple[int | None, str, int, str | None], source: str = "s") -> pa.Table:
    columns = ("iteration", "action", "bytes", "module")
    return table("memory", [{"source": source, **dict(zip(columns, r, strict=True))} for r in rows])


STEP = (
    ("alloc", 5, "a"), ("alloc", 4, None), ("free_requested", 5, "a"), ("free_completed", 5, "a"),
    ("free_requested", 4, None),
)  # fmt: skip


def test_the_peak_counts_what_was_there_before() -> None:
    rows = [(None, "before", 7, "w"), *((0, *r) for r in STEP)]
    assert columns.peak(memory(*rows)) == {"w": 7, "a": 5, "unknown": 4}


def test_of_equal_peaks_the_last_step_has_it() -> None:
    rows = [(None, "before", 7, "w"), *((0, *r) for r in STEP), (1, "alloc", 9, "b")]
    assert columns.peak(memory(*rows)) == {"w": 7, "b": 9}


def test_precisions_of_one_table_are_told_apart_and_ranks_after_the_first_left_out(
    tmp_path: Path,
) -> None:
    write_run(tmp_path)
    run = Run(tmp_path)
    parts = [
        memory((0, "alloc", size, "a"), source=f"train.{side}.memory.pickle")
        for side, size in (("fp32.rank0000", 4), ("fp32.rank0001", 9), ("bf16", 2))
    ]
    write_parquet(run.file("tables", "memory.parquet"), pa.concat_tables(parts))
    found = {c.precision: c.values for c in pipeline.analyse(run).comparison.columns}
    assert found == {"fp32": {"a": 4, "": 4}, "bf16": {"a": 2, "": 2}}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    write_run(tmp_path)
    return Run(tmp_path)


def test_a_run_without_such_captures_has_no_column(run: Run) -> None:
    comparison = pipeline.analyse(run).comparison
    assert comparison.columns == []
    assert "changed in a step" not in rendering.html(comparison)
    assert "columns" not in summary_json.summary(comparison, [], [])


def test_columns_stand_in_page_and_text(run: Run) -> None:
    write_parquet(run.file("captures", "train.fp32.parameters.parquet"), changed(("a", 8, 2)))
    comparison = pipeline.analyse(run).comparison
    assert [(c.title, c.values) for c in comparison.columns] == [
        ("changed in a step", {"a": 0.25, "": 0.25})
    ]
    text = rendering.markdown(comparison)
    row = next(line for line in text.splitlines() if line.startswith("| · `a` "))
    assert row.rstrip("| ").endswith("25.0 %")
    assert "25.0 %" in rendering.html(comparison)


def test_a_report_is_made_again_when_memory_was_explained_since(run: Run) -> None:
    assert outcome("report", run.path) == 0
    page = run.file("report", "report.md")
    assert "memory at the peak" not in page.read_text()
    made = memory((0, "alloc", 4, "a"), source="train.fp32.memory.pickle")
    write_parquet(run.file("tables", "memory.parquet"), made)
    age.check(run)  # others may still read the report: it is of the same captures
    assert outcome("report", run.path) == 0
    assert "memory at the peak" in page.read_text()
    before = page.stat().st_mtime_ns
    assert outcome("report", run.path) == 0 and page.stat().st_mtime_ns == before


def test_a_table_that_cannot_be_used_is_listed_and_leaves_the_rest(run: Run) -> None:
    run.file("captures", "train.fp32.parameters.parquet").write_bytes(b"no table")
    comparison = pipeline.analyse(run).comparison
    assert comparison.columns == [] and len(comparison.sides) == 2
    assert any(s.file == "captures/train.fp32.parameters.parquet" for s in comparison.skipped)
