"""What `layerline gate` refuses before it measures or writes, and names that mean nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_by_hand import ENGINE, outcome, write_run

from layerline.analysis.comparison import limits
from layerline.core.files import read_json, write_json

NAME = "fp16.onnxruntime"


def run(path: Path, by: float = 1) -> Path:
    """A run whose latency was taken by five processes, slower by a factor."""
    write_run(path)
    samples = [round(m * by) for m in (950_000, 951_000, 949_000, 950_500, 949_500)] * 8
    document = {"latency_ns": sorted(samples), "processes": [{"n": 8}] * 5}
    write_json(path / f"captures/{NAME}.latency.json", document)
    return path


@pytest.fixture
def a(tmp_path: Path) -> Path:
    return run(tmp_path / "a")


@pytest.fixture
def b(tmp_path: Path) -> Path:
    return run(tmp_path / "b", 1.001)


def gate(*arguments: object) -> int:
    return outcome("gate", *arguments, "--side", "engine")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["none"], "no such file"),
        (["x.json"], "is no baseline of a gate"),
        (["b", "--slower", "three"], "is no limit"),
        (["b", "--floor", "latency=2"], "is no floor of latency"),
        (["b", "--floor", "latency=1MB"], 'is no floor of latency; write it as "2us"'),
        (["b", "--floor", "memory=2us"], 'is no floor of memory; write it as "1MB"'),
        (["b", "--limits", "x.toml"], "slower is 3, not an object"),
        (["b", "--rounds", "3"], "--rounds is of no use without --measure"),
        (["b", "--measure", "--update", "--reason", "x"], "is a run, and --update writes a file"),
        (["b", "--measure", "-o", "x.txt"], "is of no known form"),
        (["b", "b"], "is named twice"),
        (["a"], "is named twice"),
        ([], "name a BASELINE and a NEW run"),
    ],
)
def test_what_is_refused_is_said_in_one_line_before_anything_is_measured(
    a: Path, b: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, more: list[str], said: str
) -> None:
    (a.parent / "x.json").write_text("{}")
    (a.parent / "x.toml").write_text("slower = 3")
    monkeypatch.chdir(a.parent)
    assert gate("a", *more) == 2
    told = capsys.readouterr()
    assert said in told.err and told.err.count("\n") == 1
    assert not told.out


def test_an_update_without_a_reason_judges_nothing(a: Path, b: Path, capsys: Any) -> None:
    file = a.parent / "base.json"
    assert gate("--save", file, a) == 0
    capsys.readouterr()
    assert gate(file, b, "--update") == 2
    assert not capsys.readouterr().out


def test_a_verdict_is_not_written_over_the_baseline(a: Path, b: Path, capsys: Any) -> None:
    file = a.parent / "base.json"
    assert gate("--save", file, a) == 0
    before = file.read_bytes()
    assert gate(file, b, "-o", file) == 2
    assert file.read_bytes() == before
    assert "is to be read and written" in capsys.readouterr().err


@pytest.mark.parametrize("kept", [{"slower": {"latency": "3"}}, {"floor": {"latency": "1MB"}}])
def test_limits_of_a_baseline_that_are_none_are_said_with_its_file(
    a: Path, b: Path, capsys: Any, kept: dict[str, Any]
) -> None:
    file = a.parent / "base.json"
    assert gate("--save", file, a) == 0
    write_json(file, {**read_json(file), "limits": kept})
    assert gate(file, b) == 2
    assert capsys.readouterr().err.startswith(f"error: {file}: '")


@pytest.mark.parametrize(
    ("name", "floor"),
    [("latency", "1ms"), ("memory", "20MB"), ("modules", "1234567ns"), ("queued", "0.5us")],
)
def test_a_floor_that_a_baseline_keeps_is_read_as_it_was_given(name: str, floor: str) -> None:
    given = limits.Limits().over(limits.LimitsFile(floor={name: floor}))
    again = limits.Limits().over(limits.form(given.as_json()))
    assert again.floors == given.floors == {name: limits.amount(floor, name)}
    assert limits.amount("1ms", "latency") == 10**6 and limits.amount("20MB", "memory") == 2 * 10**7


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (["--slower", "latancy=5%"], "'latancy' on both sides (did you mean latency?)"),
        (["--floor", "latancy=5us"], "'latancy' on both sides (did you mean latency?)"),
        (["--floor", "module=5us"], "'module' on both sides (did you mean modules?)"),
        (["--slower", "memory=5%"], "'memory' on both sides"),
        (["--slower", "=5%"], "'' on both sides"),
    ],
)
def test_a_limit_of_nothing_cannot_be_told_and_says_what_was_meant(
    a: Path, b: Path, capsys: Any, limit: list[str], said: str
) -> None:
    assert gate(a, b) == 0
    capsys.readouterr()
    assert gate(a, b, *limit) == 4
    head = capsys.readouterr().out.splitlines()[0]
    assert head.startswith(f"? cannot tell: there is no kind or module {said}")


def test_a_side_that_is_none_is_said_beside_those_that_are(a: Path, b: Path, capsys: Any) -> None:
    assert gate(a, b, "--side", "engine:fp16.tensorrt") == 4
    there = f"there is {ENGINE}, eager/fp32/inference"
    head = capsys.readouterr().out.splitlines()[0]
    assert f"engine:fp16.tensorrt: is to be judged, and the baseline has none ({there}" in head
    saved = a.parent / "base.json"
    assert gate("--save", saved, a, "--side", "engine:fp16.tensorrt") == 2
    assert f"has no side 'engine:fp16.tensorrt' ({there})" in capsys.readouterr().err
    assert not saved.exists()
    # One that is required, too; and the answer is not about the latency.
    assert gate(a, b, "--require", "engine:fp16.tensorrt") == 1
    head = capsys.readouterr().out.splitlines()[0]
    assert head.startswith("✗ wrong: engine:fp16.tensorrt: is required, and the baseline has none")


def test_what_is_wrong_stands_before_what_cannot_be_told(a: Path, b: Path, capsys: Any) -> None:
    """A missing limit's name, and outputs that are wrong: the second makes the answer."""
    figures = {"max_abs": 9.0, "max_rel": 1.0, "cosine": 0.2, "top1": 0.0}
    write_json(b / f"captures/{NAME}.accuracy.json", figures)
    path = a.parent / "x.json"
    assert gate(a, b, "--slower", "nothing=5%", "-o", path) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"✗ wrong: {ENGINE}: does not compute what eager does: cosine 0.2")
    assert "to do: layerline accuracy says in which module" in out
    found = json.loads(path.read_text())["findings"]
    assert [f["status"] for f in found] == ["worse", "cannot tell"]
