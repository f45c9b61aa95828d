"""First values of a model that was made on the meta device, the same however it is distributed.

Each parameter's values are drawn by a generator of its own, seeded with its name, and each rank
keeps its part. No rank ever holds more than one whole parameter besides its share of the model.
"""

from __future__ import annotations

import hashlib

import torch
from torch.distributed.tensor import DTensor, distribute_tensor

DEVIATION = 0.02  # of weights, as in GPT-2 and Llama


@torch.no_grad()  # type: ignore[untyped-decorator]
def initialise(model: torch.nn.Module, device: torch.device, seed: int) -> None:
    """Give `model` memory on `device` and every parameter its first value: normal for weights,
    one for those of normalisations, zero for biases. Buffers are left without values."""
    model.to_empty(device=device)
    for name, parameter in model.named_parameters():
        full = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
        if parameter.dim() > 1:
            digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
            own = torch.Generator(device).manual_seed(int.from_bytes(digest[:7], "big"))
            full.normal_(0.0, DEVIATION, generator=own)
        else:
            full.fill_(1.0 if name.endswith("weight") else 0.0)
        if isinstance(parameter, DTensor):
            where = parameter.device_mesh, parameter.placements
            part = distribute_tensor(full, *where, src_data_rank=None)
            parameter.to_local().copy_(part.to_local())
        else:
            parameter.copy_(full)
