"""A small program of several ranks, as a user's own: ``rank_program.py HOW [FOLDER [cuda]]``.

Each rank sums a tensor with the others, step after step. HOW is what goes wrong in rank 1:
``well``, ``killed`` (kill -9 of itself), ``late`` (sleeps in its third step, longer than the
time-out), ``stuck`` (the same without a time-out), ``module`` (imports one that is not there).
They talk by gloo; with cuda by NCCL, and each has a GPU of its own. With FOLDER, rank 0's data
loader process leaves its id there.
"""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from layerline.profile.ranks.watch import steps


def load(how: str, step: int) -> torch.Tensor:
    if dist.get_rank() == 1 and step == 2:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "module":
            import no_such_module_of_anybody  # noqa: F401
        if how in ("late", "stuck"):
            time.sleep(600)
    return torch.ones(64, 64)


def main(how: str, folder: str = "", device: str = "cpu") -> None:
    seconds = 3 if how == "late" else 300
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo", timeout=datetime.timedelta(seconds=seconds)
    )
    if device == "cuda":
        torch.cuda.set_device(dist.get_rank())
    if folder:
        loader = subprocess.Popen(["sleep", "600"], start_new_session=True)
        Path(folder, f"loader{dist.get_rank()}").write_text(str(loader.pid))
    for step in steps(range(4)):
        batch = load(how, step).to(device)
        dist.all_reduce(batch @ batch)
    sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()} is done\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
