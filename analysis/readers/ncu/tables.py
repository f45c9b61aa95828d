"""The tables that Nsight Compute's files become: counters, launches and rules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import pyarrow as pa

from ....core import own_ranges
from ....core.tables import schema, table
from .numbers import Style
from .rows import Layout, ranges

Parse = Callable[[str], float | None]

# `workload`: `range` where a row is of all kernels in a range that was replayed as one; a report
# says `kernel`, `graph` or `cmdlist` too; null where the file says nothing (a kernel).
KERNEL, RANGE = "kernel", "range"
AS_ONE = "Each row is a range (or a graph) replayed as one: it is of no kernel and no layer."
LAUNCHES = schema(
    "source text, launch int, layer text, kernel text, process int, process_name text, time text, "
    "context int, stream int, device int, compute_capability text, block text, grid text, "
    "ranges texts, range_domains texts, start_end_ranges texts, nvtx text, workload text"
)
RULES = schema(
    "source text, launch int, kernel text, section text, rule text, type text, text text, "
    "speedup_type text, speedup real"
)

_CHUNK = 100_000
_COLUMNS = ("layer", "kernel", "launch", "metric", "unit", "value", "text", "section")


# Amounts of time and of bytes, which ncu prints in any multiple.
_NEEDS_UNIT = re.compile(r"\w*__\w*(?:time_duration|bytes)\w*\.(?:sum|avg|min|max)\Z")


def of_ranges(launches: pa.Table) -> bool:
    """Whether rows of a table `launches` are of more than a kernel each: of no layer then."""
    return not set(launches["workload"].unique().to_pylist()) <= {KERNEL, None}


class Tables:
    """Collects the counters, launches and rules of a file, the counters in chunks."""

    def __init__(self, source: str, clock_control: str | None = None) -> None:
        self.source, self._clock_control = source, clock_control
        self._columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self._chunks: list[pa.Table] = []
        self.launches: dict[int, dict[str, Any]] = {}
        self._rules: list[dict[str, Any]] = []

    def add_counters(
        self,
        launch: dict[str, Any],
        names: Sequence[str],
        units: Sequence[str | None],
        values: Sequence[float | None],
        texts: Sequence[str | None],
        section: str | None = None,
    ) -> None:
        """Add the metrics of a launch."""
        columns, count = self._columns, len(names)
        for column in ("layer", "kernel", "launch"):
            columns[column] += [launch[column]] * count
        columns["metric"] += names
        columns["unit"] += units
        columns["value"] += values
        columns["text"] += texts
        columns["section"] += [section] * count
        if len(columns["metric"]) >= _CHUNK:
            self._flush()

    def add_rule(self, launch: dict[str, Any], **columns: Any) -> None:
        """Add what a rule says of a launch."""
        key = {"source": self.source, "launch": launch["launch"], "kernel": launch["kernel"]}
        self._rules.append({**key, **columns})

    def _flush(self) -> None:
        count = len(self._columns["metric"])
        constant = {"source": self.source, "clock_control": self._clock_control}
        repeated = {name: [value] * count for name, value in constant.items()}
        self._chunks.append(table("counters", {**repeated, **self._columns}))
        self._columns = {name: [] for name in _COLUMNS}

    def build(self) -> dict[str, pa.Table]:
        """The tables of all that was added."""
        self._flush()
        tables = {
            "counters": pa.concat_tables(self._chunks),
            "launches": pa.Table.from_pylist(list(self.launches.values()), schema=LAUNCHES),
        }
        if self._rules:
            tables["rules"] = pa.Table.from_pylist(self._rules, schema=RULES)
        return tables


class PageTables(Tables):
    """The tables of a printed page, from its rows.

    `unitless`: how many numbers have no unit that need one to say anything, by metric; their values
    are null and the number is left as text.
    """

    def __init__(self, source: str, clock_control: str | None) -> None:
        super().__init__(source, clock_control)
        self._next = 0
        self.unitless: Counter[str] = Counter()

    def add(self, layout: Layout, units: list[str], rows: list[list[str]], style: Style) -> None:
        """Add one table's rows. Launch ids that were taken by an earlier table are numbered on."""
        known: dict[tuple[str, str], dict[str, Any]] = {}
        parse = cache(style.parse)  # the same text comes with every launch
        names = [layout.columns[i] for i in layout.metrics]
        printed = [(units[i] or None) if units else None for i in layout.metrics]
        offset = self._next
        for row in rows:
            key = (row[layout.index["ID"]], row[layout.index["Process ID"]])
            launch = known.get(key)
            if launch is None:
                launch = known[key] = self._launch(layout, row, offset)
            if layout.is_details:
                self._detail(layout, row, launch, parse)
            else:
                texts = [row[i] for i in layout.metrics]
                self._counters(launch, names, printed, texts, None, parse)

    def _launch(self, layout: Layout, row: list[str], offset: int) -> dict[str, Any]:
        get = partial(layout.get, row)

        def number(column: str) -> int | None:
            text = get(column)
            return int(text) if text is not None and text.isdecimal() and len(text) < 19 else None

        launch = (number("ID") or 0) + offset
        if launch in self.launches:  # of another process
            launch = self._next
        self._next = max(self._next, launch + 1)
        nvtx = [row[i] for i in layout.nvtx]
        push_pop = ranges(nvtx[0]) if nvtx else None
        start_end = ranges(nvtx[1]) if len(nvtx) > 1 else None
        open_ranges = push_pop or start_end or []
        own = own_ranges.innermost(*([r.name for r in of or []] for of in (push_pop, start_end)))
        columns = self.launches[launch] = {
            "source": self.source,
            "launch": launch,
            "layer": own or (open_ranges[-1].name if open_ranges else None),
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
            "workload": RANGE if get("Stream") == "n/a" else None,
        }
        return columns

    def _detail(self, layout: Layout, row: list[str], launch: dict[str, Any], parse: Parse) -> None:
        get = partial(layout.get, row)
        section, label, metric = get("Section Name"), get("Body Item Label"), get("Metric Name")
        if metric:
            where = f"{section} / {label}" if label else section
            text = get("Metric Value") or ""
            self._counters(launch, [metric], [get("Metric Unit")], [text], where, parse)
        if get("Rule Name"):
            self.add_rule(
                launch,
                section=section,
                rule=get("Rule Name"),
                type=get("Rule Type"),
                text=get("Rule Description"),
                speedup_type=get("Estimated Speedup Type"),
                speedup=parse(get("Estimated Speedup") or ""),
            )

    def _counters(
        self,
        launch: dict[str, Any],
        names: list[str],
        units: list[str | None],
        texts: list[str],
        section: str | None,
        parse: Parse,
    ) -> None:
        values = [parse(text) for text in texts]
        for i, unit in enumerate(units):
            if unit is None and values[i] is not None and _NEEDS_UNIT.match(names[i]):
                self.unitless[names[i]] += 1
                values[i] = None
        # The text is kept where it says more than the number: words, values of instances.
        kept = [
            None if value is not None and "(" not in text else text or None
            for value, text in zip(values, texts, strict=True)
        ]
        self.add_counters(launch, names, units, values, kept, section)
