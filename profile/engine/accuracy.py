"""Outputs of an engine against those of the eager model: how far apart, and whether it matters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...core.accuracy.figures import of_output
from ...core.errors import InputError


def compare(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], file: Path | None = None
) -> dict[str, Any]:
    """The figures (`core.accuracy.figures`) of the floating outputs of equal name (the only ones,
    where each side has one), and the worst of all outputs. InputError where nothing can be
    compared."""
    outputs = {name: of_output(a, b) for name, a, b in _pairs(ours, theirs, file)}
    worst: dict[str, Any] = {}
    for name, choose in (("max_abs", max), ("max_rel", max), ("cosine", min), ("top1", min)):
        known = (o[name] for o in outputs.values() if o[name] is not None)
        worst[name] = choose(known, default=None)
    for name in ("nonfinite", "reference_nonfinite"):
        worst[name] = sum(o[name] for o in outputs.values())
    same = (o["constant"] for o in outputs.values() if o["constant"] is not None)
    return {**worst, "constant": next(same, None), "outputs": outputs}


def _pairs(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], file: Path | None
) -> list[tuple[str, Any, Any]]:
    a = {k: ours[k] for k in ours if np.asarray(ours[k]).dtype.kind == "f"}
    b = {k: theirs[k] for k in theirs if np.asarray(theirs[k]).dtype.kind == "f"}
    names = [k for k in a if k in b]
    if not names and len(a) == len(b) == 1:
        (name,), (other,) = a, b
        b, names = {name: b[other]}, [name]
    if not names:
        raise InputError(
            f"engine has outputs {', '.join(a) or 'none'}, the reference {', '.join(b) or 'none'}",
            file=file,
        )
    for name in names:
        if a[name].shape != b[name].shape:
            raise InputError(
                f"{name} has shape {a[name].shape}, the reference {b[name].shape}",
                file=file,
                fix="run both again with the same batch and sequence",
            )
    return [(name, a[name], b[name]) for name in names]
