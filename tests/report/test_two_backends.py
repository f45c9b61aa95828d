"""Two backends of one precision side by side: what TensorRT buys over ONNX Runtime CUDA."""

from __future__ import annotations

from typing import Any

import rendering
from analysis_examples import node, ops
from measured_sides import measured_side

from layerline.analysis.comparison.build import build
from layerline.analysis.costs.iterations import labels
from layerline.analysis.costs.measured import MeasuredSide
from layerline.analysis.model.side import Model

LABELS = {"tensorrt": "TensorRT", "onnxruntime-cuda": "ONNX Runtime CUDA",
          "onnxruntime": "ONNX Runtime"}  # fmt: skip


def a_side(backend: str, latency: int, attention: int, **more: Any) -> MeasuredSide:
    table = ops(node("attn", ["attn"], [attention] * 8), node("mlp", ["mlp"], [100] * 8))
    precision = more.pop("precision", "fp16")
    return measured_side(
        task="engine",
        label=f"{LABELS[backend]} {precision}",
        precision=precision,
        phase="inference",
        backend=backend,
        source=f"{precision}.{backend}.sqlite",
        ops=table,
        labels=labels(table, "no module"),
        latency_ns=[latency + i for i in range(8)],
        **more,
    )


def both(**more: Any) -> Any:
    sides = [a_side("onnxruntime-cuda", 3_000, 900, **more), a_side("tensorrt", 1_000, 300)]
    return build(sides, Model("m", ["", "attn", "mlp"]))


def test_ratio_and_where_it_comes_from() -> None:
    shown = both()
    (ratio,) = shown.ratios
    assert ratio.over == "engine/fp16.onnxruntime-cuda/inference"
    assert ratio.under == "engine/fp16.tensorrt/inference"
    assert 2.95 < ratio.low <= ratio.ratio <= ratio.high < 3.02
    texts = [h.text for h in rendering.headline(shown)]
    assert texts[0].startswith("TensorRT fp16 is 2.99× as fast as ONNX Runtime CUDA fp16")
    assert "saves most in attn (600 ns)" in texts[1]


def test_every_table_has_both_columns() -> None:
    shown = both()
    row = next(r for r in shown.modules if r.path == "attn")
    assert {k: c.own.median for k, c in row.costs.items()} == {
        "engine/fp16.onnxruntime-cuda/inference": 900,
        "engine/fp16.tensorrt/inference": 300,
    }
    assert set(rendering.summary(shown)["engines"]) == {"fp16.onnxruntime-cuda", "fp16.tensorrt"}
    for text in (rendering.markdown(shown), rendering.html(shown)):
        assert "ONNX Runtime CUDA fp16" in text
        assert "TensorRT fp16" in text
        assert "2.99×" in text


def test_the_cpu_and_other_precisions_are_no_measure_of_tensorrt() -> None:
    sides = [a_side("onnxruntime", 9_000, 900), a_side("tensorrt", 1_000, 300),
             a_side("onnxruntime-cuda", 3_000, 900, precision="tf32")]  # fmt: skip
    assert build(sides, Model("m")).ratios == []


def test_nodes_on_the_cpu_are_said() -> None:
    texts = [
        h.text for h in rendering.headline(both(device={"on_cpu": {"NonZero": 2, "Shape": 1}}))
    ]
    assert any(
        "ONNX Runtime CUDA fp16: 3 nodes run on the CPU (NonZero ×2, Shape)" in t for t in texts
    )
    assert not any("on the CPU" in h.text for h in rendering.headline(both()))


def test_modules_that_a_plan_keeps_in_fp32_are_said() -> None:
    kept = ["h.0.norm", "h.1.norm", "h.2.norm", "norm"]
    texts = [h.text for h in rendering.headline(both(device={"kept_fp32": kept}))]
    said = "keeps 4 modules in fp32 by its precision plan: h.0.norm, h.1.norm, and 2 more."
    assert any(said in t for t in texts)
    assert not any("in fp32 by" in h.text for h in rendering.headline(both()))
