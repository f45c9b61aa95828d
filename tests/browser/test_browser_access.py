"""Everybody can use the pages: axe-core finds nothing, and keys alone lead everywhere."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rendering
import report_views as views
from h100_tiny import write_run as write_h100
from memory_step import recorded
from run_by_hand import write_run as write_by_hand

from layerline.analysis import pipeline
from layerline.analysis.memory.explain import explain
from layerline.analysis.readers.memory import snapshot
from layerline.analysis.report.memory.page import render as memory_page
from layerline.core.files import read_json, write_json
from layerline.core.run import Run

pytestmark = pytest.mark.browser
Show = Callable[..., Any]


def page_of(which: str, folder: Path) -> str:
    if which == "h100":
        return rendering.html(pipeline.analyse(write_h100(folder)).comparison)
    if which == "memory":
        value, meta, _ = recorded()
        path = folder / "s.pickle"
        path.write_bytes(pickle.dumps(value, 4))
        return memory_page(explain(snapshot.read(path), path, meta), "a run")
    if which in ("wrong", "two runs"):
        write_by_hand(folder / "a")
        if which == "wrong":
            path = folder / "a/captures/fp16.onnxruntime.accuracy.json"
            write_json(path, {**read_json(path), "cosine": 0.5})
            return rendering.html(pipeline.analyse(Run(folder / "a")).comparison)
        write_by_hand(folder / "b")
        runs = [(name, Run(folder / name)) for name in "ab"]
        return rendering.html(pipeline.both(runs[0], runs[1]))
    return rendering.html(getattr(views, which)())


def violations(page: Any, axe: str) -> list[str]:
    # The page's own policy lets no script in; the debugger may.
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{v['id']}: {[n['target'] for n in v['nodes']]}" for v in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "which", ["h100", "gpt2", "failing", "wrong", "two runs", "memory", "empty"]
)
def test_axe_finds_no_violation(
    show: Show, tmp_path: Path, axe: str, which: str, scheme: str
) -> None:
    page = show(page_of(which, tmp_path), color_scheme=scheme).page
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert violations(page, axe) == [], width


def test_axe_finds_what_is_wrong(show: Show, axe: str) -> None:
    page = show("<!doctype html><title>t</title><main><img src=''><input></main>").page
    found = [v.partition(":")[0] for v in violations(page, axe)]
    assert {"html-has-lang", "image-alt", "label"} <= {*found}


# axe does not look at text in a drawing.
CONTRAST = """() => {
  const at = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = (part) => {
    at.fillStyle = getComputedStyle(part).fill;
    at.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...at.getImageData(0, 0, 1, 1).data].map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  return [...document.querySelectorAll(".cell-box:not(.fused)")]
    .map((g) => ["text", "rect"].map((part) => g.querySelector(part)))
    .filter(([text]) => text?.textContent)
    .map((parts) => parts.map(light))
    .map(([a, b]) => Math.max(a, b) / Math.min(a, b));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_in_the_icicles_is_read_on_every_colour(
    show: Show, tmp_path: Path, scheme: str
) -> None:
    page = show(page_of("h100", tmp_path), color_scheme=scheme).page
    for colour in page.locator("#icicle-colour option").evaluate_all(
        "all => all.map(o => o.value)"
    ):
        page.select_option("#icicle-colour", colour)
        found = page.evaluate(CONTRAST)
        assert len(found) > 10 and min(found) >= 4.5, colour


FOCUS = """() => {
  const e = document.activeElement;
  const where = e.closest("section, header, #icicles");
  const name = where ? where.id || where.className : "";
  return [name, e.matches(":focus-visible"), e.innerText || e.id];
}"""


def test_keys_alone_walk_the_whole_page_in_its_order(show: Show, tmp_path: Path) -> None:
    page = show(page_of("h100", tmp_path)).page
    steps: list[list[Any]] = []
    for _ in range(400):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break  # after the last one: nothing holds the focus
        steps.append(page.evaluate(FOCUS))
    else:
        pytest.fail("Tab does not leave the page")
    assert steps[0][2] == "Skip to the tables"
    assert all(visible for _, visible, _ in steps)
    wanted = ["top", "answer", "icicles", "modules", "kinds", "layers", "ledger", "manifest"]
    order = list(dict.fromkeys(where for where, _, _ in steps if where in wanted))
    assert order == wanted
    # The tree and an icicle are one stop each: arrows move inside.
    rows = [s for s in steps if s[0] == "modules" and s[2].startswith("▶")]
    assert len(rows) <= 1


def test_a_question_mark_explains_in_place_by_keys(show: Show, tmp_path: Path) -> None:
    page = show(page_of("h100", tmp_path)).page
    mark = page.locator("#modules details.q > summary")
    mark.focus()
    page.keyboard.press("Enter")
    assert "A range is [own, own + shared]" in page.locator("#modules details.q").inner_text()
    page.keyboard.press("Enter")
    assert page.locator("#modules details.q p").first.is_hidden()


PROSE = """() => {
  const table = document.querySelector("#modules table");
  const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  let words = 0;
  while (texts.nextNode() && !table.contains(texts.currentNode)) {
    const e = texts.currentNode.parentElement;
    if (!e.checkVisibility() || e.closest("svg, select, script, .steps, figure, .tools")) continue;
    words += texts.currentNode.textContent.split(/\\s+/).filter(Boolean).length;
  }
  return words;
}"""


@pytest.mark.parametrize("which", ["h100", "gpt2", "failing", "wrong", "two runs"])
def test_at_most_150_words_stand_before_the_tables(show: Show, tmp_path: Path, which: str) -> None:
    page = show(page_of(which, tmp_path)).page
    assert 10 < page.evaluate(PROSE) <= 150
