"""What is known of modules beside their times: sums over subtrees, and nothing made up."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import rendering
from run_by_hand import write_run

from layerline.analysis import pipeline
from layerline.analysis.costs import columns
from layerline.analysis.report import summary_json
from layerline.core.run import Run
from layerline.core.tables import write_parquet


def changed(*rows: tuple[str, int | None, int | None]) -> pa.Table:
    modules, elements, changes = zip(*rows, strict=True)
    return pa.table(
        {
            "module": list(modules),
            "elements": pa.array(elements, pa.int64()),
            "changed": pa.array(changes, pa.int64()),
            "source": ["s"] * len(rows),
            "step": [0] * len(rows),
            "index": list(range(len(rows))),
        }
    )


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


def test_a_table_that_cannot_be_used_is_listed_and_leaves_the_rest(run: Run) -> None:
    run.file("captures", "train.fp32.parameters.parquet").write_bytes(b"no table")
    comparison = pipeline.analyse(run).comparison
    assert comparison.columns == [] and len(comparison.sides) == 2
    assert any(s.file == "captures/train.fp32.parameters.parquet" for s in comparison.skipped)
