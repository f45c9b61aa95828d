"""Headless Chromium for the report's tests: the machine's own, driven by Playwright.

Where there is none the tests are skipped and say so; LAYERLINE_REQUIRE_BROWSER=1 makes that a
failure, so that a machine which should have one cannot pass without it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def missing(what: str) -> NoReturn:
    """Skip, or fail where the browser is required."""
    if os.environ.get("LAYERLINE_REQUIRE_BROWSER") == "1":
        pytest.fail(f"{what}, and LAYERLINE_REQUIRE_BROWSER=1 asks for it", pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = os.environ.get("LAYERLINE_BROWSER") or next(
        filter(None, map(shutil.which, BROWSERS)), None
    )
    if path is None:
        missing("Chromium is not installed (Debian: apt-get install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("Playwright is not installed (pip install playwright)")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """axe-core, as a Python package brings it."""
    try:
        import axe_playwright_python
    except ImportError:
        missing("axe-core is not installed (pip install axe-playwright-python)")
    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


@dataclass
class Opened:
    """A page and everything it said or asked for."""

    page: Any
    url: str
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Nothing was logged, nothing but the file itself was asked for, no name has run."""
        assert self.console == []
        assert self.requests == [self.url] and self.blocked == []
        assert self.page.evaluate("window.hacked === undefined")


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Open a rendered page: ``show(text, width=1280)``; checked again when the test is over."""
    opened: list[Opened] = []

    def show(text: str, **options: Any) -> Opened:
        width = options.pop("width", 1280)
        file = tmp_path / f"{len(opened)}.html"
        file.write_text(text, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        page = context.new_page()
        result = Opened(page, file.as_uri())
        opened.append(result)
        page.on("console", lambda message: result.console.append(message.text))
        page.on("pageerror", lambda error: result.console.append(str(error)))
        page.on("dialog", lambda dialog: result.console.append(f"dialog {dialog.message}"))
        context.on("requestfailed", lambda request: result.blocked.append(request.url))
        context.on("request", lambda request: result.requests.append(request.url))
        page.goto(result.url)
        return result

    yield show
    for result in opened:
        result.check()
        result.page.context.close()
