"""One rank of a training under FSDP2 on the CPU, with the plug-in that counts parameters.

``sharded_training.py FOLDER RANK RANKS``: the plug-in's files, ``RANK.json`` with the counts of a
copy of each shard, and whether a training without the plug-in has the same bits.
"""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from layerline.profile.eager.parameters.plugin import ParameterChanges
from layerline.workloads.loop import step, train
from layerline.workloads.training import Training

STEPS = 5


def training(rank: int, ranks: int) -> Training:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 1))
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in (*model, model):
        fully_shard(layer, mesh=mesh)
    generator = torch.Generator().manual_seed(rank)
    batches = [{"input": torch.randn(6, 5, generator=generator)} for _ in range(3)]
    return Training(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-2),
        itertools.cycle(batches),
        lambda output, _: output.square().mean(),
        torch.device("cpu"),
        rank=rank,
        ranks=ranks,
    )


def shards(made: Training) -> list[torch.Tensor]:
    return [p.to_local().detach().clone() for p in made.model.parameters()]  # type: ignore[attr-defined]


def main(folder: Path, rank: int, ranks: int) -> None:
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=ranks)
    seen, plain = training(rank, ranks), training(rank, ranks)
    list(train(seen, STEPS, [ParameterChanges(folder)]))
    counts = []
    for number in range(STEPS):
        before = shards(plain)
        step(plain, number)
        after = shards(plain)
        counts.append([int((a != b).sum()) for a, b in zip(before, after, strict=True)])
    same = all(torch.equal(a, b) for a, b in zip(shards(seen), shards(plain), strict=True))
    sizes = [t.numel() for t in shards(plain)]
    document = {"counts": counts, "same": same, "sizes": sizes}
    (folder / f"{rank}.json").write_text(json.dumps(document))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
