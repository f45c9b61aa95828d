"""Outputs of an engine against those of the eager model: how far apart, and whether it matters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import InputError


def compare(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], file: Path | None = None
) -> dict[str, Any]:
    """Compare the floating outputs of equal name (the only ones, where each side has one).

    Gives the worst of all outputs:

    - ``max_abs``: largest absolute difference
    - ``max_rel``: the same over the largest absolute value of the reference
    - ``cosine``: cosine of the angle between the two, flattened
    - ``top1``: share of positions where the largest entry along the last axis is the same one
    - ``nonfinite``: entries of the engine that are NaN or infinite where the reference is not;
      the differences are over the others, and None where there are none
    - ``reference_nonfinite``: entries of the reference that are NaN or infinite
    - ``constant``: the value of every entry, of an output of which the reference has several

    Raises InputError where nothing can be compared.
    """
    outputs = {name: _one(a, b) for name, a, b in _pairs(ours, theirs, file)}
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


def _one(engine: Any, reference: Any) -> dict[str, Any]:
    a, b = engine.astype(np.float64), reference.astype(np.float64)
    usable = np.isfinite(a) & np.isfinite(b)
    x, y = a[usable], b[usable]
    result: dict[str, Any] = {
        "max_abs": None,
        "max_rel": None,
        "cosine": None,
        "top1": _top1(a, b),
        "positions": a[..., 0].size if a.ndim and a.shape[-1] > 1 else None,
        "nonfinite": int(np.count_nonzero(~np.isfinite(a) & np.isfinite(b))),
        "reference_nonfinite": int(np.count_nonzero(~np.isfinite(b))),
        "constant": None,
    }
    if usable.all() and x.size and np.ptp(x) == 0 and np.ptp(y) > 0:
        result["constant"] = float(x[0])
    if x.size:
        result["max_abs"] = float(np.max(np.abs(x - y)))
        scale = float(np.max(np.abs(y)))
        result["max_rel"] = result["max_abs"] / scale if scale else None
        norms = float(np.linalg.norm(x) * np.linalg.norm(y))
        result["cosine"] = min(1.0, float(np.dot(x, y)) / norms) if norms else None
    return result


def _top1(a: Any, b: Any) -> float | None:
    """None where the last axis has fewer than two entries to choose from. NaN never agrees."""
    if a.ndim == 0 or a.shape[-1] < 2 or a.size == 0:
        return None
    whole = ~np.isnan(a).any(axis=-1) & ~np.isnan(b).any(axis=-1)
    return float(np.mean((a.argmax(axis=-1) == b.argmax(axis=-1)) & whole))
