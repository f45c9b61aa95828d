"""What a run knows of its modules beside their times: memory, changes, the optimizer's share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ...core import documents
from ...core.capture_names import CaptureName, named
from ...core.run import Run
from ...core.tables import SCHEMAS, read_parquet
from ..costs import columns as columns_
from ..costs.measured import MeasuredSide
from ..model.comparison import Column
from ..rundir.problems import Problems


def of_run(
    run: Run,
    sides: Sequence[MeasuredSide],
    exported: documents.Model | None,
    problems: Problems,
) -> list[Column]:
    """The columns that the run has something for; a table that cannot be used is a problem."""
    modules = () if exported is None else exported.modules
    parameters = {m.path: m.parameters for m in modules if m.parameters is not None}
    found: list[Column | None] = [columns_.optimizer(s, parameters) for s in sides]
    with problems.without("memory of modules"):
        for precision, table in tables(run, "memory"):
            found.append(columns_.memory(precision, columns_.peak(table)))
    with problems.without("changes of parameters"):
        for precision, table in tables(run, "parameters"):
            found.append(columns_.hotness(precision, table))
    return columns_.present(found)


def tables(run: Run, name: str) -> Iterator[tuple[str | None, pa.Table]]:
    """Each table of this name in the run, with the precision that it is of: captures of one
    process or of the first rank, else what the run's table has of each of these."""
    captured = [
        (own.precision, path)
        for path, own in named(run.file("captures"), f".{name}.parquet").items()
        if own.rank in (None, 0)
    ]
    known = name if name in SCHEMAS else None
    for precision, path in captured:
        yield precision, read_parquet(path, known)
    made = run.file("tables", f"{name}.parquet")
    if captured or not made.exists():
        return
    table = read_parquet(made, known)
    for source in pc.unique(table["source"]).to_pylist():
        own = CaptureName.parse(source or "")
        if own is None or own.rank in (None, 0):
            of_source = table.filter(pc.equal(table["source"], source))
            yield None if own is None else own.precision, of_source
