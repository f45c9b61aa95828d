"""A small training job for torchrun, over gloo on CPU ranks or on one GPU, profiled rank by rank.

    torchrun --nproc-per-node N training_job.py FOLDER [--layout ddp|fsdp] [--slow matmul|data|none]
        [--rank R] [--steps N] [--width W] [--device cpu|cuda] [--unprofiled]

Each step is in the ranges that captures of training have: an iteration, and its phases. The rank R
is slowed: by matmuls that it does more than once, or by a data loader that sleeps. `--unprofiled`
is for nsys, with NVTX ranges, and the steps within the CUDA profiler's start and stop.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function


class Layer(torch.nn.Linear):
    """A layer that does its matmul more than once on a slow rank."""

    repeats = 1

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        for _ in range(self.repeats - 1):
            with torch.no_grad():
                torch.mm(batch, self.weight.t())
        return super().forward(batch).relu()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--layout", default="ddp")
    parser.add_argument("--slow", default="none")
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--unprofiled", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    slow = options.slow if rank == options.rank else "none"
    torch.manual_seed(0)
    layers = [Layer(options.width, options.width) for _ in range(4)]
    for layer in layers:
        layer.repeats = 12 if slow == "matmul" else 1
    model: torch.nn.Module = torch.nn.Sequential(*layers).to(options.device)
    if options.layout == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for layer in layers:
            fully_shard(layer)
        fully_shard(model)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(number: int) -> None:
        with record_function(f"layerline/iteration/{number}"):
            with record_function("layerline/phase/data"):
                batch = torch.randn(256, options.width, device=options.device)
                if slow == "data":
                    time.sleep(0.06)
            with record_function("layerline/phase/forward"):
                output = model(batch)
            with record_function("layerline/phase/loss"):
                loss = output.square().mean()
            with record_function("layerline/phase/backward"):
                loss.backward()
            with record_function("layerline/phase/optimizer"):
                optimizer.step()
                optimizer.zero_grad()

    for number in range(3):
        step(number)
    dist.barrier()
    if options.unprofiled:
        torch.cuda.profiler.start()
        with torch.autograd.profiler.emit_nvtx(record_shapes=False):
            for number in range(3, 3 + options.steps):
                step(number)
            torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        dist.destroy_process_group()
        return
    activities = [ProfilerActivity.CPU]
    if options.device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, record_shapes=True) as profiler:
        for number in range(3, 3 + options.steps):
            step(number)
        if options.device == "cuda":
            torch.cuda.synchronize()
    profiler.export_chrome_trace(f"{options.folder}/train.fp32.rank{rank:04d}.trace.json")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
