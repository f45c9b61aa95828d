"""Reads an nsys export into arrays (`nsys_arrays`): all that attribution needs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from . import ranges as ranges_
from . import repeats as repeats_
from . import schema
from .codes import Names, codes_of, ids_in, present, times
from .columns import COPY, GRAPH, KERNEL, KINDS, SET, Calls, Capture, GraphNodes, Operations
from .source import NULL, Codes, Columns, Filter, Source

_TABLES = (schema.KERNELS, schema.MEMCPY, schema.MEMSET, schema.GRAPHS)


def load(source: Source, *, described: bool = True) -> Capture:
    """Read everything that attribution needs. Unusable rows are left out and noted.

    Without `described` the operations have no name, device and stream (-1, unknown), which takes
    a third of the time off large captures.
    """
    names = Names()
    notes: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        # The largest tables first, so that the two threads end at about the same time.
        raw_ranges = pool.submit(ranges_.columns, source)
        raw_operations = [
            pool.submit(_raw_operations, source, k, described) for k in range(len(_TABLES))
        ]
        calls = pool.submit(_calls, source, notes, exclude=False)
        ranges = ranges_.ranges(source, raw_ranges.result(), names, notes)
        del raw_ranges
        operations = []
        for kind, future in enumerate(raw_operations):
            found = future.result()
            if found is None:
                continue
            raw, repeats = found
            if repeats:
                notes.append(repeats_.told(repeats, KINDS[kind]))
            operations.append(_operations(source, kind, raw, names, notes))
        launched = calls.result()
    return Capture(
        operations=operations,
        calls=launched,
        ranges=ranges,
        names=names.texts,
        domain_names=ranges_.domain_names(source),
        nodes=_graph_nodes(source),
        facts=_facts(source),
        notes=notes,
        more_calls=lambda: _calls(source, notes, exclude=True),
    )


# --- operations ---------------------------------------------------------------------------------


def _raw_operations(source: Source, kind: int, described: bool) -> tuple[Columns, int] | None:
    """The rows, each once, and how many repeated another."""
    table = schema.pick(source.tables, _TABLES[kind])
    if table is None or not {"start", "end"} <= set(source.tables[table]):
        return None
    plain = present(source, table, ("start", "end", "correlationId"))
    if schema.pick(source.tables, schema.GRAPH_NODES) is not None:
        plain += present(source, table, ("graphNodeId",))  # of use only with the nodes' origins
    coded = present(source, table, ("globalPid",))
    if not described:
        return repeats_.read(source, table, plain, coded)
    coded += present(source, table, ("deviceId", "streamId"))
    label = {
        KERNEL: ("demangledName", "shortName", "mangledName"),
        COPY: ("copyKind",),
        SET: (),
        GRAPH: ("graphExecId", "graphId"),
    }[kind]
    coded += present(source, table, label)[:1]
    return repeats_.read(source, table, plain, coded)


def _operations(
    source: Source, kind: int, raw: Columns, names: Names, notes: list[str]
) -> Operations:
    n = raw.rows
    start, end = times(raw["start"]), times(raw["end"])
    bad = int(((start == NULL) | (end == NULL)).sum())
    backwards = (end < start) & (end != NULL)
    if backwards.any():
        end = np.where(backwards, NULL, end)
        bad += int(backwards.sum())
    if bad:
        notes.append(f"{bad} {KINDS[kind]} rows have no usable time; their duration is unknown")
    process, globals_ = codes_of(raw, "globalPid", n)
    device, devices = codes_of(raw, "deviceId", n)
    stream, streams = codes_of(raw, "streamId", n)
    node = raw.data.get("graphNodeId")
    if node is not None and (node == NULL).all():
        node = None
    correlation = raw.data.get("correlationId")
    return Operations(
        kind=kind,
        start=start,
        end=end,
        correlation=np.full(n, NULL) if correlation is None else correlation,
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
    if kind == KERNEL:
        column = next((c for c in raw.values if c.endswith("Name")), None)
        if column is None:
            return np.full(raw.rows, -1, np.int8)
        ids = raw.values[column]
        return names.of_ids(raw[column], ids, source.strings(ids_in(ids)))
    if kind == COPY and "copyKind" in raw.values:
        kinds = raw.values["copyKind"]
        texts = [f"[CUDA memcpy {schema.COPY_KINDS.get(k, 'Unknown')}]" for k in kinds]
        return names.of_texts(raw["copyKind"], texts)
    if kind == GRAPH:
        column = next((c for c in ("graphExecId", "graphId") if c in raw.values), None)
        if column is not None:
            texts = [
                "[CUDA graph]" if g == NULL else f"[CUDA graph {g}]" for g in raw.values[column]
            ]
            return names.of_texts(raw[column], texts)
    text = {COPY: "[CUDA memcpy Unknown]", SET: "[CUDA memset]", GRAPH: "[CUDA graph]"}[kind]
    return np.full(raw.rows, names.code(text), np.int32)


# --- calls --------------------------------------------------------------------------------------


def _calls(source: Source, notes: list[str], *, exclude: bool) -> Calls:
    """Calls with a launch's name; with `exclude` the others."""
    empty = Calls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32), [])
    table = schema.pick(source.tables, schema.RUNTIME)
    needed = ("start", "correlationId", "globalTid")
    if table is None or len(present(source, table, needed)) < len(needed):
        return empty
    where = None
    if "nameId" in source.tables[table]:
        launches = tuple(source.string_ids(schema.LAUNCHES))
        where = Filter("nameId", launches, exclude=exclude)
    elif exclude:
        return empty
    raw = source.read(table, ("start", "correlationId"), ("globalTid",), where=where)
    start, correlation, thread = times(raw["start"]), raw["correlationId"], raw["globalTid"]
    usable = (start != NULL) & (correlation != NULL)
    if not usable.all():
        start, correlation, thread = start[usable], correlation[usable], thread[usable]
    return Calls(start, correlation, thread, raw.values["globalTid"])


def _graph_nodes(source: Source) -> GraphNodes | None:
    table = schema.pick(source.tables, schema.GRAPH_NODES)
    wanted = ("graphNodeId", "start", "globalTid", "originalGraphNodeId")
    if table is None or len(present(source, table, wanted[:3])) < 3:
        return None
    raw = source.read(table, present(source, table, wanted))
    original = raw.data.get("originalGraphNodeId", np.full(raw.rows, NULL))
    return GraphNodes(raw["graphNodeId"], original, times(raw["start"]), raw["globalTid"])


def _facts(source: Source) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for table in schema.META:
        for key, value in source.pairs(table, "name", "value"):
            known = {
                "EXPORT_PRODUCT_VERSION": "nsys_version",
                "EXPORT_SCHEMA_VERSION": "schema_version",
            }.get(str(key))
            if known and isinstance(value, str):
                facts[known] = value[:100]
    gpus = [str(n)[:200] for _, n in source.pairs("TARGET_INFO_GPU", "id", "name") if n]
    if gpus:
        facts["gpus"] = gpus
    return facts
