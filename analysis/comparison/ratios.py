"""Which latencies are held against each other, and how many times as fast one is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...core.stats import Estimate, ratio
from ..model.comparison import Ratio, Side


def ratios(sides: Sequence[Side]) -> list[Ratio]:
    """Latency of the slower kind of side over the engine's, with intervals; fastest engine first.

    Each engine against eager inference of the same precision, else fp32; against engines of the
    same precision that another library made (`_ALTERNATIVES`); and each engine against the same
    backend's fp32. The noise of building, where it was measured, is in the interval.
    """
    return of_pairs(sides, _pairs(sides))


def of_pairs(sides: Sequence[Side], pairs: Sequence[tuple[str, str]]) -> list[Ratio]:
    """The ratios of these pairs of keys (over, under), the fastest first."""
    by_key = {s.key: widened(s.latency, s.rebuild_noise) for s in sides}
    found: list[Ratio] = []
    for over, under in pairs:
        value = ratio(by_key[over], by_key[under])
        if value is not None:
            found.append(Ratio(over, under, *value))
    return sorted(found, key=lambda r: by_key[r.under].median or 0)


# What an engine of the first is an alternative to, on the same device.
_ALTERNATIVES = {
    "tensorrt": ("onnxruntime-cuda", "inductor"),
    "tensorrt-rtx": ("onnxruntime-cuda", "inductor"),
    "inductor": ("onnxruntime-cuda", "onnxruntime"),
}


def _pairs(sides: Sequence[Side]) -> list[tuple[str, str]]:
    """(over, under) by key; what an engine is held against first comes first."""
    eager = {s.precision: s.key for s in sides if s.task == "eager" and s.phase == "inference"}
    engines = [s for s in sides if s.task == "engine"]
    against_eager, against_others, against_fp32 = [], [], []
    for s in engines:
        reference = eager.get(s.precision) or eager.get("fp32")
        if reference:
            against_eager.append((reference, s.key))
        for other in engines:
            alternative = other.backend in _ALTERNATIVES.get(s.backend, ())
            if alternative and other.precision == s.precision:
                against_others.append((other.key, s.key))
            if other.backend == s.backend and other.precision == "fp32" != s.precision:
                against_fp32.append((other.key, s.key))
    return [*against_eager, *against_others, *against_fp32]


def widened(latency: Estimate, noise: float | None) -> Estimate:
    """The latency with its interval made wider by the noise of building: another build's median
    may lie that much off, so no comparison may rest on less. None where that reaches zero."""
    if not noise or latency.low is None or latency.high is None:
        return latency
    low, high = round(latency.low * (1 - noise)), round(latency.high * (1 + noise))
    ends = (low, high) if low > 0 else (None, None)
    return replace(latency, low=ends[0], high=ends[1])
