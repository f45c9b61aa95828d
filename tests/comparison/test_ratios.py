"""Which latencies are held against each other, and in which order."""

from __future__ import annotations

from dataclasses import replace

from layerline.analysis.comparison.ratios import ratios, widened
from layerline.analysis.model.comparison import Side
from layerline.core.stats import UNMEASURED, Estimate, summarise


def side(backend: str, precision: str, ns: int) -> Side:
    eager = backend == "torch"
    return Side(
        task="eager" if eager else "engine", label=backend, precision=precision, phase="inference",
        backend=backend, source="made up", latency=summarise([ns] * 6) or UNMEASURED,
    )  # fmt: skip


def test_the_fastest_engine_comes_first_with_all_that_it_is_held_against() -> None:
    found = ratios(
        [
            side("onnxruntime-cuda", "fp32", 500), side("tensorrt", "fp32", 400),
            side("onnxruntime-cuda", "fp16", 300), side("tensorrt", "fp16", 100),
            side("torch", "fp32", 800), side("torch", "fp16", 600),
        ]
    )  # fmt: skip
    assert [(r.over, r.under, r.ratio) for r in found] == [
        ("eager/fp16/inference", "engine/fp16.tensorrt/inference", 6.0),
        ("engine/fp16.onnxruntime-cuda/inference", "engine/fp16.tensorrt/inference", 3.0),
        ("engine/fp32.tensorrt/inference", "engine/fp16.tensorrt/inference", 4.0),
        ("eager/fp16/inference", "engine/fp16.onnxruntime-cuda/inference", 2.0),
        (
            "engine/fp32.onnxruntime-cuda/inference",
            "engine/fp16.onnxruntime-cuda/inference",
            500 / 300,
        ),
        ("eager/fp32/inference", "engine/fp32.tensorrt/inference", 2.0),
        ("engine/fp32.onnxruntime-cuda/inference", "engine/fp32.tensorrt/inference", 1.25),
        ("eager/fp32/inference", "engine/fp32.onnxruntime-cuda/inference", 1.6),
    ]


def test_an_engine_without_eager_of_its_precision_is_held_against_fp32() -> None:
    (found,) = ratios([side("tensorrt", "bf16", 100), side("torch", "fp32", 800)])
    assert (found.over, found.ratio) == ("eager/fp32/inference", 8.0)


def test_the_noise_of_building_widens_an_interval_on_both_sides() -> None:
    latency = Estimate(1000, 900, 1100, 9)
    assert widened(latency, 0.1) == Estimate(1000, 810, 1210, 9)
    assert widened(latency, 0.99) == Estimate(1000, 9, 2189, 9)
    for far in (1.0, 2.0):  # no time is nothing, or below
        assert widened(latency, far) == Estimate(1000, None, None, 9)
    assert widened(latency, 0.0) == widened(latency, None) == latency
    for few in (Estimate(1000, None, 1100, 3), Estimate(1000, 900, None, 3)):
        assert widened(few, 0.1) == few


def test_a_ratio_rests_on_no_less_than_the_noise_of_building() -> None:
    engine = replace(side("tensorrt", "fp32", 100), rebuild_noise=0.25)
    (found,) = ratios([engine, side("torch", "fp32", 1000)])
    assert (found.ratio, found.low, found.high) == (10.0, 1000 / 125, 1000 / 75)


def test_what_was_not_measured_or_is_no_inference_is_held_against_nothing() -> None:
    unmeasured = replace(side("torch", "fp32", 1), latency=UNMEASURED)
    step = replace(side("torch", "fp32", 1000), phase="step")
    assert ratios([side("tensorrt", "fp32", 100), unmeasured]) == []
    assert ratios([side("tensorrt", "fp32", 100), step]) == []
    assert ratios([side("onnxruntime", "fp32", 100), side("tensorrt", "fp16", 50)]) == []
