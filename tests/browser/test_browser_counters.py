"""Counters on the page: drilled from a module to its kernel, sorted, drawn, on a phone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import counted_views as views
import pytest
import rendering

pytestmark = pytest.mark.browser
Show = Callable[..., Any]
TREE = "#tree tbody tr[data-key]"


def test_a_layer_opens_to_its_kernel_and_what_bounds_it(show: Show) -> None:
    view = views.counted_view()
    for m in view["modules"]:
        m["layers"] = [r["id"] for r in view["layers"] if r["modules"] == [m["path"]]]
    page = show(rendering.html(view)).page
    page.locator("#tree-more").click()
    page.locator("#tree-more").click()
    module = page.locator(TREE).filter(has=page.locator('.name[title="h.0.fc"]')).first
    assert "tensor, 62.5 %" in module.inner_text()
    module.click()
    layer = page.locator(f"{TREE}.layer").filter(has_text="Gemm").first
    assert "tensor, 62.5 %" in layer.inner_text()
    layer.click()
    kernel = page.locator(f"{TREE}.kernel").first.inner_text()
    assert "gemm" in kernel and "tensor-bound, 62.5 % of the tensor peak" in kernel


def test_layers_sort_by_what_is_reached_of_the_peak(show: Show) -> None:
    page = show(rendering.html(views.counted_view())).page
    heads = page.locator("#layer-table thead th").all_inner_texts()
    at = next(i for i, h in enumerate(heads) if h.startswith("Of peak"))
    page.locator("#layer-table thead th").nth(at).locator("button").click()
    cells = page.locator(f"#layer-table tbody tr td:nth-child({at + 1})").all_inner_texts()
    assert cells == ["80.0 %", "80.0 %", "62.5 %", "56.8 %", "5.0 %", "5.0 %"]
    page.locator("#layer-table .open").first.click()
    detail = page.locator("#layer-table tr.detail").inner_text()
    assert "memory-bound, 80.0 % of the DRAM bandwidth" in detail
    assert "executed IPC 1.50" in detail and "issue slots busy 40.0 %" in detail


def test_the_roofline_is_drawn_and_the_page_fits(show: Show) -> None:
    page = show(rendering.html(views.counted_view()), color_scheme="dark").page
    for width in (1280, 390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    circles = page.locator("#why svg circle")
    assert circles.count() == 2
    assert "tensor-bound" in circles.first.locator("title").text_content()
    assert "run ncu as root" in page.locator("#why .refused").inner_text()


def test_without_javascript_the_section_is_whole(show: Show) -> None:
    page = show(rendering.html(views.counted_view()), java_script_enabled=False).page
    assert page.locator("#why table tbody tr").count() == 8
    assert page.locator("#why svg circle").count() == 2
