"""A long ncu capture in pieces, each a run of the program; restarted, resumed, checked.

The pieces lie in ``captures/NAME.ncu.batches/`` with ``manifest.json``, which analysis reads as one
capture. A piece that crashed is
tried once more; one that hung is not. What is done is not done again by the next call, as long as
the engine and the options are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...core.cli.progress import log
from ...core.errors import InputError, LayerlineError, ToolMissing
from ...core.files import folder as make_folder
from ...core.files import sha256, sha256_of, write_json
from ...core.replay import pieces, plan
from ...core.replay.pieces import DONE, FAILED, Cut, Kernel, Manifest, Piece, Taken
from ..engine.measure import SCHEMA_VERSION
from . import tool
from .capture import once
from .target import Target

TRIES = 2


def capture(of: Target, options: tool.Options, cut: Cut, *, timeout: float) -> dict[str, Any]:
    """Capture all pieces that are not there yet and check that they fit; gives facts.

    CheckFailed names a piece that failed, when all others were tried; ToolMissing at once where
    ncu may not or cannot.
    """
    if cut.metrics and not options.metrics:
        raise InputError("--passes divides --metrics, and there are none", fix="give --metrics")
    folder = of.file(".ncu.batches")
    make_folder(folder)
    manifest = _manifest(of, options, cut, folder)
    whole = _Capture(of, options, manifest, folder, timeout)
    for number, metrics in enumerate(pieces.parts(options.metrics, cut.metrics)):
        skip, ended = 0, False
        while not ended:
            piece = Piece(skip, cut.launches, number, metrics)
            taken = _take(whole, piece)
            if taken.status == FAILED and manifest.expected is None:
                break  # where the launches end is not known
            expected = None if manifest.expected is None else len(manifest.expected)
            count = (cut.launches or 0) if taken.status == FAILED else taken.launches
            ended = pieces.last(piece, count, expected)
            skip += count
    pieces.check(manifest, folder)
    for suffix in (".ncu-rep", ".ncu.csv", ".ncu.plan.json"):
        of.file(suffix).unlink(missing_ok=True)  # of an earlier capture in one piece
    if of.layers is not None:
        _write_plan(of, manifest.expected, folder.name)
    done = [t for t in manifest.taken if t.launches]
    launches = sum(t.launches for t in done if t.piece.part == 0)
    document = {
        "schema_version": SCHEMA_VERSION,
        "source": f"{folder.name}/manifest.json",
        **of.about,
        "options": options.as_json(),
        "inputs": {p.name: sha256(p) for p in of.inputs},
        "every": not options.filtered,
        "pieces": [{"name": t.piece.name, "launches": t.launches} for t in manifest.taken],
        "seconds": [t.seconds for t in manifest.taken],
        "profiled_seconds": [t.profiled_seconds for t in manifest.taken],
        "launches": launches,
        "replayed": sum(t.launches for t in done),
        "share": 1.0,
        "clock_control": options.clock_control or tool.CLOCKS,
    }
    write_json(of.file(".ncu.meta.json"), document)
    return {"pieces": len(manifest.taken), "launches": launches}


def _write_plan(of: Target, expected: list[Kernel] | None, source: str) -> None:
    """The plan of all launches, where the pieces were held against the nsys capture that it is of:
    what a package launches has its layer from nowhere else."""
    launches = of.launches() or []
    if not launches or [(x.function, x.grid, x.block) for x in launches] != expected:
        return
    whole = {source: {x.index: x.index for x in launches}}
    write_json(of.file(".ncu.plan.json"), plan.document(launches, whole))


def _manifest(of: Target, options: tool.Options, cut: Cut, folder: Path) -> Manifest:
    """The manifest of this very capture; one of another is begun anew."""
    inputs = {p.name: sha256(p) for p in of.inputs}
    key = sha256_of([inputs, options.as_json(), vars(cut)])
    path = folder / "manifest.json"
    if path.exists():
        manifest = pieces.load(path)
        if manifest.key == key:
            return manifest
        log(f"{of.stem}: the pieces there are of another capture; begun anew")
    launches = None if options.filtered else of.launches()
    expected: list[Kernel] | None = None
    if launches is not None:
        expected = [(x.function, x.grid, x.block) for x in launches]
    return Manifest(key, cut, expected)


@dataclass(frozen=True)
class _Capture:
    """What all pieces have in common; `timeout`: seconds for each."""

    of: Target
    options: tool.Options
    manifest: Manifest
    folder: Path
    timeout: float


def _take(whole: _Capture, piece: Piece) -> Taken:
    manifest, folder = whole.manifest, whole.folder
    before = manifest.find(piece)
    if before is not None and before.status == DONE and before.capture == manifest.key:
        there = not before.launches or (folder / before.file).exists()
        if there and pieces.changed(before, folder) is None:
            return before
    taken = _tried(whole, piece)
    manifest.put(taken)
    write_json(folder / "manifest.json", pieces.as_json(manifest))
    return taken


def _tried(whole: _Capture, piece: Piece) -> Taken:
    of, options, manifest = whole.of, whole.options, whole.manifest
    file = f"{piece.name}.ncu-rep"
    name = tool.NO_NCCL if of.torch and not options.kernel_name else options.kernel_name
    chosen = replace(options, metrics=piece.metrics, kernel_name=name)
    filters = ["--launch-skip", str(piece.skip)] if piece.skip else []
    filters += ["--launch-count", str(piece.count)] if piece.count else []
    report, error = whole.folder / file, ""
    for attempt in range(1, TRIES + 1):
        try:
            taken = once(of, chosen, filters, report, timeout=whole.timeout, warmup=of.warmup)
        except ToolMissing:
            raise
        except LayerlineError as e:
            if e.what == tool.NO_KERNEL and piece.skip:
                return Taken(piece, DONE, manifest.key, file, sha256="", launches=0, kernels=[])
            error = e.what
            log(f"{of.stem}: piece {piece.name}, try {attempt}: {e.line()}")
            if "did not end within" in error:
                break
            continue
        seen = taken.seen
        return Taken(
            piece,
            DONE,
            manifest.key,
            file=file,
            sha256=sha256(taken.report),
            launches=taken.launches,
            seconds=round(taken.seconds, 3),
            profiled_seconds=taken.profiled_seconds,
            kernels=None if seen is None else [(s.function, s.grid, s.block) for s in seen],
            page_sha256=_print(taken.report),
        )
    return Taken(piece, FAILED, manifest.key, file, sha256="", launches=0, error=error)


def _print(report: Path) -> str:
    """NVIDIA's raw page beside a piece, for machines that cannot read reports; gives its hash."""
    page = report.with_suffix(".csv")
    try:
        tool.write_csv(report, page)
    except ToolMissing as e:
        log(e.line())
        page.unlink(missing_ok=True)  # of an earlier try
        return ""
    return sha256(page)
