"""Bus bandwidth by a clock around a loop of collectives, beside what `layerline ranks` tells.

    torchrun --nproc-per-node N tests/gpu/wires.py

The sizes are those of `layerline train sequence-parallel`. Nothing of the project is imported.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

SEQUENCE, HIDDEN, LOOPS = 4608, 9216, 20


def main() -> None:
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    ranks = int(os.environ["WORLD_SIZE"])
    own = torch.cuda.device_count() >= ranks
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(local % torch.cuda.device_count())
    dist.init_process_group("nccl" if own and cuda else "gloo")
    for dtype in (torch.float32, torch.bfloat16):
        part = torch.ones(SEQUENCE // ranks, HIDDEN, dtype=dtype, device="cuda" if cuda else "cpu")
        whole = part.new_empty(SEQUENCE, HIDDEN)
        for name, work in (
            ("all-gather", lambda w=whole, p=part: dist.all_gather_into_tensor(w, p)),
            ("reduce-scatter", lambda w=whole, p=part: dist.reduce_scatter_tensor(p, w)),
        ):
            for _ in range(3):
                work()
            torch.cuda.synchronize() if cuda else dist.barrier()
            began = time.perf_counter()
            for _ in range(LOOPS):
                work()
            torch.cuda.synchronize() if cuda else dist.barrier()
            seconds = (time.perf_counter() - began) / LOOPS
            size = whole.numel() * whole.element_size()
            bus = size * (ranks - 1) / ranks / seconds / 1e9
            if rank == 0:
                sys.stdout.write(
                    f"  in a loop: {name} of {dtype}, {size:,} B: {seconds * 1e3:.3f} ms, "
                    f"{bus:.1f} GB/s on the bus\n"
                )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
