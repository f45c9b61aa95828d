"""Real counters cut into the pieces that several runs of ncu would leave."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import paths
import pyarrow as pa
import pyarrow.compute as pc

from layerline.core.files import sha256, write_json
from layerline.core.replay import pieces as pieces_
from layerline.core.replay.pieces import DONE, Cut, Manifest, Piece, Taken
from layerline.core.tables import read_parquet

REAL = paths.DATA / "ncu" / "h100_tiny.counters.parquet"
TOTAL = 84


def real() -> pa.Table:
    return read_parquet(REAL, "counters").sort_by("launch")


def kernels(counters: pa.Table) -> list[pieces_.Kernel]:
    names = dict(zip(counters["launch"].to_pylist(), counters["kernel"].to_pylist(), strict=True))
    return [(names[n], None, None) for n in sorted(names)]


def cut(folder: Path, pieces: int) -> tuple[Manifest, dict[str, pa.Table]]:
    """The real table in pieces, as files whose names are in the wrong order."""
    whole, size = real(), -(-TOTAL // pieces)
    manifest, tables = Manifest("key", Cut(size, None), kernels(whole)), {}
    for skip in range(0, TOTAL, size):
        inside = pc.and_(
            pc.greater_equal(whole["launch"], skip), pc.less(whole["launch"], skip + size)
        )
        own = whole.filter(inside)
        sequence = kernels(own)
        at = own.column_names.index("launch")
        own = own.set_column(at, "launch", pc.subtract(own["launch"], skip))
        path = folder / f"{TOTAL - skip:02}-0.ncu-rep"
        path.write_text(str(skip))
        tables[path.name] = own
        piece = Piece(skip, size, 0)
        digest = sha256(path)
        manifest.put(Taken(piece, DONE, "key", path.name, digest, len(sequence), sequence))
    return manifest, tables


def raw_page(counters: pa.Table, launches: list[dict[str, Any]]) -> str:
    """Counters in the form of ``ncu --csv --page raw``: a header, units, a row a launch."""
    rows = counters.select(["launch", "metric", "unit", "value", "text"]).to_pylist()
    cells = {
        (r["launch"], r["metric"]): r["text"] or "" if r["value"] is None else repr(r["value"])
        for r in rows
    }
    units = {r["metric"]: r["unit"] or "" for r in rows}
    head = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
            "Block Size", "Grid Size", "Device", "CC"]  # fmt: skip
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([*head, *units])
    writer.writerow(["" for _ in head] + list(units.values()))
    for x in launches:
        about = [x["launch"], 0, "p", "", x["kernel"], 1, x.get("stream", 7), x["block"], x["grid"]]
        writer.writerow([*about, 0, "9.0", *(cells.get((x["launch"], m), "") for m in units)])
    return text.getvalue()


def pages(folder: Path, pieces: int) -> Manifest:
    """The pieces as the pages that ncu printed of them, their reports left behind."""
    manifest, tables = cut(folder, pieces)
    for t in manifest.taken:
        rows = tables[t.file].group_by(["launch", "kernel"]).aggregate([]).to_pylist()
        launches = [{**row, "block": "(1, 1, 1)", "grid": "(2, 1, 1)"} for row in rows]
        (folder / t.page).write_text(raw_page(tables[t.file], launches))
        (folder / t.file).unlink()
        t.page_sha256 = sha256(folder / t.page)
        t.kernels = None  # no report could be read where it was captured
    names = dict(zip(real()["launch"].to_pylist(), real()["kernel"].to_pylist(), strict=True))
    manifest.expected = [(names[n], (2, 1, 1), (1, 1, 1)) for n in sorted(names)]
    write_json(folder / "manifest.json", pieces_.as_json(manifest))
    return manifest
