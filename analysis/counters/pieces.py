"""The pieces of a long ncu capture as one capture, and what a capture lacks.

`core/replay/pieces.py` says which pieces there are and whether they fit; here they are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa

from ...core.cli.progress import log
from ...core.documents import Ncu
from ...core.errors import CheckFailed, InputError, ToolMissing
from ...core.files import sha256
from ...core.kernel_names import function_name
from ...core.replay import pieces
from ...core.replay.pieces import Kernel, Manifest, Taken
from ...core.tables import with_columns
from ..readers import registry
from ..readers.base import Artefact
from ..readers.ncu import page, report
from ..rundir.files import optional
from ..rundir.problems import Problems
from . import representatives
from .representatives import size
from .units import base_unit

KIND = "ncu-pieces"
FOLDER = ".ncu.batches"
MANIFEST = "manifest.json"

_AGAIN = "copy the folder again, or capture again"
_FILE_AGAIN = "copy it again, or capture again"


def in_use(folder: Path) -> bool:
    """Whether a capture is the one in `folder`: not one in one piece beside it that is newer, and
    not one that was only begun."""
    if not folder.is_dir():
        return True
    stem, manifest = folder.name.removesuffix(FOLDER), folder / MANIFEST
    paths = [folder.with_name(stem + suffix) for suffix in (".ncu-rep", ".ncu.csv")]
    in_one = [p.stat().st_mtime_ns for p in paths if p.exists()]
    if manifest.is_file():
        return all(taken < manifest.stat().st_mtime_ns for taken in in_one)
    return not in_one and any(f.suffix in (".csv", ".ncu-rep") for f in folder.iterdir())


def read(folder: Path, problems: Problems | None = None) -> Artefact:
    """The pieces in `folder` as one capture: the tables `counters` and `launches`.

    Kernels that the manifest does not know (no report could be read where it was captured), or that
    come from a page whose report is not there, are held against the nsys capture's here.
    CheckFailed, InputError where pieces do not fit (`core.replay.pieces.check`); ToolMissing where
    they cannot be read here.
    """
    if not folder.is_dir():
        raise InputError("is no folder of pieces", file=folder, fix="remove it, and capture again")
    if not (folder / MANIFEST).is_file():
        raise CheckFailed("holds pieces and no manifest.json", file=folder, fix=_AGAIN)
    manifest = pieces.load(folder / MANIFEST)
    pieces.check(manifest, folder)
    _all_there(manifest, folder, problems)
    _changed(manifest, folder)
    taken = [t for t in manifest.taken if t.launches]
    artefacts = {t.file: _read(folder, t) for t in taken}
    pieces.check_sequences(_as_read(manifest, artefacts, folder), folder)
    counters = {file: artefact.tables["counters"] for file, artefact in artefacts.items()}
    launches = [
        _renumbered(artefacts[t.file].tables["launches"], t, folder.name)
        for t in taken
        if t.piece.part == 0
    ]
    tables = {
        "counters": recombine(manifest, counters, folder.name),
        "launches": pa.concat_tables(launches).sort_by("launch"),
    }
    notes = dict.fromkeys(note for artefact in artefacts.values() for note in artefact.notes)
    return Artefact(KIND, tables, {"pieces": len(taken)}, list(notes))


def _changed(manifest: Manifest, folder: Path) -> None:
    """Say which pages without their report are not as they were captured: they may have been
    scrubbed. CheckFailed where one is the page of another piece."""
    printed = {t.page_sha256 for t in manifest.taken if t.page_sha256}
    for t in manifest.taken:
        own = folder / t.page
        if not t.launches or not t.page_sha256 or (folder / t.file).is_file() or not own.is_file():
            continue
        if (digest := sha256(own)) != t.page_sha256:
            if digest in printed:
                raise CheckFailed("is the page of another piece", file=own, fix=_AGAIN)
            where = f"{folder.name}/{own.name}"
            log(f"{where} is not as it was captured; unless you scrubbed it, copy again")


def recombine(manifest: Manifest, tables: Mapping[str, pa.Table], source: str) -> pa.Table:
    """One `counters` table of the tables of all pieces, by their files' names in the manifest.

    `launch` becomes the launch's number in the whole, `pass` the part of the metrics it came
    from, `source` the name given. A metric that several parts have (ncu adds launch attributes to
    each) is taken from the first. Rows are in the order of launch, then of metrics as they came.
    `check` the manifest first. InputError where a table has other launches.
    """
    counted: set[tuple[int, str]] = set()
    parts = []
    for t in manifest.taken:  # part after part
        if not t.launches:
            continue
        rows = _renumbered(tables[t.file], t, source)
        rows = with_columns(rows, {"pass": pa.repeat(t.piece.part, len(rows))})
        keys = list(zip(rows["launch"].to_pylist(), rows["metric"].to_pylist(), strict=True))
        parts.append(rows.filter(pa.array([k not in counted for k in keys], pa.bool_())))
        counted.update(keys)
    order = [("launch", "ascending"), ("pass", "ascending")]
    return _comparable(pa.concat_tables(parts).sort_by(order))


def _renumbered(table: pa.Table, taken: Taken, source: str) -> pa.Table:
    """The rows of a piece by the launches' numbers in the whole."""
    numbers = sorted(set(table["launch"].to_pylist()))
    if len(numbers) != taken.launches:
        raise InputError(
            f"has {len(numbers)} launches, the manifest says {taken.launches}", file=taken.file
        )
    places = {number: taken.piece.skip + i for i, number in enumerate(numbers)}
    launch = [places[n] for n in table["launch"].to_pylist()]
    return with_columns(table, {"launch": launch, "source": pa.repeat(source, len(table))})


def _comparable(counters: pa.Table) -> pa.Table:
    """A metric in its base unit where pieces print it in several (Kbyte, Mbyte). InputError where
    these are of different dimensions."""
    units: dict[str, set[str]] = defaultdict(set)
    for row in counters.group_by(["metric", "unit"]).aggregate([]).to_pylist():
        if row["unit"]:
            units[row["metric"]].add(row["unit"])
    several = [metric for metric, of in units.items() if len(of) > 1]
    for metric in several:
        if len({base_unit(unit)[1] for unit in units[metric]}) > 1:
            listed = ", ".join(sorted(units[metric]))
            raise InputError(
                f"pieces give {metric} in units that cannot be compared ({listed})",
                fix="print the pages again: ncu --import REPORT --csv --page raw",
            )
    if not several:
        return counters
    rows = counters.select(["metric", "unit", "value"]).to_pylist()
    for row in rows:
        if row["metric"] in several:
            factor, row["unit"] = base_unit(row["unit"])
            row["value"] = None if row["value"] is None else row["value"] * factor
    return with_columns(counters, {c: [row[c] for row in rows] for c in ("unit", "value")})


def _all_there(manifest: Manifest, folder: Path, problems: Problems | None) -> None:
    """CheckFailed where the meta file beside the folder has a piece that the manifest lacks."""
    meta = optional(folder.with_suffix(".meta.json"), Ncu, problems) or Ncu()
    known = {t.piece.name for t in manifest.taken}
    for piece in meta.pieces or ():
        if piece.name is not None and piece.name not in known:
            raise CheckFailed(
                f"does not know piece {piece.name}, which was captured",
                file=folder / MANIFEST,
                fix=_AGAIN,
            )


def _read(folder: Path, taken: Taken) -> Artefact:
    """A piece: the report, else the page that ncu printed of it. InputError where it is not whole,
    or where numbers cannot be told: what other pieces print says nothing of these."""
    path, printed = folder / taken.file, folder / taken.page
    chosen = path if path.is_file() else printed
    try:
        artefact = registry.read(chosen)
    except ToolMissing:
        if not printed.is_file():
            raise
        chosen, artefact = printed, registry.read(printed)
    if (loss := missing(artefact, chosen)) is not None:
        raise loss
    if (held := len(artefact.tables["launches"])) != taken.launches:
        raise _fewer(chosen, held, taken.launches)
    if untold := artefact.facts.get(page.AMBIGUOUS):
        raise InputError(
            f"has {untold} numbers whose decimal sign or unit cannot be told",
            file=chosen,
            fix="copy it again, or print it again: ncu --import REPORT --csv --page raw",
        )
    return artefact


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


def missing(read: Artefact, capture: Path, problems: Problems | None = None) -> InputError | None:
    """What is to be said of a capture that lacks launches; None where nothing tells that it does.

    A meta file that cannot be read is as `rundir.files.optional` has it.
    """
    held, captured = len(read.tables["launches"]), _captured(capture, problems)
    if read.facts.get(page.CUT_SHORT):
        after = f" after {held} of {captured} launches" if captured and captured > held else ""
        return InputError(f"is cut short{after}", file=capture, fix=_FILE_AGAIN)
    if left := read.facts.get(page.LEFT_OUT):
        rows = "a row" if left == 1 else f"{left} rows"
        return InputError(f"has {rows} that cannot be read", file=capture, fix=_FILE_AGAIN)
    if captured is None or held >= captured:
        return None
    return _fewer(capture, held, captured)


def _captured(capture: Path, problems: Problems | None) -> int | None:
    """The launches of one report or its page by its meta file; None where that does not say, and
    where the capture has several reports."""
    stem = representatives.stem(capture)
    if stem is None:
        return None
    meta = optional(capture.with_name(f"{stem}.ncu.meta.json"), Ncu, problems) or Ncu()
    if meta.pieces is not None:  # `replayed` counts a launch once for each part of the metrics
        return meta.launches
    return None if len(meta.reports) > 1 else meta.replayed or meta.planned


def _fewer(capture: Path, held: int, captured: int) -> InputError:
    """The error of a capture with fewer launches than when it was taken, or with more."""
    return InputError(
        f"holds {held} launches, and {captured} were captured",
        file=capture,
        fix="is it whole? Copy it again, or capture again",
    )
