"""Llama-2 in its sizes, sharded or replicated: transformers' own modules, so that their names are
the ones that people know.

The model is made on the meta device: a rank never holds more than its share of it and one whole
parameter. Checkpointing and compiling replace the `forward` of a block, not the block, so that
modules keep their names and FSDP's hooks stay outside of both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from ...core.errors import InputError
from ..checkpointing import checkpoint_blocks
from ..training import Batch
from . import memory
from .group import local_ranks, mesh, sums_only
from .initial import initialise
from .options import Options, batches, cross_entropy, known, micro_batches, next_words
from .shapes import LLAMA, LLAMA_MODEL
from .step import ParallelTraining, adamw, set_matmul

WAYS = ("fsdp", "hsdp", "ddp")


@dataclass(frozen=True)
class LlamaOptions(Options):
    """`parallel`: fsdp shards everything over all ranks, hsdp over `shard` ranks (None: those of
    one host) and replicates that, ddp replicates. `global_batch` None: one micro-batch a rank.
    `layers` None: as the model has. `checkpoint_every` k: the activations inside every k-th block
    are computed again in backward; 0: in none."""

    model: str = LLAMA_MODEL
    parallel: str = "fsdp"
    shard: int | None = None
    layers: int | None = None
    seq: int | None = None
    micro_batch: int = 1
    global_batch: int | None = None
    checkpoint_every: int = 0
    compile: bool = False

    def degrees(self, ranks: int) -> dict[str, int]:
        """Of the mesh, the outermost first. InputError where the ranks cannot be divided so."""
        known("parallel", self.parallel, WAYS)
        if self.shard is not None and self.parallel != "hsdp":
            raise InputError(f"--shard {self.shard} is for hsdp, and parallel is {self.parallel}")
        if self.parallel != "hsdp":
            return {"replicate" if self.parallel == "ddp" else "shard": ranks}
        shard = local_ranks() if self.shard is None else self.shard
        if shard < 1 or ranks % shard:
            raise InputError(
                f"{ranks} ranks cannot be groups of {shard} that share a model",
                fix="name a size that divides them (--shard)",
            )
        return {"replicate": ranks // shard, "shard": shard}


def build(options: LlamaOptions, device: torch.device, rank: int, ranks: int) -> ParallelTraining:
    """A Llama-2, what this rank has of it."""
    options.check()
    known("model", options.model, LLAMA)
    degrees = options.degrees(ranks)
    step = options.micro_batch * ranks if options.global_batch is None else options.global_batch
    micro = micro_batches(step, options.micro_batch, ranks)
    model = _model(options)
    blocks = list(model.model.layers)
    _fits(options, model, degrees, device)
    place = mesh(device, degrees, rank, ranks)
    set_matmul(options.precision)
    if options.parallel != "ddp":
        low = torch.bfloat16 if options.precision == "bf16" else None
        policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32 if low else None)
        for module in (*blocks, model):
            fully_shard(module, mesh=place, mp_policy=policy)
        sums_only(model)
    initialise(model, device, options.seed)
    # Its only buffers, which `initialise` leaves empty.
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config).to(device)
    called = model
    if options.parallel == "ddp":
        called = DistributedDataParallel(model, gradient_as_bucket_view=True)
    length = model.config.max_position_embeddings
    text = batches(
        options,
        device,
        vocabulary=model.config.vocab_size,
        length=length,
        batch=options.micro_batch,
        rank=rank,
        ranks=ranks,
    )
    about = {
        "workload": "llama", "model": options.model, "layers": len(blocks), "sequence": length,
    }  # fmt: skip
    training = ParallelTraining(
        model=model,
        called=called,
        compiled=called if options.compile else None,
        optimizer=adamw(model, options),
        batches=text,
        loss=_loss,
        device=device,
        precision=options.precision,
        accumulate=micro,
        clip=options.clip or None,
        rank=rank,
        ranks=ranks,
        rate=options.rate,
        tokens=step * length,
        about=about,
    )
    again = options.checkpoint_every
    training.facts = {
        **about,
        "parallel": options.parallel,
        "degrees": degrees,
        "batch": options.micro_batch,
        "global_batch": step,
        "seed": options.seed,
        "recomputed_blocks": checkpoint_blocks(training, again) if again else [],
        **text.facts,
    }
    if options.compile:
        for block in blocks:
            block.forward = torch.compile(block.forward)
    return training


def _model(options: LlamaOptions) -> Any:
    """The model without any values."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = dict(LLAMA[options.model])
    shape["num_hidden_layers"] = options.layers or shape["num_hidden_layers"]
    shape["max_position_embeddings"] = options.seq or shape["max_position_embeddings"]
    config = LlamaConfig(
        **shape, use_cache=False, tie_word_embeddings=False, attn_implementation="sdpa"
    )
    with torch.device("meta"):
        return LlamaForCausalLM(config)


def _fits(
    options: LlamaOptions, model: Any, degrees: Mapping[str, int], device: torch.device
) -> None:
    """InputError for what has no room here."""
    shards = degrees.get("shard", 1)

    def need(of: Any) -> memory.Need:
        return memory.Need.of(of, of.model.layers, shards, gathers=options.parallel != "ddp")

    room, mine = memory.available(device), need(model)
    if room is None or mine.bytes <= room:
        return
    smaller = [name for name in LLAMA if LLAMA[name]["hidden_size"] < model.config.hidden_size]
    others = {f"--model {n}": need(_model(replace(options, model=n))) for n in reversed(smaller)}
    ranks = math.prod(degrees.values())
    over = f" ({options.parallel} over {ranks} ranks)" if ranks > 1 else ""
    memory.check(f"llama {options.model}{over}", mine, room, others)


def _loss(output: Any, batch: Batch) -> torch.Tensor:
    return cross_entropy(output.logits, next_words(batch["input_ids"]))
