"""The eager worker under nsys: warm up outside of the capture, then iterations with NVTX ranges.

``python -m layerline.profile.eager.nsys_worker JOBS``, in the eager worker's protocol: each job is
a capture. Operators have PyTorch's own NVTX ranges (`torch.autograd.profiler.emit_nvtx`), on
backward's thread too. No other profiler runs here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import ToolMissing
from .worker import answer

if TYPE_CHECKING:
    from .setup import Subject


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run the job's iterations between profiler start and stop; gives facts."""
    from .setup import prepare, ready

    if job["task"] == "ready":
        return ready(job)
    options = job["options"]
    subject = prepare(job, training=job["task"] == "train")
    if subject.device.type != "cuda":
        raise ToolMissing("no CUDA device is usable from PyTorch", fix="nsys needs a GPU")
    measured = _training if subject.training else _inference
    facts = {k: v for k, v in subject.facts.items() if k != "machine"}
    return {**facts, **measured(subject, options, job["mark"])}


def _training(subject: Subject, options: dict[str, Any], mark: str) -> dict[str, Any]:
    from ...workloads.loop import train
    from .measure_training import training_of
    from .nsys_steps import NsysSteps
    from .plugins import Schedule

    schedule = Schedule(warmup=int(options["warmup"]), active=int(options["traced"]))
    plugin = NsysSteps(schedule, mark)
    for _ in train(training_of(subject, options), plugin.own_steps, [plugin]):
        pass
    return plugin.facts()


def _inference(subject: Subject, options: dict[str, Any], mark: str) -> dict[str, Any]:
    """Inferences, each ended by waiting for the device."""
    import torch

    from . import hooks, measure_inference

    cuda = torch.cuda.cudart()
    with (
        torch.inference_mode(),
        hooks.module_ranges(subject.model, hooks.nvtx) as classes,
        torch.autograd.profiler.emit_nvtx(),
    ):
        for _ in range(int(options["warmup"])):
            measure_inference.forward(subject, hooks.nvtx)
        cuda.cudaProfilerStart()
        torch.cuda.nvtx.mark(mark)
        for number in range(int(options["traced"])):
            with hooks.iteration(number, hooks.nvtx):
                measure_inference.forward(subject, hooks.nvtx)
        cuda.cudaProfilerStop()
    return {"phases": ["data", "inference"], "modules": classes}


if __name__ == "__main__":
    sys.exit(answer(Path(sys.argv[1]), run))
