"""The eager worker under nsys: warm up outside of the capture, then iterations with NVTX ranges.

``python -m layerline.profile.eager.nsys_worker JOBS``, in the eager worker's protocol: each job is
a capture. Operators have PyTorch's own NVTX ranges (`torch.autograd.profiler.emit_nvtx`), on
backward's thread too. No other profiler runs here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...core.errors import ToolMissing
from .worker import answer


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run the job's iterations between profiler start and stop; gives facts."""
    import torch

    from . import hooks
    from .setup import prepare, ready

    if job["task"] == "ready":
        return ready(job)
    options = job["options"]
    subject = prepare(job, training=job["task"] == "train")
    if subject.device.type != "cuda":
        raise ToolMissing("no CUDA device is usable from PyTorch", fix="nsys needs a GPU")
    step, phases = _step(subject, options)
    cuda = torch.cuda.cudart()
    with (
        hooks.module_ranges(subject.model, hooks.nvtx) as classes,
        torch.autograd.profiler.emit_nvtx(),
    ):
        for _ in range(int(options["warmup"])):
            step()
        subject.synchronize()
        cuda.cudaProfilerStart()
        torch.cuda.nvtx.mark(job["mark"])
        for number in range(int(options["traced"])):
            with hooks.iteration(number, hooks.nvtx):
                step()
        cuda.cudaProfilerStop()
    facts = {k: v for k, v in subject.facts.items() if k != "machine"}
    return {**facts, "phases": phases, "modules": classes}


def _step(subject: Any, options: dict[str, Any]) -> tuple[Callable[[], None], list[str]]:
    """One iteration, ended by waiting for the device, and the names of its phases."""
    import torch

    from . import hooks, measure_inference, measure_training

    if subject.training:
        trainer = measure_training.Trainer(subject, options, range_of=hooks.nvtx)

        def train() -> None:
            trainer.step(measure_training.Clock(subject))
            subject.synchronize()

        return train, list(measure_training.PHASES)

    def infer() -> None:
        with torch.inference_mode():
            measure_inference.forward(subject, hooks.nvtx)

    return infer, ["data", "inference"]


if __name__ == "__main__":
    sys.exit(answer(Path(sys.argv[1]), run))
