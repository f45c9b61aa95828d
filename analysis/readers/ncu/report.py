"""Nsight Compute reports (.ncu-rep), through NVIDIA's `ncu-report` package.

Values are not rounded, unlike those of the CSV, and NVTX ranges come as they were. The tables
are those of `page`: `counters`, `launches` and, where ncu evaluated any, `rules`. Process ids
are not in the report. Source of the interface: docs.nvidia.com/nsight-compute/NvRulesAPI.
"""

from __future__ import annotations

import importlib
import math
import os
import struct
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO

from ....core import own_ranges
from ....core.errors import InputError, ToolMissing
from ..base import Artefact, Head
from ..bounded import valid_text
from .tables import AS_ONE, KERNEL, RANGE, Tables, of_ranges

KIND = "ncu-rep"
_WORKLOADS = (KERNEL, RANGE, "graph", "cmdlist")
DESCRIPTION = "Nsight Compute report (.ncu-rep; needs the ncu-report package)"

# ncu-report 2025.3.1 ends the process where a metric has no unit (peak_sustained).
OLDEST = (2026, 2)

MAGIC = b"NVR\x00"
# Of a block: its fields, the wire types of protobuf, and a bound.
_SOURCES, _RESULTS, _PAYLOAD = 1, 2, 5
_VARINT, _BITS64, _BYTES, _BITS32 = 0, 1, 2, 5
_LARGEST_MESSAGE = 1 << 28
# What the library raises has no common type; on damaged files the bindings raise the others.
_LIBRARY_ERRORS = (
    RuntimeError,
    ValueError,
    TypeError,
    SystemError,
    OSError,
    KeyError,
    IndexError,
    OverflowError,
)


def sniff(head: Head) -> bool:
    """The report's magic number. The library that reads it opens the file itself."""
    return head.compression is None and head.data.startswith(MAGIC)


def read(path: Path) -> Artefact:
    """The counters of every launch; ToolMissing without the package, InputError if it fails."""
    try:
        library = importlib.import_module("ncu_report")
    except ImportError as e:
        raise ToolMissing(
            f"needs the ncu-report package ({e})",
            file=path,
            fix="pip install ncu-report, or print it: ncu --import FILE --csv --page raw",
        ) from None
    if (version := _version()) < OLDEST:
        raise ToolMissing(
            f"needs ncu-report {'.'.join(map(str, OLDEST))} or newer: "
            f"{'.'.join(map(str, version))} crashes on metrics without a unit",
            file=path,
            fix="pip install --upgrade ncu-report",
        )
    stated = _results(path)
    try:
        report = library.load_report(str(path))
        result = None if report is None else artefact(report, path)
    except _LIBRARY_ERRORS as e:
        raise InputError(
            f"cannot be read by ncu-report ({' '.join(str(e).split())[:200]})",
            file=path,
            fix="is it whole, and is ncu-report as new as the ncu that wrote it?",
        ) from None
    if result is None:
        raise InputError("cannot be read by ncu-report", file=path, fix="is it whole?")
    if stated is not None and stated > result.facts["launches"]:
        raise InputError(
            f"holds {stated} results, of which ncu-report reads {result.facts['launches']}",
            file=path,
            fix="is it whole, and is ncu-report as new as the ncu that wrote it?",
        )
    return result


def _version() -> tuple[int, ...]:
    """The package's version; what is no package of its own is taken for new enough."""
    try:
        return tuple(int(part) for part in metadata.version("ncu-report").split(".")[:2])
    except (metadata.PackageNotFoundError, ValueError):
        return OLDEST


def artefact(report: Any, path: Path) -> Artefact:
    """The tables of a loaded report (`ncu_report.IContext`)."""
    tables = Tables(path.name)
    metrics: set[str] = set()
    measured = 0
    for r in range(report.num_ranges()):
        results = report.range_by_idx(r)
        for a in range(results.num_actions()):
            action = results.action_by_idx(a)
            launch = _launch(action, path.name, len(tables.launches))
            tables.launches[launch["launch"]] = launch
            names = _add_counters(tables, action, launch)
            metrics.update(names)
            measured += bool(names)
            _add_rules(tables, action, launch)
    launches = tables.launches.values()
    if not launches:
        raise InputError("holds no result", file=path, fix="was any kernel profiled?")
    built = tables.build()
    facts = {
        "launches": len(launches),
        "metrics": len(metrics),
        "nvtx": any(launch["ranges"] for launch in launches),
    }
    notes = ["Process ids are not in a report."]
    if of_ranges(built["launches"]):
        notes.insert(0, AS_ONE)
    bare = len(launches) - measured
    if bare:
        notes.insert(0, f"{bare} launches have no metric at all: is the report whole?")
    return Artefact(KIND, built, facts, notes)


def _value(action: Any, name: str) -> Any:
    metric = action.metric_by_name(name)
    return None if metric is None or not metric.has_value() else metric.value()


def _integer(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _size(action: Any, what: str) -> str | None:
    parts = [_integer(_value(action, f"launch__{what}_dim_{axis}")) for axis in "xyz"]
    return None if None in parts else f"({parts[0]}, {parts[1]}, {parts[2]})"


def _nvtx(action: Any) -> tuple[list[Any], list[Any]]:
    """(domain, name) of the push/pop ranges, outermost first within a domain, and of the others."""
    state = action.nvtx_state()
    push_pop, start_end = [], []
    for domain_id in state.domains() if state is not None else ():
        domain = state.domain_by_id(domain_id)
        if domain is None:
            continue
        # The library gives None for a text that a damaged report lacks.
        label = valid_text(domain.name() or "")
        push_pop += [(label, valid_text(name or "")) for name in domain.push_pop_ranges()]
        start_end += [(label, valid_text(name or "")) for name in domain.start_end_ranges()]
    return push_pop, start_end


def _launch(action: Any, source: str, number: int) -> dict[str, Any]:
    push_pop, start_end = _nvtx(action)
    major = _integer(_value(action, "device__attribute_compute_capability_major"))
    minor = _integer(_value(action, "device__attribute_compute_capability_minor"))
    own = own_ranges.innermost(*([name for _, name in of] for of in (push_pop, start_end)))
    innermost = own or _innermost(push_pop) or _innermost(start_end)
    workload = _workload(action)
    # The numbers that a report has for a range are sums over its kernels; a page says n/a.
    alone = workload in (KERNEL, None)
    return {
        "source": source,
        "launch": number,
        "layer": innermost,
        "kernel": _text(action.name(action.NameBase_DEMANGLED)),
        "context": _integer(_value(action, "launch__context_id")),
        "stream": _integer(_value(action, "launch__stream_id")) if alone else None,
        "device": _integer(_value(action, "device__attribute_device_index")),
        "compute_capability": None if major is None or minor is None else f"{major}.{minor}",
        "block": _size(action, "block") if alone else None,
        "grid": _size(action, "grid") if alone else None,
        "ranges": [name for _, name in push_pop],
        "range_domains": [domain for domain, _ in push_pop],
        "start_end_ranges": [name for _, name in start_end],
        "workload": workload,
    }


def _workload(action: Any) -> str | None:
    """What was replayed as one; None where this ncu_report does not say."""
    known = {getattr(action, f"WorkloadType_{w.upper()}", None): w for w in _WORKLOADS}
    workload: str | None = known.get(action.workload_type()) if None not in known else None
    return workload


def _innermost(ranges: list[Any]) -> str | None:
    """The innermost range: of the engine's inner domain (`myelin-exec`) where there is one.

    A report keeps order within a domain only; Myelin's ranges lie inside TensorRT's.
    """
    inner = [name for domain, name in ranges if domain == "myelin-exec"]
    names = inner or [name for _, name in ranges]
    return names[-1] if names else None


def _add_counters(tables: Tables, action: Any, launch: dict[str, Any]) -> list[str]:
    """Add the metrics of a launch; their names."""
    names: list[str] = []
    units: list[str | None] = []
    values: list[float | None] = []
    texts: list[str | None] = []
    for name in action.metric_names():
        # `breakdown:X` holds no value, only the names of the metrics that X is the maximum of.
        metric = None if name.startswith("breakdown:") else action.metric_by_name(name)
        if metric is None:
            continue
        value: Any = metric.value() if metric.has_value() else None
        finite = isinstance(value, (int, float)) and math.isfinite(value)
        names.append(valid_text(name))
        units.append(_text(metric.unit()))
        values.append(float(value) if finite else None)
        texts.append(None if finite else _text(value))
    tables.add_counters(launch, names, units, values, texts)
    return names


def _add_rules(tables: Tables, action: Any, launch: dict[str, Any]) -> None:
    for rule in action.rule_results_as_dicts():
        message = rule.get("rule_message") or {}
        speedup = rule.get("speedup_estimation") or {}
        value = speedup.get("speedup") if isinstance(speedup, dict) else None
        tables.add_rule(
            launch,
            section=_text(rule.get("section_identifier")),
            rule=_text(rule.get("name") or rule.get("rule_identifier")),
            type=_text(message.get("type")),
            text=_text(message.get("message")),
            speedup_type=_text(speedup.get("type")),
            speedup=float(value) if isinstance(value, (int, float)) else None,
        )


def _text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    return valid_text(str(getattr(value, "name", value)))


# --- whether a report is whole --------------------------------------------------------------------


def _results(path: Path) -> int | None:
    """How many results the blocks of a report say they hold; None where it is built otherwise.

    A report that was cut short (a full disk, a copy that broke off) loads without an error and has
    fewer results. The file is ``NVR\\0``, then a message, then blocks; each is a message with the
    size of the payload that follows it. A message is a 32-bit little-endian size and that many
    bytes of protobuf; of a block's, field 1 is the number of sources, 2 that of results and 5 the
    size of the payload in bytes (Nsight Compute, extras/FileFormat/ProfilerReport.proto).

    InputError where the last block is not all there.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(4)
        if _message(file, size) is None:
            return None
        count = None
        while file.tell() < size:
            start = file.tell()
            fields = _message(file, size)
            if fields is None or _SOURCES not in fields:
                return None if count is None else _cut(path, start, size)
            count = (count or 0) + fields.get(_RESULTS, 0)
            end = file.tell() + fields.get(_PAYLOAD, 0)
            if end > size:
                return _cut(path, start, size)
            file.seek(end)
        return count


def _cut(path: Path, start: int, size: int) -> int:
    raise InputError(
        f"is cut short: {size} bytes, and the block at byte {start} is not all there",
        file=path,
        fix="copy it again, or capture again",
    )


def _message(file: BinaryIO, size: int) -> dict[int, int] | None:
    """The integer fields of the message that begins here, None where there is none."""
    head = file.read(4)
    if len(head) < 4:
        return None
    (length,) = struct.unpack("<I", head)
    if length > min(_LARGEST_MESSAGE, size - file.tell()):
        file.seek(0, os.SEEK_END)
        return None
    return _integers(file.read(length))


def _integers(data: bytes) -> dict[int, int] | None:
    fields: dict[int, int] = {}
    at = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                fields[number], at = _varint(data, at)
            elif kind == _BYTES:
                length, at = _varint(data, at)
                at += length
            elif kind in (_BITS32, _BITS64):
                at += 4 if kind == _BITS32 else 8
            else:
                return None
    except IndexError:
        return None
    return fields if at == len(data) else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
