"""The pieces of a long ncu capture as one table, and as the raw page that ncu would print.

`profile/ncu_batches.py` says which pieces there are and whether they fit; here they are read.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..core.errors import InputError, ToolMissing
from ..core.files import write_text
from ..core.progress import log
from ..profile import ncu_batches
from ..profile.ncu_batches import Kernel, Manifest
from .counters import function_name
from .counters_rules import base_unit
from .ncu_spread import size
from .readers import ncu_rep, registry
from .readers.base import Artefact

_LAUNCH = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",
    "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
)


def combine(folder: Path, output: Path) -> dict[str, Any]:
    """Check and recombine the pieces in `folder`; writes the raw page to `output`; gives facts.

    Kernels that the manifest does not know (no report could be read where it was captured), or that
    come from a page whose report is not there, are held against the nsys capture's here.
    CheckFailed, InputError where pieces do not fit (`ncu_batches.check`); ToolMissing where they
    cannot be read here.
    """
    manifest = ncu_batches.load(folder / "manifest.json")
    ncu_batches.check(manifest, folder)
    for page in ncu_batches.changed(manifest, folder):
        where = f"{folder.name}/{page.name}"
        log(f"{where} is not as it was captured; unless you scrubbed it, copy again")
    read = {t.file: _read(folder / t.file) for t in manifest.taken if t.launches}
    ncu_batches.check_sequences(_as_read(manifest, read), folder)
    tables = {file: found.tables["counters"] for file, found in read.items()}
    whole = ncu_batches.recombine(manifest, tables, output.name)
    launches = []
    for t in manifest.taken:
        if t.piece.part == 0 and t.launches:
            rows = read[t.file].tables["launches"].sort_by("launch").to_pylist()
            launches += [{**row, "launch": t.piece.skip + i} for i, row in enumerate(rows)]
    write_text(output, raw_page(whole, launches))
    return {"launches": len(launches), "metrics": len(set(whole["metric"].to_pylist()))}


def _read(path: Path) -> Artefact:
    """A piece: the report, else the page that ncu printed of it."""
    page = path.with_suffix(".csv")
    try:
        return registry.read(path if path.exists() else page)
    except ToolMissing:
        if not page.exists():
            raise
        return registry.read(page)


def _as_read(manifest: Manifest, read: Mapping[str, Artefact]) -> Manifest:
    """The manifest with the kernels that the pages hold, all of them by the function's name."""
    taken = []
    for t in manifest.taken:
        kernels = [_bare(k) for k in t.kernels] if t.kernels is not None else None
        if t.launches and (kernels is None or read[t.file].kind != ncu_rep.KIND):
            rows = read[t.file].tables["launches"].sort_by("launch").to_pylist()
            kernels = [_bare((r["kernel"], size(r["grid"]), size(r["block"]))) for r in rows]
        taken.append(replace(t, kernels=kernels))
    expected = manifest.expected
    return replace(
        manifest, taken=taken, expected=None if expected is None else [_bare(k) for k in expected]
    )


def _bare(kernel: Kernel) -> Kernel:
    function, grid, block = kernel
    return (function_name(function), grid, block)


def raw_page(counters: pa.Table, launches: list[dict[str, Any]]) -> str:
    """Counters in the form of ``ncu --csv --page raw``: a header, a row of units, a row a launch.

    `launches`: rows of the readers' table `launches` with the numbers that `counters` has. Values
    have all their digits and no separators of thousands. What is not known is empty; the process
    and the device, which the form needs, are 0 then.
    """
    values: dict[int, dict[str, str]] = {}
    rows = counters.select(["launch", "metric", "unit", "value", "text"]).to_pylist()
    units = _units(rows)
    for row in rows:
        text = row["text"]
        if row["value"] is not None:
            other = row["unit"] is not None and row["unit"] != units[row["metric"]]
            factor = base_unit(row["unit"])[0] if other else 1.0
            text = _number(row["value"] * factor)
        values.setdefault(row["launch"], {})[row["metric"]] = text or ""
    metrics = sorted(units)
    made = io.StringIO()
    writer = csv.writer(made, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([*_LAUNCH, *metrics])
    writer.writerow([*("" for _ in _LAUNCH), *(units[m] or "" for m in metrics)])
    for launch in launches:
        own = values.get(launch["launch"], {})
        writer.writerow([*_columns(launch), *(own.get(m, "") for m in metrics)])
    return made.getvalue()


def _units(rows: list[dict[str, Any]]) -> dict[str, str | None]:
    """The unit of each metric's column: the one that all its rows have, else their base unit
    (pages of two pieces may have other multiples, Kbyte and Mbyte)."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        of = found.setdefault(row["metric"], {})
        if row["unit"]:
            of[row["unit"]] = None
    units: dict[str, str | None] = {}
    for metric, of in found.items():
        base = {base_unit(u)[1] for u in of}
        if len(base) > 1:
            said = ", ".join(of)
            raise InputError(f"pieces give {metric} in units that cannot be compared ({said})")
        units[metric] = next(iter(of), None) if len(of) < 2 else base.pop()
    return units


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _columns(launch: dict[str, Any]) -> list[Any]:
    domains = launch["range_domains"] or []
    ranges = launch["ranges"] or []
    push_pop = "  ".join(
        f'"{_domain(d)}:{n}{_PAYLOAD}"' for d, n in zip(domains, ranges, strict=True)
    )
    start_end = "  ".join(
        f'"<default domain>:{n}{_PAYLOAD}"' for n in launch["start_end_ranges"] or []
    )
    return [
        launch["launch"],
        launch["process"] or 0,
        launch["process_name"] or "",
        "",
        f"0  {push_pop} " if push_pop else "",
        f"0  {start_end} " if start_end else "",
        launch["kernel"],
        launch["context"] or 0,
        launch["stream"] or 0,
        launch["block"],
        launch["grid"],
        launch["device"] or 0,
        launch["compute_capability"] or "",
    ]


_PAYLOAD = ":none:none:none:none:none:none"


def _domain(name: str | None) -> str:
    return name or "<default domain>"
