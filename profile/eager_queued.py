"""What the device alone needs for an eager forward: queued as a whole behind a closed gate.

Eager PyTorch launches each kernel when Python reaches it; a small model's latency is mostly that.
The same work queued before it begins shows the device's share, as `queued_ns` of an engine does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from layerline.engines.workers.cuda_driver import Cuda, CudaError, NoDriver

MOST = 30


def queued(work: Callable[[], Any], most: int = MOST) -> tuple[list[int], str | None]:
    """Device nanoseconds of `most` calls of `work`, each queued whole before it began; or why not.

    Not where `work` waits for the device itself, or puts more on the stream than a launch queue
    holds (about a thousand launches): the gate then opens by itself.
    """
    try:
        cuda = Cuda(torch.cuda.current_device())
        gate = cuda.gate()
    except (CudaError, NoDriver) as e:
        return [], str(e)
    stream = torch.cuda.current_stream()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found: list[int] = []
    for _ in range(most):
        stream.synchronize()
        before = gate.opened_by_itself
        try:
            gate.close(stream.cuda_stream)
        except CudaError as e:
            return [], str(e)
        begin.record(stream)
        try:
            work()
            end.record(stream)
        finally:
            gate.open()
        end.synchronize()
        if gate.opened_by_itself > before:
            return [], "the model waits for the device, or launches more than the queue holds"
        found.append(round(begin.elapsed_time(end) * 1e6))
    return found, None
