"""One step of GPT-2 on an H200: two micro-batches of 1×1024, every block recomputed in backward.

`expected.json` was added up from the trace by tests/data/make_h200_train.py, which shares no code
with Layerline and follows the profiler's arrows where Layerline follows sequence numbers.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from collections.abc import Callable
from typing import Any

import paths
import pytest
import rendering

from layerline.analysis import pipeline
from layerline.analysis.attribution.eager import eager
from layerline.analysis.model.comparison import Comparison, Side
from layerline.core.run import open_run

DATA = paths.DATA / "h200_train"
EXPECTED = json.loads((DATA / "expected.json").read_text())


@pytest.fixture(scope="module")
def device() -> list[dict[str, Any]]:
    """The rows of operations on the device."""
    rows = eager(DATA / "train.bf16.trace.json.gz", {}).main.to_pylist()
    return [r for r in rows if r["kind"] != "op"]


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    run = open_run(tmp_path_factory.mktemp("h200") / "run", create=True)
    run.file("captures").mkdir()
    for path in DATA.glob("train.*"):
        shutil.copy(path, run.file("captures"))
    return pipeline.analyse(run).comparison


@pytest.fixture(scope="module")
def sides(view: Comparison) -> dict[str, Side]:
    return {s.phase: s for s in view.sides}


def test_each_phase_has_the_time_of_what_it_launched(device: list[dict[str, Any]]) -> None:
    phases = Counter[str]()
    for row in device:
        phases[row["phase"]] += row["duration_ns"]
    assert len(device) == EXPECTED["kernels"] == 3152
    assert phases == EXPECTED["phases"]


@pytest.mark.parametrize("phase", ["forward", "recompute", "backward"])
def test_each_module_has_its_kernels_time_in_every_phase(
    device: list[dict[str, Any]], phase: str
) -> None:
    modules = Counter[str]()
    for row in device:
        if row["phase"] == phase and row["modules"]:
            [module] = row["modules"]
            modules[module] += row["duration_ns"]
    assert len(modules) >= 120
    assert modules == EXPECTED["modules"][phase]


def test_modules_and_rows_are_the_whole_time_of_the_device(device: list[dict[str, Any]]) -> None:
    rows = Counter[str]()
    for row in device:
        assert row["modules"] or row["rule"] != "unresolved"
        if not row["modules"]:
            rows[row["layer"]] += row["duration_ns"]
    credited = sum(sum(of.values()) for of in EXPECTED["modules"].values())
    assert credited + sum(rows.values()) == sum(EXPECTED["phases"].values()) == 24_433_656
    # Every block has two residual connections, whose gradients meet; and there are two batches.
    assert set(rows) == {
        "data", "loss", "optimizer", "gradient accumulation", "gradient sums", "recomputation",
        "backward start",
    }  # fmt: skip


def spans(test: Callable[[dict[str, Any]], bool]) -> list[tuple[float, float]]:
    """Begin and end of events of the trace, by begin, in us."""
    trace = json.loads(gzip.decompress((DATA / "train.bf16.trace.json.gz").read_bytes()))
    found = [e for e in trace["traceEvents"] if e["ph"] == "X" and test(e)]
    return sorted((e["ts"], e["ts"] + e["dur"]) for e in found)


def after_the_last_kernel() -> int:
    [(_, end)] = spans(lambda e: e["name"] == "layerline/iteration/0")
    return round((end - max(end for _, end in spans(on_device))) * 1000)


def on_device(event: dict[str, Any]) -> bool:
    return event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")


def idle_while_in(phase: str) -> int:
    """ns without an operation on the device while the host was in a phase's ranges."""
    [(done, _)] = spans(lambda e: e["name"] == "layerline/iteration/0")
    ranges, idle = spans(lambda e: e["name"] == f"layerline/phase/{phase}"), 0.0
    for start, end in spans(on_device):
        if start > done:
            idle += sum(max(0.0, min(start, b) - max(done, a)) for a, b in ranges)
        done = max(done, end)
    return round(idle * 1000)


def test_the_device_idles_in_the_phase_in_which_the_host_is(sides: dict[str, Side]) -> None:
    """Recomputation is inside of backward, and goes off it."""
    waiting = sides["step"].waiting
    assert waiting is not None
    for phase in ("data", "forward", "loss", "recompute", "optimizer"):
        assert waiting.idle[phase].median == pytest.approx(idle_while_in(phase), abs=100)
    backward = idle_while_in("backward") - idle_while_in("recompute")
    assert waiting.idle["backward"].median == pytest.approx(backward, abs=100)


def test_a_phase_in_parts_is_not_charged_for_what_runs_between_them(
    sides: dict[str, Side],
) -> None:
    """Two micro-batches, and in each backward twelve recomputations."""
    values = {p: s.host.values for p, s in sides.items() if s.host is not None}
    for phase in ("forward", "recompute", "backward"):
        window = dict(next(c.terms for c in sides[phase].checks if c.name == "ii"))
        idle, busy = values[phase]["idle"], values[phase]["busy"]
        assert idle is not None and busy is not None
        assert busy.median == EXPECTED["phases"][phase]
        assert idle.median < window["gaps"]
    ours = [values[p]["launch"].median for p in ("forward", "recompute", "backward", "optimizer")]
    assert sum(ours) == pytest.approx(values["step"]["launch"].median, rel=0.02)


def test_autocast_in_bf16_is_said_to_multiply_in_that_alone(sides: dict[str, Side]) -> None:
    """cuDNN's attention has f16 in its kernels' names, here too."""
    assert set(sides["step"].precision_run) == {"bf16", "unknown"}


def test_the_step_adds_up_and_the_page_begins_with_it(
    view: Comparison, sides: dict[str, Side]
) -> None:
    assert list(sides) == ["forward", "recompute", "backward", "optimizer", "step"]
    for side in sides.values():
        assert side.coverage == 1
        checks = {c.name: c.ok for c in side.checks}
        assert checks["i"] and checks["ii"], side.label
    step = dict(next(c.terms for c in sides["step"].checks if c.name == "ii"))
    on_device = sum(ns for name, ns in step.items() if name.endswith(" on the device"))
    # What is left is of the end: from the last kernel until the host knows.
    left = step["latency"] - on_device - step["between phases"]
    assert left == pytest.approx(after_the_last_kernel(), abs=2)
    assert step["operations"] == 24_433_656
    assert view.title == "gpt2, 1×1024"
    first = rendering.headline(view)[0].text
    assert first.startswith("A step of gpt2 (eager bf16) takes 146 ms")
    # The means of each phase's share in the 20 unprofiled steps.
    latency = json.loads((DATA / "train.bf16.latency.json").read_text())
    steps, phases = latency["latency_ns"], latency["phases_ns"]
    for name, ns in phases.items():
        share = sum(a / b for a, b in zip(ns, steps, strict=True)) / len(steps)
        assert (sides["step"].time_shares or {})[name] == pytest.approx(share)
    assert sum((sides["step"].time_shares or {}).values()) == pytest.approx(1)
    assert "recompute 24.2 %" in first and "no phase 0.5 %" in first
