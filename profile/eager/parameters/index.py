"""Which parameter is which number: those of the model in its own order, each once.

The number of a parameter is the same in every run of a model, on every rank and in every
precision. Wrappers (`torch.compile`, activation checkpointing, FSDP, DDP) are left out of paths, so
that they are the paths of the report.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch

from ....core import documents
from ....core.module_paths import child

_WRAPPERS = re.compile(r"(?<![^.])(_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)\.")
_EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)


@dataclass
class Parameter:
    """`about` what the index file says; `tensor` the parameter itself, maybe a DTensor."""

    about: documents.Parameter
    tensor: torch.nn.Parameter

    @property
    def local(self) -> torch.Tensor:
        """What this rank holds of it."""
        return local(self.tensor)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """A DTensor's own shard, without the autograd function that `to_local` is; others as they
    are."""
    own: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return own


def parameters(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[Parameter]:
    """The model's parameters, then those that the optimizer has besides."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        model = model.module
    optimized = {id(p) for group in optimizer.param_groups for p in group["params"]}
    listed: dict[int, Parameter] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, tensor in module.named_parameters(recurse=False, remove_duplicate=False):
            path = _WRAPPERS.sub("", f"{prefix}." if prefix else "").removesuffix(".")
            rows = _rows(module, name, tensor)
            if (known := listed.get(id(tensor))) is not None:
                known.about.aliases.append(child(path, name))
                known.about.rows = known.about.rows or rows
                continue
            listed[id(tensor)] = Parameter(
                documents.Parameter(
                    index=len(listed),
                    module=path,
                    parameter=name,
                    module_class=type(module).__name__,
                    optimized=id(tensor) in optimized,
                    rows=rows,
                    **_tensor(tensor),
                ),
                tensor,
            )
    for number, group in enumerate(optimizer.param_groups):
        for at, tensor in enumerate(group["params"]):
            if id(tensor) not in listed:
                # Of no module: what the optimizer calls it is all there is.
                about = documents.Parameter(
                    index=len(listed),
                    module="",
                    parameter=f"(group {number}, parameter {at})",
                    optimized=True,
                    **_tensor(tensor),
                )
                listed[id(tensor)] = Parameter(about, tensor)
    return list(listed.values())


def _tensor(tensor: torch.Tensor) -> dict[str, Any]:
    """What a tensor says of itself. `sharded`: also an FSDP1 parameter, which is flat."""
    placements = getattr(tensor, "placements", ())
    sharded = any(p.is_shard() or p.is_partial() for p in placements)
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "elements": local(tensor).numel(),
        "sharded": sharded or bool(getattr(tensor, "_is_flat_param", False)),
        "trainable": tensor.requires_grad,
    }


def _rows(module: torch.nn.Module, name: str, tensor: torch.Tensor) -> int | None:
    """Rows of an embedding on this rank."""
    shard = local(tensor)
    if isinstance(module, _EMBEDDINGS) and name == "weight" and shard.dim() == 2 and shard.numel():
        return int(shard.shape[0])
    return None
