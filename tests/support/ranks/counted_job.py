"""A rank of a job whose collectives are counted while a step runs, by PyTorch's CommDebugMode and
by the sizes of what its operators are given, and then captured as `layerline train` does.

    torchrun … counted_job.py FOLDER WORKLOAD TEXT [KEY=VALUE …]

Leaves FOLDER/train.fp32.rankNNNN.trace.json.gz and, of rank 0, counts, a JSON file: {"counts":
{operator: number}, "sent": [[operator, bytes], …], "held": bytes}.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils._python_dispatch import TorchDispatchMode

from layerline.profile.eager.plugins import Schedule
from layerline.profile.eager.torch_profile import TorchProfile
from layerline.workloads.loop import step, train
from layerline.workloads.parallel.step import local
from layerline.workloads.request import Request
from layerline.workloads.training import Training


class Sent(TorchDispatchMode):
    """Each operator of c10d with the bytes of the tensors that it is given to send."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().split(".")[0]
        space, _, operator = name.partition("::")
        if space in ("c10d", "_c10d_functional", "_c10d_functional_autograd"):
            given = (
                args[1] if operator in ("_allgather_base_", "_reduce_scatter_base_") else args[0]
            )
            tensors = given if isinstance(given, list | tuple) else [given]
            if operator != "wait_tensor":
                self.seen.append((operator, sum(t.nbytes for t in tensors)))
        return func(*args, **(kwargs or {}))


def held(training: Training) -> int:
    """Bytes of this rank's parameters, of as many gradients, and of what the optimizer keeps of
    them, without its counts of steps."""
    parameters = [local(p) for p in training.model.parameters()]
    kept = [t for of in training.optimizer.state.values() for t in of.values() if t.dim()]
    return sum(2 * p.nbytes for p in parameters) + sum(local(t).nbytes for t in kept)


def main(folder: str, workload: str, text: str, *settings: str) -> None:
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    given = dict(s.split("=") for s in settings)
    training = Request(
        workload, folder, model="tiny", batch=2, seq=16, text=text, device="cpu",
        settings=given, rank=rank, ranks=ranks,
    ).build()  # fmt: skip
    list(train(training, 2))
    with CommDebugMode() as counted:
        step(training, 2)
    sent = Sent()
    with sent:
        step(training, 3)
    place = Path(folder, f"train.fp32.rank{rank:04d}.trace.json.gz")
    watch = TorchProfile(place, Schedule(0, 1, 2))
    list(train(training, 4 + watch.own_steps, [watch], first=4))
    if rank == 0:
        counts = {str(op): n for op, n in counted.get_comm_counts().items()}
        found = {"counts": counts, "sent": sent.seen, "held": held(training)}
        Path(folder, "counts").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
