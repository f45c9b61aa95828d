"""What the docs show can be typed as it stands, or they say what to do first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import ROOT

_COMMAND = re.compile(r"^ *(?:layerline|pip) \w", re.MULTILINE)
PAGES = [p for p in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
         if _COMMAND.search(p.read_text())]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_pages_with_commands_say_where_these_are(page: Path) -> None:
    text = page.read_text()
    assert "source .venv/bin/activate" in text


def test_the_small_model_is_called_the_same_everywhere() -> None:
    for page in [ROOT / "README.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]:
        assert "gpt2-tiny" not in page.read_text(), page
