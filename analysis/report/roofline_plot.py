"""The roofline of one side as a drawing: where things stand, in the units of its viewBox.

FLOP/s over FLOP per DRAM byte, both logarithmic. A point is a layer; below the slope it cannot be
for want of memory bandwidth, below a flat line for want of that unit's rate. Time and rates are
those of ncu's replays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...core.own_ranges import modules_of_range, phase_of_range
from .. import formatting
from ..model.counters import CountedRow, CountedSide
from .counted import amount

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 14, 44
SMALLEST, LARGEST = 3.0, 11.0
BOUNDS = ("tensor", "fp32", "memory", "latency", "launch", "unknown")


def drawing(side: CountedSide) -> dict[str, Any] | None:
    """Roofs, points, ticks and what could not be drawn; None where no layer has a place or the
    memory's peak is unknown."""
    layers = [r for r in side.rows if r.kind == "layer"]
    points = [r for r in layers if (r.intensity or 0) > 0 and (r.flop_per_second or 0) > 0]
    memory = side.peaks.get("memory")
    flat = {k: v for k, v in side.peaks.items() if k != "memory"}
    if not points or not memory or not flat:
        return None
    xs = [r.intensity or 0 for r in points] + [v / memory for v in flat.values()]
    ys = [r.flop_per_second or 0 for r in points] + list(flat.values())
    at = _Scale(_decades(xs), _decades(ys))
    highest = max(flat.values())
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "frame": {"x": LEFT, "y": TOP, "right": WIDTH - RIGHT, "bottom": HEIGHT - BOTTOM},
        "roofs": [_slope(at, memory, highest), *(_flat(at, k, v, memory) for k, v in flat.items())],
        "points": [_point(at, r) for r in sorted(points, key=lambda r: -(r.share or 0))],
        "x_ticks": [{"x": at.x(10.0**e), "text": amount(10.0**e)} for e in at.ticks(at.across, 8)],
        "y_ticks": [{"y": at.y(10.0**e), "text": amount(10.0**e)} for e in at.ticks(at.up, 6)],
        "bounds": [b for b in BOUNDS if any((r.bound or "unknown") == b for r in points)],
        "left_out": len(layers) - len(points),
    }


class _Scale:
    """From values to places; both axes in whole decades."""

    def __init__(self, across: tuple[int, int], up: tuple[int, int]) -> None:
        self.across, self.up = across, up

    def x(self, value: float) -> float:
        return round(_part(value, self.across) * (WIDTH - LEFT - RIGHT) + LEFT, 1)

    def y(self, value: float) -> float:
        return round(HEIGHT - BOTTOM - _part(value, self.up) * (HEIGHT - TOP - BOTTOM), 1)

    @staticmethod
    def ticks(ends: tuple[int, int], most: int) -> range:
        return range(ends[0], ends[1] + 1, max(1, math.ceil((ends[1] - ends[0]) / most)))


def _part(value: float, ends: tuple[int, int]) -> float:
    return (math.log10(value) - ends[0]) / (ends[1] - ends[0])


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _slope(at: _Scale, memory: float, highest: float) -> dict[str, Any]:
    """DRAM's roof, from where it enters the frame to the highest flat one."""
    low = max(10.0 ** at.across[0], 10.0 ** at.up[0] / memory)
    return {
        "name": f"DRAM {amount(memory)}byte/s",
        "x1": at.x(low),
        "y1": at.y(low * memory),
        "x2": at.x(highest / memory),
        "y2": at.y(highest),
        "label": {"x": at.x(low) + 6, "y": at.y(low * memory) - 8, "anchor": "start"},
    }


def _flat(at: _Scale, name: str, rate: float, memory: float) -> dict[str, Any]:
    right = WIDTH - RIGHT
    return {
        "name": f"{name} {amount(rate)}FLOP/s",
        "x1": at.x(rate / memory),
        "y1": at.y(rate),
        "x2": right,
        "y2": at.y(rate),
        "label": {"x": right - 2, "y": at.y(rate) - 5, "anchor": "end"},
    }


def _point(at: _Scale, row: CountedRow) -> dict[str, Any]:
    share = row.share or 0
    x, y = row.intensity or 0, row.flop_per_second or 0
    return {
        "x": at.x(x),
        "y": at.y(y),
        "r": round(SMALLEST + (LARGEST - SMALLEST) * math.sqrt(min(share, 0.3) / 0.3), 1),
        "bound": row.bound or "unknown",
        "title": f"{formatting.short(_name(row.name), 90)}: "
        f"{formatting.percent(row.share)} of the time; "
        f"{amount(x)} FLOP/byte, {amount(y)}FLOP/s; {row.text}",
    }


def _name(layer: str) -> str:
    """A range of an eager capture by its module, with its phase where the range is of one."""
    of = modules_of_range(layer)
    if not of:
        return layer
    phase = phase_of_range(layer)
    return f"{of[0] or '(model)'}, {phase}" if phase else of[0] or "(model)"
