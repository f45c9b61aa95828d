"""The verdict on an engine of random weights, whose outputs tell little: by its modules too.

A projection of queries that is wrong changes an attention that weighs all positions about alike by
less than half precision rounds. So where weights are random, outputs within the limits are not
enough: no module may make an error of its own, and an error of the outputs beyond that of rounding
has to be followed through the modules. How the figures were chosen: docs/accuracy.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..documents import ModuleError
from .limits import Limits, Verdict, default

# What rounding alone stays below: the norm of the difference over that of the reference.
ROUNDING = {"fp32": 1e-4, "tf32": 5e-3, "fp16": 5e-3, "bf16": 5e-2}
# Rounding adds up over modules; the error of one is its own from this many times that on.
MODULE = 2.0


def applies(figures: Mapping[str, Any], limits: Limits, precision: str) -> bool:
    """Whether the modules decide too: with random weights, where no lower limit was asked for."""
    return bool(figures.get("random_weights")) and limits.cosine >= default(precision).cosine


def beyond_rounding(figures: Mapping[str, Any], precision: str) -> bool:
    """Whether the outputs differ by more than rounding makes."""
    return error(figures["cosine"]) > _rounding(precision)


def module_limit(limits: Limits, precision: str, *, random: bool) -> float:
    """The error of a module's output above which it is wrong: that of the least cosine; with random
    weights, of which the rounding is known, less."""
    least = error(limits.cosine)
    return min(least, MODULE * _rounding(precision)) if random else least


def error(cosine: float | None) -> float:
    """The relative error that a cosine stands for: 1 - cos is half of its square. 0: unknown."""
    return math.sqrt(2 * max(0.0, 1 - cosine)) if cosine is not None else 0.0


def judge(
    verdict: Verdict,
    figures: Mapping[str, Any],
    limits: Limits,
    precision: str,
    modules: Sequence[ModuleError],
) -> Verdict:
    """The verdict on outputs, held against the errors by module, none where they were not
    measured."""
    if not verdict.ok or not applies(figures, limits, precision):
        return verdict
    if any(m.first_wrong for m in modules):
        return Verdict(False, "its outputs are within the limits, a module's are not")
    if all(m.error_out is None for m in modules) and beyond_rounding(figures, precision):
        got, most = error(figures["cosine"]), _rounding(precision)
        why = f"its error {got:.2g} is more than rounding makes ({most:g}), and weights are random"
        return Verdict(None, why)
    return verdict


def _rounding(precision: str) -> float:
    return ROUNDING.get(precision, ROUNDING["fp32"])
