"""report.md and layers.csv: the same content as text."""

from __future__ import annotations

import csv
import io
import json
from html import unescape
from typing import Any

import pytest
import rendering
import report_views as views
from markdown_it import MarkdownIt

from layerline.analysis import formatting
from layerline.analysis.report import markdown, tables_csv

ALL = ("gpt2", "failing", "one_side", "empty", "hostile")


def _tokens(text: str) -> list[Any]:
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)


@pytest.mark.parametrize("which", ALL)
def test_markdown_has_no_markup_from_names(which: str) -> None:
    kinds = set()
    for token in _tokens(rendering.markdown(getattr(views, which)())):
        kinds.add(token.type)
        kinds |= {t.type for t in token.children or []}
    assert not kinds & {
        "html_block",
        "html_inline",
        "link_open",
        "image",
        "em_open",
        "s_open",
        "fence",
        "code_block",
        "blockquote_open",
        "ordered_list_open",
    }


@pytest.mark.parametrize("which", ALL)
def test_every_row_of_a_markdown_table_has_all_its_cells(which: str) -> None:
    width, cells, rows = 0, 0, 0
    for line in rendering.markdown(getattr(views, which)()).split("\n"):
        if line.startswith("|"):
            bars = line.replace("\\|", "").count("|")
            width = width or bars
            assert bars == width, line
        else:
            width = 0
    for token in _tokens(rendering.markdown(getattr(views, which)())):
        rows += token.type == "tr_open"
        cells += token.type in ("td_open", "th_open")
    assert (rows == 0) == (cells == 0)


def test_a_hostile_name_reads_as_itself() -> None:
    for name in (*views.HOSTILE[:-1], "h.0/Add || h.1/Mul", "| a |"):
        table = f"| a | b |\n| --- | --- |\n| {markdown.code(name)} | {markdown.escaped(name)} |\n"
        found = [
            "".join(t.content for t in token.children)
            for token in _tokens(table)
            if token.type == "inline"
        ][2:]
        assert [unescape(f) for f in found] == [formatting.visible(name)] * 2


def test_markdown_says_the_answer_first_and_what_it_left_out() -> None:
    view = views.gpt2(48)
    text = rendering.markdown(view)
    assert text.index(view["headline"][0]["text"]) < text.index("## Ledger")
    assert "deeper rows are in index.html" in text
    assert f"{len(view['layers']) - markdown.LAYERS_SHOWN:,} more are in layers.csv" in text
    assert "4.91 – 5.03 ms, n 120" in rendering.markdown(views.gpt2())
    assert "? not checked" in text


def test_markdown_of_a_failed_check() -> None:
    text = rendering.markdown(views.failing())
    assert "✗ does not add up" in text and "✗ ONNX Runtime fp32, check ii: 900 µs" in text


def test_csv_keeps_names_lists_and_unknowns() -> None:
    view = views.hostile()
    text = tables_csv.layers(rendering.comparison(view))
    text.encode("utf-8")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert list(rows[0]) == list(tables_csv.LAYERS)
    for row, name in zip(rows, views.HOSTILE, strict=True):
        written = name.replace("\ud800", "\\ud800")
        assert row["layer"] == written
        assert json.loads(row["nodes"]) == [name]
        assert row["kernels"] == "" and row["share"] == ""  # null and NaN
        assert row["source"] == views.HOSTILE[2] and row["engine"] == "onnxruntime"


def test_csv_has_integer_nanoseconds() -> None:
    view = views.gpt2(1)
    rows = list(csv.DictReader(io.StringIO(tables_csv.layers(rendering.comparison(view)))))
    assert [int(r["median_ns"]) for r in rows] == [r["time"]["median"] for r in view["layers"]]
    assert len(rows) == len(view["layers"])
