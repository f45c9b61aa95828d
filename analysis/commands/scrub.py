"""`layerline scrub`: a copy of a capture that is safe to share."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...core.cli.options import FilePath, examples, once_each
from ...core.cli.progress import log, progress
from ...core.errors import InputError, LayerlineError, one_line

if TYPE_CHECKING:
    from ..scrub.learned import Numbers


@click.command(
    epilog=examples(
        "layerline scrub own.sqlite                     # writes own.scrubbed.sqlite",
        "layerline scrub runs/gpt2 -o to-share",
        "layerline scrub runs/gpt2 --check              # is there anything?",
    )
)
@click.argument("captures", nargs=-1, required=True, type=FilePath(), metavar="CAPTURE…")
@click.option(
    "-o",
    "--output",
    type=FilePath(),
    help="Write here; for several captures, a directory.  [default: NAME.scrubbed.EXT (for a run "
    "NAME.scrubbed/) beside each capture]",
)
@click.option("--in-place", is_flag=True, help="Replace the capture itself.")
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing, say what is found, and exit with 1 if anything is. What no copy of a run "
    "would hold (models, engines, tensors) is not searched.",
)
def scrub(captures: tuple[Path, ...], output: Path | None, in_place: bool, check: bool) -> int:
    """Make a copy of captures or a run that is safe to share.

    It holds no environments, hosts, users, home directories or command lines; what analysis uses
    stays as it is. CAPTURE is an nsys export (SQLite, Parquet, Arrow), JSON of any kind, ncu or
    nsys CSV, a log, a memory snapshot or a whole run directory. Each copy is searched again for
    every value that was removed before it is kept.
    """
    if sum((output is not None, in_place, check)) > 1:
        raise click.UsageError("-o, --in-place and --check exclude each other")
    if output is not None and len(captures) > 1 and output.exists() and not output.is_dir():
        raise InputError("is no directory", file=output, fix="name one for several captures")
    once_each(captures)
    first: dict[str, Path] = {}
    for path in captures if output is not None else ():
        if (other := first.setdefault(path.name, path)) is not path:
            raise InputError(
                f"{other} and {path} would be one file there",
                file=output,
                fix="scrub them into two folders",
            )
    worst = 0
    numbers: Numbers = defaultdict(dict)
    for path in captures:
        try:
            if check:
                worst = max(worst, _check(path))
            else:
                _scrub(path, output, in_place, None if len(captures) == 1 else numbers)
        except OSError as e:
            error: LayerlineError = InputError(f"cannot be read ({e.strerror or e})", file=path)
        except LayerlineError as e:
            error = e
        else:
            continue
        click.echo(f"error: {error.line()}", err=True)
        worst = max(worst, error.exit_code)
    return worst


def _scrub(path: Path, output: Path | None, in_place: bool, numbers: Numbers | None) -> None:
    """`numbers`: of several captures, whose hosts stay apart."""
    from ..scrub import pipeline

    into = None
    if output is not None and (numbers is not None or (output.is_dir() and path.is_file())):
        output, into = None, output
    with progress(f"scrubbing {path.name}"):
        written, counts = pipeline.scrub(
            path, output, in_place=in_place, into=into, numbers=numbers
        )
    _show(path, counts, "removed")
    if any(place in _NAMES and kind not in _NO_NAME for place, kind in counts):
        click.echo("  names of operations or ranges held such values: results are equal up to them")
    log(
        "not searched for: values in base64 or another encoding, and names in prose that no field, "
        "path or address tells; look yourself before you share it"
    )
    log(f"wrote {written}")


def _check(path: Path) -> int:
    from ..scrub import pipeline

    with progress(f"checking {path.name}"):
        counts, left_out = pipeline.check(path)
    unread = f"; not searched: {left_out} that no copy would hold" if left_out else ""
    _show(path, counts, f"found{unread}")
    return 1 if counts else 0


# Places whose texts name operations, layers or ranges in the tables of analysis.
_NAMES = (
    "StringIds.value (names)",
    "NVTX_EVENTS.text",
    "traceEvents.name",
    "name",
    "a key",
    "a row",
)


# What such texts may hold without naming anything there.
_NO_NAME = ("process", "thread", "file", "path", "command line")


def _show(path: Path, counts: Counter[tuple[str, str]], done: str) -> None:
    kinds: Counter[str] = Counter()
    places: dict[str, list[str]] = defaultdict(list)
    for (place, kind), count in sorted(counts.items()):
        kinds[kind] += count
        places[place].append(f"{kind} {count:,}")
    total = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())) or "nothing"
    click.echo(f"{one_line(str(path))}: {total} {done}")
    for place, each in places.items():
        click.echo(f"  {one_line(place[:80])}: {', '.join(each)}")
