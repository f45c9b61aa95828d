"""Reads an nsys export into arrays (`capture`): all that attribution needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from . import schema
from .capture import (
    COPY,
    GRAPH,
    KERNEL,
    KINDS,
    SET,
    Calls,
    Capture,
    GraphNodes,
    Grids,
    Operations,
    Ranges,
)
from .source import (
    NULL,
    Codes,
    Columns,
    Filter,
    Integers,
    Query,
    Source,
    read_distinct,
    repeats_note,
)

# Columns that name an operation of each kind, the best one first, and its name without any.
_LABELS: dict[int, tuple[str, ...]] = {
    KERNEL: ("demangledName", "shortName", "mangledName"),
    COPY: ("copyKind",),
    SET: (),
    GRAPH: ("graphExecId", "graphId"),
}
_GRAPH_LAUNCH = "graphlaunch"
_UNLABELLED = {
    KERNEL: None,
    COPY: "[CUDA memcpy Unknown]",
    SET: "[CUDA memset]",
    GRAPH: "[CUDA graph]",
}
_BOUND = 1 << 60  # times beyond are damage: sums and differences of them would overflow
_VERSIONS = {"EXPORT_PRODUCT_VERSION": "nsys_version", "EXPORT_SCHEMA_VERSION": "schema_version"}

Names = dict[str, int]  # texts and their codes


def load(source: Source, *, described: bool = True) -> Capture:
    """Read everything that attribution needs. Unusable rows are left out and noted.

    Without `described` the operations have no name, device and stream (-1, unknown), which takes
    a third of the time off large captures.
    """
    names: Names = {}
    notes: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        # The largest tables first, so that the two threads end at about the same time.
        range_columns = pool.submit(_range_columns, source)
        operation_columns = [
            pool.submit(_operation_columns, source, k, described)
            for k in range(len(schema.OPERATIONS))
        ]
        calls = pool.submit(_calls, source, exclude=False)
        ranges = _ranges(source, range_columns.result(), names, notes)
        del range_columns
        operations = []
        for kind, future in enumerate(operation_columns):
            if (columns := future.result()) is not None:
                operations.append(_operations(source, kind, *columns, names, notes))
        launches = calls.result()
    return Capture(
        operations=operations,
        calls=launches,
        ranges=ranges,
        names=list(names),
        domain_names=_domain_names(source),
        nodes=_graph_nodes(source),
        facts=_facts(source),
        notes=notes,
        more_calls=lambda: _calls(source, exclude=True),
        grids=lambda starts: _grids(source, starts),
    )


# --- operations ---------------------------------------------------------------------------------


def _operation_columns(source: Source, kind: int, described: bool) -> tuple[Columns, int] | None:
    """The rows, each once, and how many repeated another."""
    table = source.recorded(schema.OPERATIONS[kind], ("start", "end"))
    if table is None:
        return None
    numbers = source.present(table, ("start", "end", "correlationId"))
    if source.find(schema.GRAPH_NODES, ()) is not None or source.string_ids((_GRAPH_LAUNCH,)):
        numbers += source.present(table, ("graphNodeId",))  # nothing else launches nodes
    coded = source.present(table, ("globalPid",))
    if described:
        coded += source.present(table, ("deviceId", "streamId"))
        coded += source.present(table, _LABELS[kind])[:1]
    return read_distinct(source, Query(table, numbers, coded))


def _operations(
    source: Source, kind: int, raw: Columns, repeats: int, names: Names, notes: list[str]
) -> Operations:
    if repeats:
        notes.append(repeats_note(repeats, KINDS[kind]))
    start, end = _times(raw["start"]), _times(raw["end"])
    bad = int(((start == NULL) | (end == NULL)).sum())
    backwards = (end < start) & (end != NULL)
    if backwards.any():
        end = np.where(backwards, NULL, end)
        bad += int(backwards.sum())
    if bad:
        notes.append(f"{bad} {KINDS[kind]} rows have no usable time; their duration is unknown")
    process, globals_ = _codes_of(raw, "globalPid")
    device, devices = _codes_of(raw, "deviceId")
    stream, streams = _codes_of(raw, "streamId")
    node = raw.data.get("graphNodeId")
    if node is not None and (node == NULL).all():
        node = None
    correlation = raw.data.get("correlationId")
    return Operations(
        kind=kind,
        start=start,
        end=end,
        correlation=np.full(raw.rows, NULL) if correlation is None else correlation,
        process=process,
        processes=[g if g == NULL else g >> schema.PROCESS_SHIFT for g in globals_],
        name=_labels(source, kind, raw, names),
        device=device,
        devices=devices,
        stream=stream,
        streams=streams,
        node=node,
    )


def _labels(source: Source, kind: int, raw: Columns, names: Names) -> Codes:
    column = next((c for c in raw.values if c in _LABELS[kind]), None)
    if column is None:
        return _name_codes(names, [_UNLABELLED[kind]], np.zeros(raw.rows, np.int8))
    values = raw.values[column]
    texts: list[str | None]
    if kind == KERNEL:
        texts = source.names(values)
    elif kind == COPY:
        texts = [f"[CUDA memcpy {schema.COPY_KINDS.get(k, 'Unknown')}]" for k in values]
    else:
        texts = ["[CUDA graph]" if g == NULL else f"[CUDA graph {g}]" for g in values]
    return _name_codes(names, texts, raw[column])


def _grids(source: Source, starts: Sequence[int]) -> Grids:
    """`Capture.grids`. Moments at which kernels of several grids start are left out."""
    columns = ("start", "gridX", "gridY", "gridZ")
    table = source.find(schema.KERNELS, columns)
    if table is None or not starts:
        return {}
    raw = source.read(Query(table, columns, where=Filter("start", tuple(starts))))
    every = {tuple(row) for row in zip(*(raw[c].tolist() for c in columns), strict=True)}
    several = Counter(row[0] for row in every)
    return {row[0]: row[1:] for row in every if several[row[0]] == 1 and NULL not in row}


# --- calls, graph nodes and versions ------------------------------------------------------------


def _calls(source: Source, *, exclude: bool) -> Calls:
    """Calls with a launch's name; with `exclude` the others."""
    empty = Calls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32), [])
    table = source.recorded(schema.RUNTIME, ("start", "correlationId", "globalTid"))
    if table is None:
        return empty
    where = None
    if "nameId" in source.tables[table]:
        launches = tuple(source.string_ids(schema.LAUNCHES))
        where = Filter("nameId", launches, exclude=exclude)
    elif exclude:
        return empty
    raw = source.read(Query(table, ("start", "correlationId"), ("globalTid",), where=where))
    start, correlation, thread = _times(raw["start"]), raw["correlationId"], raw["globalTid"]
    usable = (start != NULL) & (correlation != NULL)
    if not usable.all():
        start, correlation, thread = start[usable], correlation[usable], thread[usable]
    return Calls(start, correlation, thread, raw.values["globalTid"])


def _graph_nodes(source: Source) -> GraphNodes | None:
    needed = ("graphNodeId", "start", "globalTid")
    table = source.find(schema.GRAPH_NODES, needed)
    if table is None:
        return None
    raw = source.read(Query(table, source.present(table, (*needed, "originalGraphNodeId"))))
    original = raw.data.get("originalGraphNodeId", np.full(raw.rows, NULL))
    return GraphNodes(raw["graphNodeId"], original, _times(raw["start"]), raw["globalTid"])


def _facts(source: Source) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for table in schema.META:
        for key, value in source.pairs(table, "name", "value"):
            if str(key) in _VERSIONS and isinstance(value, str):
                facts[_VERSIONS[str(key)]] = value[:100]
    gpus = [str(n)[:200] for _, n in source.pairs("TARGET_INFO_GPU", "id", "name") if n]
    return {**facts, "gpus": gpus} if gpus else facts


# --- ranges -------------------------------------------------------------------------------------


def _range_columns(source: Source) -> tuple[Columns, int] | None:
    """The rows of ranges, each once, and how many repeated another; None without such a table."""
    table = source.recorded(schema.NVTX, ("start", "end", "globalTid", "eventType"))
    if table is None:
        return None
    wanted = ("globalTid", "eventType", "endGlobalTid", "textId", "domainId")
    coded = source.present(table, wanted)
    text = "text" if "text" in source.tables[table] and source.has_text(table, "text") else None
    where = Filter("eventType", schema.RANGES)
    return read_distinct(source, Query(table, ("start", "end"), coded, text, where))


def _ranges(
    source: Source, columns: tuple[Columns, int] | None, names: Names, notes: list[str]
) -> Ranges:
    """The ranges in `columns`. Those without a usable time or thread are left out and noted."""
    if columns is None:
        none, code = np.empty(0, np.int64), np.empty(0, np.int32)
        loose = np.empty(0, np.bool_)
        return Ranges(none, none, code, [], code, [], loose, code, [], code)
    raw, repeats = columns
    if repeats:
        notes.append(repeats_note(repeats, "range"))
    start, end = _times(raw["start"]), _times(raw["end"])
    thread, threads = _codes_of(raw, "globalTid")
    end_thread, end_threads = _codes_of(raw, "endGlobalTid")
    domain, domains = _codes_of(raw, "domainId")
    is_loose = np.asarray([e in schema.LOOSE for e in raw.values["eventType"]] or [False])
    loose = is_loose[raw["eventType"]]
    name = _range_names(source, raw, names)
    usable = start != NULL
    known = np.asarray([t != NULL for t in threads] or [False])[thread] if raw.rows else usable
    backwards = (end != NULL) & (end < start)
    keep = usable & known & ~backwards
    if not keep.all():
        notes.append(f"{int((~keep).sum())} ranges have no usable time or thread and hold nothing")
        start, end, thread, loose = start[keep], end[keep], thread[keep], loose[keep]
        end_thread, domain, name = end_thread[keep], domain[keep], name[keep]
    still_open = int((end == NULL).sum())
    if still_open:
        notes.append(f"{still_open} ranges were still open when the capture ended")
    return Ranges(
        start, end, thread, threads, end_thread, end_threads, loose, domain, domains, name
    )


def _domain_names(source: Source) -> dict[tuple[int, int], str]:
    """Names of the NVTX domains, by process key and domain id."""
    table = source.find(schema.NVTX, ("domainId", "globalTid", "eventType"))
    if table is None:
        return {}
    coded = source.present(table, ("textId",))
    text = "text" if "text" in source.tables[table] else None
    where = Filter("eventType", (schema.DOMAIN_CREATE,))
    raw = source.read(Query(table, ("domainId", "globalTid"), coded, text, where))
    names: Names = {}
    code = _range_names(source, raw, names)
    texts = list(names)
    return {
        (int(t) >> schema.PROCESS_SHIFT, int(d)): texts[c]
        for d, t, c in zip(raw["domainId"], raw["globalTid"], code, strict=True)
        if c >= 0 and NULL not in (d, t)
    }


def _range_names(source: Source, raw: Columns, names: Names) -> Codes:
    """The names of rows of NVTX: their own text, else the one that their id leads to."""
    code: Codes = np.full(raw.rows, -1, np.int8)
    if "textId" in raw.values:
        code = _name_codes(names, source.names(raw.values["textId"]), raw["textId"])
    if "text" in raw.values:
        own = _name_codes(names, raw.values["text"], raw["text"])
        code = np.where(own >= 0, own, code)
    return code


# --- names, times and absent columns ------------------------------------------------------------


def _name_codes(names: Names, texts: Sequence[str | None], codes: Codes) -> Codes:
    """A column that is coded into `texts` as codes into `names`, which grow; -1 without a text."""
    here = [-1 if text is None else names.setdefault(text, len(names)) for text in texts]
    narrow = np.min_scalar_type(-1 - max([0, *here]))
    mapped: Codes = np.asarray([*here, -1], narrow)[codes]
    return mapped


def _times(values: Integers) -> Integers:
    """Times, those out of any sensible bound as `NULL`."""
    if not len(values) or (values.min() > -_BOUND and values.max() < _BOUND):
        return values
    return np.where((values > -_BOUND) & (values < _BOUND), values, NULL)


def _codes_of(raw: Columns, column: str) -> tuple[Codes, list[int]]:
    """A coded column and its values; of an absent one, `NULL` in every row."""
    if column in raw.values:
        return raw[column], raw.values[column]
    return np.zeros(raw.rows, np.int8), [NULL]
