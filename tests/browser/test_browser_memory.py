"""The page of a memory peak: it draws one step, and shows who is alive where one clicks."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from memory_snapshot import MIB, Allocator
from memory_step import recorded

from layerline.analysis.memory.explain import explain
from layerline.analysis.readers.memory import snapshot
from layerline.analysis.report.memory.page import render

pytestmark = pytest.mark.browser
Show = Callable[..., Any]
EVIL = '</script><img src=x onerror="window.hacked=1">'


def html(folder: Any, value: dict[str, Any], meta: Any = None, title: str = "a run") -> str:
    path = folder / "s.pickle"
    path.write_bytes(pickle.dumps(value, 4))
    return render(explain(snapshot.read(path), path, meta), title)


def rows(page: Any) -> list[list[str]]:
    found = page.locator("#alive tr").all()
    return [row.locator("td").all_inner_texts() for row in found]


def test_the_answer_is_on_the_first_screen(show: Show, tmp_path):
    value, meta, _ = recorded()
    page = show(html(tmp_path, value, meta)).page
    heading = page.locator("h1").inner_text()
    assert heading.startswith("The peak is 34.3\xa0MB, half of it activations")
    lead = page.locator(".lead").first.inner_text()
    assert lead.startswith("At the same batch, what lowers it most: checkpointing every block")
    assert page.locator(".chips li.good").count() == 1
    for part in ("#chart", ".held", "#said"):
        box = page.locator(part).bounding_box()
        assert box["y"] + box["height"] <= 800
    assert held_percent(page) == pytest.approx(100, abs=1)  # of what is reserved
    said = page.locator(".first .note").first.inner_text()
    assert said == "The bar is 44.0\xa0MB, what is reserved: 16.4\xa0% of the device's 268\xa0MB."


def held_percent(page: Any) -> float:
    parts = page.locator(".held i").all()
    return sum(float(i.get_attribute("style").split(":")[1].rstrip("%")) for i in parts)


def test_the_bar_is_the_device_where_much_of_it_is_held(show: Show, tmp_path):
    value, meta, _ = recorded()
    meta.device_bytes = 84 * MIB
    page = show(html(tmp_path, value, meta)).page
    assert held_percent(page) == pytest.approx(50, abs=1)
    assert "the device's memory" in page.locator(".first .note").first.inner_text()


def test_who_is_alive_at_the_peak_and_where_one_clicks(show: Show, tmp_path):
    value, meta, _ = recorded()
    page = show(html(tmp_path, value, meta)).page
    assert page.locator("#said").inner_text().startswith("At the peak, in forward: 34.3 MB live")
    first = rows(page)[0]
    assert first[:3] == ["activations", "17.6 MB", "h.*"]
    assert first[3].startswith("forward_h.")
    box = page.locator("#chart").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 12, box["y"] + 100)  # the end of the step
    assert page.locator("#said").inner_text().startswith("After ")
    assert {r[0] for r in rows(page)} == {"parameters", "optimizer state"}
    page.get_by_label("allocations and frees").check(force=True)
    assert {r[0] for r in rows(page)} == {"parameters", "optimizer state"}
    page.locator("#moment").focus()
    page.keyboard.press("Home")
    assert {r[0] for r in rows(page)} == {"parameters", "optimizer state"}


def test_times_have_three_digits_and_no_exponent(show: Show, tmp_path):
    memory = Allocator()
    held = memory.alloc(3 * MIB)
    memory.now += 999_690  # microseconds: with the events around it less than a second
    memory.free(held)
    page = show(html(tmp_path, memory.snapshot())).page
    page.locator("#moment").focus()
    page.keyboard.press("End")
    assert page.locator("#said").inner_text().startswith("After 1.00 s")


@pytest.mark.parametrize("width", [1280, 390, 320])
def test_the_page_fits(show: Show, tmp_path, width):
    value, meta, _ = recorded()
    page = show(html(tmp_path, value, meta), width=width).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_names_of_a_file_do_nothing(show: Show, tmp_path):
    memory = Allocator()
    memory.frames = [{"name": EVIL, "filename": f"{EVIL}.py", "line": 3}]
    memory.free(memory.alloc(3 * MIB))
    opened = show(html(tmp_path, memory.snapshot(), title=EVIL))
    assert EVIL[:9] in opened.page.locator("#alive").inner_text()


def test_without_javascript_the_tables_are_there(show: Show, tmp_path):
    value, meta, _ = recorded()
    page = show(html(tmp_path, value, meta), java_script_enabled=False).page
    assert page.locator("#modules tbody tr").count() == 2
    assert page.locator("#lower tbody tr").count() > 3
    assert not page.locator("#chart").is_visible()


def test_a_snapshot_without_history(show: Show, tmp_path):
    memory = Allocator()
    memory.recording = False
    memory.alloc(3 * MIB)
    page = show(html(tmp_path, memory.snapshot())).page
    assert "the snapshot does not tell" in page.locator("h1").inner_text()
    assert not page.locator("#chart").count()  # of one moment there is nothing to draw
    body = page.locator("main").inner_text()
    assert "In the snapshot" in body and "peak" not in body
    assert page.locator("#modules tbody td").first.inner_text() == "3.15 MB"
