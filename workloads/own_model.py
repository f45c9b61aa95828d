"""The user's own model, on its example inputs: the same in every step.

The function (``own.py:build``) gives the loss too; see `export.own`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..core.errors import InputError
from ..export import own
from ..export.models import tensors
from ..export.source import Request as Wanted
from ..export.source import resolve
from .checkpointing import checkpoint_blocks
from .optimizer import adamw
from .request import Request, choose_device, set_up
from .training import Batch, Training


def training(request: Request) -> Training:
    """The training of what the function makes. InputError where it gives no loss."""
    if request.ranks > 1:
        raise InputError(
            f"{request.workload}: a module alone is not divided among ranks",
            fix="start your training program with --nproc N -- python PROGRAM",
        )
    if request.model is not None:
        raise InputError(
            f"{request.workload} makes its own model, so --model {request.model} has no use",
            fix="leave it out",
        )
    for option, path in (("--text", request.text), ("--tokenizer", request.tokenizer)):
        if path is not None:
            raise InputError(f"{request.workload} reads no text", fix=f"leave {option} out")
    spec = resolve(
        Wanted(
            model=request.workload,
            batch=request.batch,
            seq=request.seq,
            seed=request.seed,
            settings=dict(request.settings),
        )
    )
    device = choose_device(request.device, request.local)
    set_up(request.precision, request.seed, request.threads, request.deterministic)
    model = spec.build(training=True).to(device)
    loss = own.loss_of(spec.made(), device)
    if loss is None:
        raise InputError(f"{spec.location}: gave no loss, so it is not trained", fix=own.LOSS)
    inputs, where = spec.inputs(), str(spec.location)

    def explained_loss(output: object, _batch: Batch) -> torch.Tensor:
        with own.explained(where, "the loss"):
            return loss(output)

    def batches() -> Iterator[Batch]:
        while True:
            yield tensors(inputs, device=device)

    training = Training(
        model,
        adamw(model, request),
        batches(),
        explained_loss,
        device,
        precision=request.precision,
        accumulate=request.accumulate,
        compiled=torch.compile(model) if request.compile else None,
    )
    recomputed = checkpoint_blocks(training) if request.checkpoint else []
    training.facts = {
        "workload": request.workload,
        "model": spec.model,
        "overrides": spec.overrides,
        "initial_weights": spec.weights,
        "loss": "own",
        "seed": request.seed,
        "batch": spec.batch,
        "sequence": spec.seq,
        "recomputed_blocks": recomputed,
        "gradient_checkpointing": bool(recomputed),
        "compiled": request.compile,
    }
    return training
