"""GPT in layouts of data, tensor, pipeline and sequence parallelism.

Data parallelism is `replicate`, the form of DDP that is made of FSDP2's parts: gradients are
all-reduced block by block while backward goes on, and it takes parameters that tensor parallelism
has divided already, and stages of a pipeline.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.distributed._composable.replicate_with_fsdp import replicate as data_parallel
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import loss_parallel

from ...core.errors import InputError
from ..training import Batch
from . import memory, shapes
from .gpt import GPT, shard, together
from .group import backend, mesh, sums_only
from .initial import initialise
from .options import Options, batches, cross_entropy, known, micro_batches, next_words
from .pipeline import SCHEDULES, PipelineTraining, Stage, enough
from .step import ParallelTraining, adamw, set_matmul

LAYOUTS = ("DP", "DP_TP", "DP_PP", "DP_TP_PP", "DP_TP_SP", "DP_TP_PP_SP")


@dataclass(frozen=True)
class LayoutOptions(Options):
    """`dp`, `tp`, `pp` are degrees: None is 2 for those of `tp` and `pp` that the layout has, and
    for `dp` what is left. `stages` is how many stages a rank has in the interleaved schedule."""

    layout: str = "DP"
    model: str = shapes.GPT_MODEL
    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    schedule: str = "1f1b"
    stages: int = 2
    seq: int | None = None
    micro_batch: int = 4
    global_batch: int = 16

    def degrees(self, ranks: int) -> dict[str, int]:
        """Of pp, dp and tp, the outermost first. InputError for what the layout lacks."""
        parts = self.layout.split("_")
        for name in ("dp", "tp", "pp"):
            asked = getattr(self, name)
            if asked not in (None, 1) and name.upper() not in parts:
                raise InputError(
                    f"--{name} {asked}: layout {self.layout} has no {name.upper()}",
                    fix="name a layout that has it (--layout)",
                )
        tp = (self.tp or 2) if "TP" in parts else 1
        pp = (self.pp or 2) if "PP" in parts else 1
        return {"pp": pp, "dp": self.dp or max(ranks // (tp * pp), 1), "tp": tp}

    def shape(self, tp: int, stages: int) -> shapes.Shape:
        """The model's shape. InputError where it cannot be divided so."""
        known("model", self.model, shapes.GPT)
        shape = shapes.GPT[self.model]
        shape = replace(shape, sequence=self.seq or shape.sequence)
        for what, size in (("heads", shape.heads), ("words", shape.vocabulary)):
            if size % tp:
                raise InputError(f"{size} {what} cannot be divided among {tp} TP ranks")
        if self.layout.endswith("SP") and shape.sequence % tp:
            raise InputError(
                f"a sequence of {shape.sequence} cannot be divided among {tp} TP ranks",
                fix="take a multiple (--seq)",
            )
        if stages > shape.layers:
            raise InputError(f"{shape.layers} blocks are too few for {stages} stages")
        return shape


def build(options: LayoutOptions, device: torch.device, rank: int, ranks: int) -> ParallelTraining:
    """A GPT in one of LAYOUTS, what this rank has of it."""
    options.check()
    known("layout", options.layout, LAYOUTS)
    known("schedule", options.schedule, SCHEDULES)
    degrees = options.degrees(ranks)
    pipelined = "PP" in options.layout
    each = options.stages if pipelined and options.schedule == "interleaved" else 1
    stages = degrees["pp"] * each
    micro = micro_batches(options.global_batch, options.micro_batch, degrees["dp"])
    if pipelined:
        enough(options.schedule, micro, degrees["pp"])
    shape = options.shape(degrees["tp"], stages)
    _carried(options, degrees, device)
    place = mesh(device, degrees, rank, ranks)
    set_matmul(options.precision)
    mine = range(place.get_local_rank("pp"), stages, degrees["pp"])
    with torch.device("meta"):
        parts = [GPT(shape, _blocks(shape.layers, stages, number)) for number in mine]
    _fits(options, parts, degrees["tp"], device)
    for part in parts:
        _distribute(part, options, place)
    model = together(parts)
    initialise(model, device, options.seed)
    kind: type[ParallelTraining] = ParallelTraining
    more: dict[str, Any] = {}
    if pipelined:
        kind, more = (
            PipelineTraining,
            {
                "pipeline": place.get_group("pp"),
                "schedule": options.schedule,
                "stages": [
                    _stage(part, number, stages, options, shape, device, place)
                    for part, number in zip(parts, mine, strict=True)
                ],
            },
        )
    text = batches(
        options,
        device,
        vocabulary=shape.vocabulary,
        length=shape.sequence,
        batch=options.micro_batch,
        rank=place.get_local_rank("dp"),
        ranks=degrees["dp"],
    )
    about = {"workload": "gpt-layouts", "model": options.model, "sequence": shape.sequence}
    tensor_parallel = place["tp"] if degrees["tp"] > 1 else None
    return kind(
        model=model,
        called=parts[0],
        optimizer=adamw(model, options),
        batches=text,
        loss=partial(_loss, tensor_parallel),
        device=device,
        precision=options.precision,
        accumulate=micro,
        clip=options.clip or None,
        rank=rank,
        ranks=ranks,
        rate=options.rate,
        tokens=options.global_batch * shape.sequence,
        about=about,
        facts={
            **about,
            "layout": options.layout,
            "degrees": degrees,
            "schedule": options.schedule if pipelined else None,
            "stages": stages if pipelined else None,
            "batch": options.micro_batch,
            "global_batch": options.global_batch,
            "seed": options.seed,
            **text.facts,
        },
        around=loss_parallel if tensor_parallel else contextlib.nullcontext,
        **more,
    )


def _blocks(layers: int, stages: int, number: int) -> range:
    """The blocks of stage `number`: as many in each, one more in the first where some are left."""
    size, rest = divmod(layers, stages)
    first = number * size + min(number, rest)
    return range(first, first + size + (number < rest))


def _carried(options: LayoutOptions, degrees: dict[str, int], device: torch.device) -> None:
    """InputError for what gloo does not do with tensors of a GPU: DTensor's all-gather reads them
    as the host's (a segmentation fault: pytorch 152645), and it sends none."""
    if device.type != "cuda" or backend(device) != "gloo":
        return
    gathers = options.layout.endswith("SP") and degrees["tp"] > 1
    if gathers or degrees["pp"] > 1:
        what = "gather a sequence" if gathers else "send from stage to stage"
        raise InputError(
            f"layout {options.layout} on a GPU that ranks share: they talk by gloo, which cannot"
            f" {what} there",
            fix="take a GPU for each rank, or --device cpu; DP and DP_TP run so",
        )


def _fits(options: LayoutOptions, parts: Sequence[GPT], tp: int, device: torch.device) -> None:
    """InputError for what has no room here."""
    needs = [memory.Need.of(part, part.blocks, tp) for part in parts]
    need = memory.Need(0, 0, sum(n.blocks * n.each + n.rest for n in needs), tp)
    tiny = {} if options.model == "tiny" else {"--model tiny": memory.Need(0, 0, 0)}
    what = f"gpt-layouts {options.model} ({options.layout})"
    memory.check(what, need, memory.available(device), tiny)


def _distribute(part: GPT, options: LayoutOptions, place: DeviceMesh) -> None:
    """Divide a part of the model, on the meta device, as the layout does."""
    if place["tp"].size() > 1:
        shard(part, place["tp"], options.layout.endswith("SP"))
    # A stage's output is a view; nothing here changes it in place.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
    low = torch.bfloat16 if options.precision == "bf16" else None
    policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32 if low else None)
    for module in (*part.blocks, part):
        data_parallel(module, mesh=place["dp"], mp_policy=policy)
    sums_only(part)


def _stage(
    part: GPT,
    number: int,
    stages: int,
    options: LayoutOptions,
    shape: shapes.Shape,
    device: torch.device,
    place: DeviceMesh,
) -> Stage:
    """The stage with its inputs and outputs told, so that nothing is run to find them out."""
    batch, sequence = options.micro_batch, shape.sequence
    divided = sequence // place["tp"].size() if options.layout.endswith("SP") else sequence
    low = torch.bfloat16 if options.precision == "bf16" else torch.float32
    hidden = torch.empty(batch, divided, shape.hidden, dtype=low, device="meta", requires_grad=True)
    words = shape.vocabulary // place["tp"].size()
    logits = torch.empty(batch, sequence, words, dtype=low, device="meta", requires_grad=True)
    ids = torch.empty(batch, sequence, dtype=torch.int64, device="meta")
    return Stage(
        part,
        number,
        stages,
        device,
        input_args=ids if part.first else hidden,
        output_args=logits if part.last else hidden,
        group=place.get_group("pp"),
    )


def _loss(tensor_parallel: DeviceMesh | None, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Cross-entropy; of logits for this rank's words only under tensor parallelism."""
    targets = next_words(batch["input_ids"])
    if tensor_parallel is None:
        return cross_entropy(logits, targets)
    words = DTensor.from_local(logits, tensor_parallel, [Shard(-1)], run_check=False)
    loss: torch.Tensor = cross_entropy(words, targets).to_local()
    return loss
