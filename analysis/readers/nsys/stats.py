"""`nsys stats --format csv` (or tsv): summaries, several reports one after the other in one file.

A report is announced by one of these lines, which name it (versions 2020 to 2026)::

    Processing [FILE] with [.../reports/NAME.py]...
    Running [.../reports/NAME.py FILE]...                 2021 to 2022.1, SKIPPED on the same line
    Exporting [.../reports/NAME.py FILE] to console...    2020
    [5/8] Executing 'NAME' stats report
     ** CUDA GPU Kernel Summary (NAME):

Then comes its table: a line of headings, a line for each row (User Guide, "Report Formatters").
The unit of a time is in its heading, ``Total Time (ns)``; 2020 versions write ``Time(%)`` and leave
the unit of ``Average`` out, which is that of the total. What is printed in another form (`column`,
the default, `table`, `json`, `hdoc`, or without headings) is named, with the remedy.

Tables: `stats`, one row per name of every summary report (the sum, count and spread that nsys
computed; a kernel inside nested ranges is counted in each of them there, so rows do not add up),
and the rows of every report as they are, under its name.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ....core.errors import InputError
from ..base import Artefact, Head
from ..bounded import open_text

KIND = "nsys-stats"
DESCRIPTION = "Nsight Systems summaries (nsys stats --format csv or tsv)"

MAX_BYTES = 256 << 20
_FIX = "print it with `nsys stats --format csv`"

_OPENERS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\s*Processing \[.*?\] with \[(?P<script>.*?)\]\.\.\.",
        r"\s*(?:Running|Exporting) \[(?P<script>[^\]]*?\.py)\b[^\]]*\]",
        r"\s*(?:\[\d+/\d+\] )?Executing '(?P<name>[^']+)' stats report",
        r"\s*\*\* .* \((?P<name>[a-z][\w:=-]*)\):\s*\Z",
    )
)
# The first two headings of the reports that nsys ships, in every version since 2019 and every form.
_FIRST_TWO = (
    (r"Time ?\(%\)", r"Total Time"),
    (r"Start ?\(\w+\)", r"(?:Duration|End) ?\("),
    (r"Name", r"Projected Start"),
    (r"(?:NVTX )?Range", r"Style"),
    (r"Total(?: ?\(\w+\))?", r"(?:Count|Operations)"),
    (r"Total Message Volume[^,\t|]*?", r"Instances"),
    (r"Utilization ?\(%\)", r"Instances"),
    (r"PID", r"TID\b.*\bDevId"),
    (r"API Start ?\(\w+\)", r"API Dur"),
    (r"Virtual Address", r"HtoD"),
    (r"Total HtoD Migration Size[^,\t|]*?", r"Total DtoH"),
    (r"CPU Page Faults", r"CPU Instruction Address"),
)
_PAIRS = "|".join(rf'"?{a}"?(?:,|\t| *\| *|  +)"?{b}' for a, b in _FIRST_TWO)
_HEADINGS = rf"^[ |]*(?:{_PAIRS})"
_IS_HEADINGS = re.compile(_HEADINGS)
# Below the headings of columns, and around those of a box.
_RULE = re.compile(r" *-+(?: +-+)+ *\Z|\+(?:-+\+)+ *\Z")
# What is no line of headings: JSON, HTML, indented text, what nsys says about its own work.
_NO_HEADINGS = re.compile(r"[\s\[{<|]|(?:Generat|Export|Using|NOTICE|WARNING|ERROR|Warning|Error)")
_IN_HEAD = re.compile(
    rf"(?m)^[ \t]*Processing \[.*?\] with \[|^[ \t]*(?:Running|Exporting) \[[^\]\n]*?\.py\b"
    rf"|Executing '[^'\n]+' stats report|^[ \t]*\*\* .* \([a-z][\w:=-]*\):\s*$|{_HEADINGS}"
)

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
        *("Calls", "Operations"),  # 2020
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


@dataclass(frozen=True)
class Table:
    """One report's table. `rows`: as many texts as `heading` has, each without outer blanks."""

    report: str
    heading: list[str]
    rows: list[list[str]]


@dataclass
class Text:
    """All tables of a text, and what is in none of them.

    `skipped`, `unread`: names of reports that nsys had no data for, or that are printed in a form
    that is not read. `why`: what nsys says of a report that it had no data for, where it is not
    clear which (it says so beside the reports, in its errors). `misfits`: lines of tables that do not fit their headings. `other`: lines
    that are of no table (the program's own output, what nsys says about its work).
    """

    tables: list[Table] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    misfits: int = 0
    other: int = 0


@dataclass
class _Block:
    """A report's headings, and the lines below them."""

    report: str
    heading: str
    lines: list[str] = field(default_factory=list)


def sniff(head: Head) -> bool:
    """A line that announces a report, or a report's headings."""
    return bool(_IN_HEAD.search(head.text))


def read(path: Path) -> Artefact:
    """All reports of the file. InputError where no report in it has data, or none can be read."""
    with open_text(path, MAX_BYTES) as stream:
        try:
            text = scan(stream)
        except csv.Error as e:
            raise InputError(f"holds a report that is not CSV ({e})", file=path, fix=_FIX) from None
    if not text.tables:
        raise _no_table(text, path)
    reports: dict[str, pa.Table] = {}
    rows: list[dict[str, Any]] = []
    for table in text.tables:
        rows += _stats(table, path)
        key = table.report
        while key in reports or key == "stats":  # of another capture, or with other options
            key += "+"
        reports[key] = _as_it_is(table)
    stats = pa.Table.from_pylist(rows, schema=STATS)
    facts: dict[str, Any] = {"reports": list(reports)}
    if text.other:
        facts["lines_of_other_output"] = text.other
    notes = [*_notes(text), *_empty(reports, stats)]
    return Artefact(KIND, {"stats": stats, **reports}, facts, notes)


def _no_table(text: Text, path: Path) -> InputError:
    if text.unread:
        what = f"holds no table in CSV or TSV (of {_listed(text.unread)})"
        return InputError(what, file=path, fix=_FIX)
    fix = "capture with nsys profile --trace=cuda,nvtx"
    return InputError("holds no report with data", file=path, fix=fix)


def _notes(text: Text) -> Iterator[str]:
    if text.skipped:
        yield f"nsys had no data for {_listed(text.skipped)}"
    if text.why:
        yield f"nsys left out reports: {_listed(text.why)}"
    if text.unread:
        yield f"no table can be read of {_listed(text.unread)}; {_FIX}"
    if text.misfits:
        yield f"{text.misfits} lines have another number of fields than their heading; left out"


def _empty(reports: dict[str, pa.Table], stats: pa.Table) -> Iterator[str]:
    rowless = [name for name, table in reports.items() if not table.num_rows]
    if rowless:
        yield f"no rows in {_listed(rowless)}"
    single = [name for name, table in reports.items() if table.num_rows]
    if single and not stats.num_rows:
        yield f"no sums over time in {_listed(single)}: stats is empty; --table NAME shows its rows"


def _listed(names: list[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def scan(lines: Iterable[str]) -> Text:
    """Find the tables. csv.Error where a table cannot be CSV (a field of more than 128 KiB)."""
    text = Text()
    for block in _blocks(lines, text):
        text.tables.append(_table(block, text))
    return text


def _blocks(lines: Iterable[str], text: Text) -> Iterator[_Block]:
    report = "report"
    waiting = False  # an announced report has not shown its table yet
    titled = False  # a `** Title (NAME):` was seen for it
    block: _Block | None = None
    for line in lines:
        line = line.rstrip("\r\n")
        if "\x00" in line:  # a hole in the file: of which row this is the end is not known
            text.misfits += 1
            continue
        if block and line.lstrip(" ")[:1].isdigit():  # most lines: none of the cases below
            block.lines.append(line)
            continue
        name, is_title, rest = _announced(line)
        if name and waiting and is_title and not titled and _same(name, report):
            titled = True  # it follows `Processing`, of the same report
            continue
        is_csv = not name and _is_csv(line, waiting)
        is_other_form = not (name or is_csv) and _is_other_form(line, waiting)
        if block and (name or is_csv or is_other_form):
            yield block
            block = None
        if name:
            if waiting:
                text.unread.append(report)
            report, waiting, titled = name, "SKIPPED:" not in rest, is_title
            if not waiting:
                text.skipped.append(report)
        elif line.startswith("SKIPPED: "):
            if waiting and _is_of(report, line):
                text.skipped.append(report)
                waiting = False
            else:
                text.why.append(line.removeprefix("SKIPPED: ").strip())
        elif is_csv:
            block, waiting = _Block(report, line), False
        elif is_other_form:
            text.unread.append(report)
            waiting = False
        elif block:
            block.lines.append(line)
        elif line.strip():
            text.other += 1
    if waiting:
        text.unread.append(report)
    if block:
        yield block


# What nsys says is missing, and what the names of the reports that show it have in them.
_MISSING = {
    "NVTX": "nvtx", "OS Runtime": "osrt", "Vulkan": "vulkan", "OpenGL": "opengl|khrdebug",
    "DX11": "dx11", "DX12": "dx12", "WDDM": "wddm", "OpenACC": "openacc", "OpenMP": "openmp",
    "UM": "um", "Unified Memory": "um", "NIC": "nic|network", "MPI": "mpi", "SYCL": "syscall|sycl",
}  # fmt: skip


def _is_of(report: str, skipped: str) -> bool:
    """Whether what nsys says it had no data for may be of this report."""
    for what, names in _MISSING.items():
        if re.search(rf"\b{what}\b", skipped):
            return re.search(names, report) is not None
    return True


def _announced(line: str) -> tuple[str, bool, str]:
    """The report's name, whether it is in a `** Title (NAME):`, and what follows; else empty."""
    if "[" in line or "** " in line or "Executing '" in line:
        for opener in _OPENERS:
            found = opener.match(line)
            if found:
                parts = found.groupdict()
                name = parts.get("name") or _basename(parts["script"])
                return name, line.lstrip().startswith("** "), line[found.end() :]
    return "", False, ""


def _basename(script: str) -> str:
    return re.split(r"[\\/]", script)[-1].replace(".py", "")


def _same(name: str, other: str) -> bool:
    """Whether two names, each perhaps with arguments (`NAME:base`), are of one report."""
    return name.split(":")[0] == other.split(":")[0]


def _is_csv(line: str, waiting: bool) -> bool:
    """Whether a line is the headings of a table in CSV or TSV: of a report that nsys ships, or of
    the one that was announced, where not one of them is a number."""
    if ("," not in line and "\t" not in line) or _NO_HEADINGS.match(line):
        return False
    if _IS_HEADINGS.match(line):
        return True
    fields = next(csv.reader([line], delimiter=_delimiter(line))) if waiting else []
    return len(fields) > 1 and not any(re.fullmatch(r"[\d.,]+", f.strip()) for f in fields)


def _is_other_form(line: str, waiting: bool) -> bool:
    """Whether a line begins a table in columns or boxes."""
    return bool(_IS_HEADINGS.match(line) or (waiting and _RULE.match(line)))


def _delimiter(heading: str) -> str:
    return "\t" if "\t" in heading else ","


def _table(block: _Block, text: Text) -> Table:
    delimiter = _delimiter(block.heading)
    heading = [h.strip() for h in next(csv.reader([block.heading], delimiter=delimiter))]
    rows: list[list[str]] = []
    reader = csv.reader((f"{line}\n" for line in block.lines), delimiter=delimiter)
    ended, before = False, 0
    for row in reader:
        taken, before = reader.line_num - before, reader.line_num
        if not row:
            ended = True
        elif len(row) == len(heading):
            rows.append([value.strip() for value in row])
        elif ended:
            text.other += taken
        else:
            text.misfits += taken
    return Table(block.report, heading, rows)


def _stats(table: Table, path: Path) -> Iterator[dict[str, Any]]:
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
        for column, at in columns.items():
            number = _number(row[at[0]]) if at else None
            if at and number is not None:
                unit = at[1] or total[1] or "ns"
                number = number * (1 if column == "calls" else _FACTOR[unit])
                number = round(number) if column in _WHOLE else float(number)
            line[column] = number
        percent = None if share is None else _number(row[share])
        line["share"] = None if percent is None else percent / 100
        line["name"] = next((row[place[h][0]] for h in _NAMES if h in place), None)
        line["range"] = next((row[place[h][0]] for h in _RANGES if h in place), None)
        yield line


def _as_it_is(table: Table) -> pa.Table:
    """A report's rows: columns of numbers where every value is one, else of text."""
    columns: dict[str, pa.Array] = {}
    for i, name in enumerate(table.heading):
        if name in columns:
            continue
        texts = [row[i] for row in table.rows]
        numbers = None if name in _TEXTS else _numbers(texts)
        if numbers is None:
            columns[name] = pa.array([t or None for t in texts], pa.string())
        elif all(n is None or isinstance(n, int) or n.is_integer() for n in numbers):
            columns[name] = pa.array([None if n is None else int(n) for n in numbers], pa.int64())
        else:
            columns[name] = pa.array([None if n is None else float(n) for n in numbers])
    return pa.table(columns)


def _numbers(texts: list[str]) -> list[float | None] | None:
    """The numbers of a column, None where it is empty; None where one of them is no number."""
    known: dict[str, float | None] = {"": None}  # most columns repeat few values
    for text in texts:
        if text not in known:
            known[text] = _number(text)
            if known[text] is None:
                return None
    return [known[text] for text in texts]


def _number(text: str) -> float | None:
    """The number in `text`, exact where it is whole; None where it is none."""
    digits = text.removeprefix("-")
    value: float
    if digits.isdecimal() and digits.isascii() and len(digits) < 20:
        value = int(text)
    else:
        try:
            value = float(text)
        except ValueError:
            return None
    # Beyond 2**62, as NaN and infinity, it is no time and does not fit a column of integers.
    return value if abs(value) < 2**62 else None
