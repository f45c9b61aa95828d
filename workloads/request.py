"""What a training run is asked for, and the switches that it sets: without torch until it runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import InputError, ToolMissing
from ..engines.workers.cuda_driver import bus_id
from ..export import own

if TYPE_CHECKING:
    import torch

    from .training import Training

# Workload: the module and the function that makes its `Training` of a `Request`.
WORKLOADS = {
    "gpt2": "layerline.workloads.language:causal",
    "bert": "layerline.workloads.language:masked",
    "llama": "layerline.workloads.parallel.requests:llama",
    "gpt-layouts": "layerline.workloads.parallel.requests:gpt_layouts",
    "sequence-parallel": "layerline.workloads.parallel.requests:sequence_parallel",
}


# What trains a function of the user's, which is named in a workload's place.
_OWN = "layerline.workloads.own_model:training"


def check(workload: str) -> None:
    """InputError for what is neither a workload nor a function of the user's."""
    if workload not in WORKLOADS and own.target(workload) is None:
        raise InputError(
            f"unknown workload {workload}",
            fix=f"choose from {', '.join(WORKLOADS)}, or name your own code: own.py:build",
        )


@dataclass(frozen=True)
class Request:
    """One training run. Paths are text, so that it can be JSON.

    `batch` and `seq`: of a micro-batch, of which `accumulate` make a step. `cache`: a folder for
    tokens. `checkpoint`: recompute blocks in backward, each or every so many (`checkpoint_every`).
    `fused`: the optimizer's implementation; `eight_bit`: bitsandbytes' AdamW, whose moments have 8
    bits. `threads`: of the CPU. `rank` of `ranks`, `local` of those on this machine.
    """

    workload: str
    cache: str
    model: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    precision: str = "fp32"
    batch: int = 1
    seq: int = 128
    accumulate: int = 1
    seed: int = 0
    learning_rate: float = 3e-4
    checkpoint: bool = False
    checkpoint_every: int = 1
    compile: bool = False
    deterministic: bool = False
    fused: bool = False
    eight_bit: bool = False
    text: str | None = None
    tokenizer: str | None = None
    device: str | None = None
    threads: int | None = None
    rank: int = 0
    ranks: int = 1
    local: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def path(self, name: str) -> Path | None:
        """`text` or `tokenizer` as a path."""
        value = getattr(self, name)
        return None if value is None else Path(value)

    def build(self) -> Training:
        """The `Training`, with its switches set. InputError for what cannot be trained."""
        import importlib

        check(self.workload)
        module, name = WORKLOADS.get(self.workload, _OWN).split(":")
        training: Training = getattr(importlib.import_module(module), name)(self)
        return training


@dataclass(frozen=True)
class Defaults:
    """What a workload takes where nobody says it; `model` None: the workload's own."""

    model: str | None = None
    batch: int = 1
    seq: int = 128
    accumulate: int = 1
    steps: int = 30


def defaults(workload: str, model: str | None, device: str | None) -> Defaults:
    """Of a workload, for this machine: without a GPU a model of seconds."""
    from .parallel import shapes

    if workload == "llama":
        model = model or (shapes.LLAMA_MODEL if has_gpu(device) else shapes.TINY)
        shape = shapes.LLAMA.get(model, {})
        return Defaults(model, seq=shape.get("max_position_embeddings", 4096))
    if workload == "gpt-layouts":
        model = model or (shapes.GPT_MODEL if has_gpu(device) else shapes.TINY)
        known = shapes.GPT.get(model)
        return Defaults(model, batch=4, seq=known.sequence if known else 1024, accumulate=4)
    if workload == "sequence-parallel":
        if model is not None:
            what = "sequence-parallel has no model"
            raise InputError(what, fix="choose its sizes: --seq 256 --set hidden=512")
        return Defaults(seq=4608, steps=18)
    code = own.target(workload)
    sizes = {} if code is None else own.usual(code)
    batch, seq = (sizes.get(n, getattr(Defaults, n)) for n in ("batch", "seq"))
    return Defaults(batch=batch, seq=seq)


def has_gpu(asked: str | None) -> bool:
    """Whether a run on this device has a GPU; PyTorch is not imported."""
    return asked != "cpu" and bus_id() is not None


def choose_device(asked: str | None, local: int = 0) -> torch.device:
    """The device asked for, else CUDA where there is one, else the CPU. On a GPU the one of this
    rank, which becomes the current one."""
    import torch

    name = asked or ("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type != "cuda":
        return device
    if not torch.cuda.is_available():
        raise ToolMissing("no CUDA device is usable from PyTorch", fix="use device cpu")
    there = torch.cuda.device_count()
    if device.index is None:
        device = torch.device("cuda", local % there)
    elif device.index >= there:
        raise ToolMissing(f"there is no {device}: PyTorch sees {there} GPUs", fix="use cuda:0")
    torch.cuda.set_device(device)
    return device


def set_up(precision: str, seed: int, threads: int | None = None, exact: bool = False) -> None:
    """Seed every generator and set the switches of a precision. `exact`: only kernels that give
    the same bits each time, where PyTorch has them."""
    import torch

    if threads:
        torch.set_num_threads(threads)
    if exact:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
