"""Splitting the rows that `ncu --csv` prints, also those that are not valid CSV.

TensorRT's NVTX ranges carry JSON, and ncu prints its quotes unescaped inside a quoted field, so
an ordinary CSV reader cuts the row at the wrong places and says nothing. A row is therefore taken
only if its typed columns hold what they must (numbers in ID, Context and Stream, three numbers
in Block Size, ...). The order of tries: strict CSV; then a split at `","` with what is too many
put back into the one free-text column where the rest then fits.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

HEADER = re.compile(r'"ID","Process ID"')
ROW = re.compile(r'"\d+","\d+","')
UNITS_ROW = re.compile(r'"","","')

MAX_SWALLOWED = 64  # how many `","` a name or a payload may hold; bounds the tries per row

_INT = re.compile(r"\d+\Z")
_INT_OR_NONE = re.compile(r"(?:\d+|n/a)\Z")  # a range replayed as one has no stream of its own
_SIZE = re.compile(r"\(\s*\d+,\s*\d+,\s*\d+\)\Z")
_VERSION = re.compile(r"\d+\.\d+\Z")
_TYPES = {
    "ID": _INT,
    "Process ID": _INT,
    "Context": _INT_OR_NONE,
    "Stream": _INT_OR_NONE,
    "Device": _INT_OR_NONE,
    "Block Size": _SIZE,
    "Grid Size": _SIZE,
    "CC": _VERSION,
}
_ANCHORS = ("Context", "Stream", "Block Size", "Grid Size", "Device", "CC")

_PROCESS = re.compile(r'"\d+"(,"\d+","[^"]{2,}",)')
_FREE = (
    *("Process Name", "Kernel Name", "Range Name"),
    *("Rule Name", "Rule Description", "Metric Value"),
)

# Columns that say which launch a row is about; in a raw page all others are metrics.
LAUNCH_COLUMNS = frozenset(
    [*_TYPES, "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Range Name"]
)


def is_nvtx(column: str) -> bool:
    """Whether a column holds NVTX ranges (`thread Domain:Push/Pop_Range...`, `Id:Domain:...`)."""
    return "Domain:Push/Pop_Range" in column or "Domain:Start/Stop_Range" in column


def parse_header(line: str) -> list[str] | None:
    """The column names, where `line` holds a header (perhaps behind other output)."""
    match = HEADER.search(line)
    if match is None:
        return None
    names = _strict(line[match.start() :])
    if names is None or len(set(names)) != len(names):
        return None
    return names


def _strict(text: str) -> list[str] | None:
    try:
        return next(csv.reader([text], strict=True), None)
    except csv.Error:
        return None


# How a list of ranges begins: with the thread's id, or each range with its own.
_PUSH_POP = re.compile(r'\s*\d+\s+""')
_START_END = re.compile(r'\s*""\d+:')


def _is_ranges(text: str, begins: re.Pattern[str]) -> bool:
    text = text.rstrip()
    return not text or bool(begins.match(text) and text.endswith('""'))


@dataclass(frozen=True)
class Layout:
    """The columns of one table, and how to cut its rows."""

    columns: tuple[str, ...]

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each column."""
        return {name: i for i, name in enumerate(self.columns)}

    @cached_property
    def is_details(self) -> bool:
        """One metric per row (details page), not one launch per row (raw page)."""
        return "Metric Name" in self.index and "Metric Value" in self.index

    @cached_property
    def nvtx(self) -> tuple[int, ...]:
        """Positions of the NVTX columns."""
        return tuple(i for i, name in enumerate(self.columns) if is_nvtx(name))

    @cached_property
    def metrics(self) -> tuple[int, ...]:
        """Positions of the columns of a raw page that are metrics."""
        launch = LAUNCH_COLUMNS
        names = enumerate(self.columns)
        return tuple(i for i, name in names if name not in launch and not is_nvtx(name))

    def get(self, row: list[str], column: str) -> str | None:
        """The text of a row in a column; None where it is empty or there is no such column."""
        at = self.index.get(column)
        return None if at is None else row[at] or None

    @cached_property
    def _shortest(self) -> int:
        # Detail rows stop after the value where rules are printed; raw rows never do.
        return self.index["Metric Value"] + 1 if self.is_details else len(self.columns)

    @cached_property
    def _typed(self) -> tuple[tuple[int, re.Pattern[str]], ...]:
        return tuple((self.index[c], p) for c, p in _TYPES.items() if c in self.index)

    @cached_property
    def _anchored(self) -> bool:
        return any(c in self.index for c in _ANCHORS)

    def split(self, text: str) -> list[str] | None:
        """The fields of one row, as many as there are columns; None where they are not clear.

        `text` begins with the quote of the first field. NVTX fields of rows that are not valid
        CSV keep their doubled quotes (see `ranges`).
        """
        fields = _strict(text)
        if fields is None or not self._fits(fields):
            fields = self._tolerant(text.rstrip())
        if fields is None or any("\n" in f and i not in self._free for i, f in enumerate(fields)):
            return None
        return self._padded(fields)

    def next_row(self, text: str) -> int | None:
        """Where in the text of a row another one of the same process begins: it lost its end."""
        own = _PROCESS.match(text)
        if own is None:
            return None
        again = re.compile(rf'"\d+"{re.escape(own[1])}').search(text, own.end())
        return again and again.start()

    @cached_property
    def _free(self) -> frozenset[int]:
        """Positions of columns whose text may hold a line break."""
        names = {n for n in _FREE if n in self.index}
        return frozenset(self.index[n] for n in names) | set(self.nvtx)

    def _padded(self, fields: list[str]) -> list[str]:
        return fields + [""] * (len(self.columns) - len(fields))

    def _fits(self, fields: list[str]) -> bool:
        if not self._shortest <= len(fields) <= len(self.columns):
            return False
        cut = len(fields)  # a column that the row does not reach is empty
        return all(i >= cut or not fields[i] or p.match(fields[i]) for i, p in self._typed)

    def _tolerant(self, text: str) -> list[str] | None:
        text = text.removesuffix(",")
        if len(text) < 2 or text[0] != '"' or text[-1] != '"':
            return None
        pieces = text[1:-1].split('","')
        if self._fits(pieces):
            return self._unescaped(pieces)
        if not self._anchored:
            return None
        # Too many pieces: find the free column that swallowed `","`.
        for extra in range(1, min(len(pieces) - self._shortest, MAX_SWALLOWED) + 1):
            for fields in self._folded(pieces, extra):
                if self._fits(fields):
                    return self._unescaped(fields)
        return None

    def _folded(self, pieces: list[str], extra: int) -> Iterator[list[str]]:
        if len(self.nvtx) == 2 and self.nvtx[1] == self.nvtx[0] + 1:
            at = self.nvtx[0]
            for first in range(extra, -1, -1):
                middle = at + 1 + first
                after = '","'.join(pieces[middle : middle + 1 + extra - first])
                before = '","'.join(pieces[at:middle])
                if not (_is_ranges(before, _PUSH_POP) and _is_ranges(after, _START_END)):
                    continue
                rest = pieces[middle + 1 + extra - first :]
                yield [*pieces[:at], before, after, *rest]
        for name in ("Kernel Name", "Process Name", "Rule Description"):
            column = self.index.get(name)
            if column is not None and column < len(pieces):
                end = column + extra + 1
                joined = '","'.join(pieces[column:end])
                yield [*pieces[:column], joined, *pieces[end:]]

    def _unescaped(self, fields: list[str]) -> list[str]:
        return [f if i in self.nvtx else f.replace('""', '"') for i, f in enumerate(fields)]


@dataclass(frozen=True)
class NvtxRange:
    """One open NVTX range around a launch."""

    domain: str
    name: str


# What follows a range's name: the payload's type.
_AFTER_NAME = re.compile(r":(?:none|u?int\d+|double|float|json\w*|unknown)\b", re.IGNORECASE)
_MESSAGE = re.compile(r":(?:ASCII|UNICODE|REGISTERED):")


def ranges(field: str) -> list[NvtxRange]:
    """The ranges of an NVTX field, outermost first.

    Fields read ``TID  "DOMAIN:NAME:PL_TYPE:PL_VALUE[:CLR_TYPE:COLOR:MSG_TYPE:MSG]"  "..."``, or
    ``"ID:DOMAIN:NAME:..."`` for start/end ranges; the quotes are doubled in rows that are not
    valid CSV. Names may hold colons; MSG repeats the name and tells where it ends.
    """
    field = field.strip()
    quote = '""' if re.match(r'(?:\d+\s+)?""[^"]', field) else '"'
    end = re.compile(quote + r"(?=\s*\Z|\s+" + quote + ")")
    listed = []
    at = field.find(quote)
    while at >= 0:
        stop = end.search(field, at + len(quote))
        if stop is None:
            break
        listed.append(_range(field[at + len(quote) : stop.start()]))
        at = field.find(quote, stop.end())
    return listed


def _range(text: str) -> NvtxRange:
    domain, _, rest = text.partition(":")
    if domain.isdigit():  # a start/end range begins with its id
        domain, _, rest = rest.partition(":")
    for marker in _MESSAGE.finditer(rest):
        message = rest[marker.end() :]
        if message and rest.startswith(message + ":"):
            return NvtxRange(domain, message.strip())
    after = _AFTER_NAME.search(rest)
    return NvtxRange(domain, (rest[: after.start()] if after else rest).strip())
