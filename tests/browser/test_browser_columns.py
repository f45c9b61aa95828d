"""What is known of modules beside their times, as columns of the tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rendering
from run_by_hand import write_run

from layerline.analysis import pipeline
from layerline.core.run import Run
from layerline.core.tables import table, write_parquet

pytestmark = pytest.mark.browser
HEADS = "#tree thead th"


def page_of(show: Any, folder: Path, changed: dict[str, int]) -> Any:
    write_run(folder)
    if changed:
        rows = table(
            "parameters",
            {
                "module": list(changed),
                "elements": [100] * len(changed),
                "changed": list(changed.values()),
                "source": ["s"] * len(changed),
                "step": [0] * len(changed),
                "index": list(range(len(changed))),
            },
        )
        write_parquet(folder / "captures/train.fp16.parameters.parquet", rows)
    return show(rendering.html(pipeline.analyse(Run(folder)).comparison)).page


def known(page: Any) -> list[str]:
    """The last column of the rows that have something there, as they are shown."""
    texts = page.locator("#tree tbody tr.module td:last-child").all_inner_texts()
    return [t.strip() for t in texts if t.strip() not in ("", "–")]


def test_a_column_is_there_where_something_is_known_and_sorts(show: Any, tmp_path: Path) -> None:
    page = page_of(show, tmp_path, {"a": 10, "b": 90})
    heads = page.locator(HEADS).all_inner_texts()
    assert "changed in a step" in heads[-1]
    assert known(page) == ["50.0 %", "10.0 %", "90.0 %"]
    page.locator(HEADS).last.locator("button").click()
    assert page.locator(HEADS).last.get_attribute("aria-sort") == "descending"
    assert known(page) == ["50.0 %", "90.0 %", "10.0 %"]


def test_without_it_there_is_no_column(show: Any, tmp_path: Path) -> None:
    page = page_of(show, tmp_path, {})
    assert not any("changed" in h for h in page.locator(HEADS).all_inner_texts())
