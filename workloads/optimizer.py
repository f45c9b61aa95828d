"""The optimizer of a training on one rank."""

from __future__ import annotations

import torch

from ..core.errors import ToolMissing
from .request import Request


def adamw(model: torch.nn.Module, request: Request) -> torch.optim.Optimizer:
    """AdamW over all parameters, as asked for. ToolMissing where bitsandbytes is not installed."""
    if not request.eight_bit:
        return torch.optim.AdamW(
            model.parameters(), lr=request.learning_rate, fused=request.fused or None
        )
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError as error:
        what = f"an optimizer of 8 bits needs bitsandbytes ({error})"
        raise ToolMissing(what, fix="pip install bitsandbytes") from error
    made: torch.optim.Optimizer = AdamW8bit(model.parameters(), lr=request.learning_rate)
    return made
