"""The pieces of a long ncu capture as one table, and as the raw page that ncu would print.

`core/replay/pieces.py` says which pieces there are and whether they fit; here they are read.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from ...core.cli.progress import log
from ...core.errors import CheckFailed, InputError, ToolMissing
from ...core.files import sha256, write_text
from ...core.kernel_names import function_name
from ...core.replay import pieces
from ...core.replay.pieces import Kernel, Manifest, Taken
from ..readers import registry
from ..readers.base import Artefact
from ..readers.ncu import page, report
from ..readers.ncu.tables import KERNEL
from ..rundir.files import optional
from . import representatives
from .representatives import size
from .units import base_unit

MANIFEST = "manifest.json"

_AGAIN = "copy the folder again, or capture again"

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
    manifest = pieces.load(folder / MANIFEST)
    pieces.check(manifest, folder)
    _all_there(manifest, folder)
    printed = {t.page_sha256 for t in manifest.taken if t.page_sha256}
    for other in pieces.changed(manifest, folder):
        if sha256(other) in printed:
            raise CheckFailed("is the page of another piece", file=other, fix=_AGAIN)
        where = f"{folder.name}/{other.name}"
        log(f"{where} is not as it was captured; unless you scrubbed it, copy again")
    read = {t.file: _read(folder, t) for t in manifest.taken if t.launches}
    pieces.check_sequences(_as_read(manifest, read, folder), folder)
    tables = {file: found.tables["counters"] for file, found in read.items()}
    whole = pieces.recombine(manifest, tables, output.name)
    launches = []
    for t in manifest.taken:
        if t.piece.part == 0 and t.launches:
            rows = read[t.file].tables["launches"].sort_by("launch").to_pylist()
            launches += [{**row, "launch": t.piece.skip + i} for i, row in enumerate(rows)]
    write_text(output, raw_page(whole, launches))
    return {"launches": len(launches), "metrics": len(set(whole["metric"].to_pylist()))}


def due(folder: Path, output: Path) -> bool:
    """Whether the pieces in `folder` are to be put together: there is no `output`, or it is older
    than the manifest (a newer capture was copied over the folder).

    CheckFailed where there are pieces without a manifest, which alone says what they are.
    InputError where the folder is none.
    """
    if not folder.is_dir():
        raise InputError("is no folder of pieces", file=folder, fix="remove it, and capture again")
    manifest = folder / MANIFEST
    if not manifest.is_file():
        if output.exists() or not any(f.suffix in (".csv", ".ncu-rep") for f in folder.iterdir()):
            return False
        raise CheckFailed("holds pieces and no manifest.json", file=folder, fix=_AGAIN)
    return not output.exists() or output.stat().st_mtime_ns < manifest.stat().st_mtime_ns


def _all_there(manifest: Manifest, folder: Path) -> None:
    """CheckFailed where the meta file beside the folder has a piece that the manifest lacks."""
    told = optional(folder.with_suffix(".meta.json")).get("pieces")
    known = {t.piece.name for t in manifest.taken}
    for one in told if isinstance(told, list) else []:
        name = one.get("name") if isinstance(one, dict) else None
        if name is not None and name not in known:
            raise CheckFailed(
                f"does not know piece {name}, which was captured",
                file=folder / MANIFEST,
                fix=_AGAIN,
            )


def _read(folder: Path, taken: Taken) -> Artefact:
    """A piece: the report, else the page that ncu printed of it. InputError where it is not whole,
    or where numbers cannot be told: what other pieces print says nothing of these."""
    path, printed = folder / taken.file, folder / taken.page
    chosen = path if path.is_file() else printed
    try:
        found = registry.read(chosen)
    except ToolMissing:
        if not printed.is_file():
            raise
        chosen, found = printed, registry.read(printed)
    if (lost := missing(found, chosen)) is not None:
        raise lost
    if (held := len(found.tables["launches"])) != taken.launches:
        raise fewer(chosen, held, taken.launches)
    if untold := found.facts.get(page.UNTOLD):
        raise InputError(
            f"has {untold} numbers whose decimal sign or unit cannot be told",
            file=chosen,
            fix="copy it again, or print it again: ncu --import REPORT --csv --page raw",
        )
    return found


def _as_read(manifest: Manifest, read: Mapping[str, Artefact], folder: Path) -> Manifest:
    """The manifest with the kernels that the pages hold, all of them by the function's name.

    CheckFailed where a page has other kernels than its report had.
    """
    taken = []
    for t in manifest.taken:
        kernels = [_bare(k) for k in t.kernels] if t.kernels is not None else None
        if t.launches and (kernels is None or read[t.file].kind != report.KIND):
            rows = read[t.file].tables["launches"].sort_by("launch").to_pylist()
            printed = [_bare((r["kernel"], size(r["grid"]), size(r["block"]))) for r in rows]
            if kernels is not None and printed != kernels:
                raise CheckFailed(
                    "has other kernels than the report that it was printed of",
                    file=folder / t.page,
                    fix=_AGAIN,
                )
            kernels = printed
        taken.append(msgspec.structs.replace(t, kernels=kernels))
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
            raise InputError(
                f"pieces give {metric} in units that cannot be compared ({said})",
                fix="print the pages again: ncu --import REPORT --csv --page raw",
            )
        units[metric] = next(iter(of), None) if len(of) < 2 else base.pop()
    return units


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _columns(launch: dict[str, Any]) -> list[Any]:
    domains = launch["range_domains"] or []
    ranges = launch["ranges"] or []
    push_pop = "  ".join(
        f'"{_domain(d)}:{n}{_PAYLOAD}{n}"' for d, n in zip(domains, ranges, strict=True)
    )
    start_end = "  ".join(
        f'"<default domain>:{n}{_PAYLOAD}{n}"' for n in launch["start_end_ranges"] or []
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
        launch["stream"] or 0 if launch.get("workload") in (KERNEL, None) else "n/a",
        launch["block"],
        launch["grid"],
        launch["device"] or 0,
        launch["compute_capability"] or "",
    ]


# The message says where a name ends that holds a colon.
_PAYLOAD = ":none:none:none:none:ASCII:"


def _domain(name: str | None) -> str:
    return name or "<default domain>"


AGAIN = "copy it again, or capture again"


def captured(meta: Mapping[str, Any]) -> int | None:
    """The launches that all reports of a capture hold, by its meta file; null where that does not
    say."""
    # Of pieces, `replayed` counts a launch once for each part of the metrics.
    of = meta.get("launches") if "pieces" in meta else meta.get("replayed") or meta.get("planned")
    return of if isinstance(of, int) and not isinstance(of, bool) else None


def captured_in(capture: Path) -> int | None:
    """As `captured`, for one report or its page; null where the capture has several reports."""
    stem = representatives.stem(capture)
    if stem is None:
        return None
    meta = optional(capture.with_name(f"{stem}.ncu.meta.json"))
    several = "pieces" not in meta and len(meta.get("reports") or ()) > 1
    return None if several else captured(meta)


def missing(read: Artefact, capture: Path) -> InputError | None:
    """What is to be said of a capture that lacks launches; null where nothing tells that it does.

    Errors of a meta file that cannot be read are as `run_files.optional` has them.
    """
    held, told = len(read.tables["launches"]), captured_in(capture)
    if read.facts.get(page.CUT_SHORT):
        after = f" after {held} of {told} launches" if told is not None and told > held else ""
        return InputError(f"is cut short{after}", file=capture, fix=AGAIN)
    if left := read.facts.get(page.LEFT_OUT):
        rows = "a row" if left == 1 else f"{left} rows"
        return InputError(f"has {rows} that cannot be read", file=capture, fix=AGAIN)
    if told is None or held >= told:
        return None
    return fewer(capture, held, told)


def fewer(capture: Path, held: int, told: int) -> InputError:
    """The error of a capture with fewer launches than when it was taken, or with more."""
    return InputError(
        f"holds {held} launches, and {told} were captured",
        file=capture,
        fix=f"is it whole? {AGAIN[0].upper()}{AGAIN[1:]}",
    )
