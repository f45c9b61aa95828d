"""Real counters cut into the pieces that several runs of ncu would leave."""

from __future__ import annotations

from pathlib import Path

import paths
import pyarrow as pa
import pyarrow.compute as pc

from layerline.analysis.counters import pieces as pieces__
from layerline.analysis.readers.ncu.tables import LAUNCHES
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


def pages(folder: Path, pieces: int) -> Manifest:
    """The pieces as the pages that ncu printed of them, their reports left behind."""
    manifest, tables = cut(folder, pieces)
    for t in manifest.taken:
        rows = tables[t.file].group_by(["launch", "kernel"]).aggregate([]).to_pylist()
        nothing = dict.fromkeys(LAUNCHES.names)
        launches = [{**nothing, **row, "block": "(1, 1, 1)", "grid": "(2, 1, 1)"} for row in rows]
        (folder / t.page).write_text(pieces__.raw_page(tables[t.file], launches))
        (folder / t.file).unlink()
        t.page_sha256 = sha256(folder / t.page)
        t.kernels = None  # no report could be read where it was captured
    names = dict(zip(real()["launch"].to_pylist(), real()["kernel"].to_pylist(), strict=True))
    manifest.expected = [(names[n], (2, 1, 1), (1, 1, 1)) for n in sorted(names)]
    write_json(folder / "manifest.json", pieces_.as_json(manifest))
    return manifest
