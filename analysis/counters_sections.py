"""Metrics that a details page prints under one name in several sections.

ncu's details page has labels, not the names of metrics, and a label is unique only in its section:
``Memory Throughput`` is a percentage of the peak in SpeedOfLight and byte/s in
MemoryWorkloadAnalysis (sections/SpeedOfLight.section and MemoryWorkloadAnalysis.section of an ncu
installation).
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from .counters_rules import base_unit

# The identifier of a section (ncu --list-sections) by the names it was printed with; the first
# was renamed in 2021.
_IDENTIFIERS = {
    "GPU Speed Of Light": "SpeedOfLight",
    "GPU Speed Of Light Throughput": "SpeedOfLight",
    "Compute Workload Analysis": "ComputeWorkloadAnalysis",
    "Memory Workload Analysis": "MemoryWorkloadAnalysis",
    "Scheduler Statistics": "SchedulerStats",
    "Warp State Statistics": "WarpStateStats",
    "Instruction Statistics": "InstructionStats",
    "Launch Statistics": "LaunchStats",
    "Source Counters": "SourceCounters",
}


def told_apart(counters: pa.Table, asked: Iterable[str] = ()) -> pa.Table:
    """A `counters` table where ``NAME`` is ``NAME (SECTION)`` if sections print it in units of
    different dimensions; all other rows as they are. SECTION is the section's identifier, or the
    name that was printed where that is not known.

    `asked`: names of metrics. Those of the form ``NAME (SECTION)`` that are in the table under
    NAME alone are added to it.
    """
    sections = counters["section"]
    if sections.null_count == len(sections):  # a raw page, a report
        return counters
    wanted = frozenset(asked)
    counted = counters.filter(pc.is_valid(counters["value"]))
    units: dict[str, set[str | None]] = {}
    for row in _distinct(counted, ["metric", "unit"]):
        units.setdefault(row["metric"], set()).add(base_unit(row["unit"])[1])
    pairs = [r for r in _distinct(counters, ["metric", "section"]) if r["section"] is not None]
    places: dict[str, set[str]] = {}
    for row in pairs:
        places.setdefault(row["metric"], set()).add(_identifier(row["section"]))
    several = {m for m, found in units.items() if len(found) > 1 and len(places.get(m, ())) > 1}
    made = counters
    for row in pairs:
        name = named(row["metric"], row["section"])
        if row["metric"] in several:
            made = _renamed(made, _rows(made, row), name)
        elif name in wanted:
            added = made.filter(_rows(made, row))
            made = pa.concat_tables([made, _renamed(added, _rows(added, row), name)])
    return made


def named(metric: str, section: str) -> str:
    """``Memory Throughput (SpeedOfLight)``."""
    return f"{metric} ({_identifier(section)})"


def _identifier(section: str) -> str:
    return _IDENTIFIERS.get(section, section)


def _distinct(counters: pa.Table, columns: list[str]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = counters.group_by(columns).aggregate([]).to_pylist()
    return found


def _rows(counters: pa.Table, of: dict[str, str]) -> pa.Array:
    metric = pc.equal(counters["metric"], of["metric"])
    return pc.fill_null(pc.and_kleene(metric, pc.equal(counters["section"], of["section"])), False)


def _renamed(counters: pa.Table, rows: pa.Array, name: str) -> pa.Table:
    at = counters.schema.get_field_index("metric")
    values = pc.if_else(rows, pa.scalar(name, counters["metric"].type), counters["metric"])
    return counters.set_column(at, counters.schema.field(at), values)
