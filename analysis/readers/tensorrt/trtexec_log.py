"""The tables of layers' times in a log of trtexec (``--dumpProfile``): what people post.

``[05/08/2024-14:05:14] [I] === Profile (2094 iterations ) ===``, a heading, a row for each layer
and one called Total. Since 8.6 the name is the last column (``Time(ms) Avg.(ms) Median(ms) Time(%)
Layer``), before it is the first one; 7 and 8.0 have no median (``Profiler::print`` in
samples/common/sampleReporting.cpp). Sums have two decimals and means four, so a layer's sum is only
known to 0.005 ms, and layers of less are left out by newer versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ..bounded import LOG_LINE, lines

_TAGS = r"(?:\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] )?(?:\[[A-Z]\](?: |$))?"
_PREFIX = re.compile(_TAGS)
TABLE = re.compile(rf"^{_TAGS}=== Profile \((\d{{1,12}}) iterations ?\) ===", re.MULTILINE)
LOG = re.compile(
    rf"^{_TAGS}(?:&&&& (?:RUNNING|PASSED|FAILED) TensorRT|=== Performance summary ===)",
    re.MULTILINE,
)
LISTS_LAYERS = re.compile(r"^Name: .*?, LayerType: \w+", re.MULTILINE)
_VALUE = r"([-+]?(?:\d+(?:\.\d+)?|nan|inf))"
_HALF = 0.005  # ms, of the last decimal of a sum


def tables(text: str) -> tuple[list[list[dict[str, Any]]], list[str]]:
    """The tables in a log as ``--exportProfile`` writes them, and notes; a cut table is noted."""
    arrays: list[list[dict[str, Any]]] = []
    notes: list[str] = []
    for begin in TABLE.finditer(text):
        follows = TABLE.search(text, begin.end())
        part = text[begin.end() : follows.start() if follows else len(text)]
        records, total = _table(_PREFIX.sub("", line, count=1) for line in lines(part)[1:])
        if not records:
            continue
        count = int(begin[1])
        arrays.append([{"count": count}, *(_record(r, count) for r in records)])
        found, room = sum(r["timeMs"] for r in records), _HALF * (len(records) + 1)
        if total is None:
            notes.append("The table has no Total: it is cut short, and layers may be missing.")
        elif abs(found - total) > room:
            notes.append(
                f"The layers add up to {found:.2f} ms, its Total says {total:.2f} ms: the table "
                "lacks lines, or has some twice."
            )
    return arrays, notes


def _table(rows: Iterable[str]) -> tuple[list[dict[str, Any]], float | None]:
    """The rows below a heading, up to the Total, and that."""
    records: list[dict[str, Any]] = []
    pattern: re.Pattern[str] | None = None
    for row in rows:
        if pattern is None:
            pattern = _pattern(row)
            continue
        match = None if "\x00" in row else pattern.fullmatch(row)  # a hole in the file
        if match is None:
            if row.strip() and (LOG_LINE.match(row) or row.startswith("=== ")):
                break
            continue
        values = match.groupdict()
        time = float(values["time"])
        if values["name"] == "Total":
            return records, time
        median = values.get("median")
        records.append(
            {
                "name": values["name"],
                "timeMs": time,
                "averageMs": float(values["average"]),
                "medianMs": None if median is None else float(median),
            }
        )
    return records, None


def _pattern(heading: str) -> re.Pattern[str] | None:
    """A row below this heading; None where it is none."""
    words = heading.split()
    if "Layer" not in (words[:1] + words[-1:]) or "Time" not in heading:
        return None
    columns = ["time", "average", *(["median"] if "Median" in heading else []), "share"]
    numbers = r"\s+".join(_VALUE.replace("(", f"(?P<{c}>", 1) for c in columns)
    if words[0] == "Layer":
        return re.compile(rf"\s*(?P<name>\S.*?)\s+{numbers}\s*")
    return re.compile(rf"\s*{numbers}\s+(?P<name>\S.*?)\s*")


def _record(row: dict[str, Any], count: int) -> dict[str, Any]:
    """A row without what its few decimals do not tell."""
    mean, median = row["averageMs"], row["medianMs"]
    if abs(mean * count - row["timeMs"]) <= _HALF + 0.00005 * count:
        mean = None  # it ran in each of the iterations
    return {**row, "averageMs": mean, "medianMs": median or None}
