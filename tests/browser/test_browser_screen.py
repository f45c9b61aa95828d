"""The first screen in a browser: all of the answer without scrolling, by mouse and by keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rendering
import report_views as views
from h100_tiny import write_run as write_h100
from run_by_hand import write_run as write_by_hand

from layerline.analysis import pipeline
from layerline.core.files import read_json, write_json
from layerline.core.run import Run

pytestmark = pytest.mark.browser
Show = Callable[..., Any]
BOX = "#icicles g.cell-box"
FOCUS = "document.activeElement.getAttribute('aria-label')"


@pytest.fixture(scope="module")
def h100(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of two TensorRT engines of a GPT-2 of two blocks, captured on an H100."""
    folder = tmp_path_factory.mktemp("h100")
    return rendering.html(pipeline.analyse(write_h100(folder)).comparison)


def by_hand(folder: Path) -> str:
    write_by_hand(folder)
    return rendering.html(pipeline.analyse(Run(folder)).comparison)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_answer_waterfall_and_icicles_need_no_scrolling(show: Show, h100: str, scheme: str) -> None:
    page = show(h100, color_scheme=scheme).page
    page.set_viewport_size({"width": 1280, "height": 800})
    for part in ("h1", ".chips >> nth=0", ".waterfall >> nth=0", "#icicles"):
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= 800, part
    assert page.locator("#words").bounding_box()["y"] >= 795
    assert len(page.locator("h1").inner_text().split()) <= 15
    page.set_viewport_size({"width": 390, "height": 844})
    tops = [page.locator(p).bounding_box()["y"] for p in ("h1", ".waterfall >> nth=0", "#icicles")]
    assert tops == sorted(tops)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_both_icicles_have_one_scale(show: Show, h100: str) -> None:
    page = show(h100).page
    widths = page.locator("#icicles svg[role=group]").evaluate_all(
        "all => all.map(s => s.querySelector('g.cell-box rect').getBoundingClientRect().width)"
    )
    # 71,329 and 57,569 ns of kernels.
    assert widths[1] / widths[0] == pytest.approx(57_569 / 71_329, rel=0.01)


def test_a_fused_layer_is_drawn_once_and_hatched(show: Show, h100: str) -> None:
    page = show(h100).page
    (first, _) = page.locator("#icicles svg[role=group]").all()
    labels = first.locator("g.fused").evaluate_all("all => all.map(g => g.ariaLabel)")
    # Of the embedding, between the blocks, inside them and at the end.
    assert len(labels) == len(set(labels)) == 5
    assert first.locator("g.fused .stripes").count() == 5


def test_a_module_is_lit_on_both_sides_and_said(show: Show, h100: str) -> None:
    page = show(h100).page
    page.locator(f"{BOX}.module", has_text="attn").first.hover()
    assert page.locator(f"{BOX}.module.lit").count() == 2
    said = page.locator("#icicle-said").inner_text()
    assert said.startswith("transformer.h.0.attn TensorRT fp32 18.1 µs") and "TensorRT fp16" in said


def test_by_keys_alone_from_the_answer_into_a_module_and_back(show: Show, h100: str) -> None:
    page = show(h100).page
    for _ in range(60):
        page.keyboard.press("Tab")
        if "cell-box" in (page.evaluate("document.activeElement.getAttribute('class')") or ""):
            break
    assert page.evaluate(FOCUS).startswith("model, ")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUS).startswith("h.0, ")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUS).startswith("h.1, ")
    page.keyboard.press("Enter")
    assert page.locator("#icicle-path").inner_text() == "model › h.1"
    assert page.evaluate(FOCUS).startswith("h.1, ")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUS).startswith("attn, ")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Escape")
    assert page.locator("#icicle-path").inner_text() == ""
    page.locator("#icicle-colour").select_option("difference")
    assert page.locator(f"{BOX}.d1, {BOX}.d2").count() > 10


def test_a_chip_opens_its_evidence(show: Show, h100: str) -> None:
    page = show(h100, reduced_motion="reduce").page
    page.locator(".chips a", has_text="not settled").first.click()
    assert page.locator("#b-latency").get_attribute("open") is not None
    assert 0 <= page.locator("#b-latency").bounding_box()["y"] < 800


def test_a_bar_leads_to_its_module_in_the_tree(show: Show, h100: str) -> None:
    page = show(h100, reduced_motion="reduce").page
    page.locator(".waterfall a.step", has_text="mlp").click()
    row = page.locator("#tree tbody tr:focus")
    row.wait_for()
    assert row.locator(".name").first.get_attribute("title") == "transformer.h.0.mlp"


def test_wrong_outputs_leave_no_ratio_on_the_screen(show: Show, tmp_path: Path) -> None:
    write_by_hand(tmp_path)
    path = tmp_path / "captures/fp16.onnxruntime.accuracy.json"
    write_json(path, {**read_json(path), "cosine": 0.5})
    page = show(rendering.html(pipeline.analyse(Run(tmp_path)).comparison)).page
    screen = page.locator("#answer").inner_text()
    assert page.locator("h1").inner_text() == "ONNX Runtime fp16 does not compute tiny"
    assert "×" not in screen and "--plan" in screen and "outputs wrong" in screen
    colour = "e => getComputedStyle(e).color"
    assert page.locator("h1").evaluate(colour) == page.locator(".chips .bad a").first.evaluate(
        colour
    )
    # The time of what it was held against is all that is drawn.
    assert page.locator("#icicles svg[role=group]").count() == 1


def test_another_comparison_is_chosen_and_the_tree_follows(show: Show) -> None:
    page = show(rendering.html(views.gpt2(2))).page
    head = page.locator("#tree thead th").nth(1)
    assert head.get_attribute("title") == "ONNX Runtime fp32 against Eager fp32"
    page.select_option("#screen", "1")
    assert "ONNX Runtime fp16" in page.locator(".answer:visible .h1").inner_text()
    assert head.get_attribute("title") == "ONNX Runtime fp16 against Eager fp32"
    row = page.locator("#tree tbody tr").filter(has_text="lm_head").first
    # 690 µs · 0.83 of the engine, 720 µs · 0.97 of eager.
    assert row.locator("td.change").all_inner_texts() == ["−126\N{NO-BREAK SPACE}µs", "1.22×"]


def test_any_two_sides_are_compared_module_by_module(show: Show) -> None:
    page = show(rendering.html(views.gpt2(2))).page
    page.select_option("#tree-under", label="Eager fp32 forward")
    page.select_option("#tree-over", label="Eager fp32 backward")
    head = page.locator("#tree thead th").nth(1)
    assert head.get_attribute("title") == "Eager fp32 forward against Eager fp32 backward"
    row = page.locator("#tree tbody tr").filter(has_text="lm_head").first
    backward, forward = (row.locator("td:not(.change) .num").nth(i).inner_text() for i in (4, 3))
    assert (forward, backward) == ("720 µs", "1.43 ms")
    # 1.425 ms of backward over 720 µs of forward.
    found = row.locator("td.change").all_inner_texts()
    assert found == ["−710\N{NO-BREAK SPACE}µs", "1.99×"]
    page.select_option("#tree-over", "")
    assert page.locator("#tree td.change").count() == 0
    page.select_option("#screen", "1")  # the first screen's two sides again
    assert head.get_attribute("title") == "ONNX Runtime fp16 against Eager fp32"


def test_a_difference_sorts_and_stands_first(show: Show) -> None:
    page = show(rendering.html(views.gpt2(2))).page
    inside = ["wte", "wpe", "drop", "h", "ln_f"]
    page.locator("#tree thead th").nth(1).locator("button").click()
    names = [n.strip() for n in page.locator("#tree tbody tr th .name").all_inner_texts()]
    assert [n for n in names if n in inside] == ["h", "ln_f", "wte", "wpe", "drop"]


def test_fifty_thousand_layers_are_scrolled_through_few_rows(show: Show) -> None:
    view = views.one_side()
    one = view["layers"][0]
    view["layers"] = [
        {**one, "id": str(i), "layer": f"layer {i}", "nodes": [], "modules": []}
        for i in range(50_000)
    ]
    for i, row in enumerate(view["layers"]):
        row["time"] = {"median": 10**6 - i, "low": None, "high": None, "n": 1}
    for m in view["modules"]:
        m["layers"] = []
    view["nodes"] = []
    page = show(rendering.html(view)).page
    box = page.locator("#layers .window")
    rows = page.locator("#layer-table tbody tr:not(.space)")
    assert rows.first.locator("th .name").inner_text() == "layer 0" and rows.count() < 150
    # Rows that stay in sight are the same elements; what scrolling adds is what came into sight.
    page.evaluate(
        """() => {
          window.added = 0;
          const body = document.querySelector("#layer-table tbody");
          window.first = body.rows[6];
          new MutationObserver((all) => {
            for (const m of all) window.added += m.addedNodes.length;
          }).observe(body, { childList: true });
        }"""
    )
    tall = page.locator("#layer-table tbody tr:not(.space)").first.bounding_box()["height"]
    box.evaluate(f"e => {{ e.scrollTop = {5 * tall}; }}")
    page.wait_for_timeout(200)
    assert page.evaluate("window.first.isConnected") and 0 < page.evaluate("window.added") < 20
    for share in (0.5, 1):
        box.evaluate(f"e => {{ e.scrollTop = {share} * e.scrollHeight; }}")
        page.wait_for_timeout(200)
        assert rows.count() < 60
    assert rows.last.locator("th .name").inner_text() == "layer 49999"
    page.fill("#layer-filter", "layer 4321")
    assert page.locator("#layer-count").inner_text() == "11 of 50000 layers"
