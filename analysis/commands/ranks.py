"""``layerline ranks``: what each rank of a job did, whom it waited for, and why."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...core.capture_names import CaptureName
from ...core.cli.options import FilePath, examples, no_use, run_argument
from ...core.errors import CheckFailed, InputError, one_line

if TYPE_CHECKING:
    from ..model.ranks import Job

PAGE, TRACE = "ranks.html", "ranks.perfetto-trace"
_ENDINGS = (".json", ".json.gz", ".sqlite")


@click.command(
    epilog=examples(
        "layerline train llama --model tiny --nproc 2 --run runs/many",
        "layerline ranks runs/many",
        "layerline ranks rank0.json rank1.json -o ranks     # traces of any program",
    )
)
@run_argument("sources", metavar="RUN|FILE…", many=True)
@click.option("--precision", help="Which precision of the run, where it has ranks in several.")
@click.option(
    "-o",
    "--output",
    type=FilePath(file_okay=False),
    help=f"Write {PAGE}, {TRACE}, collectives.parquet and ranks.parquet into this folder.  "
    "[default: RUN/report and RUN/tables; for files nowhere]",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="How many processes read captures.  [default: one for each CPU]",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Let the workers of this Dask scheduler (tcp://HOST:8786) read the captures. They must "
    "see the files and the folder of --output.",
)
def ranks(
    sources: tuple[Path, ...],
    precision: str | None,
    output: Path | None,
    workers: int | None,
    scheduler: str | None,
) -> None:
    """Explain which rank of a job makes which wait, and why.

    It also tells what the links carried, and how long a step would take without the waiting.

    FILE is a trace of torch.profiler or an nsys report exported to SQLite, one for each rank (or
    one nsys report of all ranks of a node), or a folder of such files. From Flight Recorder dumps
    (pickles) it tells which collective did not end, and who did not come. It reads files only.
    """
    run_path = sources[0] if len(sources) == 1 and _is_run(sources[0]) else None
    files = () if run_path is not None else sources
    if run_path is None:
        no_use(("precision",), "without a run")
    if scheduler is not None and output is None and run_path is None:
        raise click.UsageError("--scheduler needs --output: a folder that the workers see")
    paths = _expanded(files) if run_path is None else _of_run(run_path, precision)
    if _dumps(paths):
        return
    page, tables = (output, output) if run_path is None else _folders(run_path, output)
    with _workspace(page, scheduler) as folder:
        from ..captures import rank_job

        job, places = rank_job.joined(paths, Path(folder), workers, scheduler)
        _show(job)
        if page is not None and tables is not None:
            title = run_path.name if run_path is not None else _title(paths)
            _write(job, places, page, tables, title)
        if gone := [note for note in job.notes if note.startswith(rank_job.LEFT_OUT)]:
            raise CheckFailed(f"{gone[0]}{f' (and {len(gone) - 1} more)' if gone[1:] else ''}")


def _is_run(path: Path) -> bool:
    """Whether it is a run directory, not a folder of files."""
    return any((path / name).is_dir() for name in ("captures", "manifests"))


def _workspace(page: Path | None, scheduler: str | None) -> AbstractContextManager[str]:
    """A folder for partials: beside the page where other machines write them."""
    if scheduler is None or page is None:
        return tempfile.TemporaryDirectory(prefix="layerline-ranks-")
    page.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=".partials-", dir=page.resolve())


def _expanded(files: Sequence[Path]) -> list[Path]:
    paths: list[Path] = []
    for path in files:
        if not path.is_dir():
            paths.append(path)
            continue
        inside = sorted(p for p in path.iterdir() if _is_capture(p) and p.is_file())
        if not inside:
            raise InputError("holds no trace and no nsys export", file=path, fix="name the files")
        paths += inside
    resolved: dict[Path, Path] = {}
    for path in paths:
        if path.resolve() in resolved:
            raise InputError("is given twice", file=path, fix="give each rank's file once")
        resolved[path.resolve()] = path
    return paths


def _is_capture(path: Path) -> bool:
    """Whether a file of a folder may hold what a rank did: what a run has beside that does not."""
    from ..captures.rank_job import NSYS, TRACES

    own = CaptureName.parse(path)
    beside = own is not None and own.kind != "other" and own.suffix not in (*TRACES, NSYS)
    return path.name.endswith(_ENDINGS) and not beside


def _of_run(run_path: Path, precision: str | None) -> list[Path]:
    """The captures of ranks in a run."""
    from ...core.run import open_run
    from ..captures import rank_job

    found = rank_job.of_run(open_run(run_path))
    if precision is None and len(found) > 1:
        raise InputError(
            f"has ranks in {', '.join(found)}", file=run_path, fix="choose with --precision"
        )
    paths = found.get(precision or next(iter(found), ""))
    if not paths:
        raise InputError(
            f"has no trace of a rank{f' in {precision}' if precision else ''}",
            file=run_path,
            fix="capture one: layerline train WORKLOAD --nproc 2 --profile torch",
        )
    return paths


def _folders(run_path: Path, output: Path | None) -> tuple[Path, Path]:
    if output is not None:
        return output, output
    return run_path / "report", run_path / "tables"


def _title(paths: Sequence[Path]) -> str:
    first = paths[0].resolve()
    return first.name if len(paths) == 1 else first.parent.name


def _show(job: Job) -> None:
    from ..report.ranks import answer, text

    for line in text.lines(job, answer.answer(job)):
        click.echo(one_line(line))


def _write(job: Job, places: Mapping[int, Path], page: Path, tables: Path, title: str) -> None:
    from ...core.files import write_text
    from ...core.tables import write_parquet
    from ..captures import rank_partials as partials
    from ..report.ranks import answer as answer_
    from ..report.ranks import page as page_
    from ..timeline import ranks as timeline
    from ..timeline import writer

    write_parquet(tables / "collectives.parquet", job.collectives)
    write_parquet(tables / "ranks.parquet", job.ranks)
    groups = timeline.groups(job, lambda rank: partials.table(places[rank], "operations"), {})
    writer.write(page / TRACE, groups)
    answer = answer_.answer(job)
    write_text(page / PAGE, page_.render(job, answer, title, TRACE if groups else None))
    click.echo("")
    click.echo(page / PAGE)


def _dumps(paths: Sequence[Path]) -> bool:
    """Whether the files are Flight Recorder dumps; then what they say has been told."""
    from ...core.ranks import flight_recorder
    from ..ranks import flight
    from ..readers.base import read_head

    def dump(path: Path) -> bool:
        try:
            return not path.is_dir() and flight_recorder.is_dump(read_head(path).data)
        except InputError:  # said when it is read
            return False

    dumps = [p for p in paths if dump(p)]
    if not dumps:
        return False
    if len(dumps) < len(paths):
        other = next(p for p in paths if p not in dumps)
        raise InputError(
            "is no Flight Recorder dump, as others are", file=other, fix="give one kind at a time"
        )
    for line in flight.lines([flight_recorder.read(p) for p in dumps]):
        click.echo(one_line(line))
    return True
