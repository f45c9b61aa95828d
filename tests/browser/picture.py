"""docs/page.png and docs/terminal.svg: the first screen of a report, and what the command says.

From the repository's root: .venv/bin/python tests/browser/picture.py runs/gpt2-1x128
"""

import contextlib
import io
import re
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console

ROOT = Path(__file__).parents[2]

from conftest import BROWSERS, FLAGS  # noqa: E402

from layerline.core.cli.command import cli  # noqa: E402
from layerline.core.errors import CheckFailed  # noqa: E402

SIZE = {"width": 1280, "height": 720}


def say(run: Path, picture: Path) -> None:
    """What `layerline report` prints of the run, which it makes anew."""
    lines = io.StringIO()
    with contextlib.suppress(CheckFailed), contextlib.redirect_stdout(lines):
        cli.main(["-q", "report", str(run), "--force"], standalone_mode=False)
    # rich draws the window of the terminal; what it prints meanwhile goes nowhere.
    console = Console(record=True, width=100, file=io.StringIO())
    console.print("$ layerline report runs/gpt2", style="bold")
    for line in lines.getvalue().replace(str(run), "runs/gpt2").splitlines():
        console.print(line, highlight=False, markup=False)
    drawn = console.export_svg(title="layerline report")
    # The reader's own font: a picture asks nobody for another.
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    picture.write_text(drawn, encoding="utf-8")


def draw(run: Path, picture: Path) -> None:
    """The first screen of the page of a run."""
    path = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        page.goto((run / "report/index.html").resolve().as_uri())
        page.wait_for_timeout(500)
        page.screenshot(path=picture)
        browser.close()


def main(run: Path) -> None:
    """Both pictures of a run."""
    say(run, ROOT / "docs/terminal.svg")
    draw(run, ROOT / "docs/page.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
