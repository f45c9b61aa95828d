"""`layerline metrics` tells what its capture lacks: rows of a broken copy, numbers, units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from layerline.analysis.commands.metrics import metrics
from layerline.core.errors import InputError
from layerline.core.files import write_json

TIME = "gpu__time_duration.sum"
HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Block Size","Grid Size",'
    f'"{TIME}","dram__bytes.sum"\n'
)
UNITS = '"","","","","","","","us","Kbyte"\n'
CUT = "The last row is cut short: 1 left out, the first at line 5."


def row(launch: int, time: str = "409.02", size: str = "8.5") -> str:
    where = '"(32, 1, 1)","(1, 1, 1)"'
    return f'"{launch}","1","p","h","k{launch}",{where},"{time}","{size}"\n'


WHOLE = HEADER + UNITS + row(0) + row(1) + row(2)


def page(folder: Path, text: str) -> Path:
    path = folder / "fp16.tensorrt.ncu.csv"
    path.write_text(text)
    return path


def meta(path: Path, replayed: int) -> None:
    write_json(path.with_name("fp16.tensorrt.ncu.meta.json"), {"replayed": replayed})


def plan(path: Path, launches: int) -> None:
    """As a capture leaves it that could not be read where it was made."""
    every = [
        {"index": i, "function": f"k{i}", "kernel": f"k{i}", "grid": [1, 1, 1],
         "block": [32, 1, 1], "layer": None, "key": i, "representative": None}
        for i in range(launches)
    ]  # fmt: skip
    document = {"schema_version": 1, "launches": every, "keys": launches, "replayed": 0}
    target = path.with_name("fp16.tensorrt.ncu.plan.json")
    write_json(target, {**document, "reports": {}, "chosen": [0, 1, 2]})


def run(*arguments: object) -> tuple[str, str]:
    result = CliRunner().invoke(metrics, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout, result.stderr


@pytest.fixture(autouse=True)
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr("layerline.analysis.commands.metrics.log", said.append)
    return said


@pytest.mark.parametrize(
    "command",
    [
        ["list"],
        ["extract", "-o", "DIR"],
        ["attribute", "-m", TIME],
        ["roofline"],
        ["explain"],
        ["plot", "-m", TIME, "--format", "svg", "-o", "DIR"],
        ["overlay", "-m", TIME, "-m", "dram__bytes.sum", "-o", "DIR/a.svg"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_says_that_a_row_is_cut_short(
    command: list[str], tmp_path: Path, heard: list[str]
) -> None:
    if command[0] in ("plot", "overlay"):
        pytest.importorskip("matplotlib")
    path = page(tmp_path, WHOLE[:-5])
    meta(path, 3)
    (tmp_path / "out").mkdir()
    name, *options = (a.replace("DIR", str(tmp_path / "out")) for a in command)
    run(name, path, *options)
    told = "It is cut short after 2 of 3 launches; copy it again, or capture again."
    assert heard[:2] == [f"{path.name}: {CUT}", f"{path.name}: {told}"]


@pytest.mark.parametrize("command", [["attribute", "-m", TIME], ["roofline"]])
def test_launches_that_a_copy_lost_are_not_called_ones_that_were_not_replayed(
    command: list[str], tmp_path: Path
) -> None:
    path = page(tmp_path, WHOLE)
    plan(path, 9)
    meta(path, 3)
    assert "3 of 9 launches: the others were not replayed" in run(*command, path)[0]
    page(tmp_path, WHOLE[:-5])
    out = run(*command, path)[0]
    assert "2 of 9 launches: the file is cut short after 2 of 3 launches; what it lacks" in out
    assert "were not replayed" not in out


def test_a_copy_that_broke_off_between_two_rows_is_told_by_its_meta_file(
    tmp_path: Path, heard: list[str]
) -> None:
    path = page(tmp_path, HEADER + UNITS + row(0) + row(1))
    plan(path, 9)
    meta(path, 3)
    out = run("attribute", path, "-m", TIME)[0]
    assert "2 of 9 launches: the file holds 2 launches, and 3 were captured" in out
    assert "were not replayed" not in out
    assert any("and 3 were captured; is it whole? Copy it again" in line for line in heard)


def test_what_a_whole_capture_lacks_is_not_said(tmp_path: Path, heard: list[str]) -> None:
    path = page(tmp_path, WHOLE)
    meta(path, 3)
    assert "launches" not in run("attribute", path, "-m", TIME)[0].replace("over launches", "")
    assert heard == []


def test_numbers_and_rows_of_a_mixed_locale_are_counted(tmp_path: Path, heard: list[str]) -> None:
    text = HEADER + UNITS + row(0, "409.02") + row(1, "409,02", "8,5") + row(2, "1.234")
    path = page(tmp_path, text)
    out, _ = run("attribute", path, "-m", TIME)
    assert any("mixed; numbers that could be either (1 in 3 rows) are null" in x for x in heard)
    assert "\n-\t-\t-\t" in out  # of the only layer a launch is not known


def test_rows_that_cannot_be_read_are_counted(tmp_path: Path, heard: list[str]) -> None:
    bad = row(1).replace("(32, 1, 1)", "32")
    path = page(tmp_path, HEADER + UNITS + row(0) + bad + row(2))
    out, _ = run("list", path)
    assert f"{TIME}\tns\t2" in out
    assert heard[0].endswith("Some rows cannot be read: 1 left out, the first at line 4.")


@pytest.mark.parametrize("command", [["list"], ["attribute", "-m", TIME], ["roofline"]])
@pytest.mark.parametrize("before", ["", HEADER + UNITS + row(0)])
def test_a_page_without_its_row_of_units_is_refused(
    command: list[str], before: str, tmp_path: Path
) -> None:
    path = page(tmp_path, before + HEADER + row(1) + row(2))
    result: Any = CliRunner().invoke(metrics, [command[0], str(path), *command[1:]])
    assert isinstance(result.exception, InputError)
    assert "without its row of units" in str(result.exception)
