"""The process group of a job, and its ranks as a mesh of named dimensions."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule

from ...core.errors import InputError
from ...core.ranks import identity as ranks_


def backend(device: torch.device) -> str:
    """NCCL where each rank of this host has a GPU to itself, gloo otherwise: NCCL refuses two
    ranks on one GPU, gloo copies their tensors through the host."""
    alone = device.type == "cuda" and local_ranks() <= torch.cuda.device_count()
    return "nccl" if alone else "gloo"


def local_ranks() -> int:
    """How many ranks of the job are on this host."""
    rank = ranks_.identity(os.environ)
    return (rank and rank.local_ranks) or 1


def join(device: torch.device, rank: int, ranks: int) -> None:
    """Be a member of the job's process group; one rank is a group too. InputError for several
    ranks without the environment that torchrun gives."""
    if not dist.is_initialized():
        how: dict[str, Any] = {"backend": backend(device), "rank": rank, "world_size": ranks}
        if how["backend"] == "nccl":
            how["device_id"] = device
        if "MASTER_ADDR" in os.environ:
            dist.init_process_group(**how)
        elif ranks == 1:
            dist.init_process_group(**how, store=dist.HashStore())
        else:
            raise InputError(f"{ranks} ranks cannot find each other", fix="start with torchrun")
    if dist.get_world_size() != ranks:
        raise InputError(f"{ranks} ranks were asked for, the job has {dist.get_world_size()}")


def mesh(device: torch.device, degrees: Mapping[str, int], rank: int, ranks: int) -> DeviceMesh:
    """Join, and give the ranks these dimensions, the last of which are neighbours.

    InputError where the product of the degrees is not the number of ranks.
    """
    product = math.prod(degrees.values())
    if product != ranks:
        told = " x ".join(f"{name} {degree}" for name, degree in degrees.items())
        raise InputError(f"the degrees {told} need {product} ranks, there are {ranks}")
    join(device, rank, ranks)
    return init_device_mesh(device.type, tuple(degrees.values()), mesh_dim_names=tuple(degrees))


def sums_only(model: FSDPModule) -> None:
    """Under gloo, whose mean in reduce_scatter is wrong, divide before or after a sum."""
    if dist.get_backend() == "gloo":
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
