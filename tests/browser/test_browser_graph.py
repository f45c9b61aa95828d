"""The graph of modules in a browser: readable at 1280 px, and its links open the report's tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rendering
import report_views as views
from resolve_graphs import graph

from layerline.analysis.graph import svg
from layerline.analysis.graph.contract import contracted
from layerline.core.nodes import NodeGraph

pytestmark = pytest.mark.browser

LONG = "post_attention_layer_norm_WITH_WIDE_LETTERS_WWWW"
OVERFLOWING = """() => [...document.querySelectorAll("g.box")].filter((g) => {
  const room = g.querySelector("rect").getBBox();
  return [...g.querySelectorAll("text")].some((t) => t.getBBox().width > room.width - 2);
}).map((g) => g.textContent)"""


def model() -> NodeGraph:
    nodes = [("model.word_embeddings/Gather", ["x"], ["t0"])]
    for i in range(12):
        at = f"model.encoder.layer.{i}"
        nodes += [
            (f"{at}.{LONG}/LayerNormalization", [f"t{i}"], [f"n{i}"]),
            *((f"{at}.attn.{p}/MatMul", [f"n{i}"], [f"{p}{i}"]) for p in ("query", "key", "value")),
            (f"{at}.attn/Attention", [f"{p}{i}" for p in ("query", "key", "value")], [f"m{i}"]),
            (f"{at}/Add", [f"m{i}", f"t{i}"], [f"t{i + 1}"]),
        ]  # fmt: skip
    return graph(*nodes, outputs=["t12"])


def test_it_fits_into_1280_pixels_and_no_text_leaves_its_box(browser: Any, tmp_path: Path) -> None:
    nodes = model()
    path = tmp_path / "graph.svg"
    path.write_text(
        svg.drawing(
            contracted(nodes),
            nodes,
            "a title that is longer than the drawing of MODULES is wide: " * 2,
        )
    )
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    said: list[str] = []
    page.on("console", lambda m: said.append(m.text))
    page.goto(path.as_uri())
    assert page.locator("g.box").count() == len(contracted(nodes).boxes)
    assert page.evaluate("document.documentElement.getBoundingClientRect().width") <= 1280
    assert page.evaluate(OVERFLOWING) == []
    widest = "Math.max(...[...document.querySelectorAll('svg > text')].map(t => t.getBBox().width))"
    assert page.evaluate(f"{widest} + 24 <= document.documentElement.viewBox.baseVal.width")
    assert said == []


def test_a_link_to_a_module_opens_the_tree_and_goes_there(show: Any) -> None:
    view = views.gpt2()
    path = "transformer.h.7.attn.c_proj"
    opened = show(rendering.html(view), reduced_motion="reduce")
    page = opened.page
    page.evaluate("hash => { window.location.hash = hash; }", svg.anchor(path))
    row = page.locator("#tree tbody tr:focus")
    row.wait_for()
    assert path.rpartition(".")[2] in row.inner_text()
    assert page.evaluate("document.activeElement.getBoundingClientRect().bottom") <= 900
    page.evaluate("hash => { window.location.hash = hash; }", "#module:no.such%zz")
    assert page.locator("#tree tbody tr:focus").count() == 1
