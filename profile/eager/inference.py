"""The eager model in inference: latency, a profile with module ranges, and its outputs.

Leaves ``captures/eager.{precision}.trace.json.gz`` (torch.profiler), ``.latency.json``,
``.meta.json`` and ``.outputs.npz`` (``{"logits": (batch, sequence, vocabulary) float32}``, the
reference that engines are compared with).
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
    return list(process.files(run, "eager", precision).values())


def capture(run: Run, precision: str, options: dict[str, Any]) -> dict[str, Any]:
    """Measure and profile the model of ``export/model.json`` in eager inference; gives facts for
    the manifest, by which the files are known again.

    `options` (all optional): device, threads, seed, warmup, iterations {min, max}, target,
    seconds, profiled. The caller holds the machine's lock. LayerlineError where it cannot run;
    `why_not` tells beforehand.
    """
    reason = why_not(precision, options)
    if reason:
        raise ToolMissing(
            f"eager {precision} is not run on this machine: {reason}", fix="use fp32 or a GPU"
        )
    return process.work(run, "eager", precision, options)
