"""Charts and texts of a capture whose file has an odd name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import paths
import pytest
from click.testing import CliRunner, Result

from layerline.analysis.commands.metrics import metrics
from layerline.core.errors import InputError

PAGE = paths.DATA / "ncu" / "two_kernels.raw.csv"
TIME = "gpu__time_duration.sum"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(metrics, [str(a) for a in arguments])


@pytest.mark.parametrize("name", ["$\\frac$.csv", "x\ny\x1b[31m.csv", "漢字.csv", "%s &<b>.csv"])
def test_a_chart_is_drawn_and_its_source_named(tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    capture = Path(shutil.copy(PAGE, tmp_path / name))
    # Warnings are errors in these tests: a letter that the font lacks is none.
    drawn = run("plot", capture, "-m", TIME, "--format", "svg", "-o", tmp_path / "charts")
    assert drawn.exit_code == 0, drawn.exception
    (chart,) = (tmp_path / "charts").iterdir()
    assert "\x1b" not in chart.read_text(encoding="utf-8")
    assert "3 kernel launches" in chart.read_text(encoding="utf-8")


def test_a_name_that_is_not_utf8_is_an_error_of_one_line(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/b\xff.csv")
    try:
        shutil.copy(PAGE, name)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    found = run("attribute", name, "-m", TIME)
    assert isinstance(found.exception, InputError)
    assert found.exception.line().endswith("b\\udcff.csv: has a name that is not UTF-8; rename it")


def test_a_line_of_text_stays_one_line_whatever_a_name_holds(tmp_path: Path) -> None:
    page = tmp_path / "x\ny\x1b[31m.csv"
    page.write_text(PAGE.read_text().replace("layerline/module/outer", "layerline/module/a\tb\x07"))
    by_layer = run("attribute", page, "-m", TIME).stdout
    assert "# capture: x\\ny\\x1b[31m.csv; device" in by_layer
    assert len(by_layer.splitlines()[-1].split("\t")) == 6
    assert "a\\tb\\x07" in by_layer
    by_module = run("attribute", page, "-m", TIME, "--by", "module").stdout
    assert "\ta\\tb\\x07\n" in by_module
