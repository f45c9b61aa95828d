"""The eager model in training: step latency with its phases, and a profile with module ranges.

Leaves ``captures/train.{precision}.trace.json.gz``, ``.latency.json`` and ``.meta.json``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core.errors import ToolMissing
from ...core.run import Run
from . import process

why_not = process.why_not


def outputs(run: Run, precision: str) -> list[Path]:
    """The files that `capture` leaves."""
    return list(process.files(run, "train", precision).values())


def capture(run: Run, precision: str, options: dict[str, Any]) -> dict[str, Any]:
    """Measure and profile training steps of the model of ``export/model.json``; gives facts for
    the manifest, by which the files are known again.

    `options` (all optional): device, threads, seed, learning_rate, and, in ``train`` or beside
    it, warmup, iterations {min, max}, target, seconds, profiled. The caller holds the machine's
    lock. LayerlineError where it cannot run; `why_not` tells beforehand.
    """
    reason = why_not(precision, options)
    if reason:
        raise ToolMissing(
            f"training in {precision} is not run on this machine: {reason}", fix="use fp32 or a GPU"
        )
    return process.work(run, "train", precision, options)
