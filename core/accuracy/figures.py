"""How far one output is from the reference's: the figures that a verdict needs.

Of the export in ONNX Runtime against eager, and of an engine against eager.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_BLOCK = 256  # positions at a time: bounds the memory of the double precision copies


def of_output(got: Any, reference: Any) -> dict[str, Any]:
    """Two arrays of one shape, [..., features].

    - ``max_abs``: largest absolute difference
    - ``max_rel``: the same over the largest absolute value of the reference (an element-wise ratio
      would blow up at zeros)
    - ``cosine``: cosine of the angle between the two, each as one vector
    - ``top1``: share of positions where the largest feature is the same one; NaN never agrees
    - ``positions``, ``n``: how many positions (None: a feature each), how many values
    - ``nonfinite``: values that are NaN or infinite where the reference is not
    - ``reference_nonfinite``: values of the reference that are NaN or infinite
    - ``constant``: the one value that there is throughout, where the reference has several

    The first three are over what is finite in both; None where that is nothing or is undefined.
    """
    features = reference.shape[-1] if reference.ndim and reference.shape[-1] else 1
    left, right = got.reshape(-1, features), reference.reshape(-1, features)
    sums = _Sums()
    for start in range(0, len(right), _BLOCK):
        part = slice(start, start + _BLOCK)
        sums.add(left[part].astype(np.float64), right[part].astype(np.float64))
    several, size = features > 1, int(reference.size)
    norms = math.sqrt(sums.squares) * math.sqrt(sums.reference_squares)
    known = size > sums.unusable
    return {
        "max_abs": sums.largest if known else None,
        "max_rel": sums.largest / sums.scale if sums.scale else None,
        "cosine": min(1.0, sums.dot / norms) if norms else None,
        "top1": sums.agree / len(right) if several and size else None,
        "positions": len(right) if several else None,
        "n": size,
        "nonfinite": sums.nonfinite,
        "reference_nonfinite": sums.reference_nonfinite,
        "constant": sums.constant(),
    }


class _Sums:
    """What is summed up over blocks."""

    def __init__(self) -> None:
        self.largest = self.scale = self.dot = self.squares = self.reference_squares = 0.0
        self.agree = self.nonfinite = self.reference_nonfinite = self.unusable = 0
        self._ends, self._reference_ends = [math.inf, -math.inf], [math.inf, -math.inf]

    def add(self, a: Any, b: Any) -> None:
        """A block, [positions, features] in double precision."""
        finite, known = np.isfinite(a), np.isfinite(b)
        self.nonfinite += int(np.count_nonzero(~finite & known))
        self.reference_nonfinite += int(np.count_nonzero(~known))
        whole = ~(np.isnan(a).any(1) | np.isnan(b).any(1))
        self.agree += int(np.count_nonzero((a.argmax(1) == b.argmax(1)) & whole))
        usable = finite & known
        x, y = a[usable], b[usable]
        self.unusable += int(usable.size - x.size)
        if not x.size:
            return
        self.largest = max(self.largest, float(np.abs(x - y).max()))
        self.scale = max(self.scale, float(np.abs(y).max()))
        self.dot += float(np.dot(x, y))
        self.squares += float(np.dot(x, x))
        self.reference_squares += float(np.dot(y, y))
        for ends, values in ((self._ends, x), (self._reference_ends, y)):
            ends[:] = min(ends[0], float(values.min())), max(ends[1], float(values.max()))

    def constant(self) -> float | None:
        """The one value of the output; None where there are several, or of the reference too."""
        low, high = self._ends
        same = low == high and not self.unusable
        return low if same and self._reference_ends[0] < self._reference_ends[1] else None
