"""Nsight Compute's CSV: details and raw pages of any version, to the `counters` table.

Made by ``ncu --csv`` (``nv-nsight-cu-cli --csv`` before 2020.1), saved from stdout or with
``--log-file``. The quirks:

- ncu's own lines (``==PROF==``), warnings and the program's output lie before, between and, where
  the program ended no line, in front of the table's lines;
- the columns differ by version and options, so they are found by name;
- quotes are not escaped inside NVTX fields (`ncu_rows`);
- a raw page has a row of units below its header; a details page has one metric per row;
- rows of a details page are shorter than the header where rules are printed; rules have rows of
  their own, without a metric; `Body Item Label` names a table within a section;
- numbers are in the machine's locale (`ncu_numbers`), `n/a` or text;
- UTF-8 with or without a mark, UTF-16 (PowerShell), a Latin-1 micro sign;
- several runs in one file: launches of later runs are numbered on.

Tables: `counters` (value null and `text` set where ncu printed no number), `launches` (kernel,
process, context, stream, sizes, NVTX ranges) and, where ncu printed any, `rules`. A launch's
`layer` is its innermost push/pop range, or where there is none the last start/end range that
was open. Host names are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from layerline.core.errors import InputError
from layerline.core.tables import table

from .base import MIB, Artefact, Head, open_text
from .ncu_numbers import Style, in_doubt, style_of
from .ncu_rows import LAUNCH_COLUMNS, ROW, UNITS_ROW, Layout, is_nvtx, parse_header, ranges

KIND = "ncu-csv"
DESCRIPTION = "Nsight Compute CSV (ncu --csv --page details|raw)"

LIMIT = 1024 * MIB
_MAX_ROW_LINES = 100  # a row whose text holds line breaks
_CHUNK = 100_000

LAUNCHES = pa.schema(
    [
        ("source", pa.string()),
        ("launch", pa.int64()),
        ("layer", pa.string()),
        ("kernel", pa.string()),
        ("process", pa.int64()),
        ("process_name", pa.string()),
        ("time", pa.string()),
        ("context", pa.int64()),
        ("stream", pa.int64()),
        ("device", pa.int64()),
        ("compute_capability", pa.string()),
        ("block", pa.string()),
        ("grid", pa.string()),
        ("ranges", pa.list_(pa.string())),
        ("range_domains", pa.list_(pa.string())),
        ("start_end_ranges", pa.list_(pa.string())),
        ("nvtx", pa.string()),
    ]
)
RULES = pa.schema(
    [
        ("source", pa.string()),
        ("launch", pa.int64()),
        ("kernel", pa.string()),
        ("section", pa.string()),
        ("rule", pa.string()),
        ("type", pa.string()),
        ("text", pa.string()),
        ("speedup_type", pa.string()),
        ("speedup", pa.float64()),
    ]
)

_MARK = re.compile(r"^==\w+==")
_SUMMARY = re.compile(r'"Process ID","Process Name".*"Invocations"')
_SOURCE_PAGE = re.compile(r'^"#","(?:Address|Source)"', re.MULTILINE)


def sniff(head: Head) -> bool:
    """An ncu header, or the lines that ncu prints about itself."""
    if "\x00" in head.text[:1024]:
        return False
    return parse_header_in(head.text) or any(
        mark in head.text for mark in ("==PROF== ", "==ERROR== ERR_NVGPUCTRPERM")
    )


def parse_header_in(text: str) -> bool:
    """Whether `text` holds the beginning of an ncu header."""
    return '"ID","Process ID","Process Name"' in text or bool(_SUMMARY.search(text))


@dataclass
class _Run:
    """One header and the rows below it."""

    layout: Layout
    units: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


@dataclass
class _Found:
    runs: list[_Run] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    noise: int = 0
    broken: list[int] = field(default_factory=list)  # line numbers
    open_row: bool = False  # the last row is cut short


def read(path: Path) -> Artefact:
    """The counters of every launch.

    InputError where there is no table (the log of a program that was profiled into a report),
    where no row can be read, and for other pages that ncu prints (source, summary).
    """
    with open_text(path, LIMIT) as lines:
        found = _scan(lines, path)
    if not any(run.rows for run in found.runs):
        raise _no_rows(path, found)
    return _artefact(path, found)


def _scan(lines: Any, path: Path) -> _Found:
    found = _Found()
    pending, begun, count = "", 0, 0
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        columns = parse_header(line)
        if columns is not None:
            found.runs.append(_Run(Layout(tuple(columns))))
            continue
        if not found.runs:
            _noise(found, line, path)
            continue
        run = found.runs[-1]
        start = ROW.search(line)
        if pending and start is not None and start.start() == 0:
            found.broken.append(begun)  # the row before never ended
            pending = ""
        if pending:
            text = f"{pending}\n{line}"
            count += 1
        elif start is not None:
            text, begun, count = line[start.start() :], number, 1
        elif not run.rows and not run.units and UNITS_ROW.match(line) and not run.layout.is_details:
            run.units = run.layout.split(line) or []
            continue
        else:
            _noise(found, line, path)
            continue
        fields = run.layout.split(text)
        if fields is not None:
            run.rows.append(fields)
            pending = ""
        elif count < _MAX_ROW_LINES:
            pending = text
        else:
            found.broken.append(begun)
            pending = ""
    if pending:
        found.broken.append(begun)
        found.open_row = True
    return found


def _noise(found: _Found, line: str, path: Path) -> None:
    if not line.strip():
        return
    found.noise += 1
    if line.startswith(("==WARNING==", "==ERROR==")) and len(found.warnings) < 20:
        found.warnings.append(_MARK.sub("", line).strip()[:500])
    if not found.runs and _SUMMARY.search(line):
        raise InputError(
            "is an ncu summary over kernels, not per launch",
            file=path,
            fix="print it with --print-summary none",
        )
    if not found.runs and _SOURCE_PAGE.match(line):
        raise InputError(
            "is ncu's source page", file=path, fix="print it with --page raw or --page details"
        )


def _no_rows(path: Path, found: _Found) -> InputError:
    if found.runs and found.broken:
        return InputError(
            f"has an ncu table whose rows cannot be read (line {found.broken[0]})",
            file=path,
            fix="save the report with --export and read the .ncu-rep",
        )
    if any("ERR_NVGPUCTRPERM" in w for w in found.warnings):
        return InputError(
            "is the log of an ncu that was refused the GPU counters (ERR_NVGPUCTRPERM)",
            file=path,
            fix="allow them (https://developer.nvidia.com/ERR_NVGPUCTRPERM) and profile again",
        )
    if found.runs:
        return InputError(
            "has an ncu table without rows", file=path, fix="was any kernel profiled?"
        )
    return InputError(
        "is an ncu log without a table of metrics",
        file=path,
        fix="add --csv --page raw, or read the .ncu-rep it wrote",
    )


def _artefact(path: Path, found: _Found) -> Artefact:
    builder = _Builder(path.name, _clock_control(found))
    notes = []
    offset = 0
    for run in found.runs:
        values = list(_values(run))
        style = style_of(values)
        if style.decimal is None:
            notes.append(
                "Decimal points and commas are mixed; numbers that could be either are null."
            )
        elif not style.seen and (doubtful := in_doubt(values)):
            notes.append(
                f"{doubtful} numbers like 1.234 or 1,234 were read as English prints them; "
                "no other number tells."
            )
        builder.add(run, style, offset)
        offset = builder.next_launch
    if len(found.runs) > 1:
        notes.append(
            f"{len(found.runs)} tables in one file; launches of later ones are numbered on."
        )
    if found.broken:
        what = "The last row is cut short" if found.open_row else "Some rows cannot be read"
        first = found.broken[0]
        notes.append(f"{what}: {len(found.broken)} left out, the first at line {first}.")
    notes += found.warnings
    return builder.artefact(found, notes)


def _clock_control(found: _Found) -> str | None:
    unlocked = any("unmodified GPU clocks" in warning for warning in found.warnings)
    return "none" if unlocked else None


def _values(run: _Run) -> Iterator[str]:
    if run.layout.is_details:
        column = run.layout.index["Metric Value"]
        yield from (row[column] for row in run.rows)
        return
    metrics = _metric_columns(run.layout)
    for row in run.rows:
        yield from (row[i] for i, _ in metrics)


def _metric_columns(layout: Layout) -> list[tuple[int, str]]:
    return [
        (i, name)
        for i, name in enumerate(layout.columns)
        if name not in LAUNCH_COLUMNS and not is_nvtx(name)
    ]


class _Builder:
    """Collects rows column by column and turns them into tables in chunks."""

    def __init__(self, source: str, clock_control: str | None) -> None:
        self.source, self.clock_control = source, clock_control
        self.counters: list[dict[str, Any]] = []
        self.chunks: list[pa.Table] = []
        self.launches: dict[int, dict[str, Any]] = {}
        self.rules: list[dict[str, Any]] = []
        self.next_launch = 0

    def add(self, run: _Run, style: Style, offset: int) -> None:
        """Add one table's rows; `offset` is added to its launch ids."""
        layout = run.layout
        metrics = _metric_columns(layout)
        for row in run.rows:
            launch = self._launch(layout, row, offset)
            if layout.is_details:
                self._detail(layout, row, launch, style)
            else:
                for i, name in metrics:
                    unit = run.units[i] if run.units else ""
                    self._counter(launch, name, unit, row[i], None, style)
            if len(self.counters) >= _CHUNK:
                self._flush()

    def _launch(self, layout: Layout, row: list[str], offset: int) -> dict[str, Any]:
        def get(column: str) -> str | None:
            i = layout.index.get(column)
            return (row[i] or None) if i is not None else None

        def number(column: str) -> int | None:
            text = get(column)
            return int(text) if text is not None and len(text) < 19 else None

        launch = (number("ID") or 0) + offset
        known = self.launches.get(launch)
        if known is not None:
            return known
        nvtx = [row[i] for i in layout.nvtx]
        push_pop = ranges(nvtx[0]) if nvtx else None
        start_end = ranges(nvtx[1]) if len(nvtx) > 1 else None
        self.next_launch = max(self.next_launch, launch + 1)
        open_ranges = push_pop or start_end or []
        known = self.launches[launch] = {
            "source": self.source,
            "launch": launch,
            "layer": open_ranges[-1].name if open_ranges else None,
            "kernel": get("Kernel Name") or get("Range Name"),
            "process": number("Process ID"),
            "process_name": get("Process Name"),
            "time": get("Kernel Time"),
            "context": number("Context"),
            "stream": number("Stream"),
            "device": number("Device"),
            "compute_capability": get("CC"),
            "block": get("Block Size"),
            "grid": get("Grid Size"),
            "ranges": None if push_pop is None else [r.name for r in push_pop],
            "range_domains": None if push_pop is None else [r.domain for r in push_pop],
            "start_end_ranges": None if start_end is None else [r.name for r in start_end],
            "nvtx": " ".join(text.strip() for text in nvtx).strip() or None,
        }
        return known

    def _detail(self, layout: Layout, row: list[str], launch: dict[str, Any], style: Style) -> None:
        def get(column: str) -> str:
            i = layout.index.get(column)
            return row[i] if i is not None else ""

        section, label = get("Section Name"), get("Body Item Label")
        if get("Metric Name"):
            where = f"{section} / {label}" if label else section
            unit, value = get("Metric Unit"), get("Metric Value")
            self._counter(launch, get("Metric Name"), unit, value, where, style)
        if get("Rule Name"):
            self.rules.append(
                {
                    "source": self.source,
                    "launch": launch["launch"],
                    "kernel": launch["kernel"],
                    "section": section or None,
                    "rule": get("Rule Name"),
                    "type": get("Rule Type") or None,
                    "text": get("Rule Description") or None,
                    "speedup_type": get("Estimated Speedup Type") or None,
                    "speedup": style.parse(get("Estimated Speedup")),
                }
            )

    def _counter(
        self,
        launch: dict[str, Any],
        metric: str,
        unit: str,
        text: str,
        section: str | None,
        style: Style,
    ) -> None:
        value = style.parse(text)
        plain = value is not None and "(" not in text
        self.counters.append(
            {
                "source": self.source,
                "layer": launch["layer"],
                "kernel": launch["kernel"],
                "launch": launch["launch"],
                "metric": metric,
                "unit": unit or None,
                "value": value,
                "text": None if plain else text or None,
                "section": section or None,
                "clock_control": self.clock_control,
            }
        )

    def _flush(self) -> None:
        self.chunks.append(table("counters", self.counters))
        self.counters = []

    def artefact(self, found: _Found, notes: list[str]) -> Artefact:
        """All that was added."""
        self._flush()
        launches = list(self.launches.values())
        tables = {
            "counters": pa.concat_tables(self.chunks),
            "launches": pa.Table.from_pylist(launches, schema=LAUNCHES),
        }
        if self.rules:
            tables["rules"] = pa.Table.from_pylist(self.rules, schema=RULES)
        if not tables["counters"].num_rows:
            notes.insert(0, "No metric was printed, only rules.")
        pages = {"details" if run.layout.is_details else "raw" for run in found.runs}
        facts = {
            "page": " and ".join(sorted(pages)),
            "launches": len(launches),
            "processes": len({launch["process"] for launch in launches}),
            "metrics": tables["counters"]["metric"].combine_chunks().unique().__len__(),
            "nvtx": any(run.layout.nvtx for run in found.runs),
            "lines_of_other_output": found.noise,
        }
        return Artefact(KIND, tables, facts, notes)
