"""Which latencies are held against each other, and in which order."""

from __future__ import annotations

import pyarrow as pa

from layerline.analysis.comparison.ratios import ratios
from layerline.analysis.model.side import SideData


def side(backend: str, precision: str, ns: int) -> SideData:
    eager = backend == "torch"
    return SideData(
        key=f"{precision}.{backend}", side="eager" if eager else "engine", label=backend,
        precision=precision, phase="inference", backend=backend, source="made up",
        ops=pa.table({}), latency_ns=[ns] * 6,
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
        ("fp16.torch", "fp16.tensorrt", 6.0),
        ("fp16.onnxruntime-cuda", "fp16.tensorrt", 3.0),
        ("fp32.tensorrt", "fp16.tensorrt", 4.0),
        ("fp16.torch", "fp16.onnxruntime-cuda", 2.0),
        ("fp32.onnxruntime-cuda", "fp16.onnxruntime-cuda", 500 / 300),
        ("fp32.torch", "fp32.tensorrt", 2.0),
        ("fp32.onnxruntime-cuda", "fp32.tensorrt", 1.25),
        ("fp32.torch", "fp32.onnxruntime-cuda", 1.6),
    ]


def test_an_engine_without_eager_of_its_precision_is_held_against_fp32() -> None:
    (found,) = ratios([side("tensorrt", "bf16", 100), side("torch", "fp32", 800)])
    assert (found.over, found.ratio) == ("fp32.torch", 8.0)
