"""How names and numbers are written."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import one_line


def fitted(name: str, width: int) -> str:
    """A name without its middle: names of one kind differ at their ends."""
    room = max(width, 20)
    if len(name) <= room:
        return name
    tail = (room - 1) // 3
    return f"{name[: room - 1 - tail]}…{name[-tail:]}"


UNKNOWN = "–"

# Beyond it a ratio next to 1 is ">1.00×": more digits are no measurement.
RATIO_DECIMALS = 4

_UNITS = ("ns", "µs", "ms", "s")
_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")


def known(value: Any) -> bool:
    """Whether `value` is a number that can be shown: not None, NaN or infinite."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _three(ns: int) -> tuple[str, str]:
    """Three significant digits of a time, half away from zero, and the unit."""
    sign, n = ("−" if ns < 0 else ""), abs(ns)
    if n < 1000:
        return f"{sign}{n}", "ns"
    power = len(str(n)) - 3
    digits = (n + 10**power // 2) // 10**power
    if digits == 1000:
        digits, power = 100, power + 1
    unit = min((power + 2) // 3, 3)
    decimals = 3 * unit - power
    if decimals <= 0:
        return f"{sign}{digits * 10**-decimals}", _UNITS[unit]
    text = f"{digits:0{decimals + 1}d}"
    return f"{sign}{text[:-decimals]}.{text[-decimals:]}", _UNITS[unit]


def time(ns: float | None) -> str:
    """``1234567`` → ``1.23 ms``."""
    if ns is None or not known(ns):
        return UNKNOWN
    return " ".join(_three(round(ns)))


def spoken_time(ns: float | None) -> str:
    """A time within a sentence: ``unknown`` as a word, and a minus that a terminal can type."""
    return "unknown" if ns is None else time(ns).replace("−", "-")


def time_range(low: float | None, high: float | None, between: str = " – ") -> str:
    """``1.20 – 1.85 ms``; one value where both are written alike; "–" where both are unknown."""
    if low is None or high is None or not (known(low) and known(high)):
        return time(high if low is None or not known(low) else low)
    (a, a_unit), (b, b_unit) = _three(round(low)), _three(round(high))
    if (a, a_unit) == (b, b_unit):
        return f"{a} {a_unit}"
    if a == "0":
        return f"0{between}{b} {b_unit}"
    first = a if a_unit == b_unit else f"{a} {a_unit}"
    return f"{first}{between}{b} {b_unit}"


def exact(ns: float | None) -> str:
    """``1234567`` → ``1,234,567 ns``."""
    return f"{round(ns):,} ns" if ns is not None and known(ns) else "unknown"


def percent(share: float | None) -> str:
    """``0.1234`` → ``12.3 %``; below a thousandth, two significant digits."""
    if share is None or not known(share):
        return UNKNOWN
    value = abs(share) * 100
    if value == 0:
        return "0 %"
    sign = "−" if share < 0 else ""
    if value > 100 + 1e-6 and math.floor(value + 0.5) == 100:
        return f"{sign}{max(value, 100.1):.1f} %"
    if value >= 100:
        return f"{sign}{math.floor(value + 0.5):,} %"
    if value >= 99.95:
        return f"{sign}99.9 %"
    if value >= 0.0995:
        return f"{sign}{value:.1f} %"
    return f"{sign}{value:.2f} %" if value >= 0.005 else f"{sign}<0.01 %"


def filled(form: str, figures: Sequence[float | str]) -> str:
    """A sentence with its figures, a share or a name for each {}."""
    return form.format(*(f if isinstance(f, str) else percent(f) for f in figures))


def size(count: float | None) -> str:
    """``14234567890`` → ``14.2 GB``: three significant digits, decimal units."""
    if count is None or not known(count):
        return UNKNOWN
    sign, value = ("−" if count < 0 else ""), abs(count)
    unit = 0
    while value >= 999.5 and unit < len(_BYTES) - 1:
        value, unit = value / 1000, unit + 1
    decimals = 0 if not unit or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{sign}{value:,.{decimals}f} {_BYTES[unit]}"


def number(value: Any) -> str:
    """A plain number with three significant digits, integers and what is beyond 1,000 whole."""
    if not known(value):
        return UNKNOWN
    if isinstance(value, int):
        return f"{value:,}"
    if 999.5 <= abs(value) < 1e9:
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


def ratio(value: float | None) -> str:
    """``1.6234`` → ``1.62×``. Near 1 more digits, so that only 1 is written as 1: ``1.002×``."""
    if value is None or not known(value):
        return UNKNOWN
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return _ratio(value, decimals)


def _ratio(value: float, decimals: int) -> str:
    while decimals < RATIO_DECIMALS and value != 1 and float(f"{value:.{decimals}f}") in (0, 1):
        decimals += 1
    text = f"{value:.{decimals}f}"
    if value not in (0, 1) and float(text) in (0, 1):
        return f"{'>' if value > float(text) else '<'}{float(text):.2f}×"
    return f"{text}×"


def times(value: float | None) -> str:
    """As `ratio`; below 0.1 with two significant digits."""
    if value is not None and known(value) and 0 < value < 0.0995:
        return f"{value:.2g}×"
    return ratio(value)


def ratio_range(low: float | None, high: float | None, between: str = " – ") -> str:
    """``1.62× – 1.70×``; ends that would be written alike get more digits. "–": unknown."""
    if low is None or high is None or not (known(low) and known(high)):
        return UNKNOWN
    a, b = ratio(low), ratio(high)
    for decimals in range(3, RATIO_DECIMALS + 1):
        if a != b or low == high:
            break
        a, b = _ratio(low, decimals), _ratio(high, decimals)
    return a if a == b else f"{a}{between}{b}"


def when(iso: str) -> str:
    """``2026-11-28T01:02:03+00:00`` → ``2026-11-28 01:02 UTC``; other text as it is."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::[\d.]+)?(Z|[+-]\d\d:?\d\d)?", iso)
    if found is None:
        return short(iso, 40)
    day, clock, zone = found.groups()
    utc = zone in ("Z", "+00:00", "+0000")
    return f"{day} {clock}{' UTC' if utc else f' {zone}' if zone else ''}"


def visible(name: Any) -> str:
    """A name with control characters, line breaks and direction overrides as visible escapes."""
    text = str(name)
    return text if text.isprintable() else one_line(text)


def short(name: Any, limit: int = 160) -> str:
    """A visible name, its middle left out beyond `limit` characters."""
    text = visible(name)
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail - 1]}…{text[-tail:]}"


def first(names: Sequence[str], most: int) -> str:
    """The first names, at most so many, and how many more there are: ``a, b and 3 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(n: int, what: str) -> str:
    """``1 file``, ``1,200 files``."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def opening(text: str) -> str:
    """As a sentence begins, with a capital; not where it begins with the name torch.compile."""
    return text if text.startswith("torch.compile") else f"{text[:1].upper()}{text[1:]}"


def words(value: Any, limit: int) -> str:
    """A visible sentence, ended at a word where it has more than `limit` characters."""
    text = visible(value)
    if len(text) <= limit:
        return text
    kept = text[: limit - 1]
    if not text[limit - 1].isspace():
        kept = kept.rpartition(" ")[0] or kept
    return f"{kept.rstrip(' ,;:')}…"


def clean(value: Any) -> Any:
    """A JSON value with NaN and infinity as null and every key a string."""
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [clean(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): clean(v) for k, v in value.items()}
    return str(value)


def flatten(value: Any, path: str = "") -> list[tuple[str, str]]:
    """A JSON value as (dotted path, text) lines; a list of plain values stays on one line."""
    if isinstance(value, Mapping) and value:
        inner = [(f"{path}.{k}" if path else str(k), v) for k, v in value.items()]
    elif isinstance(value, list) and any(isinstance(v, (Mapping, list)) for v in value):
        inner = [(f"{path}[{i}]", v) for i, v in enumerate(value)]
    elif isinstance(value, list):
        return [(path, " ".join(_plain(v) for v in value) or "none")]
    else:
        return [(path, "none" if value == {} else _plain(value))]
    return [line for p, v in inner for line in flatten(v, p)]


def _plain(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
