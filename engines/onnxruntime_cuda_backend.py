"""ONNX Runtime's CUDA provider as a backend: what TensorRT is worth over the library before it.

The wheel is onnxruntime-gpu, which excludes onnxruntime in one environment and has its CPU
provider too. Nodes that the CUDA provider has no kernel for run on the CPU, with copies around
them: they are listed in build.json.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.cli.progress import log
from ..core.run import Run
from . import onnxruntime_graph
from .backend import BuildOptions, Worker, gpu_models
from .launch import WORKERS
from .layers import EngineLayer
from .onnxruntime_backend import OnnxRuntimeBackend

CUDA = "CUDAExecutionProvider"
# Products that cuBLAS and cuDNN may compute in TF32 where the provider allows it
# (onnxruntime/core/providers/cuda/cuda_execution_provider_info.h: use_tf32).
_PRODUCTS = frozenset(
    {
        "Attention", "Conv", "ConvTranspose", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm",
        "GroupQueryAttention", "LSTM", "GRU", "RNN", "MatMul", "MultiHeadAttention",
        "PackedAttention", "TransposeMatMul",
    }
)  # fmt: skip


class OnnxRuntimeCudaBackend(OnnxRuntimeBackend):
    """ONNX Runtime on an NVIDIA GPU, through its CUDA provider."""

    name = "onnxruntime-cuda"
    precisions = ("fp32", "tf32", "fp16", "bf16")
    traceable = True
    trace_suffix = ".trace.profile.json"
    distributions = ("onnxruntime-gpu",)
    providers = (CUDA, onnxruntime_graph.CPU)

    def options(self, asked: BuildOptions) -> dict[str, Any]:
        options = super().options(asked)
        del options["cpu"]  # kernels are chosen for the GPU
        return {**options, "gpus": gpu_models()}

    def source(self, run: Run, precision: str) -> Path:
        return run.file("export", f"{'fp32' if precision == 'tf32' else precision}.onnx")

    def worker(self) -> Worker:
        return Worker((sys.executable, str(WORKERS / "onnxruntime_cuda_worker.py")))

    def job_options(self, run: Run, precision: str) -> dict[str, Any]:
        """TF32 is off for fp32 alone: in half engines it is left to what stays in float, which
        is also what TensorRT does."""
        cuda = {"device_id": "0", "use_tf32": "0" if precision == "fp32" else "1"}
        return {"providers": list(self.providers), "provider_options": [cuda, {}]}

    def _layers(
        self, model: Any, probed: Mapping[str, Any], graph: Any, precision: str
    ) -> list[EngineLayer]:
        layers = super()._layers(model, probed, graph, precision)
        return layers if precision == "fp32" else [_open(layer) for layer in layers]

    def _facts(self, probed: Mapping[str, Any], precision: str) -> dict[str, Any]:
        """`on_cpu`: the nodes that the CUDA provider did not take, with their operators."""
        elsewhere = {
            name: record.get("op")
            for name, record in probed.items()
            if record.get("provider") != CUDA
        }
        if elsewhere:
            ops = ", ".join(sorted({str(op) for op in elsewhere.values()}))
            log(
                f"{precision} {self.name}: {len(elsewhere)} of {len(probed)} nodes run on the "
                f"CPU ({ops})"
            )
        return {"on_cpu": elsewhere}


def _open(layer: EngineLayer) -> EngineLayer:
    """A product of floats that may use TF32: its kernels show the type, the graph does not."""
    if layer.raw.op in _PRODUCTS and layer.compute_precision == "fp32":
        return replace(layer, compute_precision=None)
    return layer
