"""TensorRT's timings: per layer, per iteration, and what TREx keeps beside them.

**Per layer** (``trtexec --exportProfile``, torch-tensorrt's ``trex`` format): an array whose first
record is ``{"count": N}``, then ``name, timeMs, averageMs, medianMs, percentage`` for each layer.
`timeMs` is the sum over all iterations of the profiling run, `averageMs` that sum over the layer's
own number of reports, `medianMs` the median of these (``Profiler::exportJSONProfile`` in
samples/common/sampleReporting.cpp). Warm-up iterations are counted in. `calls` is the number of
reports, timeMs / averageMs; it is `count` except for layers that did not run each time. The file
has six significant digits, so nanoseconds are rounded; percentiles and intervals are null, for
no single value is kept. The quirks:

- no `medianMs` before 8.2; `-nan` percentages where nothing took time, and names with unescaped
  quotes or backslashes, neither of which is JSON: such files are read line by line;
- several arrays in one file, one per engine or run; `A || B` names of layers that run side by side;
- layers of 0 ms: no-ops, or what ran inside another layer; ``[trainStation1]`` is TensorRT's
  synchronisation and no node's.

**Per layer and iteration**: ``{"name": [ms, ms, ...]}``, as an ``IProfiler`` collects it. Full
statistics, and an `ops` table of all values.

**Per iteration** (``trtexec --exportTimes``): the `latency` table and a `timings` table of its
parts. `latencyMs` is h2d + compute + d2h of one query. Files with `endToEndMs` (before 8.4)
contain the warm-up iterations.

**TREx** ``*.metadata.json``: settings and the performance summary as a `settings` table, and the
devices that its ``device_info.py`` lists.

**A log of trtexec** with ``--dumpProfile``: see `trtexec_log`.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ....core.errors import InputError
from ....core.stats import sum_all, summarise
from ....core.tables import schema, table
from ..base import Artefact, Head
from ..bounded import MAX_JSON_BYTES, decode, json_start, parse_json_documents, read_bytes, shown
from . import trtexec_log

KIND = "trt-profile"
DESCRIPTION = (
    "TensorRT timings (trtexec --exportProfile, --exportTimes or its log, IProfiler, TREx)"
)

_COUNT = re.compile(r'\[\s*\{\s*"count"\s*:\s*\d+\s*\}')
_LAYER = re.compile(r'\[\s*\{\s*"name"\s*:\s*".*?"\s*,\s*"timeMs"\s*:', re.DOTALL)
_TIMES = re.compile(r'\[\s*\{\s*"(?:startEnqMs|startInMs|startH2dMs|latencyMs)"\s*:')
_KEY = r'"(?:[^"\\]|\\.)*"\s*:\s*\[\s*'
# The first list is followed by the next, or by the end of the object (or of the head).
_PER_ITERATION = re.compile(
    rf"\{{\s*{_KEY}(?=[-+.\dn])[-+.\deEnul\s,]*(?:\]\s*(?:\}}|,\s*{_KEY})|\Z)"
)
_OUTPUT = re.compile(r'\[\s*\{\s*"name"\s*:\s*"[^"]*"\s*,\s*"dimensions"\s*:')
_DEVICES = re.compile(r'\[\s*\{\s*"Name"\s*:\s*"[^"]*"\s*,\s*"ComputeCapability"\s*:')
_SECTIONS = (
    "performance_summary",
    "inference_options",
    "model_options",
    "build_options",
    "device_information",
)
# One record of --exportProfile on its line; names are not escaped by the writer.
_RECORD = re.compile(
    r'[\s,\[]*\{\s*"name"\s*:\s*"(?P<name>.*)"\s*,\s*"timeMs"\s*:\s*(?P<timeMs>[^,]+?)\s*,'
    r'\s*"averageMs"\s*:\s*(?P<averageMs>[^,]+?)\s*'
    r'(?:,\s*"medianMs"\s*:\s*(?P<medianMs>[^,]+?)\s*)?'
    r'(?:,\s*"percentage"\s*:\s*(?P<percentage>[^,}]+?)\s*)?\}[\s\]]*\Z'
)
_COUNT_LINE = re.compile(r'[\s,\[]*\{\s*"count"\s*:\s*(\d{1,18})\s*\}[\s\]]*\Z')

MAX_ROWS = 400_000  # layers, or iterations of --exportTimes, in one file
_NAMED = 5  # layers in a note

SETTINGS = schema("source text, section text, key text, value text")
_TIMING_KEYS = {
    "startEnqMs": "enqueue_start_ns",
    "endEnqMs": "enqueue_end_ns",
    "startH2dMs": "h2d_start_ns",
    "endH2dMs": "h2d_end_ns",
    "startInMs": "h2d_start_ns",
    "endInMs": "h2d_end_ns",
    "startComputeMs": "compute_start_ns",
    "endComputeMs": "compute_end_ns",
    "startD2hMs": "d2h_start_ns",
    "endD2hMs": "d2h_end_ns",
    "startOutMs": "d2h_start_ns",
    "endOutMs": "d2h_end_ns",
    "h2dMs": "h2d_ns",
    "inMs": "h2d_ns",
    "computeMs": "compute_ns",
    "d2hMs": "d2h_ns",
    "outMs": "d2h_ns",
    "latencyMs": "latency_ns",
    "endToEndMs": "end_to_end_ns",
}
_TIMES_SCHEMA = ", ".join(f"{column} int" for column in dict.fromkeys(_TIMING_KEYS.values()))
TIMINGS = schema(f"source text, iteration int, {_TIMES_SCHEMA}")


def sniff(head: Head) -> bool:
    """One of the shapes above, by its first record."""
    if trtexec_log.TABLE.search(head.text) or trtexec_log.LOG.search(head.text):
        return True
    text = head.json
    if text.startswith("["):
        return any(p.match(text) for p in (_COUNT, _LAYER, _TIMES, _OUTPUT, _DEVICES))
    if not text.startswith("{"):
        return False
    return bool(_PER_ITERATION.match(text)) or _is_trex(text)


def _is_trex(text: str) -> bool:
    match = re.match(r'\{\s*"(\w+)"\s*:\s*\{', text)
    return bool(match and match.group(1) in _SECTIONS)


def read(path: Path) -> Artefact:
    """The timings; InputError where the file is neither of these, or holds no value."""
    data = read_bytes(path, MAX_JSON_BYTES)
    text = decode(data)
    if trtexec_log.TABLE.search(text) or trtexec_log.LOG.search(text):
        return _log(path, text)
    if _OUTPUT.match(text, json_start(text)):
        raise InputError(
            "is trtexec's --exportOutput: tensors, no times",
            file=path,
            fix="use --exportProfile or --exportTimes",
        )
    try:
        documents = parse_json_documents(data, path, unique_keys=True)
    except InputError:
        documents = _by_lines(text[json_start(text) :], path)
        if not documents:
            raise
    first = documents[0]
    if isinstance(first, dict) and len(documents) == 1:
        if any(isinstance(first.get(s), dict) for s in _SECTIONS):
            return _trex(path, first)
        return _per_iteration(path, first)
    arrays = [d for d in documents if isinstance(d, list)]
    if len(arrays) < len(documents):
        raise InputError("mixes JSON arrays and objects", file=path)
    if sum(map(len, arrays)) > MAX_ROWS:
        raise InputError(f"holds more than {MAX_ROWS:,} records", file=path)
    first = arrays[0][0] if arrays[0] else None
    if isinstance(first, dict) and "ComputeCapability" in first:
        devices = (device for array in arrays for device in array)
        return _trex(path, {f"device {i}": device for i, device in enumerate(devices)})
    is_times = isinstance(first, dict) and "latencyMs" in first
    return _times(path, arrays) if is_times else _profile(path, arrays)


_AGAIN = "export it again"


def _number(value: Any, what: str, path: Path) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{what} is {shown(value)}, no number", file=path, fix=_AGAIN)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isnan(number):
        return None
    if not -1e15 < number < 1e15:
        raise InputError(f"{what} is {number:g} ms, no time", file=path, fix=_AGAIN)
    return None if number < 0 else number  # no time is below 0: it is unknown


def _ns(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds * 1e6)


# --- per layer ----------------------------------------------------------------------------------


def _by_lines(text: str, path: Path) -> list[Any]:
    """`--exportProfile` that is not JSON, one record per line; empty where it is something else."""
    arrays: list[list[dict[str, Any]]] = []
    if "\x00" in text:  # a hole in the file: what follows it is of another layer
        return []
    for number, line in enumerate(io.StringIO(text)):
        if number > MAX_ROWS:
            raise InputError(f"holds more than {MAX_ROWS:,} lines", file=path)
        if not line.strip(" \t\r\n[],"):
            continue
        count, record = _COUNT_LINE.match(line), _RECORD.match(line)
        if count:
            arrays.append([{"count": int(count.group(1))}])
        elif record and arrays:
            values = {k: v if k == "name" else _loose(v) for k, v in record.groupdict().items()}
            arrays[-1].append(values)
        else:
            return []
    return [a for a in arrays if len(a) > 1] if text.rstrip().endswith("]") else []


def _loose(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _log(path: Path, text: str) -> Artefact:
    arrays, notes = trtexec_log.tables(text)
    if not arrays:
        raise InputError(
            "is a trtexec log without a table of its layers' times (=== Profile)",
            file=path,
            fix="use --dumpProfile, or --exportProfile, --exportTimes and --exportLayerInfo",
        )
    artefact = _profile(path, arrays)
    facts = dict(artefact.facts)
    if trtexec_log.LISTS_LAYERS.search(text):
        facts["lists_layers"] = True
        notes.append("The log lists the engine's layers, too: name it after --layer-info as well.")
    return replace(artefact, facts=facts, notes=[*notes, _OF_LOG, *artefact.notes])


_OF_LOG = "A log has sums to 0.01 ms and medians to 0.0001 ms; --exportProfile writes six digits."


def _profile(path: Path, arrays: list[list[Any]]) -> Artefact:
    rows: list[dict[str, Any]] = []
    counts: list[int | None] = []
    zero, uneven = 0, list[str]()
    for number, records in enumerate(arrays):
        count: int | None = None
        engine = str(number) if len(arrays) > 1 else None
        for at, record in enumerate(records):
            if not isinstance(record, dict):
                what = f"record {at} is {shown(record)}, no object"
                raise InputError(what, file=path, fix=_AGAIN)
            if "name" not in record and "count" in record:
                count = _iterations(record["count"], at, path)
                continue
            row = _profile_row(record, at, count, path)
            if None not in (row["calls"], count) and row["calls"] != count:
                uneven.append(f"{row['layer'][:60]} ({row['calls']} of {count})")
            zero += row["total_ns"] == 0
            rows.append({"source": path.name, "engine": engine, **row})
        counts.append(count)
    if not rows:
        raise InputError("has no layer", file=path, fix="was the run too short?")
    notes = ["Percentiles and intervals are unknown: the export keeps no single values."]
    if all(row["median_ns"] is None for row in rows):
        notes.append("No medians: this version of trtexec did not write them.")
    if zero:
        notes.append(f"{zero} layers of 0 ms: no-ops, or they ran inside another layer.")
    if uneven:
        more = f" and {len(uneven) - _NAMED} more" if len(uneven) > _NAMED else ""
        what = "1 layer was" if len(uneven) == 1 else f"{len(uneven)} layers were"
        notes.append(
            f"{what} not reported in each of the iterations, by totals over means: "
            f"{', '.join(uneven[:_NAMED])}{more}; a median is over a layer's own reports."
        )
    if len(arrays) > 1:
        notes.append(f"{len(arrays)} profiles in one file, numbered in `engine`.")
    facts = {
        "iterations": counts[0] if len(counts) == 1 else counts,
        "layers": len(rows),
        "total_ns": sum_all(row["total_ns"] for row in rows),
        "profiles": len(arrays),
    }
    return Artefact(KIND, {"layers": table("layers", rows)}, facts, notes)


def _iterations(count: Any, at: int, path: Path) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**63:
        what = f"record {at}: count is {shown(count)}, no number of iterations"
        raise InputError(what, file=path, fix=_AGAIN)
    return count


def _profile_row(record: dict[str, Any], at: int, count: int | None, path: Path) -> dict[str, Any]:
    name = record.get("name")
    if not isinstance(name, str):
        what = f"name is {shown(name)}, no text" if "name" in record else "has no name"
        raise InputError(f"record {at}: {what}", file=path, fix=_AGAIN)
    of = f"of layer {shown(name)}"
    if "timeMs" not in record:
        raise InputError(f"record {at}: has no timeMs {of}", file=path, fix=_AGAIN)
    total = _number(record["timeMs"], f"timeMs {of}", path)
    average = _number(record.get("averageMs"), f"averageMs {of}", path)
    return {
        "layer": name,
        "calls": _calls(total, average, count),
        "total_ns": _ns(total),
        "median_ns": _ns(_number(record.get("medianMs"), f"medianMs {of}", path)),
    }


def _calls(total: float | None, average: float | None, count: int | None) -> int | None:
    """How often a layer was reported: sum over mean, where six digits tell it from `count`."""
    if not total or not average:
        return count
    calls = total / average
    # Both are rounded to six significant digits: relative error up to 1e-5 in all.
    if count is not None and abs(calls - count) <= max(0.5, count * 1e-5):
        return count
    return round(calls) if calls < 50_000 else None


# --- per layer and iteration --------------------------------------------------------------------


def _per_iteration(path: Path, times_by_layer: dict[str, Any]) -> Artefact:
    layers: list[dict[str, Any]] = []
    samples: dict[str, list[int | None]] = {}
    for name, values in times_by_layer.items():
        if not isinstance(values, list):
            what = f"layer {shown(name)}: {shown(values)} is no list of times"
            raise InputError(what, file=path, fix=_AGAIN)
        samples[name] = [
            _ns(_number(v, f"layer {shown(name)}: time {i}", path)) for i, v in enumerate(values)
        ]
    if not any(samples.values()):
        raise InputError("has no time in it", file=path)
    for name, times in samples.items():
        known = [t for t in times if t is not None]
        stat = summarise(known)
        statistics = (
            {}
            if stat is None
            else {
                "median_ns": stat.median,
                "p90_ns": stat.p90,
                "p99_ns": stat.p99,
                "ci_low_ns": stat.low,
                "ci_high_ns": stat.high,
            }
        )
        layers.append(
            {
                "source": path.name,
                "layer": name,
                "calls": len(times),
                "total_ns": sum(known) if len(known) == len(times) else None,
                **statistics,
            }
        )
    lengths = {len(times) for times in samples.values()}
    notes = []
    if len(lengths) > 1:
        notes.append(f"Layers have between {min(lengths)} and {max(lengths)} times each.")
    facts = {
        "iterations": lengths.pop() if len(lengths) == 1 else None,
        "layers": len(layers),
        "total_ns": sum_all(row["total_ns"] for row in layers),
    }
    tables = {"layers": table("layers", layers), "ops": _ops(path.name, samples)}
    return Artefact(KIND, tables, facts, notes)


def _ops(source: str, samples: dict[str, list[int | None]]) -> pa.Table:
    names = [name for name, times in samples.items() for _ in times]
    length = len(names)
    durations = [t for times in samples.values() for t in times]
    return table(
        "ops",
        {
            "source": [source] * length,
            "phase": ["inference"] * length,
            "iteration": [i for times in samples.values() for i in range(len(times))],
            "kind": ["node"] * length,
            "name": names,
            "duration_ns": durations,
            "self_ns": durations,
            "layer": names,
        },
    )


# --- per iteration ------------------------------------------------------------------------------


def _times(path: Path, arrays: list[list[Any]]) -> Artefact:
    rows: list[dict[str, Any]] = []
    for record in (record for records in arrays for record in records):
        if not isinstance(record, dict) or "latencyMs" not in record:
            raise InputError("has an iteration without latencyMs", file=path)
        row: dict[str, Any] = {"source": path.name, "iteration": len(rows)}
        for key, column in _TIMING_KEYS.items():
            if key in record:
                row[column] = _ns(_number(record[key], key, path))
        rows.append(row)
    stat = summarise(row["latency_ns"] for row in rows if row["latency_ns"] is not None)
    notes = ["latencyMs is host-to-device + compute + device-to-host of one query."]
    if any("end_to_end_ns" in row for row in rows):
        notes.append("This version of trtexec writes the warm-up iterations too.")
    if len(arrays) > 1:
        notes.append(f"{len(arrays)} runs in one file, numbered on.")
    latency = [{k: row.get(k) for k in ("source", "iteration", "latency_ns")} for row in rows]
    facts = {"iterations": len(rows), "latency_ns": None if stat is None else stat.as_dict()}
    tables = {
        "latency": table("latency", latency),
        "timings": pa.Table.from_pylist(rows, schema=TIMINGS),
    }
    return Artefact(KIND, tables, facts, notes)


# --- TREx ---------------------------------------------------------------------------------------


def _trex(path: Path, document: dict[str, Any]) -> Artefact:
    rows = []
    for section, values in document.items():
        pairs: Sequence[tuple[str, Any]] = (
            list(values.items()) if isinstance(values, dict) else [("", values)]
        )
        for key, value in pairs:
            text = value if isinstance(value, str) or value is None else json.dumps(value)
            rows.append({"source": path.name, "section": section, "key": key, "value": text})
    notes = ["Settings and summary only; timings are in the files beside it."]
    settings = pa.Table.from_pylist(rows, schema=SETTINGS)
    return Artefact(KIND, {"settings": settings}, {"sections": list(document)}, notes)
