"""Frames per second of scrolling through 50,000 layers, from a trace of Chromium.

From the repository's root: .venv/bin/python tests/browser/scrolling.py

By the wheel at 4,000 pixels a second, and by the scroll bar, from the first layer to the last in
150 frames. A frame counts when it was drawn (DrawFrame).
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/support/reports"))

import rendering  # noqa: E402
import report_views as views  # noqa: E402
from conftest import BROWSERS, FLAGS  # noqa: E402

LAYERS = 50_000
CATEGORIES = "devtools.timeline,disabled-by-default-devtools.timeline.frame"
DRAGGED = """() => new Promise((done) => {
  const box = document.querySelector("#layers .window");
  let k = 0;
  const go = () => {
    box.scrollTop = (box.scrollHeight * k) / 150;
    k += 1;
    if (k < 150) requestAnimationFrame(go); else done();
  };
  go();
})"""


def page() -> str:
    """A report of so many layers."""
    view = views.one_side()
    one = view["layers"][0]
    view["layers"] = [
        {
            **one,
            "id": str(i),
            "layer": f"transformer.h.{i % 500}.mlp.c_fc/Gemm + transformer.h.{i % 500}.mlp.act/{i}",
            "nodes": [],
            "modules": [],
            "time": {"median": 10**6 - i, "low": 10**6 - i - 900, "high": 10**6, "n": 30},
        }
        for i in range(LAYERS)
    ]
    for module in view["modules"]:
        module["layers"] = []
    view["nodes"] = []
    return rendering.html(view)


def frames(opened: Any, scrolled: Any) -> float:
    """Frames drawn in a second while `scrolled` runs."""
    session = opened.context.new_cdp_session(opened)
    events: list[dict[str, Any]] = []
    over: list[Any] = []
    session.on("Tracing.dataCollected", lambda found: events.extend(found["value"]))
    session.on("Tracing.tracingComplete", lambda found: over.append(found))
    session.send("Tracing.start", {"categories": CATEGORIES, "transferMode": "ReportEvents"})
    scrolled(session)
    session.send("Tracing.end")
    while not over:
        opened.wait_for_timeout(20)
    drawn = sorted(e["ts"] for e in events if e["name"] == "DrawFrame")
    return 1e6 * (len(drawn) - 1) / (drawn[-1] - drawn[0])


def main() -> None:
    """Both ways, printed."""
    path = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(page(), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        opened = browser.new_page(viewport={"width": 1280, "height": 800})
        opened.goto(file.as_uri())
        box = opened.locator("#layers .window")
        box.scroll_into_view_if_needed()
        at = box.bounding_box() or {"x": 0, "y": 0}
        wheel = {
            "x": round(at["x"] + 400),
            "y": round(at["y"] + 200),
            "yDistance": -20_000,
            "speed": 4_000,
            "gestureSourceType": "mouse",
        }
        by_wheel = frames(opened, lambda s: s.send("Input.synthesizeScrollGesture", wheel))
        by_bar = frames(opened, lambda _: opened.evaluate(DRAGGED))
        sys.stdout.write(f"wheel {by_wheel:.1f} frames/s, scroll bar {by_bar:.1f} frames/s\n")
        browser.close()


if __name__ == "__main__":
    main()
