"""Whether a model can be trained here at all, by what is certain: told before anything is started.

Of each parameter that a rank holds: its value, its gradient and AdamW's two moments, in float32.
FSDP holds the largest unit of the model whole besides, with its gradient. Activations come on top,
and are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ...core import machine
from ...core.errors import InputError
from .group import local_ranks

BYTES_OF_PARAMETER = 4 * 4
_GB = 1e9


@dataclass(frozen=True)
class Need:
    """What a model takes: `blocks` of `each` parameters and `rest`, held by `shards` ranks
    together. `gathers`: FSDP, of which a rank has the largest unit whole for a moment."""

    blocks: int
    each: int
    rest: int
    shards: int = 1
    gathers: bool = False

    @classmethod
    def of(
        cls,
        model: torch.nn.Module,
        blocks: Sequence[torch.nn.Module],
        shards: int = 1,
        *,
        gathers: bool = False,
    ) -> Need:
        """Of a model, which may be on the meta device."""
        each = max((_count(block) for block in blocks), default=0)
        inside = sum(_count(block) for block in blocks)
        return cls(len(blocks), each, _count(model) - inside, shards, gathers)

    @property
    def parameters(self) -> int:
        """Of the whole model."""
        return self.blocks * self.each + self.rest

    @property
    def whole(self) -> int:
        """Bytes of the largest unit and its gradient, where they are gathered."""
        return 2 * 4 * max(self.each, self.rest) if self.gathers and self.shards > 1 else 0

    @property
    def bytes(self) -> int:
        """Of one rank."""
        return BYTES_OF_PARAMETER * self.parameters // self.shards + self.whole


def _count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def available(device: torch.device) -> int | None:
    """The bytes that a rank can have: its part of the GPU or of the host's free memory; None where
    that is not known."""
    if device.type == "cuda":
        sharing = math.ceil(local_ranks() / torch.cuda.device_count())
        return int(torch.cuda.get_device_properties(device).total_memory / sharing)
    free = machine.state()["memory_available_bytes"]
    return None if free is None else int(free) // local_ranks()


def check(what: str, need: Need, room: int | None, others: Mapping[str, Need]) -> None:
    """InputError where a rank cannot hold `what` in `room` bytes, with what it can hold: one of
    `others`, by the options that ask for it, or fewer blocks, or a share of more ranks."""
    if room is None or need.bytes <= room:
        return
    fits = [f"{options} fits" for options, other in others.items() if other.bytes <= room][:1]
    fewer = (n for n in range(need.blocks - 1, 0, -1) if replace(need, blocks=n).bytes <= room)
    fits += [f"so does --set layers={n}" for n in fewer][:1]
    if need.gathers and room > (whole := replace(need, shards=2).whole):
        ranks = math.ceil(BYTES_OF_PARAMETER * need.parameters / (room - whole))
        fits.append(f"{ranks} ranks with as much each hold it")
    raise InputError(
        f"{what} takes {need.bytes / _GB:.1f} GB of each rank for weights, gradients and AdamW's"
        f" moments alone, and there are {room / _GB:.1f} GB",
        fix="; ".join(fits) or "take a machine with more memory",
    )
