"""``layerline memory``: what memory held when it held most, and what would lower that."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from ...core.cli.options import FilePath, examples, listed, run_argument
from ...core.cli.progress import log, progress
from ...core.errors import InputError, ToolMissing
from ...core.files import write_json, write_text
from ...core.run import Run, open_run
from ..rundir.problems import Problems, failed

PAGE = "memory.html"
# What can be tried: how the request of the training changes, and the environment.
TRIES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "checkpoint": ({"checkpoint": True}, {}),
    "checkpoint-half": ({"checkpoint": True, "checkpoint_every": 2}, {}),
    "batch": ({}, {}),
    "fused": ({"fused": True}, {}),
    "8bit": ({"eight_bit": True}, {}),
    "expandable": ({}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
}


@click.command(
    epilog=examples(
        "layerline memory snapshot.pickle               # of any program",
        "layerline train gpt2 --run runs/memory --steps 8 --profile memory",
        "layerline memory runs/memory --try checkpoint,batch",
    )
)
@run_argument("source", metavar="RUN|FILE.pickle")
@click.option("--precision", "precisions", multiple=True, help="Of a run: only these precisions.")
@click.option(
    "--device",
    type=click.IntRange(0, 1024),
    help="Which device, where a snapshot is of several.",
)
@click.option(
    "--try",
    "tries",
    multiple=True,
    help=f"Of a run: train once with a remedy and compare: {', '.join(TRIES)}; repeat it or join "
    "with commas.",
)
@click.option(
    "-o", "--output", type=FilePath(dir_okay=False), help="The page to write.  "
    f"[default: RUN/report/{PAGE}, or FILE.html]",
)  # fmt: skip
def memory(
    source: Path,
    precisions: tuple[str, ...],
    device: int | None,
    tries: tuple[str, ...],
    output: Path | None,
) -> None:
    """Explain what memory holds at its peak, and what lowers it.

    It tells what was alive, of which category and module, and which line allocated it, for a RUN of
    `layerline train --profile memory` (also on a CPU) or for a snapshot of the CUDA allocator. It
    writes a page, its figures as JSON beside it and, for a run, tables/memory.parquet. The JSON
    file that the recording left beside a snapshot is used where it is of the same recording.
    """
    if not source.is_dir():
        if tries or precisions:
            raise click.UsageError("--try and --precision are of a run, not of a snapshot")
        _of_file(source, device, output)
        return
    names = listed(tries)
    for name in names:
        if name not in TRIES:
            raise click.UsageError(f"{name} cannot be tried; choose from {', '.join(TRIES)}")
    _of_run(open_run(source), listed(precisions), device, names, output)


def _of_file(file: Path, device: int | None, output: Path | None) -> None:
    from ..captures import memory as captures
    from ..readers import registry

    page = output or file.with_suffix(".html")
    if page.with_suffix(".json") == captures.beside(file):  # not over what was recorded
        page = page.with_suffix(".peak.html")
    with progress(f"reading {file}"):
        artefact = registry.read(file)
    if artefact.kind != "memory-snapshot":
        raise InputError(
            f"is {artefact.kind}, no snapshot of memory",
            file=file,
            fix="torch.cuda.memory._dump_snapshot makes one",
        )
    with progress("explaining the peak"):
        done = captures.explained_file(file, artefact, device)
    _write(done, page, file.name)
    _say(done, page)


def _of_run(
    run: Run,
    precisions: Sequence[str],
    device: int | None,
    tries: Sequence[str],
    output: Path | None,
) -> None:
    import pyarrow as pa

    from ...core.documents import Memory, read
    from ...core.tables import write_parquet
    from ..captures import memory as captures

    problems = Problems()
    found = captures.captures(run, precisions)
    first = {c.name.precision: c for c in reversed(found)}  # of several ranks the first
    asked = [
        _asked(run, name, precision, read(captured.meta, Memory).device)
        for name in tries
        for precision, captured in sorted(first.items())
    ]
    for name, request, environment in asked:  # only once every one of them can be
        _try(run, name, request, environment)
    rows, pages = [], []
    for number, captured in enumerate(found):
        with progress(f"explaining the peak of {captured.name.words()}"):
            done = captures.explained(run, captured, problems, device)
        rows.append(done.table())
        page = output or run.file("report", PAGE)
        if number:
            page = page.with_name(f"{page.stem}.{captured.name.side}{page.suffix}")
        _write(done, page, f"{run.path.resolve().name}, {captured.name.words()}")
        pages.append((done, page))
    table = run.file("tables", "memory.parquet")
    write_parquet(table, pa.concat_tables([*_others(run, table, found), *rows]))
    for done, page in pages:  # whoever reads the answer may close the pipe
        _say(done, page)
    if error := failed(problems.listed(run), run.file("report", PAGE)):
        raise error


def _others(run: Run, table: Path, found: Sequence[Any]) -> list[Any]:
    """The rows of the run's captures that are not explained this time (`--precision`)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from ...core.tables import read_parquet
    from ..captures import memory as captures

    others = {c.path.name for c in captures.captures(run)} - {c.path.name for c in found}
    if not others or not table.exists():
        return []
    rows = read_parquet(table, "memory")
    return [rows.filter(pc.is_in(rows["source"], pa.array(sorted(others))))]


def _write(done: Any, page: Path, title: str) -> None:
    from ..report.memory.page import render

    write_text(page, render(done, title))
    write_json(page.with_suffix(".json"), done.document())


def _say(done: Any, page: Path) -> None:
    from ..report.memory.text import lines

    for line in lines(done):
        click.echo(line)
    click.echo()
    click.echo(page)


def _asked(run: Run, name: str, precision: str, device: str | None) -> tuple[str, Any, Any]:
    """A change by its name, the request of a training with it, and its environment. InputError
    where it cannot be tried, ToolMissing where it needs what is not installed."""
    from ...core.documents import Manifest, read
    from ...workloads.request import WORKLOADS

    path = run.manifest_path(f"profile/train.{precision}")
    asked = (read(path, Manifest).options or {}).get("request")
    if not isinstance(asked, dict):
        what = "does not say how the training was asked for"
        raise InputError(what, file=path, fix="train again (layerline train)")
    changes, environment = TRIES[name]
    if name == "batch":
        changes = {"batch": asked.get("batch", 1) // 2}
    why = None
    if name == "batch" and not changes["batch"]:
        why = "the batch is 1, and has no half"
    elif environment and device == "cpu":
        why = "there are no segments on the CPU"
    elif name == "8bit" and ".parallel." in WORKLOADS.get(asked["workload"], ""):
        why = f"{asked['workload']} has an optimizer of its own"
    elif any(value is True and asked.get(key) for key, value in changes.items()):
        why = "the run was trained so already"
    if why is not None:
        raise InputError(f"{name} cannot be tried: {why}", file=run.path, fix="try another remedy")
    if name == "8bit" and find_spec("bitsandbytes") is None:
        raise ToolMissing("8bit needs bitsandbytes", fix="pip install bitsandbytes")
    return name, {**asked, **changes}, environment


def _try(run: Run, name: str, request: Any, environment: Any) -> None:
    """Train again with one change, for a few steps, into a run of its own inside the run."""
    from ...core.capture_names import TRIED
    from ...profile.train.again import train_again  # torch's side of the project

    log(f"trying {name}")
    train_again(run.file(TRIED, name), request, environment)
