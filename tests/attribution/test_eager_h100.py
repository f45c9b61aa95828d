"""One iteration of a two-layer GPT-2 on an H100, attributed by two independent routes.

Our way is launch -> host thread -> ranges and sequence numbers. The other is written here from what
the profiler itself adds: a kernel's "External id" names its operator, and arrows lead from each
backward node to its forward operator.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import paths
import pyarrow as pa
import pytest

from layerline.analysis.attribution.eager import eager
from layerline.analysis.checks import phases_on_device
from layerline.core import tables

DATA = paths.DATA / "h100_eager"
MODULE = "layerline/module/"
CAPTURES = ("eager.fp32", "train.fp32", "train.fp16")


def trace(name: str) -> Path:
    return DATA / f"{name}.trace.json.gz"


def timed(name: str) -> list[dict[str, Any]]:
    events = json.loads(gzip.decompress(trace(name).read_bytes()))["traceEvents"]
    return [e for e in events if e["ph"] in "Xsf"]


def device_rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = eager(trace(name), {}).main.to_pylist()
    return [r for r in rows if r["kind"] != "op"]


def around(events: list[dict[str, Any]], thread: Any, at: float) -> list[dict[str, Any]]:
    """Events of the thread that hold the moment, outermost first."""
    holding = [e for e in events if e["tid"] == thread and e["ts"] <= at < e["ts"] + e["dur"]]
    return sorted(holding, key=lambda e: (e["ts"], -e["dur"]))


def expected_modules(name: str) -> dict[int, str | None]:
    """Module of each device operation by its correlation, null for none; only those told."""
    events = timed(name)
    host = [e for e in events if e["ph"] == "X" and e["pid"] == 1]
    operators = {e["args"]["External id"]: e for e in host if e["cat"] == "cpu_op"}
    heads = {e["id"]: e for e in events if e["ph"] == "s"}
    arrows = {(e["tid"], e["ts"]): heads[e["id"]] for e in events if e["ph"] == "f"}
    ranges = [e for e in host if e["name"].startswith(MODULE)]
    annotated = [e for e in host if e["cat"] in ("cpu_op", "user_annotation")]
    found: dict[int, str | None] = {}
    for kernel in events:
        if kernel["ph"] != "X" or kernel["pid"] == 1:
            continue
        place = operators[kernel["args"]["External id"]]
        thread, at = place["tid"], place["ts"]
        if thread != 1:
            outer = around(annotated, thread, at)
            arrow = [arrows[e["tid"], e["ts"]] for e in outer if (e["tid"], e["ts"]) in arrows]
            if not arrow:
                continue  # not every node has an arrow
            thread, at = arrow[0]["tid"], arrow[0]["ts"]
        inside = around(ranges, thread, at)
        module = inside[-1]["name"].removeprefix(MODULE) if inside else None
        found[kernel["args"]["correlation"]] = module
    return found


@pytest.mark.parametrize("name", CAPTURES)
def test_kernels_go_to_the_modules_that_the_profilers_own_ids_and_arrows_name(name: str) -> None:
    rows = device_rows(name)
    expected = expected_modules(name)
    compared = [r for r in rows if r["correlation"] in expected and r["layer"] != "gradient sums"]
    for row in compared:
        module = expected[row["correlation"]]
        assert row["modules"] == (None if module is None else [module]), row
    assert len(compared) >= len(rows) * 0.8


@pytest.mark.parametrize("name", CAPTURES)
def test_every_kernel_has_a_module_or_a_named_row_a_phase_and_an_iteration(name: str) -> None:
    for row in device_rows(name):
        assert row["rule"] in ("range", "sequence"), row
        assert row["iteration"] == 0
        named = {"loss", "optimizer", "data", "gradient sums", "backward start"}
        assert row["modules"] is not None or row["layer"] in named
    phases = {r["phase"] for r in device_rows(name)}
    training = {"data", "forward", "loss", "backward", "optimizer"}
    assert phases == (training if name.startswith("train") else {"data", "inference"})


def test_the_kernels_of_one_linear_layer() -> None:
    """c_fc is x @ w + b: one kernel ahead; two products and the bias' sum (two kernels) back."""
    rows = [r for r in device_rows("train.fp32") if r["modules"] == ["transformer.h.1.mlp.c_fc"]]
    ahead = [r for r in rows if r["phase"] == "forward"]
    back = [r for r in rows if r["phase"] == "backward"]
    assert [(r["layer"], r["duration_ns"]) for r in ahead] == [("aten::addmm", 3936)]
    assert sorted(r["layer"] for r in back) == [
        "aten::mm", "aten::mm", "aten::mm", "aten::sum",
    ]  # fmt: skip
    assert sum(r["duration_ns"] for r in back) == 12800


def test_gradients_meet_nine_times() -> None:
    """Four residual connections, four in the two activations, and the weight that wte and lm_head
    share."""
    rows = [r for r in device_rows("train.fp32") if r["layer"] == "gradient sums"]
    assert len(rows) == 9


def test_the_windows_of_phases_follow_one_another() -> None:
    found = eager(trace("train.fp32"), {})
    places = found.facts["phases"], found.facts["steps"]
    windows = phases_on_device.windows(found.main, *places)
    assert list(windows) == ["data", "forward", "loss", "backward", "optimizer"]
    length = sum(of[0].between + of[0].length for of in windows.values())
    # The iteration's range begins at 1000 us; optimizer's range ends 13511.019 us later (its start
    # at 11897.261 us, its duration 1613.758 us), after the last kernel (13251.137 us).
    assert length == pytest.approx(13_511_019, abs=2)
    assert all(of[0].outside == 0 for of in windows.values())
    step = {0: found.facts["steps"][0]["duration_ns"]}
    check = phases_on_device.step_on_device(windows, step)
    assert check.ok
    assert check.residual_ns == step[0] - length


def kernel(phase: str, start: int, duration: int) -> dict[str, Any]:
    return {
        "kind": "kernel",
        "phase": phase,
        "iteration": 0,
        "start_ns": start,
        "duration_ns": duration,
    }


def span(phase: str, start: int, duration: int) -> dict[str, Any]:
    return {"phase": phase, "iteration": 0, "start_ns": start, "duration_ns": duration}


STEPS = [{"iteration": 0, "start_ns": 0, "duration_ns": 1000}]
PHASES = [span("forward", 10, 90), span("backward", 110, 190)]


def ops(*rows: dict[str, Any]) -> pa.Table:
    return tables.table("ops", list(rows))


def test_operations_that_outlast_the_hosts_phase_count_for_it() -> None:
    """Forward's host range is 10 to 100, its kernels end at 500; backward's at 300 and 950."""
    made = ops(
        kernel("forward", 50, 250), kernel("forward", 300, 200), kernel("backward", 500, 450)
    )
    windows = phases_on_device.windows(made, PHASES, STEPS)
    assert windows["forward"][0] == phases_on_device.Window(490, 450, 0, 40, 0, between=10)
    assert windows["backward"][0] == phases_on_device.Window(450, 450, 0, 0, 0)
    assert phases_on_device.step_on_device(windows, {0: 951}).residual_ns == 1


def test_recomputation_inside_backward_has_a_window_of_its_own() -> None:
    """Backward 110 to 300 with recomputation 150 to 200: a kernel each, and one of backward after.

    The device runs 400 ns behind the host, so times alone would give all of them to the end."""
    made = ops(
        kernel("backward", 510, 100) | {"correlation": 1},
        kernel("recompute", 620, 200) | {"correlation": 2},
        kernel("backward", 820, 150) | {"correlation": 3},
    )
    phases = [
        span("backward", 110, 140) | {"pieces": [(110, 150), (200, 300)]},
        span("recompute", 150, 50) | {"pieces": [(150, 200)]},
    ]
    launched = {1: 120, 2: 160, 3: 250}
    windows = phases_on_device.windows(made, phases, STEPS, launched)
    assert windows["backward"][0] == phases_on_device.Window(500 + 150, 250, 0, 400, 0, between=110)
    assert windows["recompute"][0] == phases_on_device.Window(210, 200, 0, 10, 0)
    assert phases_on_device.step_on_device(windows, {0: 970}).residual_ns == 0


def test_overlapping_kernels_are_busy_once() -> None:
    windows = phases_on_device.windows(
        ops(kernel("forward", 10, 100), kernel("forward", 60, 100)), PHASES[:1], STEPS
    )
    assert windows["forward"][0] == phases_on_device.Window(150, 200, 50, 0, 0, between=10)


def test_what_the_host_does_between_phases_is_of_neither() -> None:
    """Forward is done at 120, on the host at 100; backward begins at 200 and ends at 300."""
    late = [PHASES[0], span("backward", 200, 100)]
    windows = phases_on_device.windows(
        ops(kernel("forward", 50, 70), kernel("backward", 220, 60)), late, STEPS
    )
    assert windows["backward"][0] == phases_on_device.Window(100, 60, 0, 40, 0, between=80)
    check = phases_on_device.step_on_device(windows, {0: 300})
    assert check.residual_ns == 0
    assert dict(check.terms)["between phases"] == 10 + 80


def test_a_kernel_given_to_the_wrong_phase_does_not_add_up() -> None:
    """Backward's kernel at 20 to 80 ran while forward was on the device."""
    made = ops(kernel("forward", 50, 450), kernel("backward", 20, 60), kernel("backward", 500, 450))
    windows = phases_on_device.windows(made, PHASES, STEPS)
    assert windows["backward"][0].outside == 60
    check = phases_on_device.phase_against_events(windows["backward"], {}, "backward")
    assert check.ok is False
    assert phases_on_device.phase_against_events(windows["forward"], {}, "forward").ok


def test_events_that_measured_another_time_do_not_add_up() -> None:
    windows = phases_on_device.windows(ops(kernel("forward", 10, 5_000_000)), PHASES[:1], STEPS)
    close = phases_on_device.phase_against_events(windows["forward"], {0: 5_090_000}, "forward")
    far = phases_on_device.phase_against_events(windows["forward"], {0: 6_000_000}, "forward")
    assert (close.ok, close.residual_ns) == (True, 90_000)
    assert (far.ok, far.residual_ns) == (False, 1_000_000)


def test_time_before_the_first_launch_is_told_apart() -> None:
    """Inference's phase in the trace: the first launch is its own term of the latency."""
    found = eager(trace("eager.fp32"), {})
    phase = next(p for p in found.facts["phases"] if p["phase"] == "inference")
    host = [e for e in timed("eager.fp32") if e["ph"] == "X" and e["pid"] == 1]
    launched = {e["args"]["correlation"] for e in timed("eager.fp32") if e.get("pid") == 0}
    first = min(
        e["ts"]
        for e in host
        if e["args"].get("correlation") in launched and e["ts"] * 1000 >= phase["start_ns"]
    )
    assert phase["before_launch_ns"] == pytest.approx(first * 1000 - phase["start_ns"], abs=1)
