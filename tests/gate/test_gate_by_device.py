"""Where the host scatters an engine's latency, the time on the device alone tells what it can."""

from __future__ import annotations

import json
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_by_hand import outcome, write_run

from layerline.analysis.comparison.gate import judge
from layerline.analysis.comparison.limits import Limits
from layerline.analysis.model.baseline import SCHEMA_VERSION, Baseline, Quantity, SideSamples
from layerline.core.files import write_json

NAME, SIDE = "fp16.onnxruntime", "engine/fp16.tensorrt/inference"
STEADY = (900_000, 901_000, 899_000, 900_500, 899_500)
SCATTERED = (950_000, 1_030_000, 945_000, 1_025_000, 955_000)
# Four builds of a GPT-2 of two layers, fp16, TensorRT 8.6 on an H200 whose host was loaded (25 to
# 45 on 32 cores): medians of five processes in ns, latency and queued.
BUILDS = (
    ((139312, 140864, 152256, 147296, 140992), (135632, 137040, 137648, 137040, 138368)),
    ((153408, 141600, 153072, 151328, 142064), (139872, 138688, 136896, 137472, 139216)),
    ((143328, 143552, 155360, 143200, 151376), (140208, 140432, 140656, 137536, 140000)),
    ((154160, 140704, 161664, 141728, 142384), (136960, 137040, 136960, 139328, 139120)),
)
# GPT-2, 1×512, on an H100: medians of five loads of each engine in us, of three builds in fp16 and
# one in tf32, by a program that is not Layerline (docs/results). Their order is not known.
LOADS = {
    "fp16": (1157, 1169, 1172, 1173, 1174),
    "fp16, a second build": (1160, 1161, 1170, 1174, 1182),
    "fp16, a third build": (1160, 1161, 1165, 1178, 1185),
    "tf32": (1567, 1567, 1588, 1595, 1605),
}


def run(path: Path, latency: tuple[int, ...], queued: tuple[int, ...] = ()) -> Path:
    """A run whose latency, and time on the device, was taken by a process for each."""
    write_run(path)
    document: dict[str, Any] = {"latency_ns": [v for v in latency for _ in range(8)]}
    document["queued_ns"] = [v for v in queued for _ in range(8)]
    document["processes"] = [{"n": 8, "queued_n": 8 if queued else 0} for _ in latency]
    write_json(path / f"captures/{NAME}.latency.json", document)
    return path


def scaled(values: tuple[int, ...], by: float) -> tuple[int, ...]:
    return tuple(round(v * by) for v in values)


def gate(*arguments: object) -> int:
    return outcome("gate", *arguments, "--side", "engine")


@pytest.fixture
def a(tmp_path: Path) -> Path:
    return run(tmp_path / "a", SCATTERED, STEADY)


def test_a_scattered_latency_cannot_be_told_and_the_device_is_beside_it(
    a: Path, tmp_path: Path, capsys: Any
) -> None:
    b = run(tmp_path / "b", SCATTERED[::-1], STEADY)
    assert gate(a, b) == 4
    out = capsys.readouterr().out
    assert out.startswith("? cannot tell: ") and "(would have seen 3." in out.splitlines()[0]
    assert "; on the device alone not slower (" in out.splitlines()[0]
    assert "%, on the device alone 0.09 %: it is the host)" in out
    assert "to do: judge by the device alone (--by device); or " in out
    assert gate(a, b, "--by", "device", "-o", tmp_path / "x.json") == 0
    out = capsys.readouterr().out
    assert out.startswith("✓ not slower: this comparison would have seen 3.")
    assert out.splitlines()[0].endswith("; latency cannot be told")
    assert "% in time on the device 19 times in 20" in out.splitlines()[0]
    assert "latency: 981 µs → 981 µs" in out and "kinds and modules cannot be told" not in out
    latency = json.loads((tmp_path / "x.json").read_text())["judged"][0]
    assert (latency["what"], latency["status"], latency["decides"]) == (
        "latency", "cannot tell", False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("latency", "queued", "code"),
    [
        (SCATTERED, scaled(STEADY, 1.1), 1),  # the device is slower
        (scaled(SCATTERED, 1.5), STEADY, 1),  # the latency is, for sure
        (SCATTERED, SCATTERED, 4),
        (SCATTERED, (), 4),  # it was not measured: the latency decides
    ],
)
def test_by_the_device_alone_passes_nothing_else(
    a: Path, tmp_path: Path, latency: tuple[int, ...], queued: tuple[int, ...], code: int
) -> None:
    assert gate(a, run(tmp_path / "b", latency, queued), "--by", "device") == code


def test_without_the_device_nobody_is_sent_to_it(tmp_path: Path, capsys: Any) -> None:
    a, b = (run(tmp_path / n, SCATTERED) for n in "ab")
    assert gate(a, b) == gate(a, b, "--by", "device") == 4
    out = capsys.readouterr().out
    assert "--by device" not in out and "on the device" not in out


def test_a_baseline_and_a_file_of_limits_say_what_decides(
    a: Path, tmp_path: Path, capsys: Any
) -> None:
    b, saved, file = (
        run(tmp_path / "b", SCATTERED, STEADY),
        tmp_path / "a.json",
        tmp_path / "l.toml",
    )
    assert gate("--save", saved, a, "--by", "device") == 0
    assert gate(saved, b) == 0
    file.write_text('by = "latency"\n')
    assert gate(saved, b, "--limits", file) == 4
    assert gate(saved, b, "--limits", file, "--by", "device") == 0
    file.write_text('by = "host"\n')
    assert gate(saved, b, "--limits", file) == 2
    assert "by 'host' is unknown; write latency or device" in " ".join(
        capsys.readouterr().err.split()
    )


def baseline(*quantities: Quantity) -> Baseline:
    """Of an engine that is no other side's."""
    side = SideSamples(quantities=[*quantities], builds=[str(quantities)], on_gpu=True)
    return Baseline(baseline_version=SCHEMA_VERSION, sides={SIDE: side})


@given(st.data())
def test_a_build_is_not_slower_than_another_and_another_precision_is(data: st.DataObject) -> None:
    """Whatever the order in which engines were loaded."""
    loads = {
        name: [1000 * v for v in data.draw(st.permutations(values))]
        for name, values in LOADS.items()
    }
    sides = {n: baseline(Quantity(what="latency", runs=[v], within=2000)) for n, v in loads.items()}
    for before, after in permutations(sides, 2):
        answer = judge(sides[before], sides[after], Limits(), ("a", "b")).answer
        if after == "tf32":
            assert answer == "slower"
        else:
            assert answer == "not slower" if before == "tf32" else answer != "slower"


def test_builds_of_one_engine_on_a_loaded_host_are_not_slower_than_each_other() -> None:
    found: dict[bool, list[str]] = {True: [], False: []}
    for pair in combinations(BUILDS, 2):
        sides = [
            baseline(
                Quantity(what="latency", runs=[[*latency]], within=1400),
                Quantity(what="queued", runs=[[*queued]], within=360),
            )
            for latency, queued in pair
        ]
        for by_device, answers in found.items():
            verdict = judge(*sides, Limits(by_device=by_device), ("a", "b"))
            answers.append(verdict.answer)
    assert found[False] == ["cannot tell"] * 6
    # The first one's processes drift, by 2 %.
    assert found[True] == ["cannot tell"] * 3 + ["not slower"] * 3
