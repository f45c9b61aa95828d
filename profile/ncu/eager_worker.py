"""The eager model under ncu: warm up, then one inference or one training step with NVTX ranges.

``python -m layerline.profile.ncu.eager_worker JOB.json``, in a worker's protocol. Module ranges
are push/pop ranges of the forward's thread; phases are start/end ranges, which hold for every
thread, so for backward's too. No other profiler runs here: ncu is the only user of the counters.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator
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

    from ...workloads import loop
    from ..eager import hooks, measure_inference
    from ..eager.measure_training import training_of
    from ..eager.setup import prepare

    subject = prepare(job, training=job["task"] == "train")
    options = job["options"]
    ranges = hooks.Ranges(_everywhere, modules=hooks.nvtx, first=None)
    warmup = int(options.get("warmup", 2))
    cuda = torch.cuda.cudart()
    work: Callable[[], Any]
    with contextlib.ExitStack() as stack:
        if subject.training:
            training = training_of(subject, options)
            for _ in loop.train(training, warmup):
                pass
            ranges.open(training)
            stack.callback(ranges.close)
            work = functools.partial(loop.step, training, warmup, [ranges])
        else:
            stack.enter_context(torch.inference_mode())
            for _ in range(warmup):
                measure_inference.forward(subject, _everywhere)
            stack.enter_context(hooks.module_ranges(subject.model, hooks.nvtx))
            work = functools.partial(measure_inference.forward, subject, _everywhere)
        subject.synchronize()
        cuda.cudaProfilerStart()
        begun = time.perf_counter_ns()
        work()
        subject.synchronize()
        profiled = time.perf_counter_ns() - begun
        cuda.cudaProfilerStop()
    facts = {k: v for k, v in subject.facts.items() if k != "machine"}
    return {**facts, "profiled_ns": profiled}


if __name__ == "__main__":
    sys.exit(answer(Path(sys.argv[1]), run))
