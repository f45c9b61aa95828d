"""docs/page.png: the first screen of the report of a two-layer GPT-2 on an H100.

From the repository's root: .venv/bin/python tests/browser/picture.py [RUN]
"""

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

import h100_tiny  # noqa: E402
from conftest import BROWSERS, FLAGS  # noqa: E402

from layerline.core.cli.command import cli  # noqa: E402
from layerline.core.errors import CheckFailed  # noqa: E402

SIZE = {"width": 1280, "height": 720}


def draw(run: Path, picture: Path) -> None:
    """The page of a run, made anew."""
    with contextlib.suppress(CheckFailed):  # what the page says of the run
        cli.main(["-q", "report", str(run), "--force"], standalone_mode=False)
    path = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        page.goto((run / "report/index.html").resolve().as_uri())
        page.wait_for_timeout(500)
        page.screenshot(path=picture)
        browser.close()


def main() -> None:
    """Of the run that is named, else of the one in tests/data."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(sys.argv[1]) if len(sys.argv) > 1 else h100_tiny.write_run(Path(folder)).path
        draw(run, ROOT / "docs/page.png")


if __name__ == "__main__":
    main()
