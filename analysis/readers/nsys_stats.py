"""`nsys stats --format csv`: summaries, several reports one after the other in one file.

Each report begins with ``Processing [FILE] with [.../reports/NAME.py]...``; one without data has
a line ``SKIPPED: ...`` in its place. Files made with ``-o`` hold one report and no such line. The
unit of a time is in its heading, ``Total Time (ns)``.

Tables: `stats`, one row per name of every summary report (the sum, count and spread that nsys
computed; a kernel inside nested ranges is counted in each of them there, so rows do not add up),
and the rows of every report as they are, under its name.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from layerline.core.errors import InputError

from .base import Artefact, Head
from .bounded import open_text

KIND = "nsys-stats"
DESCRIPTION = "Nsight Systems summaries (nsys stats --format csv)"

MAX_BYTES = 256 << 20
_SECTION = re.compile(r"Processing \[(?P<file>.*?)\] with \[(?P<script>.*?)\]\.\.\.")
_HEADING = re.compile(r"(?P<name>.*?) \((?P<unit>ns|nsec|us|usec|μs|µs|ms|msec|s|sec|%)\)\Z")
_FACTOR = {"ns": 1, "us": 1_000, "μs": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_FACTOR |= {"nsec": 1, "usec": 1_000, "msec": 1_000_000, "sec": 1_000_000_000}
# Headings of the reports that a file without `Processing` lines may hold.
_FIRST_LINE = re.compile(
    r'"?(?:Time ?\(%\)"?,"?Total Time \(|Start \(\w+\)"?,"?Duration \(|Name"?,"?Projected Start \()'
)

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
    "calls": ("Instances", "Num Calls", "Count", "Kern Inst", "Range Instances", "Calls"),
    "total_ns": ("Total Time", "Total Proj Time", "Total Range Time"),
    "average_ns": ("Avg", "Average", "Proj Avg"),
    "median_ns": ("Med", "Median", "Proj Med"),
    "min_ns": ("Min", "Minimum", "Proj Min"),
    "max_ns": ("Max", "Maximum", "Proj Max"),
    "stddev_ns": ("StdDev", "Proj StdDev"),
}
_NAMES = ("Kernel Name", "Name", "Operation", "Range", "Event Name")
_RANGES = ("NVTX Range",)


def sniff(head: Head) -> bool:
    """A `Processing [...] with [...]` line, or a summary's heading as the first line."""
    return bool(_SECTION.search(head.text) or _FIRST_LINE.match(head.stripped))


def read(path: Path) -> Artefact:
    """All reports of the file. InputError where no report in it has data."""
    with open_text(path, MAX_BYTES) as stream:
        reports, notes = _reports(stream, path)
    if not reports:
        raise InputError(
            "holds no report with data",
            file=path,
            fix="capture with nsys profile --trace=cuda,nvtx",
        )
    rows = [row for name, (_, lines) in reports.items() for row in _stats(name, lines, path)]
    tables = {"stats": pa.Table.from_pylist(rows, schema=STATS)}
    for name, (heading, lines) in reports.items():
        tables[name] = _raw(heading, lines)
    return Artefact(KIND, tables, {"reports": list(reports)}, notes)


Reports = dict[str, tuple[list[str], list[dict[str, str]]]]


def _reports(stream: Any, path: Path) -> tuple[Reports, list[str]]:
    reports: Reports = {}
    notes: list[str] = []
    skipped: list[str] = []
    short = 0
    for name, lines in _sections(stream):
        if any(line.startswith("SKIPPED: ") for line in lines):
            skipped.append(name)
            continue
        try:
            rows = [row for row in csv.reader(lines) if row]
        except csv.Error as e:
            raise InputError(f"report {name} is not CSV ({e})", file=path) from None
        if len(rows) < 1 or len(rows[0]) < 2:
            continue
        heading = [h.strip() for h in rows[0]]
        whole = [r for r in rows[1:] if len(r) == len(heading)]
        short += len(rows) - 1 - len(whole)
        key = name
        while key in reports:  # the same report of another capture, or of other options
            key += "+"
        reports[key] = (heading, [dict(zip(heading, r, strict=True)) for r in whole])
    if skipped:
        notes.append(f"nsys had no data for {', '.join(skipped)}")
    if short:
        notes.append(f"{short} lines have another number of fields than their heading; left out")
    return reports, notes


def _sections(stream: Any) -> Iterator[tuple[str, list[str]]]:
    name = "report"
    lines: list[str] = []
    for line in stream:
        found = _SECTION.search(line)
        if found:
            if lines:
                yield name, lines
            script = re.split(r"[\\/]", found.group("script"))[-1]
            name, lines = script.removesuffix(".py"), []
        elif line.strip() and not line.startswith(("Generating ", "Exporting ", "NOTICE:")):
            lines.append(line.replace("\x00", ""))
    if lines:
        yield name, lines


def _stats(report: str, lines: list[dict[str, str]], path: Path) -> Iterator[dict[str, Any]]:
    """Rows of `stats` of a summary; none of a trace (which has no total)."""
    for line in lines:
        values: dict[str, float] = {}
        share = None
        for heading, text in line.items():
            parsed = _HEADING.match(heading)
            name, unit = (parsed["name"], parsed["unit"]) if parsed else (heading, None)
            number = _number(text)
            if number is None:
                continue
            if unit == "%":
                share = share if share is not None else number / 100
            elif name not in values:
                values[name] = number * _FACTOR.get(unit or "", 1)
        row: dict[str, Any] = {
            column: next((values[h] for h in headings if h in values), None)
            for column, headings in _COLUMNS.items()
        }
        if row["total_ns"] is None:
            return
        for column in ("calls", "total_ns", "min_ns", "max_ns"):
            row[column] = None if row[column] is None else round(row[column])
        yield {
            **row,
            "source": path.name,
            "report": report,
            "name": next((line[h] for h in _NAMES if h in line), None),
            "range": next((line[h] for h in _RANGES if h in line), None),
            "share": share,
        }


def _raw(heading: list[str], lines: list[dict[str, str]]) -> pa.Table:
    """A report as it is: columns of numbers where every value is one, else of text."""
    columns = {}
    for name in dict.fromkeys(heading):
        texts = [line[name].strip() for line in lines]
        numbers = [_number(t) if t else None for t in texts]
        if all(n is not None or not t for n, t in zip(numbers, texts, strict=True)):
            whole = all(n is None or n.is_integer() for n in numbers)
            columns[name] = pa.array(
                [None if n is None else (int(n) if whole else n) for n in numbers],
                pa.int64() if whole else pa.float64(),
            )
        else:
            columns[name] = pa.array([t or None for t in texts], pa.string())
    return pa.table(columns)


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    # Beyond 2**62 it is no time and does not fit a column of integers.
    return value if math.isfinite(value) and abs(value) < 2**62 else None
