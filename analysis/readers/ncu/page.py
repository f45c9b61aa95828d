"""Nsight Compute's CSV: details and raw pages of any version, to the `counters` table.

Made by ``ncu --csv`` (``nv-nsight-cu-cli --csv`` before 2020.1), saved from stdout or with
``--log-file``. The quirks:

- ncu's own lines (``==PROF==``), warnings and the program's output lie before, between and, where
  the program ended no line, in front of the table's lines;
- the columns differ by version and options, so they are looked up by name;
- quotes are not escaped inside NVTX fields (`rows`);
- a raw page has a row of units below each header, and is refused without: ``409.02`` may be ns or
  us; a details page has one metric per row, with its unit;
- rows of a details page are shorter than the header where rules are printed; rules have rows of
  their own, without a metric; `Body Item Label` names a table within a section;
- numbers are in the machine's locale (`numbers`), `n/a` or text;
- UTF-8 with or without a mark, UTF-16 (PowerShell), a Latin-1 micro sign;
- several runs in one file: launches of later runs are numbered on.

Tables: `counters` (value null and `text` set where ncu printed no number), `launches` (kernel,
process, context, stream, sizes, NVTX ranges) and, where ncu printed any, `rules`. A launch's
`layer` is its innermost push/pop range, or where there is none the last start/end range that
was open; of Layerline's own ranges where there are any (`core.own_ranges`). Host names are left
out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....core.errors import InputError
from ..base import Artefact, Head
from ..bounded import MIB, open_text
from .numbers import in_doubt, style_of
from .rows import ROW, UNITS_ROW, Layout, parse_header
from .tables import AS_ONE, PageTables, of_ranges

KIND = "ncu-csv"
DESCRIPTION = "Nsight Compute CSV (ncu --csv --page details|raw)"

LIMIT = 1024 * MIB
# Facts that are there where they are not zero: rows that cannot be read, whether the last of them
# is cut short, and numbers that are null because their decimal sign or unit is not known.
LEFT_OUT, CUT_SHORT, AMBIGUOUS = "rows_left_out", "cut_short", "numbers_not_told"
_MAX_ROW_LINES = 100  # a row whose text holds line breaks
_MAX_ROW_CHARACTERS = 1 * MIB
_MAX_BROKEN = 100

_MARK = re.compile(r"^==\w+==")
_SUMMARY = re.compile(r'"Process ID","Process Name".*"Invocations"')
_SOURCE_PAGE = re.compile(r'^"#","(?:Address|Source)"', re.MULTILINE)


def sniff(head: Head) -> bool:
    """An ncu header, or the lines that ncu prints about itself."""
    if "\x00" in head.text[:1024]:
        return False
    marks = ('"ID","Process ID","Process Name"', "==PROF== ", "==ERROR== ERR_NVGPUCTRPERM")
    return any(mark in head.text for mark in marks) or bool(_SUMMARY.search(head.text))


@dataclass
class _Run:
    """One header and the rows below it."""

    layout: Layout
    line: int  # of the header
    units: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def values(self) -> Iterator[str]:
        """The texts of all metrics."""
        details = self.layout.is_details
        at = (self.layout.index["Metric Value"],) if details else self.layout.metrics
        return (row[i] for row in self.rows for i in at)


@dataclass
class _Scan:
    runs: list[_Run] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    noise: int = 0
    broken: list[int] = field(default_factory=list)  # line numbers
    broken_units: int | None = None  # line number, of the last table
    open_row: bool = False  # the last row is cut short


def read(path: Path) -> Artefact:
    """The counters of every launch.

    InputError where there is no table (the log of a program that was profiled into a report),
    where no row can be read or a raw page lacks its row of units, and for other pages that ncu
    prints (source, summary).
    """
    with open_text(path, LIMIT) as lines:
        scan = _scan(lines, path)
    if not any(run.rows for run in scan.runs):
        raise _no_rows(path, scan)
    for run in scan.runs:
        if run.rows and not run.units and not run.layout.is_details:
            raise InputError(
                f"has a raw page without its row of units (below the header in line {run.line})",
                file=path,
                fix="copy it again, or print it again: ncu --import REPORT --csv --page raw",
            )
    return _artefact(path, scan)


def _scan(lines: Any, path: Path) -> _Scan:
    scan = _Scan()
    pending, begun, count, ended = "", 0, 0, True
    for number, line in enumerate(lines, 1):
        ended = line.endswith("\n")
        line = line.rstrip("\r\n")
        columns = parse_header(line)
        if columns is not None:
            if pending:
                scan.broken.append(begun)
            pending, scan.broken_units = "", None
            scan.runs.append(_Run(Layout(tuple(columns)), number))
            continue
        if not scan.runs:
            _noise(scan, line, path)
            continue
        if "\x00" in line:  # a hole in the file: what follows it is of another row
            scan.broken.append(begun if pending else number)
            pending = ""
            continue
        run = scan.runs[-1]
        start = ROW.search(line)
        if pending and start is not None and start.start() == 0:
            scan.broken.append(begun)  # the row before never ended
            pending = ""
        if pending:
            text = f"{pending}\n{line}"
            count += 1
        elif start is not None:
            text, begun, count = line[start.start() :], number, 1
            if (inner := run.layout.next_row(text)) is not None:
                scan.broken.append(number)  # it lost its end, and the next one its line
                text = text[inner:]
        elif (units := _units_row(run, line)) is not None:
            run.units = run.layout.split(units) or []
            scan.broken_units = None if run.units else number
            continue
        else:
            _noise(scan, line, path)
            continue
        if len(scan.broken) > _MAX_BROKEN and len(scan.broken) > sum(
            len(r.rows) for r in scan.runs
        ):
            raise _no_rows(path, scan)  # most of it is not what its header says
        fields = run.layout.split(text)
        if fields is not None:
            run.rows.append(fields)
            pending = ""
        elif count < _MAX_ROW_LINES and len(text) < _MAX_ROW_CHARACTERS:
            pending = text
        else:
            scan.broken.append(begun)
            pending = ""
    if pending:
        scan.broken.append(begun)
        scan.open_row = not (ended and pending.rstrip(", ").endswith('"'))
    elif scan.runs and not scan.runs[-1].rows and (scan.broken_units or len(scan.runs) > 1):
        scan.broken.append(scan.broken_units or scan.runs[-1].line)
        scan.open_row = True  # it ends before the first row: ncu prints no table without rows
    return scan


def _units_row(run: _Run, line: str) -> str | None:
    """The row of units that a raw page begins with, which may stand behind other output."""
    if run.rows or run.units or run.layout.is_details:
        return None
    match = UNITS_ROW.search(line)
    return None if match is None else line[match.start() :]


def _noise(scan: _Scan, line: str, path: Path) -> None:
    if not line.strip():
        return
    scan.noise += 1
    if line.startswith(("==WARNING==", "==ERROR==")) and len(scan.warnings) < 20:
        scan.warnings.append(_MARK.sub("", line).strip()[:500])
    if not scan.runs and _SUMMARY.search(line):
        raise InputError(
            "is an ncu summary over kernels, not per launch",
            file=path,
            fix="print it with --print-summary none",
        )
    if not scan.runs and _SOURCE_PAGE.match(line):
        raise InputError(
            "is ncu's source page", file=path, fix="print it with --page raw or --page details"
        )


def _no_rows(path: Path, scan: _Scan) -> InputError:
    if scan.open_row and len(scan.broken) == 1:
        return InputError(
            f"is cut short (line {scan.broken[0]}): no row of its table is whole",
            file=path,
            fix="copy it again",
        )
    if scan.runs and scan.broken:
        return InputError(
            f"has an ncu table whose rows cannot be read (line {scan.broken[0]})",
            file=path,
            fix="save the report with --export and read the .ncu-rep",
        )
    if any("ERR_NVGPUCTRPERM" in w for w in scan.warnings):
        return InputError(
            "is the log of an ncu that was refused the GPU counters (ERR_NVGPUCTRPERM)",
            file=path,
            fix="allow them (https://developer.nvidia.com/ERR_NVGPUCTRPERM) and profile again",
        )
    if scan.runs:
        return InputError(
            "has an ncu table without rows", file=path, fix="was any kernel profiled?"
        )
    return InputError(
        "is an ncu log without a table of metrics",
        file=path,
        fix="add --csv --page raw, or read the .ncu-rep it wrote",
    )


def _artefact(path: Path, scan: _Scan) -> Artefact:
    tables = PageTables(path.name, _clock_control(scan))
    notes = []
    unsure = 0
    for run in scan.runs:
        values = set(run.values())
        style = style_of(values)
        if style.decimal is None:
            unsure += (doubtful := in_doubt(run.values()))
            notes.append(
                f"Decimal points and commas are mixed; numbers that could be either ({doubtful} "
                f"in {len(run.rows)} rows) are null."
            )
        elif not style.seen and (doubtful := in_doubt(values)):
            notes.append(
                f"{doubtful} numbers like 1.234 or 1,234 were read as English prints them; "
                "no other number tells."
            )
        tables.add(run.layout, run.units, run.rows, style)
    if len(scan.runs) > 1:
        notes.append(
            f"{len(scan.runs)} tables in one file; launches of later ones are numbered on."
        )
    if scan.broken:
        what = "The last row is cut short" if scan.open_row else "Some rows cannot be read"
        first = scan.broken[0]
        notes.append(f"{what}: {len(scan.broken)} left out, the first at line {first}.")
    notes += scan.warnings
    if tables.unitless:
        count, some = tables.unitless.total(), ", ".join(sorted(tables.unitless)[:3])
        notes.append(f"{count} numbers without the unit that they need are null: {some}.")
        unsure += count
    built = tables.build()
    if not built["counters"].num_rows:
        notes.insert(0, "No metric was printed, only rules.")
    if of_ranges(built["launches"]):
        notes.insert(0, AS_ONE)
    pages = {"details" if run.layout.is_details else "raw" for run in scan.runs}
    facts = {
        "page": " and ".join(sorted(pages)),
        "launches": built["launches"].num_rows,
        "processes": len(set(built["launches"]["process"].to_pylist())),
        "metrics": len(set(built["counters"]["metric"].unique().to_pylist())),
        "nvtx": any(run.layout.nvtx for run in scan.runs),
        "lines_of_other_output": scan.noise,
    }
    if scan.broken:
        facts[LEFT_OUT] = len(scan.broken)
    if scan.open_row:
        facts[CUT_SHORT] = True
    if unsure:
        facts[AMBIGUOUS] = unsure
    return Artefact(KIND, built, facts, notes)


def _clock_control(scan: _Scan) -> str | None:
    unlocked = any("unmodified GPU clocks" in warning for warning in scan.warnings)
    return "none" if unlocked else None
