"""What the device alone needs for an eager forward: queued as a whole behind a closed gate.

Eager PyTorch launches each kernel when Python reaches it; a small model's latency is mostly that.
The same work queued before it begins shows the device's share, as `queued_ns` of an engine does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...engines.workers.cuda_driver import Cuda, CudaError, NoDriver
from ...engines.workers.stream_clock import StreamClock

MOST = 30
WAITS = "the model waits for the device, or launches more than the queue holds"


def queued(work: Callable[[], Any], most: int = MOST) -> tuple[list[int], str | None]:
    """Device nanoseconds of `most` calls of `work`, each queued whole before it began; or why not.

    Not where `work` waits for the device itself, or puts more on the stream than a launch queue
    holds (about a thousand launches): the gate then opens by itself.
    """
    stream = torch.cuda.current_stream().cuda_stream
    found: list[int] = []
    try:
        cuda = Cuda(torch.cuda.current_device())
        clock = StreamClock(cuda, stream)
        for _ in range(most):
            cuda.synchronize(stream)
            ns = clock.queued(work)
            if ns is None:
                return [], WAITS
            found.append(ns)
    except (CudaError, NoDriver) as e:
        return [], str(e)
    return found, None
