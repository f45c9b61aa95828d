"""Numbers as ncu prints them: in the machine's locale, with units of text where there is none.

`1,234.5` (C, English), `1.234,5` (German), `1 234,5` (French, with any kind of space), `1'234.5`
(Swiss), `12,34,567` (Indian grouping). Whether a comma or a point is the decimal sign is decided
once per table from the values that leave no doubt, so that `1.234` is read as its neighbours are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

_SPACES = re.compile(r"(?<=\d)[\s\u00a0\u202f'’](?=\d{3})")
_PLAIN = re.compile(r"[+-]?\d+\Z")
_DECIMAL_POINT = re.compile(
    r"[+-]?(?:\d{1,3}(?:,\d{2,3})*,\d{3}\.\d+|(?:0|\d{4,})\.\d+|\d+\.(?!\d{3}\Z)\d+)"
    r"(?:[eE][+-]?\d+)?\Z"
)
_DECIMAL_COMMA = re.compile(
    r"[+-]?(?:\d{1,3}(?:\.\d{3})+,\d+|(?:0|\d{4,}),\d+|\d+,(?!\d{3}\Z)\d+)(?:[eE][+-]?\d+)?\Z"
)
_POINT = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{2,3})*,\d{3}|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?\Z")
_COMMA = re.compile(r"[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?(?:[eE][+-]?\d+)?\Z")
_UNSURE = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}\Z")
# With --print-metric-instances: the value, then those of the instances.
_INSTANCES = re.compile(r"(\S+) \((.*)\)\Z", re.DOTALL)


@dataclass(frozen=True)
class Style:
    """How a table prints numbers. `decimal`: "." or ",", or None where both were seen."""

    decimal: str | None
    seen: bool  # whether any value decided it

    def parse(self, text: str) -> float | None:
        """The number that `text` is; None for text, `n/a`, NaN, infinity and what is in doubt."""
        text = text.strip()
        instances = _INSTANCES.match(text)
        if instances:
            text = instances.group(1)
        text = _SPACES.sub("", text)
        if _PLAIN.match(text):
            return float(text)
        if self.decimal is None and _UNSURE.match(text):
            return None
        value: float | None = None
        point_fits = self.decimal == "." or (self.decimal is None and _DECIMAL_POINT.match(text))
        if point_fits and _POINT.match(text):
            value = float(text.replace(",", ""))
        elif not point_fits and _COMMA.match(text):
            value = float(text.replace(".", "").replace(",", "."))
        return value if value is not None and math.isfinite(value) else None


def style_of(values: Iterable[str]) -> Style:
    """Decide the decimal sign from the values that can be read in one way only."""
    point = comma = False
    for value in values:
        text = _SPACES.sub("", value.strip())
        if not (point and comma) and text[-1:].isdigit():
            point = point or bool(_DECIMAL_POINT.match(text))
            comma = comma or bool(_DECIMAL_COMMA.match(text))
    if point and comma:
        return Style(None, True)
    return Style("," if comma else ".", point or comma)


def in_doubt(values: Iterable[str]) -> int:
    """How many values could be read in both ways, e.g. `1.234`."""
    return sum(1 for value in values if _UNSURE.match(value.strip()))
