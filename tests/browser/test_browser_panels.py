"""Eighteen sides on the page: a precision at a time, by mouse, by keyboard and by address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import precision_views as views
import pytest
import rendering

pytestmark = pytest.mark.browser
Show = Callable[..., Any]
LEDGER = "#b-latency .panel:not([hidden]) .ledger thead .name"
WIDTHS = """() => [...document.querySelectorAll(".scroll")].filter((e) => e.offsetParent)
    .map((e) => [e.closest("section").id, e.scrollWidth - e.clientWidth])"""


def _labels(precision: str) -> list[str]:
    return [
        f"ONNX Runtime CUDA {precision}",
        f"TensorRT {precision}",
        f"eager {precision}",
        f"eager {precision} forward",
        f"eager {precision} backward",
        f"eager {precision} training step",
    ]


def _heads(page: Any, selector: str) -> list[str]:
    return [t.strip() for t in page.locator(selector).all_text_contents()]


def _columns(page: Any) -> dict[str, list[str]]:
    return {
        "ledger": _heads(page, LEDGER),
        "modules": _heads(page, "#tree thead .name"),
        "kinds": _heads(page, "#kinds table:visible thead .name"),
    }


def test_one_precision_is_shown_at_a_time_everywhere(show: Show) -> None:
    page = show(rendering.html(views.three_precisions())).page
    for precision in ("fp16", "fp32", "tf32"):
        page.get_by_label(precision, exact=True).check(force=True)
        assert set(map(tuple, _columns(page).values())) == {tuple(_labels(precision))}
        assert page.url.endswith(f"#{precision}")
    # tf32: a is 2 units of 4 µs for ONNX Runtime and of 2 µs for TensorRT.
    cells = page.locator("#tree tbody tr").filter(has_text="Linear").first.locator("td .num")
    assert cells.all_inner_texts()[:3] == ["8.00 µs", "4.00 µs", "16.0 µs"]


def test_the_switch_is_reached_and_moved_by_keys(show: Show) -> None:
    page = show(rendering.html(views.three_precisions())).page
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == "precision":
            break
    assert page.evaluate("document.activeElement.value") == "fp32"
    page.keyboard.press("ArrowRight")
    assert _heads(page, LEDGER) == _labels("tf32")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert _heads(page, LEDGER) == _labels("fp32")
    outline = "getComputedStyle(document.activeElement.nextElementSibling).outlineStyle"
    assert page.evaluate(outline) == "solid"


@pytest.mark.parametrize("section", ["ledger", "modules", "kinds"])
def test_an_address_leads_to_a_precision_and_a_section(show: Show, section: str) -> None:
    page = show(rendering.html(views.three_precisions()), reduced_motion="reduce").page
    page.evaluate(f"window.location.hash = '{section}-fp16'")
    page.wait_for_function("document.querySelector('#precision input[value=fp16]').checked")
    assert _columns(page)["modules"] == _labels("fp16")
    top = page.locator(f"#{section}").evaluate("e => e.getBoundingClientRect().top")
    last = page.evaluate("scrollY + innerHeight >= document.documentElement.scrollHeight - 1")
    assert 0 <= top < 200 or last
    page.evaluate("window.location.hash = 'fp32'")
    page.wait_for_function("document.querySelector('#precision input[value=fp32]').checked")
    page.evaluate("window.location.hash = 'nothing-fp16'")
    assert _columns(page)["ledger"] == _labels("fp32")


def test_a_page_opened_at_an_address_shows_that_precision(show: Show) -> None:
    opened = show(rendering.html(views.three_precisions()))
    page = opened.page
    page.goto("about:blank")
    page.goto(f"{opened.url}#ledger-tf32")
    del opened.requests[1:]
    assert _heads(page, LEDGER) == _labels("tf32")


def test_six_columns_fit_without_scrolling_and_the_first_stays(show: Show) -> None:
    page = show(rendering.html(views.three_precisions())).page
    for width in (1280, 390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.set_viewport_size({"width": 1280, "height": 900})
    assert [w for w in page.evaluate(WIDTHS) if w[1] > 0] == []
    page.set_viewport_size({"width": 390, "height": 900})
    page.locator("#b-latency summary").click()
    scroll = page.locator("#b-latency .scroll:visible")
    first = scroll.locator("tbody th").first
    before = first.bounding_box()["x"]
    scroll.evaluate("e => { e.scrollLeft = 300; }")
    assert scroll.evaluate("e => e.scrollLeft") == 300
    assert abs(first.bounding_box()["x"] - before) < 1


def test_columns_of_another_precision_can_be_added(show: Show) -> None:
    page = show(rendering.html(views.three_precisions())).page
    page.locator(".columns summary").click()
    page.get_by_label("TensorRT fp16", exact=True).check()
    assert _heads(page, "#tree thead .name") == [*_labels("fp32"), "TensorRT fp16"]
    page.get_by_label("tf32", exact=True).check(force=True)
    assert _heads(page, "#tree thead .name") == _labels("tf32")


def test_no_word_and_no_figure_is_broken_in_a_narrow_column(show: Show) -> None:
    """A text node that is one word or one figure has one line box."""
    view = views.three_precisions()
    for s in view["sides"]:
        view["layers"].append(
            {
                "id": s["key"],
                "side": s["key"],
                "layer": "transformer.h.11.mlp.c_proj/Gemm_matrix_multiply_and_a_long_name",
                "kind": "compute",
                "rule": "elimination",
                "nodes": [],
                "modules": ["a"],
                "calls": 10,
                "kernels": 10,
                "time": {"median": 123_456, "low": 120_000, "high": 130_000, "n": 100},
                "share": 0.123,
                "precision_in": "fp32",
                "precision_out": "fp16",
                "compute_precision": "tf32",
                "tactic": "CUDAExecutionProvider",
            }
        )
    page = show(rendering.html(view)).page
    broken = page.evaluate(
        """() => {
          const found = [];
          for (const cell of document.querySelectorAll("td")) {
            if (!cell.offsetParent) continue;
            const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
            while (walker.nextNode()) {
              const node = walker.currentNode;
              for (const word of node.data.matchAll(/[^ ,;]+/g)) {
                const range = document.createRange();
                range.setStart(node, word.index);
                range.setEnd(node, word.index + word[0].length);
                if (range.getClientRects().length > 1) found.push(word[0]);
              }
            }
          }
          return found;
        }"""
    )
    assert broken == []


def test_without_javascript_every_precision_is_there_under_its_name(show: Show) -> None:
    page = show(rendering.html(views.three_precisions()), java_script_enabled=False).page
    for section in ("b-latency", "modules", "kinds"):
        heads = _heads(page, f"#{section} h3")
        assert heads == ["fp32", "tf32", "fp16"]
        assert page.locator(f"#{section} table").count() == 3
    assert not page.locator("#precision").is_visible()
    every = [label for p in ("fp32", "tf32", "fp16") for label in _labels(p)]
    assert _heads(page, "#modules thead .name") == every
    page.locator("#b-latency summary").click()
    assert page.locator("#b-latency .panel:visible").count() == 3
