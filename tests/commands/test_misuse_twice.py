"""Files named twice, copies that would be one file, and commands that are given nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import paths
import pytest

from layerline.core.cli.command import main

CSV = paths.DATA / "ncu" / "two_kernels.raw.csv"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_copies_of_two_captures_of_one_name_would_be_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        shutil.copy(CSV, tmp_path / folder / "x.csv")
    out = tmp_path / "out"
    assert run("scrub", f"{tmp_path}/a/x.csv", f"{tmp_path}/b/x.csv", "-o", str(out)) == 2
    assert "a/x.csv and" in capsys.readouterr().err and not out.exists()


def test_rows_of_a_file_that_is_named_twice_are_not_written_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("read", str(CSV), str(CSV), "-o", str(tmp_path / "x.json")) == 2
    assert "is named twice" in capsys.readouterr().err


@pytest.mark.parametrize("group", [[], ["metrics"]])
def test_a_group_alone_shows_its_help(group: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*group) == 2
    assert "\n\nOptions:\n" in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_not_searched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leftover = tmp_path / "deep" / ".1.partial.x"  # a dead process's, of another program
    leftover.parent.mkdir()
    leftover.write_text("")
    assert run("report", "--run", str(tmp_path)) == 2
    assert "nothing was captured" in capsys.readouterr().err and leftover.exists()
