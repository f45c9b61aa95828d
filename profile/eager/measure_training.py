"""Eager training: steps of data, forward, loss, backward and optimizer, timed and profiled.

`latency` and `trace` train the model of a run on one batch, again in every step; `measure` is of
any training. The optimizer is AdamW; `zero_grad` belongs to its phase. The loss of a run's model
depends on what the model is for, and the meta file says which it was:

* ``causal``: next-token cross entropy, for models whose class says CausalLM or LMHead
* ``masked``: cross entropy of the 15 % of positions that were chosen, for MaskedLM
* ``own``: the user's own, of a model that own code makes
* ``mean``: the mean of the first floating output, for everything else
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...core.errors import CheckFailed, InputError
from ...core.stats import summarise
from ...export import own
from ...export.own import LOSS
from ...workloads.loop import Step, train
from ...workloads.plugin import Plugin
from ...workloads.training import IGNORED, MASKED_SHARE, Loss, Training
from .latency import Latency
from .plugins import Schedule
from .setup import (
    Repeats,
    Subject,
    float_outputs,
    prepare,
    repeat,
    watched,
    write_latency,
    write_meta,
)
from .torch_profile import TorchProfile

if TYPE_CHECKING:
    from ...engines.workers.nvml_sampler import Sampler

DEFAULTS = Repeats(warmup=2, least=6, most=100, target=0.02, seconds=14.0, settle=1.0)
WARMED = replace(DEFAULTS, settle=0.5)  # before a trace
PROFILED = 6


def loss_kind(model: torch.nn.Module, output: dict[str, torch.Tensor], inputs: Any) -> str:
    """Which loss suits the model; see the module's text."""
    logits = output.get("logits")
    if logits is None or logits.dim() != 3 or "input_ids" not in inputs:
        return "mean"
    name = type(model).__name__
    if "MaskedLM" in name:
        return "masked"
    return "causal" if "CausalLM" in name or "LMHead" in name else "mean"


def labels_for(kind: str, ids: torch.Tensor, seed: int) -> torch.Tensor:
    """Labels (batch, sequence) for the loss, `IGNORED` where a position does not count."""
    labels = torch.full_like(ids, IGNORED)
    if kind == "causal":
        labels[:, :-1] = ids[:, 1:]
        return labels
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(ids.shape, generator=generator) < MASKED_SHARE
    chosen[:, 0] = True  # at least one
    chosen = chosen.to(ids.device)
    labels[chosen] = ids[chosen]
    return labels


def loss_of(kind: str, output: dict[str, torch.Tensor], labels: torch.Tensor | None) -> Any:
    """The scalar loss in float32."""
    if kind == "mean":
        return next(iter(output.values())).float().mean()
    logits = output["logits"].float()
    assert labels is not None
    return torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=IGNORED
    )


def training_of(subject: Subject, options: dict[str, Any]) -> Training:
    """The training of a run's model on its one batch. CheckFailed where it returns nothing to make
    a loss of."""
    training = Training(
        subject.model,
        torch.optim.AdamW(subject.model.parameters(), lr=float(options.get("learning_rate", 1e-5))),
        iter(subject.batch, None),
        lambda output, _batch: loss_of(kind, float_outputs(output), labels),
        subject.device,
        precision=subject.precision,
    )
    if subject.spec.own is not None:
        training.loss = own_loss(subject)
        training.facts = {**subject.facts, "loss": "own"}
        return training
    batch = subject.batch()
    with torch.no_grad():
        output = float_outputs(training.forward(batch))
    if not output:
        raise CheckFailed("the model returns no floating tensor, so it cannot be trained")
    kind = loss_kind(subject.model, output, batch)
    labels = None
    if kind != "mean":
        labels = labels_for(kind, batch["input_ids"], int(options.get("seed", 0)))
    training.facts = {**subject.facts, "loss": kind}
    return training


def own_loss(subject: Subject) -> Loss:
    """The user's loss. InputError where the function gave none."""
    loss = own.loss_of(subject.spec.made(), subject.device)
    if loss is None:
        raise InputError(f"{subject.spec.location}: gave no loss, so it is not trained", fix=LOSS)
    return lambda output, _batch: loss(output)


@dataclass
class Measured:
    """What `measure` found: steps with their latencies, plug-ins that ran, the losses of all."""

    latency: dict[str, Any]
    losses: list[float]
    phases: list[str]
    gpu: Sampler | None = None

    @property
    def finite(self) -> bool:
        """Whether every loss is a number."""
        return all(math.isfinite(loss) for loss in self.losses)


def measure(
    training: Training,
    plan: Repeats,
    plugins: Mapping[str, Plugin],
    look: Callable[[int, float], None] = lambda number, loss: None,
) -> Measured:
    """Train: as many steps as `plan` says, with the plug-ins that watch all of training, and then
    on for each plug-in that needs steps of its own. `look` is given each step's number and loss."""
    losses: list[float] = []

    def seen(step: Step) -> None:
        losses.append(float(step.loss))
        look(step.number, losses[-1])

    clock = Latency()
    beside: dict[str, Plugin] = {n: p for n, p in plugins.items() if p.own_steps is None}
    watching = [*training.watchers.values(), clock, *beside.values()]
    steps = train(training, sys.maxsize, watching)

    def timed() -> int:
        seen(next(steps))
        return clock.steps_ns[-1]

    with watched(training.device) as gpu:
        found = repeat(timed, plan)
    steps.close()
    warmed = len(found["warmup_ns"])
    phases = {name: ns[warmed:] for name, ns in clock.phases_ns.items()}
    found |= {
        "phases_ns": phases,
        "outside_ns": {name: ns[warmed:] for name, ns in clock.outside_ns.items()},
        "phases": {k: s.as_dict() for k, v in phases.items() if (s := summarise(v))},
        **({"beside": sorted(beside)} if beside else {}),
    }
    for plugin in plugins.values():
        if plugin.own_steps is not None:
            until = len(losses) + plugin.own_steps
            # Looking at a loss in between would be operators in the trace that are of no step.
            for step in list(train(training, until, [plugin], len(losses))):
                seen(step)
    return Measured(found, losses, list(clock.phases_ns), gpu)


def write_training(
    training: Training,
    measured: Measured,
    files: Mapping[str, Path],
    profiled: Mapping[str, Any],
) -> dict[str, Any]:
    """Write meta.json, `profiled` being what the profiler says of its trace; gives facts for the
    manifest."""
    optimizer = training.optimizer
    said = {
        "phases": measured.phases,
        **profiled,
        "losses": measured.losses if measured.finite else None,
        "finite": measured.finite,
        "optimizer": type(optimizer).__name__,
        "optimizer_implementation": implementation(optimizer, training.device),
        "optimizer_bytes": optimizer_bytes(training),
        "gradients_scaled": training.scaler.is_enabled(),
        "accumulate": training.accumulate,
    }
    return write_meta(training.model, training.facts, measured.gpu, files, said)


def implementation(optimizer: torch.optim.Optimizer, device: torch.device) -> str:
    """``fused``, ``foreach`` or ``for-loop``: what the optimizer was told, else what PyTorch
    chooses on this device."""
    told = optimizer.defaults
    if told.get("fused"):
        return "fused"
    foreach = told.get("foreach")
    return "foreach" if foreach or (foreach is None and device.type == "cuda") else "for-loop"


def optimizer_bytes(training: Training) -> list[dict[str, Any]]:
    """Bytes of parameters, their gradients and the optimizer's state, by the modules that own them;
    of parameters that were updated."""
    owners: dict[torch.Tensor, list[str]] = {}
    for path, module in training.model.named_modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(parameter, []).append(path)
    state, bytes_of = training.optimizer.state, Counter[tuple[str, ...]]()
    for parameter, modules in owners.items():
        held = state.get(parameter)
        if held:
            tensors = [v for v in held.values() if isinstance(v, torch.Tensor)]
            bytes_of[tuple(modules)] += sum(t.nbytes for t in (parameter, parameter, *tensors))
    return [{"modules": list(modules), "bytes": n} for modules, n in bytes_of.items()]


def latency(job: dict[str, Any]) -> dict[str, Any]:
    """Measure steps without a profiler, to ``job["files"]["latency"]``; gives facts."""
    training = training_of(prepare(job, training=True), job["options"])
    measured = measure(training, Repeats.of(job["options"], DEFAULTS), {})
    path = Path(job["files"]["latency"])
    return write_latency(training.facts, measured.gpu, path, measured.latency)


def trace(job: dict[str, Any]) -> dict[str, Any]:
    """Warm up and profile steps, to the files of the trace and of how it was taken; gives facts."""
    options = job["options"]
    training = training_of(prepare(job, training=True), options)
    files = {k: Path(v) for k, v in job["files"].items()}
    active = int(options.get("profiled", PROFILED))
    torch_ = TorchProfile(files["trace"], Schedule(active=active))
    plan = replace(Repeats.of(options, WARMED), least=0, most=0)
    measured = measure(training, plan, {"torch": torch_})
    return write_training(training, measured, files, torch_.facts())
