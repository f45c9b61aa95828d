"""The changes of parameters that a run has captured, a history for each precision."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ...core.capture_names import PARAMETERS, PRECISIONS, named
from ...core.errors import InputError
from ...core.run import Run
from ...core.tables import read_parquet, write_parquet
from ..parameters import history, ranks
from ..parameters.history import History


def files(run: Run) -> dict[str, list[Path]]:
    """The tables of each precision, those of ranks in their order."""
    found: dict[str, list[Path]] = {}
    for path, name in named(run.file("captures"), PARAMETERS[0]).items():
        found.setdefault(name.precision, []).append(path)
    return dict(sorted(found.items(), key=lambda f: PRECISIONS.index(f[0])))


def write_table(run: Run) -> None:
    """``tables/parameters.parquet``: every capture's rows."""
    rows = [read_parquet(path, "parameters") for paths in files(run).values() for path in paths]
    write_parquet(run.file("tables", "parameters.parquet"), pa.concat_tables(rows))


def of_run(run: Run) -> list[History]:
    """InputError where the run has none."""
    captured = files(run)
    if not captured:
        raise InputError(
            "has no captures of parameter changes",
            file=run.path,
            fix="layerline train … --profile parameters",
        )
    return [
        ranks.together([h for path in paths for h in history.of_table(path)])
        for paths in captured.values()
    ]
