"""Language models on real text: GPT-2 and other causal ones, BERT and other masked ones.

Any size: a configuration that comes with layerline, with settings of one's own, or a Hugging Face
folder with its weights. The optimizer is AdamW; weights stay float32, fp16 and bf16 are autocast.
Without weights the model begins as transformers initialises it, from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..core.errors import InputError
from ..export.models import ModelSpec
from ..export.source import Request as Wanted
from ..export.source import builtin_names, resolve
from .checkpointing import checkpoint_blocks
from .optimizer import adamw
from .request import Request, choose_device, set_up
from .text import FEWEST, Ids, Sequences, Tokens, tokens
from .training import IGNORED, MASKED_SHARE, Batch, Training

# Of the masked positions: shown as the mask, as any token; the others as they are (Devlin et al.,
# BERT, section 3.1).
AS_MASK, AS_ANY = 0.8, 0.1


def causal(request: Request) -> Training:
    """A model that predicts the next token: GPT-2 (`request.model`: gpt2) or any causal one."""
    return _training(request, "causal-lm", "gpt2", lambda data, spec: _as_it_is)


def masked(request: Request) -> Training:
    """A model that predicts hidden tokens: BERT (`request.model`: bert) or any masked one."""

    def hidden(data: Tokens, spec: ModelSpec) -> Prepare:
        if data.mask is None:
            raise InputError(
                f"{data.tokenizer}: has no mask token", fix="use the tokenizer of a masked model"
            )
        return Masking(data.mask, int(spec.config["vocab_size"]), request.seed)

    return _training(request, "masked-lm", "bert", hidden)


# Tokens (batch, length) and a number that is new each time, to what the model is given.
Prepare = Callable[[Ids, int], dict[str, Ids]]


def _as_it_is(ids: Ids, _number: int) -> dict[str, Ids]:
    labels = np.full_like(ids, IGNORED)
    labels[:, :-1] = ids[:, 1:]
    return {"input_ids": ids, "labels": labels}


@dataclass(frozen=True)
class Masking:
    """Hides 15 % of the tokens, others for each batch; `mask` is the token that hides."""

    mask: int
    vocabulary: int
    seed: int

    def __call__(self, ids: Ids, number: int) -> dict[str, Ids]:
        generator = np.random.default_rng([self.seed, number])
        chosen = generator.random(ids.shape) < MASKED_SHARE
        chosen[:, 0] |= ~chosen.any(axis=1)  # at least one of each sequence
        how = generator.random(ids.shape)
        shown = np.where(chosen & (how < AS_MASK), self.mask, ids)
        anything = generator.integers(FEWEST - 256, self.vocabulary, ids.shape)
        shown = np.where(chosen & (how >= AS_MASK) & (how < AS_MASK + AS_ANY), anything, shown)
        return {"input_ids": shown, "labels": np.where(chosen, ids, IGNORED)}


def cross_entropy(output: Any, batch: Batch) -> torch.Tensor:
    """The mean over the positions that have a label, in float32."""
    logits = output.logits.float()
    return torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), batch["labels"].reshape(-1), ignore_index=IGNORED
    )


class Batches(Iterator[Batch]):
    """Micro-batches on the device, from sequences of text. `state` and `restore` as of these."""

    def __init__(self, sequences: Sequences, prepare: Prepare, device: torch.device) -> None:
        self.sequences, self._prepare, self._device = sequences, prepare, device

    def __next__(self) -> Batch:
        number = self.sequences.first
        arrays = self._prepare(next(self.sequences), number)
        batch = {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in arrays.items()}
        if self._device.type != "cuda":
            return batch
        # From pinned memory the copy does not hold up the host.
        return {k: v.pin_memory().to(self._device, non_blocking=True) for k, v in batch.items()}


def specification(request: Request, task: str, default: str) -> ModelSpec:
    """The model asked for; ``tiny`` and the like are those of the workload. InputError where it is
    of another task."""
    name = request.model or default
    if f"{default}-{name}" in builtin_names():
        name = f"{default}-{name}"
    spec = resolve(
        Wanted(
            model=name,
            batch=request.batch,
            seq=request.seq,
            seed=request.seed,
            settings=dict(request.settings),
        )
    )
    if spec.task != task:
        raise InputError(
            f"{name}: {spec.model_class} is no model of {request.workload} ({task})",
            fix="choose another model or workload",
        )
    return spec


def _training(
    request: Request, task: str, default: str, of_text: Callable[[Tokens, ModelSpec], Prepare]
) -> Training:
    spec = specification(request, task, default)
    device = choose_device(request.device, request.local)
    tokenizer = request.path("tokenizer")
    if tokenizer is None and spec.location and Path(spec.location, "tokenizer.json").is_file():
        tokenizer = Path(spec.location)
    vocabulary = int(spec.config["vocab_size"])
    data = tokens(request.path("text"), tokenizer, vocabulary, Path(request.cache))
    sequences = Sequences(
        data,
        request.seq,
        request.batch,
        rank=request.rank,
        ranks=request.ranks,
        seed=request.seed,
    )
    prepare = of_text(data, spec)
    set_up(request.precision, request.seed + request.rank, request.threads, request.deterministic)
    model = spec.build(training=True, pristine=True).to(device)
    training = Training(
        model,
        adamw(model, request),
        Batches(sequences, prepare, device),
        cross_entropy,
        device,
        precision=request.precision,
        accumulate=request.accumulate,
        rank=request.rank,
        ranks=request.ranks,
        beside=frozenset({"labels"}),
        compiled=torch.compile(model) if request.compile else None,
    )
    recomputed = checkpoint_blocks(training, request.checkpoint_every) if request.checkpoint else []
    training.facts = {
        "workload": request.workload,
        "model": spec.model,
        "config": spec.config,
        "overrides": spec.overrides,
        "initial_weights": spec.weights,
        "loss": task.split("-")[0],
        "seed": request.seed,
        "batch": request.batch,
        "sequence": request.seq,
        "recomputed_blocks": recomputed,
        "gradient_checkpointing": bool(recomputed),
        "compiled": request.compile,
        **data.facts(),
    }
    return training
