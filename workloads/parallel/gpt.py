"""GPT, or those of its blocks that a pipeline's stage holds, and how a tensor-parallel group
divides it.

Modules are named as in GPT-2 of transformers, which itself cannot be used here: its `c_attn` is
query, key and value in one `Conv1D`, of which DTensor's column shards are none of heads. So they
are three `nn.Linear`, and the output layer is a weight of its own: the first and the last stage
of a pipeline could not share one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional

from .shapes import Shape


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head = shape.hidden // shape.heads
        self.q_proj = nn.Linear(shape.hidden, shape.hidden)
        self.k_proj = nn.Linear(shape.hidden, shape.hidden)
        self.v_proj = nn.Linear(shape.hidden, shape.hidden)
        self.c_proj = nn.Linear(shape.hidden, shape.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # As many heads as this rank's share of the columns makes.
        q, k, v = (
            project(x).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: torch.Tensor = self.c_proj(y.transpose(1, 2).flatten(2))
        return out


class MLP(nn.Module):  # type: ignore[misc]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.c_fc = nn.Linear(shape.hidden, 4 * shape.hidden)
        self.act = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * shape.hidden, shape.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.c_proj(self.act(self.c_fc(x)))
        return out


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(shape.hidden)
        self.attn = Attention(shape)
        self.ln_2 = nn.LayerNorm(shape.hidden)
        self.mlp = MLP(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        out: torch.Tensor = x + self.mlp(self.ln_2(x))
        return out


class GPT(nn.Module):  # type: ignore[misc]
    """Blocks `of` the model, with the embeddings if block 0 is among them, and with the output
    layer if the last one is."""

    def __init__(self, shape: Shape, of: Sequence[int]) -> None:
        super().__init__()
        self.first, self.last = 0 in of, shape.layers - 1 in of
        self.transformer = nn.ModuleDict()
        if self.first:
            self.transformer["wte"] = nn.Embedding(shape.vocabulary, shape.hidden)
            self.transformer["wpe"] = nn.Embedding(shape.sequence, shape.hidden)
        self.transformer["h"] = nn.ModuleDict({str(at): Block(shape) for at in of})
        if self.last:
            self.transformer["ln_f"] = nn.LayerNorm(shape.hidden)
            self.lm_head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

    @property
    def blocks(self) -> Sequence[nn.Module]:
        return list(self.transformer["h"].children())

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Tokens (batch, sequence), or what the blocks before these gave, to what the next ones
        take (batch, sequence, hidden), or to logits (batch, sequence, vocabulary)."""
        x = input_ids
        if self.first:
            at = torch.arange(input_ids.shape[1], device=input_ids.device)
            x = self.transformer["wte"](input_ids) + self.transformer["wpe"](at)
        for block in self.blocks:
            x = block(x)
        if self.last:
            x = self.lm_head(self.transformer["ln_f"](x))
        return x


def together(parts: Sequence[GPT]) -> nn.Module:
    """A module that has all modules of `parts` under the names that they have in the model, for
    whoever looks for parameters; it cannot be called."""
    if len(parts) == 1:
        return parts[0]
    whole = nn.Module()
    whole.transformer = nn.ModuleDict({"h": nn.ModuleDict()})
    for part in parts:
        for name, module in part.transformer.items():
            if name != "h":
                whole.transformer[name] = module
        whole.transformer["h"].update(part.transformer["h"])
        if part.last:
            whole.lm_head = part.lm_head
    return whole


def shard(model: GPT, mesh: DeviceMesh, sequence_parallel: bool) -> None:
    """Divide the model among the ranks of a tensor-parallel group: columns, then rows, of each
    block; both embeddings by rows; the output layer by words, so that its logits are this rank's
    words. With sequence parallelism normalisations and sums are divided along the sequence."""
    between = Shard(1) if sequence_parallel else Replicate()
    rows = RowwiseParallel(output_layouts=between)
    plan: dict[str, ParallelStyle] = {}
    for path in ("transformer.h.*.attn", "transformer.h.*.mlp"):
        if sequence_parallel:
            plan[path] = PrepareModuleInput(
                input_layouts=(between,), desired_input_layouts=(Replicate(),)
            )
        plan[f"{path}.c_proj"] = rows
    for name in ("attn.q_proj", "attn.k_proj", "attn.v_proj", "mlp.c_fc"):
        plan[f"transformer.h.*.{name}"] = ColwiseParallel()
    if sequence_parallel:
        plan["transformer.h.*.ln_1"] = plan["transformer.h.*.ln_2"] = SequenceParallel()
    if model.first:
        plan["transformer.wte"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
        # Its output has no batch: (sequence, hidden).
        plan["transformer.wpe"] = RowwiseParallel(
            input_layouts=Replicate(), output_layouts=Shard(0) if sequence_parallel else between
        )
    if model.last:
        plan["lm_head"] = ColwiseParallel(input_layouts=between)
        if sequence_parallel:
            plan["transformer.ln_f"] = SequenceParallel()
    parallelize_module(model, mesh, plan, src_data_rank=None)
