"""The eager model under ncu: warm up, then one inference or one training step with NVTX ranges.

``python -m layerline.profile.ncu.eager_worker JOB.json``, in a worker's protocol. Module ranges
are push/pop ranges of the forward's thread; phases are start/end ranges, which hold for every
thread, so for backward's too. No other profiler runs here: ncu is the only user of the counters.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..eager.worker import answer


@contextlib.contextmanager
def _everywhere(name: str) -> Iterator[None]:
    """An NVTX range that holds for all threads."""
    import torch

    opened = torch.cuda.nvtx.range_start(name)
    try:
        yield
    finally:
        torch.cuda.nvtx.range_end(opened)


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run the job's inference or step between profiler start and stop; gives facts."""
    import torch

    from ..eager import hooks, measure_training
    from ..eager.setup import prepare

    training = job["task"] == "train"
    subject = prepare(job, training=training)
    options = job["options"]
    trainer = measure_training.Trainer(subject, options, range_of=_everywhere) if training else None

    def step() -> None:
        if trainer is not None:
            trainer.step(measure_training.Clock(subject))
        else:
            with torch.inference_mode():
                with hooks.phase("data", _everywhere):
                    batch = subject.batch()
                with hooks.phase("inference", _everywhere):
                    subject.model(**batch)
        subject.synchronize()

    for _ in range(int(options.get("warmup", 2))):
        step()
    cuda = torch.cuda.cudart()
    with hooks.module_ranges(subject.model, hooks.nvtx):
        cuda.cudaProfilerStart()
        begun = time.perf_counter_ns()
        step()
        profiled = time.perf_counter_ns() - begun
        cuda.cudaProfilerStop()
    facts = {k: v for k, v in subject.facts.items() if k != "machine"}
    return {**facts, "profiled_ns": profiled}


if __name__ == "__main__":
    sys.exit(answer(Path(sys.argv[1]), run))
