"""What was asked for against what ran, and how launches and queues are told apart."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from msgspec import convert

from layerline.analysis.checks import closure, precision
from layerline.analysis.checks import latency as latency_
from layerline.analysis.checks.closure import Span
from layerline.analysis.costs import kernel_precisions
from layerline.analysis.host import launch_bound
from layerline.core import tables
from layerline.core.documents import Measured

HALF = "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize32x32x64"
TF32 = "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize32x32x64"
FULL = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8"
PLAIN = "__myl_bb0_9_MulMulMulAddMulTanAddMulMul"


def ran(*kernels: tuple[str, int]) -> precision.KernelTime | None:
    rows = [
        {"source": "x", "phase": "inference", "kind": "kernel", "name": n, "duration_ns": ns}
        for n, ns in kernels
    ]
    return precision.kernel_time(tables.table("ops", rows))


def verdict(asked: str, *kernels: tuple[str, int], claims: bool = True) -> Any:
    return precision.check(asked, ran(*kernels), claims=claims, label="engine")


@pytest.mark.parametrize(
    ("asked", "kernels", "ok", "says"),
    [
        ("fp16", [(TF32, 60), (PLAIN, 40)], False, "no kernel ran fp16: 60.0 % tf32"),
        ("fp16", [(HALF, 30), (TF32, 30), (PLAIN, 40)], True, "30.0 % fp16, 30.0 % tf32"),
        ("bf16", [(HALF, 60)], False, "no kernel ran bf16"),
        ("fp32", [(FULL, 99), (TF32, 1)], False, "kernels ran tf32: 99.0 % fp32, 1.0 % tf32"),
        ("fp32", [(FULL, 60), (PLAIN, 40)], True, "60.0 % fp32"),
        ("tf32", [(FULL, 100)], None, "no kernel ran tf32"),
        ("tf32", [(TF32, 100)], True, "100 % tf32"),
        ("fp16", [(PLAIN, 100)], None, "no kernel's name tells"),
    ],
)
def test_what_was_asked_for_is_held_against_kernels(
    asked: str, kernels: list[tuple[str, int]], ok: bool | None, says: str
) -> None:
    found = verdict(asked, *kernels)
    assert found.ok is ok
    assert says in found.text


def test_a_side_that_claims_nothing_makes_no_error() -> None:
    assert verdict("fp32", (TF32, 1), claims=False).ok is None


def test_without_kernels_there_is_no_check() -> None:
    assert verdict("fp16") is None


def test_kernel_time_is_a_median_of_iterations_and_shares_are_of_all() -> None:
    rows = [
        {"source": "x", "kind": "kernel", "name": n, "duration_ns": ns, "iteration": i}
        for i, (half, plain) in enumerate([(10, 1), (20, 2), (60, 7)])
        for n, ns in ((HALF, half), (PLAIN, plain))
    ]
    rows.append({"source": "x", "kind": "memcpy", "name": HALF, "duration_ns": 99, "iteration": 0})
    found = precision.kernel_time(tables.table("ops", rows))
    assert found is not None
    assert dict(found.ns) == {"fp16": 20, "unknown": 2}
    assert found.share == {"fp16": 0.9, "unknown": 0.1}


def test_a_layer_computes_in_what_takes_most_of_its_time() -> None:
    rows = [
        {"source": "x", "kind": "kernel", "name": n, "duration_ns": ns, "layer": layer}
        for n, ns, layer in (
            (HALF, 5, "a"), (TF32, 7, "a"), (HALF, 3, "a"), (PLAIN, 90, "a"), (PLAIN, 1, "b"),
        )
    ]  # fmt: skip
    assert kernel_precisions.by_layer(tables.table("ops", rows)) == {"a": "fp16"}


CUDNN = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64"


@pytest.mark.parametrize("name", [CUDNN, "triton_tem_fused_addmm_transpose_view_4"])
def test_where_a_name_leaves_the_type_open_the_layer_list_tells_fp16_or_bf16(name: str) -> None:
    rows = [
        {"source": "x", "kind": "kernel", "name": n, "duration_ns": ns, "layer": layer}
        for n, ns, layer in (
            (name, 8, "half"), (name, 4, "brain"), (name, 2, "single"), (name, 1, None),
            (PLAIN, 16, "half"), (TF32, 32, "half"),
        )
    ]  # fmt: skip
    listed = {"half": "fp16", "brain": "bf16", "single": "fp32"}
    found = precision.kernel_time(tables.table("ops", rows), listed)
    assert found is not None
    # What a name tells stands; a name that means neither float is not made one by the list.
    assert dict(found.ns) == {"fp16": 8, "bf16": 4, "tf32": 32, "unknown": 19}


QUEUED = Measured(latency_ns=[200] * 9, queued_ns=[100] * 9)
NOTHING = tables.table("ops", [])


def kernels(number: int, each: int, gap: int) -> pa.Table:
    """So many of one iteration, on one stream, with the same gap between two."""
    return tables.table("ops", [
        {"kind": "kernel", "iteration": 0, "start_ns": i * (each + gap), "duration_ns": each}
        for i in range(number)
    ])  # fmt: skip


def test_a_queued_trace_is_held_against_queued_inferences() -> None:
    found = latency_.profiler_cost([104] * 9, QUEUED, NOTHING, queued=True)
    assert (found.ok, found.residual_ns) == (True, 4)
    # From idle, the same trace would seem to take half as long as the unprofiled run.
    assert latency_.profiler_cost([104] * 9, QUEUED, NOTHING, queued=False).ok is False


def test_unlike_modes_are_not_compared() -> None:
    found = latency_.profiler_cost([104] * 9, Measured(latency_ns=[200] * 9), NOTHING, queued=True)
    assert found.ok is None and "unprofiled ones were not" in found.text


def test_how_launch_bound_an_engine_is() -> None:
    assert launch_bound.bound([200] * 9, [150] * 9) == 0.25
    assert launch_bound.bound([200] * 9, [201] * 9) == 0  # the clock's noise
    assert launch_bound.bound([200] * 9, []) is None


def test_what_was_not_sampled_of_the_device_is_absent() -> None:
    facts = {"throughput_per_second": 9.5, "gpu": {"samples": 0, "missing": "no nvml"}}
    assert latency_.device(convert({"facts": facts}, Measured)) == {
        "throughput_per_second": 9.5,
        "samples": 0,
    }


def span(iteration: int, operations: int) -> Span:
    """A traced iteration whose kernels do not overlap, most of it gaps."""
    return Span(iteration, operations, 0, 9 * operations, 10 * operations)


def test_kernels_of_a_host_bound_trace_are_held_against_the_same_work_queued() -> None:
    latency = Measured(latency_ns=[9_000_000] * 9, queued_ns=[1_200_000] * 9)
    # 100 kernels: up to 1.5 us lie between two that are queued, so 1.05 to 1.2 ms is explained.
    for busy, ok, residual in (
        (1_100_000, True, 0),
        (1_210_000, True, 10_000),
        (1_400_000, False, 200_000),  # slower kernels
        (800_000, False, -250_000),  # faster ones, or some are missing
    ):
        found = latency_.kernels_alone([span(0, busy)], {0: 100}, latency)
        assert found is not None
        assert (found.name, found.ok, found.residual_ns) == ("iii", ok, residual)
        assert sum(ns for _, ns in found.terms) == residual


def test_an_engine_that_launches_as_it_goes_is_no_slower_for_a_late_host() -> None:
    """Its kernels while traced are held against queued inferences, not its traced latency."""
    latency = Measured(latency_ns=[5_600_000] * 9, queued_ns=[5_560_000] * 9)
    late = kernels(340, 15_300, 8_000)
    found = latency_.profiler_cost([8_300_000] * 9, latency, late, queued=False)
    # 340 kernels of 15.3 us and up to 1.5 us between two are 5.202 to 5.712 ms.
    assert (found.name, found.ok, found.residual_ns) == ("iii", True, 0)
    slow = kernels(340, 18_500, 8_000)
    assert latency_.profiler_cost([8_300_000] * 9, latency, slow, queued=False).ok is False


def test_without_queued_work_the_traced_latency_is_what_is_checked() -> None:
    assert latency_.kernels_alone([span(0, 5)], {0: 1}, Measured(latency_ns=[5] * 9)) is None
    assert latency_.kernels_alone([], {}, Measured(queued_ns=[5] * 9)) is None


def test_tracers_that_agree_slowed_the_host_and_not_the_kernels() -> None:
    slower = latency_.profiler_cost(
        [300] * 9, Measured(latency_ns=[100] * 9), NOTHING, queued=False
    )
    agree = closure.judged("sources", [], 1, 1000, 0.02, good="the same", bad="not")
    differ = closure.judged("sources", [], 100, 1000, 0.02, good="the same", bad="not")
    (told, _) = latency_.host_slowed(slower, [agree])
    assert told.ok is None and "took 200 % longer" in told.text
    assert told.residual_ns == 200  # still shown
    for sources in ([differ], [], [closure.unchecked("sources", "no nsys")]):
        assert latency_.host_slowed(slower, sources)[0] == slower
    fits = latency_.profiler_cost([100] * 9, Measured(latency_ns=[100] * 9), NOTHING, queued=False)
    assert latency_.host_slowed(fits, [agree])[0].ok is True
