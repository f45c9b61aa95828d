"""Limits of a gate: options, a file of them, floors, and all that they are of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_by_hand import ENGINE, outcome, write_run

from layerline.analysis.comparison import limits
from layerline.core.errors import InputError
from layerline.core.files import read_json, write_json

NAME = "fp16.onnxruntime"
MEDIANS = (950_000, 951_000, 949_000, 950_500, 949_500)


def run(path: Path, by: float = 1, **more: Any) -> Path:
    """A run with five processes, slower by a factor; `more` of its latency.json."""
    write_run(path)
    samples = [round(m * by) for m in MEDIANS for _ in range(8)]
    document = {"latency_ns": samples, "processes": [{"n": 8}] * 5, **more}
    write_json(path / f"captures/{NAME}.latency.json", document)
    return path


def runs(at: Path, **microseconds: int) -> list[Path]:
    """Three runs whose profiles lie a microsecond apart, with nodes so much longer."""
    found = [run(at / str(i)) for i in range(3)]
    for i, path in enumerate(found):
        file = path / f"captures/{NAME}.profile.json"
        events = read_json(file)
        shift = 0
        for event in events:
            event["ts"] += shift
            if event["cat"] == "Node":
                more = i + microseconds.get(event["name"].removesuffix("_kernel_time"), 0)
                event["dur"] += more
                shift += more
            else:
                event["dur"] += 3 * i + sum(microseconds.values())
        file.write_text(json.dumps(events))
    return found


def gate(*arguments: object) -> int:
    return outcome("gate", *arguments, "--side", "engine")


@pytest.fixture
def a(tmp_path: Path) -> Path:
    return run(tmp_path / "a")


def test_what_grew_by_less_than_its_floor_is_not_slower(a: Path, tmp_path: Path) -> None:
    b = run(tmp_path / "b", 1.1)  # by 95 us
    assert gate(a, b, "--floor", "latency=90us") == 1
    assert gate(a, b, "--floor", "latency=100us") == 0


def test_options_go_before_the_file_and_the_file_before_the_baseline(
    a: Path, tmp_path: Path
) -> None:
    b, saved, file = run(tmp_path / "b", 1.1), tmp_path / "a.json", tmp_path / "limits.toml"
    assert gate("--save", saved, a, "--slower", "5%") == 0
    file.write_text('require = ["engine:fp16.onnxruntime"]\n[slower]\nlatency = "15%"\n')
    assert gate(saved, b) == 1
    assert gate(saved, b, "--limits", file) == 0
    assert gate(saved, b, "--limits", file, "--slower", "5%") == 1
    file.write_text('require = ["engine:fp16.tensorrt"]\n')
    assert gate(a, b, "--limits", file, "--slower", "15%") == 1


@pytest.mark.parametrize(("more", "code"), [(1.1, 1), (1.01, 0), (0.5, 0)])
def test_an_engine_that_needs_more_memory_is_larger(
    tmp_path: Path, capsys: Any, more: float, code: int
) -> None:
    a = run(tmp_path / "a", facts={"context_bytes": 10**8})
    b = run(tmp_path / "b", facts={"context_bytes": round(more * (10**8))})
    assert gate(a, b) == code
    if code:
        assert "memory context: 100 MB → 110 MB, +10.0 %: larger, limit 2.0 %" in (
            capsys.readouterr().out
        )
    assert gate(a, b, "--memory", "12%") == gate(a, b, "--floor", "memory=20MB") == 0


def test_modules_that_are_resolved_no_more_are_said(a: Path, tmp_path: Path, capsys: Any) -> None:
    b = run(tmp_path / "b")
    layers = read_json(b / f"engines/{NAME}.layers.json")
    layers["layers"][0] |= {"nodes": [], "modules": [], "rule": None}
    write_json(b / f"engines/{NAME}.layers.json", layers)
    assert gate(a, b) == 1
    assert "modules are known of 66" in capsys.readouterr().out  # 305 of 920 us are not
    assert gate(a, b, "--coverage", "50%") == 0


def test_a_module_that_is_slower_is_named_though_the_latency_hides_it(
    tmp_path: Path, capsys: Any
) -> None:
    before = runs(tmp_path / "a")
    saved = tmp_path / "a.json"
    assert gate("--save", saved, *before) == 0
    assert gate(saved, *runs(tmp_path / "same")) == 0
    capsys.readouterr()
    slow = runs(tmp_path / "b", b=100)
    assert gate(saved, *slow, "-o", tmp_path / "x.json") == 1
    out = capsys.readouterr().out
    assert out.startswith("✗ slower: +16.2 % (") and ") in module b (" in out.splitlines()[0]
    assert "module b: " in out and "latency: 950 µs → 950 µs" in out
    found = json.loads((tmp_path / "x.json").read_text())["judged"]
    worse = {(j["what"], j["name"]) for j in found if j["status"] == "worse"}
    assert ("module", "b") in worse and ("module", "a") not in worse
    # A limit by its name, of the module or of all of them.
    assert gate(saved, *slow, "--slower", "modules=30%,kinds=30%,operations=30%") == 0
    assert gate(saved, *slow, "--slower", "modules=30%,kinds=30%,operations=30%,b=5%") == 1


def test_a_tiny_module_may_grow_by_half(tmp_path: Path, capsys: Any) -> None:
    """4 us more of "a": half a percent of all operations, 920 us, is 4.6 us."""
    saved = tmp_path / "a.json"
    assert gate("--save", saved, *runs(tmp_path / "a")) == 0
    limits = ("--slower", "modules=0.1%,kinds=0.1%")
    assert gate(saved, *runs(tmp_path / "b", a=4), *limits, "--floor", "modules=1us") == 0
    assert gate(saved, *runs(tmp_path / "c", a=40), *limits, "--floor", "modules=1us") == 1
    # Where that is more than the share that was asked for, it says what it is.
    (row,) = [x for x in capsys.readouterr().out.splitlines() if "module a: " in x]
    assert row.endswith(": slower, limit 1.1 % (0.5 % of all operations)")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # With nan nothing would ever be less accurate.
        ("accuracy = nan", "accuracy nan is no limit; write a number from 0 to 2"),
        ("accuracy = -0.1", "accuracy -0.1 is no limit; write a number from 0 to 2"),
        ('by = "gpu"', "by 'gpu' is unknown; write latency or device"),
        ("[slower]\nlatency = 0.03", "slower.latency is 0.03, not text; see docs/ci.md"),
        ('[slowr]\nlatency = "3%"', "slowr is unknown; see docs/ci.md"),
        ('[floor]\nlatency = "1MB"', "'1MB' is no floor of latency; write it as \"2us\""),
        ('[slower]\nlatency = "nan%"', "'nan%' is no limit; write it as \"3%\""),
    ],
)
def test_a_file_whose_limit_limits_nothing_is_refused_and_named(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "limits.toml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        limits.read(path)
    assert error.value.line() == f"{path}: {said}"


def test_a_side_that_is_left_out_is_not_judged(tmp_path: Path) -> None:
    a, b = run(tmp_path / "a"), run(tmp_path / "b", 1.1)
    assert outcome("gate", a, b) == 1
    assert outcome("gate", a, b, "--side", "eager") == 4  # one process each
    assert ENGINE in read_json(_written(a, tmp_path))["sides"]


def _written(a: Path, tmp_path: Path) -> Path:
    assert outcome("gate", "--save", tmp_path / "x.json", a) == 0
    return tmp_path / "x.json"
