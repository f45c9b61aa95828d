"""The eager model's outputs for the run's inputs: one forward, nothing measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...core.errors import CheckFailed
from ...core.files import replacing
from .setup import float_outputs, prepare


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Write the floating outputs, as float32, to `job["files"]["outputs"]`; gives facts."""
    subject = prepare(job, training=False)
    with torch.inference_mode():
        tensors = float_outputs(subject.model(**subject.batch()), subject.inputs)
        outputs = {k: v.float().cpu().numpy() for k, v in tensors.items()}
    if not outputs:
        raise CheckFailed("the model returns no floating tensor", file=job["model"])
    with replacing(Path(job["files"]["outputs"])) as path, path.open("wb") as f:
        np.savez(f, **outputs)
    return {"finite": bool(all(np.isfinite(v).all() for v in outputs.values()))}
