"""What kind of number a metric is: its unit in base units, and how launches are put together.

Names are built as NVIDIA's Metrics Structure says (docs.nvidia.com/nsight-compute/ProfilingGuide,
"Metrics Structure"): ``unit__counter.rollup[.submetric]``, rollup one of sum, avg, min, max. A
details page prints labels instead, which ncu's .section files give to metrics.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from ...core.tables import with_columns

PRINTED_DURATION = "Duration"  # the label of `roofline_metrics.DURATION` on a details page

# What a layer's or module's value is: the sum over launches, their mean weighted by
# gpu__time_duration, or the one value that all launches share.
SUM, MEAN, CONSTANT = "sum", "mean", "constant"

_PREFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}

_TIME = {
    "ns": 1.0,
    "nsecond": 1.0,
    "us": 1e3,
    "usecond": 1e3,
    "ms": 1e6,
    "msecond": 1e6,
    "s": 1e9,
    "sec": 1e9,
    "second": 1e9,
}

_COUNTED = re.compile(
    r"([KMGTP]?)(byte|inst|cycle|sector|request|warp|thread|block|op|bit|register)(s?)"
)

_HERTZ = re.compile(r"([KMGT]?)(?:hz|Hz)\Z")

_CONSTANTS = (
    "device__",
    "launch__",
    "numa__",
    "nvlink__",
    "c2clink__",
    "pcie__",
    "profiler__",
    "smsp__maximum",
    "sm__maximum",
)

_METRIC = re.compile(r"\w__\w|\.(sum|avg|min|max|ratio|pct|max_rate)\b")

# Labels of details pages by what they stand for in ncu's .section files; without the section that
# `by_section` adds.
_SECTION = re.compile(r" \([^()]*\)\Z")

_PRINTED_SUMS = re.compile(
    r"Duration|Elapsed Cycles|SM Active Cycles|(Total|Average) \w+ (Elapsed|Active) Cycles"
    r"|(Avg\. )?(Executed|Issued) Instructions( Per Scheduler)?"
)

_PRINTED_CONSTANTS = re.compile(
    r"Theoretical .*|Block Limit .*|(Block|Grid|Cluster|Preferred Cluster|Max Cluster|Stack) Size"
    r"|Threads|Waves Per SM|Registers Per Thread|# \w+|Max Active Clusters"
    r"|.*Shared Memory .*(Per Block|Size)"
)

_PRINTED_MEANS = re.compile(
    r"(Achieved Active|Active|Eligible|Issued) Warps? [Pp]er (SM|Scheduler)|.* Per Cycle"
)


@lru_cache(maxsize=1024)
def base_unit(unit: str | None) -> tuple[float, str | None]:
    """Factor and name of the base unit: ``Kbyte`` is (1000, byte), ``us`` is (1000, ns),
    ``Gbyte/second`` is (1e9, byte/s), ``cycle/nsecond`` is (1e9, cycle/s), ``Ghz`` is (1e9, Hz).
    None stays None; what is not known keeps its spelling and the factor 1.

    Prefixes are decimal, as ncu's are (ncu --print-units).
    """
    if unit is None or not unit.strip():
        return 1.0, None
    unit = unit.strip()
    if unit in _TIME:
        return _TIME[unit], "ns"
    hertz = _HERTZ.match(unit)
    if hertz:
        return _PREFIX[hertz[1]], "Hz"
    above, slash, below = unit.partition("/")
    counted = _COUNTED.fullmatch(above)
    factor = _PREFIX[counted[1]] if counted else 1.0
    name = counted[2] if counted else above
    if not slash:
        return factor, name
    if below in _TIME:
        return factor * 1e9 / _TIME[below], f"{name}/s"
    return factor, f"{name}/{below}"


def rule(metric: str, unit: str | None) -> str | None:
    """How the values of several launches become one; None where no rule is known to be right.

    - counts, bytes, cycles and time (``.sum`` and ``.avg`` without submetric): sum. An average
      over units adds up over launches; a minimum or maximum over units does not.
    - percentages, rates, ratios and per-cycle values of ``.sum``, ``.avg``, ``.pct``, ``.ratio``:
      mean weighted by time. Exact for values per second or per elapsed cycle at a steady clock,
      close for those per active cycle.
    - properties of the device and of the launch: the value, if it is the same in all launches.

    A details page's labels have the rules of the metrics that they stand for: the durations,
    cycles and instructions in `_PRINTED_SUMS` add up, percentages and values per second or cycle
    are weighted, sizes and limits of the launch are constant, all others have no rule.
    """
    if not _METRIC.search(metric):
        return _of_label(_SECTION.sub("", metric), base_unit(unit)[1] or "")
    if metric.startswith(_CONSTANTS):
        return CONSTANT
    base, *rest = metric.split(".")
    if not rest:
        return MEAN if base.endswith("_pct") or unit == "%" else None
    rollup, submetric = rest[0], ".".join(rest[1:])
    if rollup in ("ratio", "pct", "max_rate"):
        return CONSTANT if rollup == "max_rate" else MEAN
    if submetric.startswith("peak_"):
        return CONSTANT
    if rollup in ("sum", "avg"):
        if not submetric:
            return MEAN if unit == "%" or "/" in (unit or "") else SUM
        if submetric.startswith(("per_", "pct", "ratio")):
            return MEAN
        return None
    if rollup == "max" and base.endswith("cycles_elapsed") and not submetric:
        return SUM  # all units of a kernel's launch elapse together
    return None


def _of_label(label: str, unit: str) -> str | None:
    if _PRINTED_SUMS.fullmatch(label):
        return SUM
    if _PRINTED_CONSTANTS.fullmatch(label):
        return CONSTANT
    if unit in ("%", "Hz") or unit.endswith(("/s", "/cycle")) or _PRINTED_MEANS.fullmatch(label):
        return MEAN
    return MEAN if label.endswith("_pct") else None


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


def by_section(counters: pa.Table, asked: Iterable[str] = ()) -> pa.Table:
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
    units: dict[str, set[str | None]] = defaultdict(set)
    for row in _distinct(counted, ["metric", "unit"]):
        units[row["metric"]].add(base_unit(row["unit"])[1])
    pairs = [r for r in _distinct(counters, ["metric", "section"]) if r["section"] is not None]
    places: dict[str, set[str]] = defaultdict(set)
    for row in pairs:
        places[row["metric"]].add(_identifier(row["section"]))
    several = {m for m, of in units.items() if len(of) > 1 and len(places[m]) > 1}
    table = counters
    for row in pairs:
        name = named(row["metric"], row["section"])
        if row["metric"] in several:
            table = _renamed(table, _rows(table, row), name)
        elif name in wanted:
            added = table.filter(_rows(table, row))
            table = pa.concat_tables([table, _renamed(added, _rows(added, row), name)])
    return table


def named(metric: str, section: str) -> str:
    """``Memory Throughput (SpeedOfLight)``."""
    return f"{metric} ({_identifier(section)})"


def _identifier(section: str) -> str:
    return _IDENTIFIERS.get(section, section)


def _distinct(counters: pa.Table, columns: list[str]) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = counters.group_by(columns).aggregate([]).to_pylist()
    return rows


def _rows(counters: pa.Table, of: dict[str, str]) -> pa.Array:
    metric = pc.equal(counters["metric"], of["metric"])
    return pc.fill_null(pc.and_kleene(metric, pc.equal(counters["section"], of["section"])), False)


def _renamed(counters: pa.Table, rows: pa.Array, name: str) -> pa.Table:
    return with_columns(counters, {"metric": pc.if_else(rows, name, counters["metric"])})
