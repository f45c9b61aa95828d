"""The report as somebody uses it: opened from a file, sorted, drilled, filtered, on a phone.

Every page opened here is also checked for silence: no message on the console, no request, no
name that ran (see conftest).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import rendering
import report_views as views

from layerline.analysis import formatting
from layerline.analysis.model.comparison import Cost
from layerline.analysis.report import cells
from layerline.core.stats import Estimate

pytestmark = pytest.mark.browser
Show = Callable[..., Any]
TREE = "#tree tbody tr[data-key]"
CELLS = "rows => rows.map((r) => [...r.querySelectorAll('td')].map((c) => c.innerText))"


def _names(page: Any, selector: str = TREE) -> list[str]:
    return [n.strip() for n in page.locator(f"{selector} th .name").all_inner_texts()]


def _row(page: Any, path: str) -> Any:
    return page.locator(TREE).filter(has=page.locator(f'.name[title="{path}"]')).first


@pytest.mark.parametrize("which", ["gpt2", "failing", "one_side", "empty", "hostile"])
def test_the_page_fits_and_is_silent(show: Show, which: str) -> None:
    page = show(rendering.html(getattr(views, which)()), color_scheme="dark").page
    for width in (1280, 390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("h1").is_visible()


def test_a_click_drills_from_the_model_to_a_node(show: Show) -> None:
    page = show(rendering.html(views.gpt2(2))).page
    for path in ("transformer.h", "transformer.h.0", "transformer.h.0.mlp"):
        _row(page, path).click()
        assert _row(page, path).get_attribute("aria-expanded") == "true"
    _row(page, "transformer.h.0.mlp.c_fc + act").click()
    layer = page.locator(f"{TREE}.layer").first
    assert layer.locator(".num").inner_text() == "96.0 µs"
    layer.click()
    assert [t.split("\n")[0] for t in _names(page, f"{TREE}.node")] == [
        "…c_fc/Gemm",
        "…act/FastGelu",
    ]
    assert "Gemm, fused" in page.locator(f"{TREE}.node").first.inner_text()
    levels = page.locator(TREE).evaluate_all("rows => rows.map((r) => Number(r.ariaLevel))")
    assert max(levels) == 8 and levels[0] == 1
    _row(page, "transformer.h").click()
    assert _row(page, "transformer.h.0").count() == 0


def test_nodes_that_no_layer_runs_are_counted_and_listed(show: Show) -> None:
    view = views.gpt2(1)
    for i in range(5):
        lost = {"side": views.FP32, "name": f"lm_head/Cast_{i}", "op": "Cast"}
        view["nodes"].append({**lost, "module": "lm_head", "status": "folded", "layer": None})
    page = show(rendering.html(view)).page
    _row(page, "lm_head").click()
    group = page.locator(f"{TREE}.group")
    assert "5 nodes that no layer runs" in group.inner_text()
    group.click()
    nodes = page.locator(f"{TREE}.node").all_inner_texts()
    assert len(nodes) == 5 and "Cast, folded, ONNX Runtime fp32" in nodes[4]


def test_the_keyboard_alone_walks_the_tree(show: Show) -> None:
    page = show(rendering.html(views.gpt2(2))).page
    assert page.locator(f'{TREE}[tabindex="0"]').count() == 1

    def focused() -> str:
        found = page.evaluate(
            "document.activeElement.querySelector('.name')?.getAttribute('title')"
        )
        return str(found)

    page.locator(f'{TREE}[tabindex="0"]').focus()
    assert focused() == "the model"
    page.keyboard.press("ArrowDown")
    assert focused() == "transformer"
    page.keyboard.press("ArrowLeft")  # closes
    assert _row(page, "transformer").get_attribute("aria-expanded") == "false"
    page.keyboard.press("ArrowDown")
    assert focused() == "lm_head"
    page.keyboard.press("ArrowLeft")  # nothing open: to the parent
    assert focused() == "the model"
    page.keyboard.press("ArrowRight")  # open already: to the first child
    page.keyboard.press("Enter")
    assert _row(page, "transformer").get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowRight")
    assert focused() == "transformer.wte"
    page.keyboard.press("End")
    assert focused() == "optimizer"
    page.keyboard.press("Home")
    page.keyboard.press(" ")
    assert page.locator(TREE).count() == 1
    assert page.locator(f'{TREE}[tabindex="0"]').count() == 1


def test_a_heading_sorts_siblings_and_leaves_unknown_last(show: Show) -> None:
    page = show(rendering.html(views.gpt2(2))).page
    inside = ["wte", "wpe", "drop", "h", "ln_f"]
    assert _names(page)[2:7] == inside
    heading = page.locator("#tree thead th").nth(3)
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert [n for n in _names(page) if n in inside] == ["h", "ln_f", "wte", "wpe", "drop"]
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert [n for n in _names(page) if n in inside] == ["wpe", "wte", "ln_f", "h", "drop"]
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "none"
    assert _names(page)[2:7] == inside
    page.locator("#tree thead th button").first.focus()
    page.keyboard.press("Enter")
    assert [n for n in _names(page) if n in inside] == ["drop", "h", "ln_f", "wpe", "wte"]


def test_the_filter_opens_the_way_to_what_matches(show: Show) -> None:
    page = show(rendering.html(views.gpt2(3))).page
    page.fill("#tree-filter", "C_ATTN")
    names = _names(page)
    assert names.count("c_attn") == 3 and "mlp" not in names and "lm_head" not in names
    assert page.locator("#tree-count").inner_text() == "3 of 55 rows match"
    page.fill("#tree-filter", "no such thing")
    assert "No module matches." in page.locator("#tree tbody").inner_text()
    page.fill("#tree-filter", "")
    assert "lm_head" in _names(page)


def test_columns_are_chosen(show: Show) -> None:
    page = show(rendering.html(views.gpt2(1))).page
    assert page.locator("#tree thead th").count() == 9
    page.get_by_label("Eager fp32 optimizer").uncheck()
    assert page.locator("#tree thead th").count() == 8
    assert page.locator(TREE).first.locator("td").count() == 7
    assert "1.90 ms" not in page.locator("#tree tbody").inner_text()


def test_layers_sort_filter_and_tell_their_nodes(show: Show) -> None:
    view = views.gpt2(12)
    page = show(rendering.html(view)).page
    rows = page.locator("#layer-table tbody tr:not(.space)")
    assert 20 <= rows.count() < len(view["layers"])
    first = max(view["layers"], key=lambda r: r["time"]["median"])
    assert rows.first.locator(".name").first.inner_text() == first["layer"]
    page.select_option("#layer-side", label="ONNX Runtime fp16")
    page.fill("#layer-filter", "fastgelu")
    assert rows.count() == 12
    assert page.locator("#layer-count").inner_text() == f"12 of {len(view['layers'])} layers"
    button = rows.first.locator("button.open")
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    detail = page.locator("tr.detail").inner_text()
    assert "Gemm, fused" in detail and "FastGelu, fused" in detail and "n 40" in detail
    page.locator("#layer-table thead button").first.click()
    names = _names(page, "#layer-table tbody tr:not(.detail, .space)")
    assert names[0].startswith("transformer.h.0.") and names[2].startswith("transformer.h.2.")


def test_a_small_table_sorts_and_returns_to_its_order(show: Show) -> None:
    page = show(rendering.html(views.gpt2(2))).page
    table = "#kinds tbody tr"
    before = _names(page, table)
    button = page.locator("#kinds thead th").nth(2).locator("button")
    button.click()
    after = _names(page, table)
    assert after != before and sorted(after) == sorted(before)
    assert after[0] == "transformer.h.*" and "dropout" in after[-1]
    button.click()
    button.click()
    assert _names(page, table) == before


def test_the_script_writes_numbers_as_the_server_does(show: Show) -> None:
    """What is drawn from JSON replaces what was in the HTML: it has to read the same."""
    view = views.gpt2(1)
    values = [0, 5, 999, 1_000, 99_950, 999_500, 1_125_000, 1_234_567_890, 9_995_000_000_000]
    for row, ns in zip(view["layers"], values, strict=False):
        row["time"] = {"median": ns, "low": ns // 2, "high": ns * 2, "n": 7}
        row["share"] = [0.0, 0.99987, 0.0004, 1.0, 0.00001, 0.1234, None, 0.9995, 0.09949][
            values.index(ns)
        ]
    view["layers"] = view["layers"][: len(values)]
    page = show(rendering.html(view)).page
    page.locator("#layer-table thead th").nth(6).locator("button").click()  # ascending
    ordered = sorted(view["layers"], key=lambda r: r["time"]["median"])
    shown = page.locator("#layer-table tbody tr").evaluate_all(CELLS)
    for (*_, time, share, _, _, _, _), row in zip(shown, ordered, strict=True):
        median, sub = time.split("\n")
        assert median == formatting.time(row["time"]["median"])
        assert sub == cells.interval(Estimate(**row["time"]))
        assert share == formatting.percent(row["share"])


def test_a_row_that_is_open_or_has_the_focus_shows_its_intervals(show: Show) -> None:
    view = views.gpt2(2)
    eager = next(s for s in view["sides"] if s["key"] == views.EAGER)
    fault = "has two levels: 50.0 % of samples near 1 ms, 50.0 % near 2 ms"
    eager["traced_steadiness"] = views.steadiness(fault)
    page = show(rendering.html(view)).page
    row = _row(page, "lm_head")
    assert row.locator(".ci").first.is_hidden()
    row.click()
    root = next(m for m in view["modules"] if m["path"] == "lm_head")
    cost = msgspec.convert(root["costs"][eager["key"]], Cost)
    at = [s["key"] for s in view["sides"]].index(eager["key"])
    shown = row.locator("td:not(.change)").nth(at).locator(".ci")
    assert shown.is_visible()
    assert shown.inner_text().replace("\N{NO-BREAK SPACE}", " ") == cells.cost_interval(cost)
    kind = page.locator("#kinds tbody tr").first
    kind.focus()
    assert kind.locator(".ci").first.is_visible() and shown.is_visible()  # the row is open
    row.click()
    kind.focus()
    assert shown.is_hidden()
    for table in ("#tree", "#kinds table"):
        (mark,) = page.locator(f"{table} thead .doubt").all()
        assert mark.get_attribute("title") == f"not settled: while traced it {fault}"
        assert eager["label"] in mark.locator("xpath=ancestor::th").inner_text()


def test_first_rows_are_the_same_with_and_without_script(show: Show) -> None:
    text = rendering.html(views.gpt2(2))
    drawn = show(text).page
    plain = show(text, java_script_enabled=False).page
    table = "#tree tbody tr"
    # All of the text: intervals are seen in every row where no script shows those of a few.
    all_text = CELLS.replace("innerText", "textContent")
    with_script = drawn.locator(table).evaluate_all(all_text)
    without = plain.locator(table).evaluate_all(all_text)
    assert plain.locator("#tree .ci").first.is_visible()
    assert with_script == without and len(without) >= 6
    assert not plain.locator("#tree-filter").is_visible()
    assert "layers.csv" in plain.locator("#layers noscript").inner_text()


def test_hostile_names_are_shown_and_do_not_run(show: Show) -> None:
    page = show(rendering.html(views.hostile())).page
    assert page.locator("script").count() == 2 and page.locator("img").count() == 0
    names = _names(page)
    for name in views.HOSTILE[:-1]:
        assert formatting.short(name, 80) in names
    page.locator(TREE).first.focus()
    for _ in views.HOSTILE:  # down to the next module, open it, over its layer
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
    assert page.locator(f"{TREE}.layer").count() == len(views.HOSTILE)
    page.locator(f"{TREE}.layer").nth(8).click()
    assert page.locator(f"{TREE}.node").count() == 1
    page.fill("#layer-filter", "__proto__")
    assert page.locator("#layer-table tbody tr").count() == 1
    page.fill("#tree-filter", "constructor")
    assert "constructor" in _names(page)


def test_a_script_that_slipped_in_would_not_run_and_could_not_call_home(show: Show) -> None:
    text = rendering.html(views.gpt2(1)).replace(
        "<main", '<script>window.hacked=1</script><img src="http://example.invalid/x.png"><main', 1
    )
    opened = show(text)
    assert opened.page.evaluate("window.hacked === undefined")
    assert len(opened.console) == 2 and all("Content Security Policy" in c for c in opened.console)
    assert opened.requests[1:] == opened.blocked == ["http://example.invalid/x.png"]
    del opened.console[:], opened.requests[1:], opened.blocked[:]


def test_a_large_model_opens_row_by_row(show: Show) -> None:
    page = show(rendering.html(views.gpt2(26))).page
    assert page.locator(TREE).count() < 20
    for _ in range(5):
        page.locator("#tree-more").click()
    assert page.locator(TREE).count() == 300
    more = page.locator("#tree .more button")
    # 400 modules and blocks, and two layers in each of the 26 blocks that hold modules.
    assert more.inner_text() == "Show 152 more of 452 rows"
    more.click()
    assert page.locator(TREE).count() == 452
    page.locator("#tree-less").click()
    assert page.locator(TREE).count() == 1


def test_on_a_phone_two_sides_are_chosen_and_names_stay_in_view(show: Show) -> None:
    page = show(rendering.html(views.gpt2(2)), width=390, has_touch=True).page
    assert page.locator("#tree thead th").all_inner_texts()[1:] == [
        "Difference",
        "Ratio",
        "ONNX Runtime fp32",
        "Eager fp32",
    ]
    page.locator("#b-latency summary").click()
    box = page.locator("#b-latency .scroll")
    box.evaluate("e => { e.scrollLeft = 300 }")
    assert page.locator("#b-latency tbody tr:nth-child(2) th").first.bounding_box()["x"] < 20


WORST_CONTRAST = """() => {
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const rgb = (s) => s.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) =>
    0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const worst = [99, ''];
  for (const e of document.querySelectorAll('main *, header *')) {
    const says = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!says || !e.offsetParent) continue;
    let up = e;
    let back = rgb(getComputedStyle(e).backgroundColor);
    while (back[3] === 0 && up.parentElement) {
      up = up.parentElement;
      back = rgb(getComputedStyle(up).backgroundColor);
    }
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(back)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst.splice(0, 2, ratio, e.outerHTML.slice(0, 120));
  }
  return worst;
}"""


def test_text_has_enough_contrast_in_light_and_dark(show: Show) -> None:
    for scheme in ("light", "dark"):
        page = show(rendering.html(views.failing()), color_scheme=scheme).page
        ratio, where = page.evaluate(WORST_CONTRAST)
        assert 4.5 <= ratio < 99, f"{scheme}: {ratio:.2f} in {where}"


def test_print_unfolds_everything(show: Show) -> None:
    page = show(rendering.html(views.gpt2(1))).page
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible() and not page.locator("#tree-filter").is_visible()
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("#manifest details[open]").count() == 0
