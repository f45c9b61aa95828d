"""The NVTX ranges of an nsys export, and the names of their domains."""

from __future__ import annotations

import numpy as np

from . import repeats as repeats_
from . import schema
from .codes import Names, codes_of, ids_in, present, times
from .columns import Ranges
from .source import NULL, Columns, Filter, Source


def columns(source: Source) -> tuple[Columns, int] | None:
    """The columns that hold ranges, each range once, and how many rows repeated another; null
    where the export has none."""
    table = schema.pick(source.tables, schema.NVTX)
    needed = ("start", "end", "globalTid", "eventType")
    if table is None or len(present(source, table, needed)) < len(needed):
        return None
    coded = present(source, table, ("globalTid", "eventType", "endGlobalTid", "textId", "domainId"))
    text = "text" if "text" in source.tables[table] and source.has_text(table, "text") else None
    where = Filter("eventType", schema.RANGES)
    return repeats_.read(source, table, ("start", "end"), coded, text, where)


def ranges(
    source: Source, found: tuple[Columns, int] | None, names: Names, notes: list[str]
) -> Ranges:
    """The ranges in `columns`. Those without a usable time or thread are left out and noted."""
    if found is None:
        none, code = np.empty(0, np.int64), np.empty(0, np.int32)
        loose = np.empty(0, np.bool_)
        return Ranges(none, none, code, [], code, [], loose, code, [], code)
    raw, repeats = found
    if repeats:
        notes.append(repeats_.told(repeats, "range"))
    n = raw.rows
    start, end = times(raw["start"]), times(raw["end"])
    thread, threads = codes_of(raw, "globalTid", n)
    end_thread, end_threads = codes_of(raw, "endGlobalTid", n)
    domain, domains = codes_of(raw, "domainId", n)
    is_loose = np.asarray([e in schema.LOOSE for e in raw.values["eventType"]] or [False])
    loose = is_loose[raw["eventType"]]
    name = np.full(n, -1, np.int8)
    if "textId" in raw.values:
        ids = raw.values["textId"]
        name = names.of_ids(raw["textId"], ids, source.strings(ids_in(ids)))
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


def domain_names(source: Source) -> dict[tuple[int, int], str]:
    """Names of the NVTX domains, by process key and domain id."""
    table = schema.pick(source.tables, schema.NVTX)
    if table is None or not {"domainId", "globalTid", "eventType"} <= set(source.tables[table]):
        return {}
    columns = source.tables[table]
    text = "text" if "text" in columns else None
    coded = present(source, table, ("textId",))
    where = Filter("eventType", (schema.DOMAIN_CREATE,))
    raw = source.read(table, ("domainId", "globalTid"), coded, text, where)
    names = Names()
    code = np.full(raw.rows, -1, np.int8)
    if coded:
        ids = raw.values["textId"]
        code = names.of_ids(raw["textId"], ids, source.strings(ids_in(ids)))
    if text:
        own = names.of_texts(raw["text"], raw.values["text"])
        code = np.where(own >= 0, own, code)
    return {
        (int(t) >> schema.PROCESS_SHIFT, int(d)): names.texts[c]
        for d, t, c in zip(raw["domainId"], raw["globalTid"], code, strict=True)
        if c >= 0 and NULL not in (d, t)
    }
