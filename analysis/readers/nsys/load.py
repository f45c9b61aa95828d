"""Reads an nsys export into arrays (`capture`): all that attribution needs."""

from __future__ import annotations

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
    Operations,
    Ranges,
)
from .source import (
    NULL,
    Codes,
    Columns,
    Filter,
    Integers,
    Source,
    read_distinct,
    repeats_note,
)

_BOUND = 1 << 60  # times beyond are damage: sums and differences of them would overflow

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
        raw_ranges = pool.submit(_range_columns, source)
        raw_operations = [
            pool.submit(_raw_operations, source, k, described) for k in range(len(_TABLES))
        ]
        calls = pool.submit(_calls, source, notes, exclude=False)
        ranges = _ranges(source, raw_ranges.result(), names, notes)
        del raw_ranges
        operations = []
        for kind, future in enumerate(raw_operations):
            found = future.result()
            if found is None:
                continue
            raw, repeats = found
            if repeats:
                notes.append(repeats_note(repeats, KINDS[kind]))
            operations.append(_operations(source, kind, raw, names, notes))
        launched = calls.result()
    return Capture(
        operations=operations,
        calls=launched,
        ranges=ranges,
        names=names.texts,
        domain_names=_domain_names(source),
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
    plain = _present(source, table, ("start", "end", "correlationId"))
    if schema.pick(source.tables, schema.GRAPH_NODES) is not None:
        plain += _present(source, table, ("graphNodeId",))  # of use only with the nodes' origins
    coded = _present(source, table, ("globalPid",))
    if not described:
        return read_distinct(source, table, plain, coded)
    coded += _present(source, table, ("deviceId", "streamId"))
    label = {
        KERNEL: ("demangledName", "shortName", "mangledName"),
        COPY: ("copyKind",),
        SET: (),
        GRAPH: ("graphExecId", "graphId"),
    }[kind]
    coded += _present(source, table, label)[:1]
    return read_distinct(source, table, plain, coded)


def _operations(
    source: Source, kind: int, raw: Columns, names: Names, notes: list[str]
) -> Operations:
    n = raw.rows
    start, end = _times(raw["start"]), _times(raw["end"])
    bad = int(((start == NULL) | (end == NULL)).sum())
    backwards = (end < start) & (end != NULL)
    if backwards.any():
        end = np.where(backwards, NULL, end)
        bad += int(backwards.sum())
    if bad:
        notes.append(f"{bad} {KINDS[kind]} rows have no usable time; their duration is unknown")
    process, globals_ = _codes_of(raw, "globalPid", n)
    device, devices = _codes_of(raw, "deviceId", n)
    stream, streams = _codes_of(raw, "streamId", n)
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
        return names.of_ids(raw[column], ids, source.strings(_ids_in(ids)))
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
    if table is None or len(_present(source, table, needed)) < len(needed):
        return empty
    where = None
    if "nameId" in source.tables[table]:
        launches = tuple(source.string_ids(schema.LAUNCHES))
        where = Filter("nameId", launches, exclude=exclude)
    elif exclude:
        return empty
    raw = source.read(table, ("start", "correlationId"), ("globalTid",), where=where)
    start, correlation, thread = _times(raw["start"]), raw["correlationId"], raw["globalTid"]
    usable = (start != NULL) & (correlation != NULL)
    if not usable.all():
        start, correlation, thread = start[usable], correlation[usable], thread[usable]
    return Calls(start, correlation, thread, raw.values["globalTid"])


def _graph_nodes(source: Source) -> GraphNodes | None:
    table = schema.pick(source.tables, schema.GRAPH_NODES)
    wanted = ("graphNodeId", "start", "globalTid", "originalGraphNodeId")
    if table is None or len(_present(source, table, wanted[:3])) < 3:
        return None
    raw = source.read(table, _present(source, table, wanted))
    original = raw.data.get("originalGraphNodeId", np.full(raw.rows, NULL))
    return GraphNodes(raw["graphNodeId"], original, _times(raw["start"]), raw["globalTid"])


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


# --- ranges ---------------------------------------------------------------------------------------


def _range_columns(source: Source) -> tuple[Columns, int] | None:
    """The columns that hold ranges, each range once, and how many rows repeated another; null
    where the export has none."""
    table = schema.pick(source.tables, schema.NVTX)
    needed = ("start", "end", "globalTid", "eventType")
    if table is None or len(_present(source, table, needed)) < len(needed):
        return None
    coded = _present(
        source, table, ("globalTid", "eventType", "endGlobalTid", "textId", "domainId")
    )
    text = "text" if "text" in source.tables[table] and source.has_text(table, "text") else None
    where = Filter("eventType", schema.RANGES)
    return read_distinct(source, table, ("start", "end"), coded, text, where)


def _ranges(
    source: Source, found: tuple[Columns, int] | None, names: Names, notes: list[str]
) -> Ranges:
    """The ranges in `columns`. Those without a usable time or thread are left out and noted."""
    if found is None:
        none, code = np.empty(0, np.int64), np.empty(0, np.int32)
        loose = np.empty(0, np.bool_)
        return Ranges(none, none, code, [], code, [], loose, code, [], code)
    raw, repeats = found
    if repeats:
        notes.append(repeats_note(repeats, "range"))
    n = raw.rows
    start, end = _times(raw["start"]), _times(raw["end"])
    thread, threads = _codes_of(raw, "globalTid", n)
    end_thread, end_threads = _codes_of(raw, "endGlobalTid", n)
    domain, domains = _codes_of(raw, "domainId", n)
    is_loose = np.asarray([e in schema.LOOSE for e in raw.values["eventType"]] or [False])
    loose = is_loose[raw["eventType"]]
    name = np.full(n, -1, np.int8)
    if "textId" in raw.values:
        ids = raw.values["textId"]
        name = names.of_ids(raw["textId"], ids, source.strings(_ids_in(ids)))
    if "text" in raw.values:
        own = names.of_texts(raw["text"], raw.values["text"])
        name = np.where(own >= 0, own, name)
    usable = start != NULL
    known = np.asarray([t != NULL for t in threads] or [False])[thread] if n else usable
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
    table = schema.pick(source.tables, schema.NVTX)
    if table is None or not {"domainId", "globalTid", "eventType"} <= set(source.tables[table]):
        return {}
    columns = source.tables[table]
    text = "text" if "text" in columns else None
    coded = _present(source, table, ("textId",))
    where = Filter("eventType", (schema.DOMAIN_CREATE,))
    raw = source.read(table, ("domainId", "globalTid"), coded, text, where)
    names = Names()
    code = np.full(raw.rows, -1, np.int8)
    if coded:
        ids = raw.values["textId"]
        code = names.of_ids(raw["textId"], ids, source.strings(_ids_in(ids)))
    if text:
        own = names.of_texts(raw["text"], raw.values["text"])
        code = np.where(own >= 0, own, code)
    return {
        (int(t) >> schema.PROCESS_SHIFT, int(d)): names.texts[c]
        for d, t, c in zip(raw["domainId"], raw["globalTid"], code, strict=True)
        if c >= 0 and NULL not in (d, t)
    }


# --- names, times and absent columns --------------------------------------------------------------


class Names:
    """Codes for names that come as ids into StringIds, or as text."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        """The code of a text."""
        found = self._codes.get(text)
        if found is None:
            found = self._codes[text] = len(self.texts)
            self.texts.append(text)
        return found

    def of_ids(self, codes: Codes, ids: list[Any], strings: dict[int, str]) -> Codes:
        """Codes of names for a column of coded ids (or names): -1 where an id has no name."""
        known = {i: i if isinstance(i, str) else strings.get(i) for i in ids}
        return self._mapped(
            [-1 if known[i] is None else self.code(known[i] or "") for i in ids], codes
        )

    def of_texts(self, codes: Codes, texts: list[Any]) -> Codes:
        """Codes of names for a column of coded texts."""
        return self._mapped([self.code(t) for t in texts], codes)

    @staticmethod
    def _mapped(to: list[int], codes: Codes) -> Codes:
        narrow = np.min_scalar_type(-1 - max([0, *to]))
        mapped: Codes = np.asarray([*to, -1], narrow)[codes]
        return mapped


def _present(source: Source, table: str, wanted: tuple[str, ...]) -> list[str]:
    """Those of the wanted columns that the table has."""
    columns = source.tables[table]
    return [c for c in wanted if c in columns]


def _ids_in(values: list[Any]) -> set[int]:
    """The ids among values that may be names or unknown."""
    return {v for v in values if isinstance(v, int) and v != NULL}


def _times(values: Integers) -> Integers:
    """Times, those out of any sensible bound as `NULL`."""
    if not len(values) or (values.min() > -_BOUND and values.max() < _BOUND):
        return values
    return np.where((values > -_BOUND) & (values < _BOUND), values, NULL)


def _codes_of(raw: Columns, column: str, rows: int) -> tuple[Codes, list[int]]:
    """A coded column and its values; of an absent one, `NULL` in every row."""
    if column in raw.values:
        return raw[column], raw.values[column]
    return np.zeros(rows, np.int8), [NULL]
