"""Which latencies are held against each other, and in which order."""

from __future__ import annotations

from layerline.analysis.comparison.ratios import ratios
from layerline.analysis.model.comparison import Side
from layerline.core.stats import UNMEASURED, summarise


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
