"""Whether a run's report is of the captures that lie beside it."""

from __future__ import annotations

from pathlib import Path

from ...core.errors import InputError
from ...core.files import is_text
from ...core.run import Run, unchanged
from ..formatting import first

STEP = "analysis/report"
# What analysis reads of a run: small files whole, captures and nothing that an engine runs from.
_READ = ("export/*.json", "engines/*.json", "captures/*", "manifests/*/*.json")
# Tables of other commands (`layerline memory`, `layerline parameters`) of which it has columns.
_BESIDE = ("memory", "parameters")
_NAMED = 3


def inputs(run: Run) -> list[Path]:
    """The files that a report is made of."""
    return sorted(
        path
        for pattern in _READ
        for path in run.path.glob(pattern)
        if path.is_file()
        and not path.name.startswith(".")
        and path.parent.name != "analysis"
        and is_text(path)  # `provenance` says so
    )


def beside(run: Run) -> list[Path]:
    """Tables of other commands that a report shows where they are there. One without them is of the
    same captures, so `check` does not look at them."""
    tables = (run.file("tables", f"{name}.parquet") for name in _BESIDE)
    return [path for path in tables if path.is_file()]


def check(run: Run) -> None:
    """InputError where the run is of another form, or its report was made before files that it
    would be made of now, or was not finished. Of a report that was copied alone nothing is known,
    and of files that were not copied with it nothing is said."""
    summary = run.file("report", "summary.json")
    if not summary.exists():
        return
    run.check_version()
    last = run.manifest(STEP)
    if last is None and not (run.file("manifests").is_dir() and run.file("captures").is_dir()):
        return
    fix = f"layerline report --run {run.path} makes it again"
    if last is None:
        raise InputError("was not finished", file=summary, fix=fix)
    recorded = last.get("inputs") or {}
    names = {path.relative_to(run.path).as_posix(): path for path in inputs(run)}
    newer = [n for n, path in names.items() if not unchanged(path, recorded.get(n) or {})]
    if newer:
        raise InputError(
            f"is older than the run's {first(newer, _NAMED)}: it is of other captures",
            file=summary,
            fix=fix,
        )
