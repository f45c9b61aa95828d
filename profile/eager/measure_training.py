"""Eager training: steps of data, forward, loss, backward and optimizer, timed and profiled.

One batch is used again in every step. The optimizer is AdamW; `zero_grad` belongs to its phase.
The loss depends on what the model is for, and the meta file says which it was:

* ``causal``: next-token cross entropy, for models whose class says CausalLM or LMHead
* ``masked``: cross entropy of the 15 % of positions that were chosen, for MaskedLM
* ``mean``: the mean of the first floating output, for everything else
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ...core.errors import CheckFailed
from ...core.files import replacing
from ...core.stats import summarise
from . import hooks
from .setup import (
    Repeats,
    Subject,
    float_outputs,
    prepare,
    profile,
    repeat,
    warm_up,
    watched,
    write_latency,
    write_meta,
)

PHASES = ("data", "forward", "loss", "backward", "optimizer")
DEFAULTS = Repeats(warmup=2, least=6, most=100, target=0.02, seconds=14.0, settle=1.0)
WARMED = replace(DEFAULTS, settle=0.5)  # before a trace
PROFILED = 6
MASKED_SHARE = 0.15
IGNORED = -100  # of torch.nn.functional.cross_entropy


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


class Clock:
    """Times at the borders of phases: the host's clock on the CPU, CUDA events on a GPU."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._cuda = subject.device.type == "cuda"
        self._marks: list[Any] = []

    def mark(self) -> None:
        """Note a border."""
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter_ns())

    def spans(self) -> list[int]:
        """Nanoseconds between the borders."""
        pairs = list(zip(self._marks, self._marks[1:], strict=False))
        if self._cuda:
            torch.cuda.synchronize()
            return [round(a.elapsed_time(b) * 1e6) for a, b in pairs]
        return [b - a for a, b in pairs]


class Trainer:
    """The model with its optimizer and loss; `step` runs one training step.

    `range_of` makes the ranges of its phases."""

    def __init__(
        self,
        subject: Subject,
        options: dict[str, Any],
        range_of: hooks.RangeOf = hooks.record_function,
    ) -> None:
        self.subject = subject
        self._range_of = range_of
        self.optimizer = torch.optim.AdamW(
            subject.model.parameters(), lr=float(options.get("learning_rate", 1e-5))
        )
        scaled = subject.precision == "fp16"
        self.scaler = torch.amp.GradScaler(subject.device.type, enabled=scaled)
        self.losses: list[torch.Tensor] = []
        self.phase_ns: dict[str, list[int]] = {phase: [] for phase in PHASES}
        batch = subject.batch()
        with torch.no_grad(), subject.autocast():
            output = float_outputs(subject.model(**batch))
        if not output:
            raise CheckFailed("the model returns no floating tensor, so it cannot be trained")
        self.kind = loss_kind(subject.model, output, batch)
        self.labels = None
        if self.kind != "mean":
            self.labels = labels_for(self.kind, batch["input_ids"], int(options.get("seed", 0)))

    def step(self, clock: Clock) -> None:
        """One step; the clock is marked at the borders of `PHASES`."""
        subject, range_of = self.subject, self._range_of
        clock.mark()
        with hooks.phase("data", range_of):
            batch = subject.batch()
        clock.mark()
        with hooks.phase("forward", range_of), subject.autocast():
            output = float_outputs(subject.model(**batch))
        clock.mark()
        with hooks.phase("loss", range_of):
            loss = loss_of(self.kind, output, self.labels)
            self.losses.append(loss.detach())
        clock.mark()
        with hooks.phase("backward", range_of):
            self.scaler.scale(loss).backward()
        clock.mark()
        with hooks.phase("optimizer", range_of):
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
        clock.mark()

    def timed(self) -> int:
        """One unprofiled step: its nanoseconds, and those of its phases in `phase_ns`."""
        self.subject.synchronize()
        started = time.perf_counter_ns()
        clock = Clock(self.subject)
        self.step(clock)
        self.subject.synchronize()
        total = time.perf_counter_ns() - started
        for name, ns in zip(PHASES, clock.spans(), strict=True):
            self.phase_ns[name].append(ns)
        return total


def latency(job: dict[str, Any]) -> dict[str, Any]:
    """Measure steps without a profiler, to ``job["files"]["latency"]``; gives facts."""
    subject = prepare(job, training=True)
    trainer = Trainer(subject, job["options"])
    with watched(subject) as gpu:
        measured = repeat(trainer.timed, Repeats.of(job["options"], DEFAULTS))
    warmed = len(measured["warmup_ns"])
    phases = {name: ns[warmed:] for name, ns in trainer.phase_ns.items()}
    measured |= {
        "phases_ns": phases,
        "phases": {k: s.as_dict() for k, v in phases.items() if (s := summarise(v))},
    }
    return write_latency(subject, gpu, Path(job["files"]["latency"]), measured)


def trace(job: dict[str, Any]) -> dict[str, Any]:
    """Warm up and profile steps, to the files of the trace and of how it was taken; gives facts."""
    options = job["options"]
    subject = prepare(job, training=True)
    files = {k: Path(v) for k, v in job["files"].items()}
    trainer = Trainer(subject, options)
    with watched(subject) as gpu:
        warm_up(trainer.timed, Repeats.of(options, WARMED))
    iterations = int(options.get("profiled", PROFILED))
    with replacing(files["trace"]) as path:
        classes, traced = _profiled(trainer, iterations, path)
    losses = [float(x) for x in trainer.losses]
    finite = all(x == x and abs(x) != float("inf") for x in losses)
    profiled = {
        "iterations": iterations,
        "phases": list(PHASES),
        "traced_phases_ns": traced,
        "modules": classes,
        "loss": trainer.kind,
        "losses": losses if finite else None,
        "finite": finite,
        "optimizer": "AdamW",
        "optimizer_implementation": "foreach" if subject.device.type == "cuda" else "for-loop",
        "gradients_scaled": trainer.scaler.is_enabled(),
    }
    return write_meta(subject, gpu, files, profiled)


def _profiled(
    trainer: Trainer, iterations: int, path: Path
) -> tuple[dict[str, str], dict[str, list[int]]]:
    """Trace steps; gives classes of modules, and ns of each phase of each traced step."""
    clocks: list[Clock] = []

    def step() -> None:
        clocks.append(Clock(trainer.subject))
        trainer.step(clocks[-1])
        trainer.subject.synchronize()

    classes = profile(trainer.subject, iterations, path, step)
    spans = [clock.spans() for clock in clocks[1:]]
    return classes, {phase: [s[i] for s in spans] for i, phase in enumerate(PHASES)}
