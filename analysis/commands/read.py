"""`layerline read`: what takes the time in any raw capture, and its table."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from ...core.cli.options import FilePath, examples, given, no_use, once_each
from ...core.cli.progress import log, progress
from ...core.errors import InputError, LayerlineError, one_line
from ...core.files import apart, replacing
from ...core.tables import write_csv, write_parquet
from ..costs.summed import BY, Summed, of_table
from ..readers.base import Artefact
from ..report.listing.sums import SORTS, print_sums

TOP = 20
ROWS = 10  # of a table without times
_CELL = 60  # characters of a cell that are shown
_LEAST = 8  # characters of a column, however narrow the terminal
_FACT = 200


@click.command(
    epilog=examples(
        "layerline read own.sqlite                      # which kernels take the time",
        "layerline read trace.json --by module --top 5",
        "layerline read own.ncu-rep --rows 50           # rows as they are",
        "layerline read rank0.json rank1.json -o both.parquet",
    )
)
@click.argument("files", nargs=-1, required=True, type=FilePath(), metavar="FILE…")
@click.option(
    "-o",
    "--output",
    type=FilePath(dir_okay=False),
    help="Write the table to this file: .csv, .parquet or .json. Tables of several files are "
    "joined.",
)
@click.option(
    "--table", "name", metavar="NAME", help="Which table to read.  [default: the main one]"
)
@click.option(
    "--by",
    type=click.Choice(BY),
    default=BY[0],
    help="What to sum by: the names of all rows, kernels alone, the operator that launched, the "
    "engine's layer or the module.  [default: name]",
)
@click.option(
    "--sort", type=click.Choice(SORTS), default=SORTS[0], help="What comes first.  [default: total]"
)
@click.option(
    "--top",
    default=TOP,
    show_default=True,
    type=click.IntRange(1, 2**62),
    help="How many names to show.",
)
@click.option(
    "--rows",
    type=click.IntRange(0, 2**62),
    help="Show this many rows as they are in the file, instead of sums.",
)
def read(
    files: tuple[Path, ...],
    output: Path | None,
    name: str | None,
    by: str,
    sort: str,
    top: int,
    rows: int | None,
) -> int:
    """Show what a file of any profiler is, and what is slow in it.

    The kind is found from the content, not from the name: Nsight Systems exports, Nsight Compute
    CSV and reports, torch.profiler traces, memory snapshots, ONNX Runtime profiles, TensorRT
    layers and timings. Rows are summed by name, the largest first; -o and --rows give them as they
    are, times in integer nanoseconds. Unknown is empty, never 0.
    """
    if output is not None:
        _check_output(output, files)
        no_use(("by", "sort", "top", "rows"), "with -o: it writes all rows as they are")
    if rows is not None:
        no_use(("by", "sort", "top"), "with --rows: it shows rows as they are")
    once_each(files)
    view = _View(by, sort, top, rows, asked=given("by"))
    worst = 0
    tables: list[tuple[Path, pa.Table]] = []
    for path in files:
        try:
            artefact = _read(path)
            table_name, table = _choose(artefact, name, path)
            sums = None if output is not None else view.sums(path, artefact, table_name)
        except LayerlineError as e:
            click.echo(f"error: {e.line()}", err=True)
            worst = max(worst, e.exit_code)
            continue
        tables.append((path, table))
        if output is None:
            _show(path, artefact, table_name, view, sums)
        else:
            log(f"{path}: {artefact.kind}, {table.num_rows:,} rows of {table_name}")
            for note in artefact.notes:
                log(f"  {note}")
    if output is not None and tables:
        _WRITERS[output.suffix.lower()](output, _joined(tables))
        log(f"wrote {output}")
    return worst


def _check_output(output: Path, files: tuple[Path, ...]) -> None:
    if output.suffix.lower() not in _WRITERS:
        raise InputError(
            f"does not say how to write (suffix {output.suffix or 'missing'})",
            file=output,
            fix=f"use {', '.join(_WRITERS)}",
        )
    apart(output, *files)


def _read(path: Path) -> Artefact:
    from ..readers import registry  # the readers' imports are not needed for --help

    try:
        with progress(f"reading {path}"):
            return registry.read(path)
    except OSError as e:
        raise InputError(f"cannot be read ({e.strerror or e})", file=path) from None


def _choose(artefact: Artefact, name: str | None, path: Path) -> tuple[str, pa.Table]:
    if name is None:
        return next(iter(artefact.tables)), artefact.main
    if name not in artefact.tables:
        raise InputError(
            f"has no table {name}", file=path, fix=f"it has {', '.join(artefact.tables)}"
        )
    return name, artefact.tables[name]


def _joined(tables: list[tuple[Path, pa.Table]]) -> pa.Table:
    first_path, first = tables[0]
    for path, table in tables[1:]:
        if table.schema.names != first.schema.names:
            raise InputError(
                f"holds another table than {first_path}", file=path, fix="write them one by one"
            )
    return pa.concat_tables([table for _, table in tables], promote_options="permissive")


# --- writing ------------------------------------------------------------------------------------


def _write_records(output: Path, table: pa.Table) -> None:
    with replacing(output) as temporary, temporary.open("w", encoding="utf-8") as f:
        f.writelines(_records(table))


_WRITERS = {".csv": write_csv, ".parquet": write_parquet, ".json": _write_records}


def _records(table: pa.Table) -> Iterator[str]:
    """The rows as a JSON array, one record per line."""
    rows = (row for batch in table.to_batches(max_chunksize=10_000) for row in batch.to_pylist())
    separator = "["
    for row in rows:
        record = {k: None if _is_nan(v) else v for k, v in row.items()}
        yield f"{separator}\n{json.dumps(record, ensure_ascii=False, allow_nan=False)}"
        separator = ","
    yield "[]\n" if separator == "[" else "\n]\n"


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


# --- showing ------------------------------------------------------------------------------------


def _cell(value: Any, width: int = _CELL) -> str:
    """A value on one line that does nothing to a terminal."""
    if value is None:
        return ""
    if isinstance(value, list):
        value = ", ".join("null" if v is None else str(v) for v in itertools.islice(value, 50))
    elif isinstance(value, float):
        value = f"{value:.6g}"
    text = one_line(str(value)[: 4 * width])
    return text if len(text) <= width else text[: width - 1] + "…"


@dataclass(frozen=True)
class _View:
    """What is to be shown of a table; `asked`: whether the user said what to sum by."""

    by: str
    sort: str
    top: int
    rows: int | None
    asked: bool

    def sums(self, path: Path, artefact: Artefact, name: str) -> list[Summed] | None:
        """The table's sums; None where rows are to be shown, or it has no times. InputError where
        it cannot be summed as asked."""
        if self.rows is not None:
            return None
        from ..counters.durations import as_operations

        table = artefact.tables[name]
        if name == "ops" and self.by == "layer" and artefact.kind.startswith("nsys-"):
            found = of_table("layers", _layers_of(path), self.by)
        elif name == "counters":
            found = of_table("ops", as_operations(table), self.by)
        else:
            found = of_table(name, table, self.by)
        if found is None and self.asked:
            raise InputError(
                f"its table {name} does not tell the {self.by} of what took time",
                file=path,
                fix=_TELLS[self.by],
            )
        return found


_TELLS = {
    "name": "see its rows with --rows 10",
    "kernel": "capture with CUDA activities (nsys profile --trace=cuda, torch.profiler CUDA)",
    "operator": "read a trace of torch.profiler, or an nsys capture made inside "
    "torch.autograd.profiler.emit_nvtx()",
    "layer": "layers are those of an engine: TensorRT or ONNX Runtime",
    "module": "of an engine: layerline layers FILE --nodes nodes.json --by module; of PyTorch: "
    "torch.profiler with with_stack=True, or layerline train",
}


def _layers_of(path: Path) -> pa.Table:
    """The layers of an engine in an nsys export, as `layerline layers` has them."""
    from ..costs.layers import of_nsys
    from ..readers import registry

    with registry.identify(path).source(path) as source:  # type: ignore[attr-defined]
        return of_nsys(source, None, None)[0]


def _show(
    path: Path, artefact: Artefact, name: str, view: _View, sums: list[Summed] | None
) -> None:
    click.echo(f"{one_line(str(path))}: {artefact.kind}")
    for key, value in artefact.facts.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        click.echo(f"  {one_line(key)}: {_cell(text, _FACT)}")
    for note in artefact.notes:
        click.echo(f"  note: {one_line(note)}")
    if artefact.kind == "memory-snapshot":
        name_ = one_line(str(path))
        click.echo(f"  note: layerline memory {name_} says what holds the memory at its peak")
    others = [f"{n} ({t.num_rows:,})" for n, t in artefact.tables.items() if n != name]
    if others:
        click.echo(f"  more tables (--table NAME): {', '.join(others)}")
    table = artefact.tables[name]
    click.echo(f"  {name}: {table.num_rows:,} rows")
    if sums:
        from rich.console import Console

        console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        for one in sums:
            print_sums(console, one, view.top, view.sort)
    elif view.rows != 0 and table.num_rows:
        _show_table(table, ROWS if view.rows is None else view.rows)
    click.echo()


def _show_table(table: pa.Table, rows: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    unknown = [n for n in table.column_names if table[n].null_count == table.num_rows]
    columns = [n for n in table.column_names if n not in unknown and n != "source"]
    types = {n: table.schema.field(n).type for n in columns}
    numbers = {n for n, t in types.items() if pa.types.is_integer(t) or pa.types.is_floating(t)}
    cells = {n: [_cell(v) for v in table[n].slice(0, rows).to_pylist()] for n in columns}
    terminal = shutil.get_terminal_size((160, 24)).columns
    widths = _widths(cells, numbers, terminal)
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for n in columns:
        grid.add_column(
            Text(n),
            justify="right" if n in numbers else "left",
            overflow="ellipsis",
            no_wrap=True,
            width=widths[n],
        )
    for line in zip(*cells.values(), strict=True):
        grid.add_row(*map(Text, line))
    width = max(terminal, sum(widths.values()) + 2 * len(widths))
    Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False).print(grid)
    if table.num_rows > rows:
        click.echo(f"  … {table.num_rows - rows:,} more rows; all of them with -o")
    if unknown:
        click.echo(f"  unknown in every row: {', '.join(one_line(n) for n in unknown)}")


def _widths(cells: dict[str, list[str]], numbers: set[str], terminal: int) -> dict[str, int]:
    """The width of each column. Texts give way to fit the terminal, down to `_LEAST` characters;
    numbers do not: one without its last digits is another number."""
    full = {n: max(len(n), *map(len, values)) for n, values in cells.items()}
    texts = sorted((n for n in full if n not in numbers), key=full.__getitem__)
    room = terminal - 2 * len(full) - sum(full[n] for n in numbers)
    if room < 2 * _LEAST * len(texts):  # then the headings of numbers give way too
        for n in numbers:
            room += full[n]
            full[n] = max(min(len(n), _LEAST), *map(len, cells[n]))
            room -= full[n]
    for left, n in zip(range(len(texts), 0, -1), texts, strict=True):
        full[n] = min(full[n], max(_LEAST, room // left))
        room -= full[n]
    return full
