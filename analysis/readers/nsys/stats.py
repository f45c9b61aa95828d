"""`nsys stats`: summaries, several reports one after the other in one file.

CSV, TSV and the tables for people (`column`, the default, and `table`) are read, from a file or
from what was printed; `nsys_stats_text` finds the tables. The unit of a time is in its heading,
``Total Time (ns)``; 2020 versions write ``Time(%)`` and leave the unit of ``Average`` out, which is
that of the total. Tables for people have their numbers in the machine's locale.

Tables: `stats`, one row per name of every summary report (the sum, count and spread that nsys
computed; a kernel inside nested ranges is counted in each of them there, so rows do not add up),
and the rows of every report as they are, under its name.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ....core.errors import InputError
from ..base import Artefact, Head
from ..bounded import open_text
from ..numbers import Style, in_doubt, style_of
from .stats_tables import Table, Text, looks_like, scan

KIND = "nsys-stats"
DESCRIPTION = "Nsight Systems summaries (nsys stats, best with --format csv)"

MAX_BYTES = 256 << 20
_FIX = "print it with `nsys stats --format csv`"
_HEADING = re.compile(r"(?P<name>.*?) ?\((?P<unit>ns|nsec|us|usec|μs|µs|ms|msec|s|sec|%)\)\Z")
_FACTOR = {"ns": 1, "us": 1_000, "μs": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_FACTOR |= {"nsec": 1, "usec": 1_000, "msec": 1_000_000, "sec": 1_000_000_000}

STATS = pa.schema(
    [
        ("source", pa.string()),
        ("report", pa.string()),
        ("name", pa.string()),
        ("range", pa.string()),
        ("calls", pa.int64()),
        ("total_ns", pa.int64()),
        ("average_ns", pa.float64()),
        ("median_ns", pa.float64()),
        ("min_ns", pa.int64()),
        ("max_ns", pa.int64()),
        ("stddev_ns", pa.float64()),
        ("share", pa.float64()),
    ]
)
# Column of `stats`: headings that nsys has used for it, without their unit.
_COLUMNS = {
    "calls": (
        *("Instances", "Num Calls", "Count", "Kern Inst", "Range Instances"),
        *("Calls", "Operations"),  # 2019, 2020
    ),
    "total_ns": ("Total Time", "Total Proj Time", "Total Range Time"),
    "average_ns": ("Avg", "Average", "Proj Avg"),
    "median_ns": ("Med", "Median", "Proj Med"),
    "min_ns": ("Min", "Minimum", "Proj Min"),
    "max_ns": ("Max", "Maximum", "Proj Max"),
    "stddev_ns": ("StdDev", "Proj StdDev"),
}
_WHOLE = ("calls", "total_ns", "min_ns", "max_ns")
_NAMES = ("Kernel Name", "Name", "Operation", "Range", "Event Name")
_RANGES = ("NVTX Range",)
_TEXTS = frozenset(_NAMES + _RANGES)


def sniff(head: Head) -> bool:
    """A line that announces a report, or a report's headings."""
    return looks_like(head.text)


def read(path: Path) -> Artefact:
    """All reports of the file. InputError where no report in it has data, or none can be read."""
    with open_text(path, MAX_BYTES) as stream:
        try:
            text = scan(stream)
        except csv.Error as e:
            raise InputError(f"holds a report that is not CSV ({e})", file=path, fix=_FIX) from None
    if not text.tables:
        raise _no_table(text, path)
    raw: dict[str, pa.Table] = {}
    rows: list[dict[str, Any]] = []
    doubtful = 0
    common = style_of(v for table in text.tables for v in _separated(table))
    for table in text.tables:
        # One machine printed the file, unless files were put together.
        style = style_of(_separated(table))
        style = style if style.seen else common
        doubtful += 0 if style.decimal else in_doubt(_separated(table))
        rows += _stats(table, style, path)
        key = table.report
        while key in raw or key == "stats":  # of another capture, or with other options
            key += "+"
        raw[key] = _raw(table, style)
    stats = pa.Table.from_pylist(rows, schema=STATS)
    facts: dict[str, Any] = {"reports": list(raw)}
    if text.other:
        facts["lines_of_other_output"] = text.other
    notes = [*_notes(text, doubtful), *_empty(raw, stats)]
    return Artefact(KIND, {"stats": stats, **raw}, facts, notes)


def _no_table(text: Text, path: Path) -> InputError:
    if text.unread:
        what = f"holds no table that can be read (of {_listed(text.unread)})"
        return InputError(what, file=path, fix=_FIX)
    fix = "capture with nsys profile --trace=cuda,nvtx"
    return InputError("holds no report with data", file=path, fix=fix)


def _notes(text: Text, doubtful: int) -> Iterator[str]:
    if text.skipped:
        yield f"nsys had no data for {_listed(text.skipped)}"
    if text.unread:
        yield f"no table can be read of {_listed(text.unread)}; {_FIX}"
    if text.misfits:
        yield f"{text.misfits} lines have another number of fields than their heading; left out"
    clipped = sum(table.clipped for table in text.tables)
    if clipped:
        yield f"{clipped} values are cut short by the column format; {_FIX}"
    if doubtful:
        yield f"{doubtful} different numbers can be read in two ways and are null; {_FIX}"


def _empty(raw: dict[str, pa.Table], stats: pa.Table) -> Iterator[str]:
    rowless = [name for name, table in raw.items() if not table.num_rows]
    if rowless:
        yield f"no rows in {_listed(rowless)}"
    single = [name for name, table in raw.items() if table.num_rows]
    if single and not stats.num_rows:
        yield f"no sums over time in {_listed(single)}: stats is empty; --table NAME shows its rows"


def _listed(names: list[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _separated(table: Table) -> Iterator[str]:
    """The values with a point or a comma, which may tell how numbers are printed."""
    for name, values in zip(table.heading, zip(*table.rows, strict=True), strict=False):
        if name not in _TEXTS:
            yield from {v for v in values if "," in v or "." in v}


def _stats(table: Table, style: Style, path: Path) -> Iterator[dict[str, Any]]:
    """Rows of `stats` of a summary; none of a trace (which has no total)."""
    place: dict[str, tuple[int, str | None]] = {}  # heading without unit: its column, its unit
    share: int | None = None  # the column of `Time (%)`
    for i, heading in enumerate(table.heading):
        parsed = _HEADING.match(heading)
        name, unit = (parsed["name"], parsed["unit"]) if parsed else (heading, None)
        if unit != "%":
            place.setdefault(name, (i, unit))
        elif name == "Time":
            share = i
    columns = {
        column: next((place[h] for h in headings if h in place), None)
        for column, headings in _COLUMNS.items()
    }
    total = columns["total_ns"]
    if total is None:
        return
    for row in table.rows:
        line: dict[str, Any] = {"source": path.name, "report": table.report}
        for column, found in columns.items():
            number = _number(row[found[0]], style) if found else None
            if found and number is not None:
                unit = found[1] or total[1] or "ns"
                number = number * (1 if column == "calls" else _FACTOR[unit])
                number = round(number) if column in _WHOLE else float(number)
            line[column] = number
        percent = None if share is None else _number(row[share], style)
        line["share"] = None if percent is None else percent / 100
        line["name"] = next((row[place[h][0]] for h in _NAMES if h in place), None)
        line["range"] = next((row[place[h][0]] for h in _RANGES if h in place), None)
        yield line


def _raw(table: Table, style: Style) -> pa.Table:
    """A report as it is: columns of numbers where every value is one, else of text."""
    columns: dict[str, pa.Array] = {}
    for i, name in enumerate(table.heading):
        if name in columns:
            continue
        texts = [row[i] for row in table.rows]
        numbers = None if name in _TEXTS else _numbers(texts, style)
        if numbers is None:
            columns[name] = pa.array([t or None for t in texts], pa.string())
        elif all(n is None or isinstance(n, int) or n.is_integer() for n in numbers):
            columns[name] = pa.array([None if n is None else int(n) for n in numbers], pa.int64())
        else:
            columns[name] = pa.array([None if n is None else float(n) for n in numbers])
    return pa.table(columns)


def _numbers(texts: list[str], style: Style) -> list[float | None] | None:
    """The numbers of a column, null where it is empty; null where one of them is no number."""
    known: dict[str, float | None] = {"": None}  # most columns repeat few values
    for text in texts:
        if text not in known:
            known[text] = _number(text, style)
            if known[text] is None:
                return None
    return [known[text] for text in texts]


def _number(text: str, style: Style) -> float | None:
    """The number in `text`, exact where it is whole; null where it is none."""
    if text.isdecimal() and text.isascii() and len(text) < 19:
        return int(text)
    value = None if "(" in text else style.parse(text)
    # Beyond 2**62 it is no time and does not fit a column of integers.
    if value is None or abs(value) >= 2**62:
        return None
    digits = text.replace("." if style.decimal == "," else ",", "")
    return int(digits) if re.fullmatch(r"-?\d+", digits) else value
