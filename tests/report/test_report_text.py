"""report.md and layers.csv: the same content as text."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
import rendering
import report_views as views
from markdown_it import MarkdownIt

from layerline.analysis import formatting
from layerline.analysis.report import markdown, tables_csv
from layerline.analysis.report.screen import screens
from layerline.core.accuracy.limits import Verdict

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
    assert text.index(view["headline"][0]["text"]) < text.index("## Can it be believed")
    assert "deeper rows are in index.html" in text
    assert f"{len(view['layers']) - markdown.LAYERS_SHOWN:,} more are in layers.csv" in text
    assert "4.91 – 5.03 ms, n 120" in rendering.markdown(views.gpt2())
    assert "? not checked" in text


def test_markdown_of_a_failed_check() -> None:
    text = rendering.markdown(views.failing())
    assert "✗ does not add up" in text and "✗ ONNX Runtime fp32, check ii: 900 µs" in text


def test_one_side_alone_has_no_heading_of_comparisons() -> None:
    view = views.one_side() | {"headline": [{"text": "It takes 4 ms.", "tone": "neutral"}]}
    text = rendering.markdown(view)
    assert "## In words\n" in text and "All comparisons" not in text


def test_markdown_has_the_order_of_the_page() -> None:
    view = views.gpt2(2)
    text, page = rendering.markdown(view), rendering.html(view)
    sections = ("Modules", "Kinds", "Layers", "All comparisons", "Can it be believed")
    assert sorted(sections, key=lambda s: text.index(f"## {s}\n")) == [*sections]
    assert sorted(sections, key=lambda s: page.index(f">{s}</h2>")) == [*sections]
    assert text.index(screens.of(rendering.comparison(view))[0].answer.text) < text.index(
        "## Modules"
    )


def test_markdown_fits_into_a_comment_however_large_the_model() -> None:
    assert len(rendering.markdown(views.gpt2(200))) < 65_536


@pytest.mark.parametrize("which", ALL)
def test_the_summary_has_few_lines(which: str) -> None:
    view = getattr(views, which)()
    text = markdown.summary(rendering.comparison(view), rendering.headline(view))
    assert 0 < len(text.splitlines()) <= 25
    assert text.encode("utf-8", "surrogatepass") and "<script" not in text


def test_csv_keeps_names_lists_and_unknowns() -> None:
    view = views.hostile()
    text = tables_csv.layers(rendering.comparison(view))
    text.encode("utf-8")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert list(rows[0])[: len(tables_csv.LAYERS)] == list(tables_csv.LAYERS)
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


def test_csv_tells_how_a_layers_modules_compare_with_every_other_side() -> None:
    found = rendering.comparison(views.gpt2(1))
    rows = list(csv.DictReader(io.StringIO(tables_csv.layers(found))))
    (head,) = (r for r in rows if r["layer"] == "lm_head/MatMul" and r["side"] == views.FP16)
    assert json.loads(head["compared_modules"]) == ["lm_head"]
    # 690 µs · 0.83 in fp16, 720 µs · 0.97 in eager, 690 µs in fp32.
    for key, other in ((views.EAGER, 698_400), (views.FP32, 690_000)):
        ends = [head[f"difference_{end}_ns from {key}"] for end in ("low", "high")]
        assert [int(ns) for ns in ends] == [572_700 - other] * 2
        ratios = [head[f"ratio_{end} to {key}"] for end in ("low", "high")]
        assert [float(r) for r in ratios] == pytest.approx([other / 572_700] * 2)
    assert head[f"ratio_low to {views.FP16}"] == ""
    # A layer fused over two modules is compared with what these take together.
    fused = next(r for r in rows if "c_fc" in r["layer"] and "act" in r["layer"])
    assert {m.rpartition(".")[2] for m in json.loads(fused["compared_modules"])} == {"c_fc", "act"}
    assert fused[f"ratio_low to {views.EAGER}"] == fused[f"ratio_high to {views.EAGER}"] != ""


def test_csv_compares_nothing_with_a_wrong_engine() -> None:
    found = rendering.comparison(views.gpt2(1))
    wrong = [
        replace(s, outputs=Verdict(False, "why")) if s.key == views.FP16 else s for s in found.sides
    ]
    rows = list(csv.DictReader(io.StringIO(tables_csv.layers(replace(found, sides=wrong)))))
    assert not [c for c in rows[0] if c.endswith(views.FP16)]
    of_wrong = [r for r in rows if r["side"] == views.FP16]
    assert of_wrong and all(r[f"ratio_low to {views.EAGER}"] == "" for r in of_wrong)
