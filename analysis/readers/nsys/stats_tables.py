"""The tables in what `nsys stats` and `nsys profile --stats=true` print, as lists of text.

A report is announced by one of these lines, which name it (versions 2020 to 2026)::

    Processing [FILE] with [.../reports/NAME.py]...
    Running [.../reports/NAME.py FILE]...                 2021 to 2022.1, SKIPPED on the same line
    Exporting [.../reports/NAME.py FILE] to console...    2020
    [5/8] Executing 'NAME' stats report
     ** CUDA GPU Kernel Summary (NAME):
    CUDA Kernel Statistics:                               2019, 2020; no other name is given

Then comes its table (formats: User Guide, "Report Formatters"):

- `csv`, and `tsv`: a line of headings, a line for each row;
- `column`, which is the default: headings, a row of dashes that gives each column's place, rows.
  What is wider than its column ends in "…". Numbers have thousands separators;
- `table`: the same in boxes.

Anything else (`json`, `hdoc`, tables without headings) is named in `Text.unread`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_OPENERS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\s*Processing \[.*?\] with \[(?P<script>.*?)\]\.\.\.",
        r"\s*(?:Running|Exporting) \[(?P<script>[^\]]*?\.py)\b[^\]]*\]",
        r"\s*(?:\[\d+/\d+\] )?Executing '(?P<name>[^']+)' stats report",
        r"\s*\*\* .* \((?P<name>[a-z][\w:=-]*)\):\s*\Z",
    )
)
_OLD_TITLE = re.compile(
    r"\s*(?P<title>[A-Z][\w/ -]* Statistics(?: \((?!nano)[\w ]+\))?)(?: \(nanoseconds\))?:?\s*\Z"
)
# The first two headings of the reports that nsys ships, in every version since 2019.
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
HEADINGS = re.compile(_HEADINGS)
_RULE = re.compile(r" *-+(?: +-+)+ *\Z|\+(?:-+\+)+ *\Z")
# What is no line of headings: JSON, HTML, indented text, what nsys says about its own work.
_NO_HEADINGS = re.compile(r"[\s\[{<|]|(?:Generat|Export|Using|NOTICE|WARNING|ERROR|Warning|Error)")
_IN_HEAD = re.compile(
    rf"(?m)^[ \t]*Processing \[.*?\] with \[|^[ \t]*(?:Running|Exporting) \[[^\]\n]*?\.py\b"
    rf"|Executing '[^'\n]+' stats report|^[ \t]*\*\* .* \([a-z][\w:=-]*\):\s*$|{_HEADINGS}"
)


@dataclass(frozen=True)
class Table:
    """One report's table. `rows`: as many texts as `heading` has, each without outer blanks.

    `clipped`: values that the column format cut short (they end in "…").
    """

    report: str
    heading: list[str]
    rows: list[list[str]]
    clipped: int = 0


@dataclass
class Text:
    """All tables of a text, and what is in none of them.

    `skipped`, `unread`: names of reports that nsys had no data for, or that are printed in a form
    that is not read. `misfits`: lines of tables that do not fit their headings. `other`: lines
    that are of no table (the program's own output, what nsys says about its work).
    """

    tables: list[Table] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    misfits: int = 0
    other: int = 0


@dataclass
class _Block:
    """The lines of one table after its headings. `rule`: the row of dashes, empty for CSV."""

    report: str
    heading: str
    rule: str
    lines: list[str] = field(default_factory=list)


def looks_like(text: str) -> bool:
    """Whether `text`, the beginning of a file, holds a report's announcement or headings."""
    return bool(_IN_HEAD.search(text))


def scan(lines: Iterable[str]) -> Text:
    """Find the tables. csv.Error where a table cannot be CSV (a field of more than 128 KiB)."""
    text = Text()
    for block in _blocks(lines, text):
        table = _column_table(block, text) if block.rule else _csv_table(block, text)
        if len(table.heading) > 1:
            text.tables.append(table)
        else:
            text.unread.append(block.report)
    return text


def _blocks(lines: Iterable[str], text: Text) -> Iterator[_Block]:
    report, title = "report", ""
    waiting = False  # an announced report has not shown its table yet
    titled = False  # a `** Title (NAME):` was seen for it
    block: _Block | None = None
    before = ""
    for line in lines:
        line = line.rstrip("\r\n").replace("\x00", "")
        if block and line.lstrip(" ")[:1].isdigit():  # most lines: neither of the cases below
            block.lines.append(line)
            before = line
            continue
        name, is_title, rest = _announced(line)
        if name and waiting and is_title and not titled and _same(name, report):
            titled = True  # it follows `Processing`, of the same report
            continue
        if name:
            if waiting:
                text.unread.append(report)
            if block:
                yield block
            report, title, block, before = name, "", None, ""
            waiting, titled = "SKIPPED:" not in rest, is_title
            if not waiting:
                text.skipped.append(report)
            continue
        if line.startswith("SKIPPED: "):
            text.skipped.append(report)
            waiting = False
            continue
        if block and line.startswith("Generating "):  # 2019, without a blank line
            yield block
            block = None
        old = _OLD_TITLE.match(line)
        if old and not waiting:
            if block:
                yield block
            title, block, before = old["title"].strip(), None, ""
            continue
        found = _headings(before, line, waiting)
        if found:
            if found[1] and block:  # the line before was taken for the last table's
                block.lines.pop()
            elif found[1]:
                text.other -= 1
            if block:
                yield block
            report = title or report
            block, title, waiting = _Block(report, *found), "", False
        elif block:
            block.lines.append(line)
        elif line.strip():
            text.other += 1
        before = line
    if waiting:
        text.unread.append(report)
    if block:
        yield block


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


def _headings(before: str, line: str, waiting: bool) -> tuple[str, str] | None:
    """The headings and the row of dashes (empty for CSV) of a table that begins; else null."""
    if _RULE.match(line):
        return (before, line) if _heads(before, line, waiting) else None
    if "," not in line and "\t" not in line:
        return None
    separated = not re.match(r"[ |]", line) and HEADINGS.match(line)
    return (line, "") if separated or (waiting and _csv_headings(line)) else None


def _heads(before: str, rule: str, waiting: bool) -> bool:
    """Whether the line before a row of dashes holds a report's headings."""
    boxed = before.startswith("|") == rule.startswith("+")
    return bool(before.strip()) and boxed and (waiting or bool(HEADINGS.match(before)))


def _csv_headings(line: str) -> bool:
    """Whether a report's first line is headings: not one of them is a number."""
    if _NO_HEADINGS.match(line):
        return False
    fields = next(csv.reader([line], delimiter=_delimiter(line)))
    return len(fields) > 1 and not any(re.fullmatch(r"[\d.,]+", f.strip()) for f in fields)


def _delimiter(heading: str) -> str:
    return "\t" if "\t" in heading else ","


def _csv_table(block: _Block, text: Text) -> Table:
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


def _column_table(block: _Block, text: Text) -> Table:
    spans = [found.span() for found in re.finditer("-+", block.rule)]
    boxed = block.rule.startswith("+")
    heading = _cells(block.heading, spans, boxed) or []
    numeric = [i for i, name in enumerate(heading) if name.endswith(")")]
    rows: list[list[str]] = []
    clipped, ended = 0, False
    for line in block.lines:
        if not line.strip() or _RULE.match(line):
            ended = True
            continue
        row = _cells(line, spans, boxed)
        # A range's name may hold line breaks: what follows one is no row.
        numbers = row and all(re.search(r"\d", row[i]) for i in numeric if row[i])
        if row and numbers and sum(map(bool, row)) > 1:
            rows.append(row)
            clipped += sum(value.endswith("…") for value in row)
        elif ended:
            text.other += 1
        else:
            text.misfits += 1
    return Table(block.report, heading, rows, clipped)


def _cells(line: str, spans: list[tuple[int, int]], boxed: bool) -> list[str] | None:
    """The values below the dashes; null for a line that has something between the columns.

    The last column reaches to the line's end: 2019 versions did not cut names.
    """
    starts, ends = zip(*spans, strict=True)
    gaps = [line[a:b] for a, b in zip((0, *ends), starts, strict=False)]
    if any(gap.strip(" |" if boxed else " ") for gap in gaps):
        return None
    values = [line[a:b] for a, b in zip(starts, (*ends[:-1], len(line)), strict=True)]
    if boxed:
        values[-1] = values[-1].rstrip(" ").removesuffix("|")
    return [value.strip() for value in values]
