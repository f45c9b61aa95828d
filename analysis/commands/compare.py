"""``layerline compare A B``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...core.cli.options import FilePath, examples, no_use
from ...core.cli.progress import log, progress
from ...core.errors import InputError, one_line
from ...core.files import write_text
from ...core.run import Run

if TYPE_CHECKING:
    from ..comparison.runs import Difference, Loaded

SHOWN = 15
# Of modules that are the same, so many differ: what 95 % intervals leave to chance, at most. It
# is so only of intervals that hold the noise between runs.
CHANCE = 0.05


def _to_gate(_context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    """UsageError: an option of before."""
    if value is not None:
        raise click.UsageError(
            f"compare tells and does not judge; layerline gate A B --slower {value}% does, for run "
            "directories"
        )


@click.command(
    epilog=examples(
        "layerline compare runs/before runs/after",
        "layerline compare runs/before runs/after --open       # as a page",
        "layerline compare runs/before runs/after --again runs/before-again",
    )
)
@click.argument("a", type=FilePath())
@click.argument("b", type=FilePath())
@click.option(
    "--again",
    multiple=True,
    type=FilePath(),
    help="A run made like A, with engines built anew: how far it is from A is the noise between "
    "runs. Repeatable.",
)
@click.option("--fail-above", callback=_to_gate, expose_value=False, hidden=True,
              help="What `layerline gate` does now.")  # fmt: skip
@click.option("--anyway", is_flag=True, help="Compare also what is not comparable, with a warning.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option(
    "-o",
    "--output",
    type=FilePath(dir_okay=False),
    help="Write a page as well, in the form of a report's; of two run directories.",
)
@click.option(
    "--open",
    "opened",
    is_flag=True,
    help="Open the page in the browser; without -o it is B/report/compare.html.",
)
def compare(
    a: Path,
    b: Path,
    again: tuple[Path, ...],
    anyway: bool,
    as_json: bool,
    output: Path | None,
    opened: bool,
) -> None:
    """Compare two runs: is B faster than A, by how much, how sure.

    A and B are run directories, their report/summary.json, or tables of layers or modules
    (.parquet). A difference is told only where the interval of the ratio excludes equality. Two
    runs of the same thing differ, too: only with --again is B called faster or slower, without it
    it is lower or higher here, in these two runs. Of two run directories -o or --open makes a
    page: the answer, why, and where.

    Two profiles, captures or layer lists of engines of one model (two builds, two precisions) are
    compared layer by layer: layers that do the same work are put together, however each engine
    fuses them.
    """
    from ..comparison import runs
    from ..comparison.runs import load

    if runs.names_layers(a) and runs.names_layers(b):
        no_use(
            ["again", "anyway", "output", "opened"],
            "with captures; layerline layers CAPTURE -o TABLE.parquet makes tables to gate on",
        )
        _layers(a, b, as_json)
        return
    if output is not None or opened:
        no_use(["again"], "with a page, which holds B against A alone")
    with progress("reading the runs"):
        side_a, side_b = load(a), load(b)
        repeats = [load(path) for path in again]
    for other in (side_b, *repeats):
        if other.kind != side_a.kind:
            raise InputError(
                f"is a {other.kind}, {a} is a {side_a.kind}", file=other.path, fix="name two alike"
            )
        _check_facts(side_a, other, anyway)
    for side in (side_a, side_b):
        for text in side.lost:
            log(f"{side.path}: {text}")
        for key in side.wrong:
            log(f"{side.path}: {key} does not compute what eager does: its times are no result")
    base = runs.with_repeats(side_a.measures, [r.measures for r in repeats])
    differences, only_a, only_b = runs.compare(base, side_b.measures)
    if not differences:
        raise InputError(f"{a} and {b} have nothing in common that was measured")
    for measures, where in ((only_a, a), (only_b, b)):
        if measures:
            log(f"only in {where}: {len(measures)}, e.g. {measures[0].group} {measures[0].name}")
    if as_json:
        document = {
            "schema_version": 1,
            "differences": [d.as_dict() for d in differences],
        }
        click.echo(json.dumps(document, indent=1))
    else:
        _show(differences, table=side_a.kind != "summary")
    if output is not None or opened:
        _page(a, b, output, opened=opened)


def _page(a: Path, b: Path, output: Path | None, *, opened: bool) -> None:
    """Write the page of two run directories."""
    for path in (a, b):
        if not path.is_dir():
            raise InputError("is no run directory: there is no page of it", file=path)
    from .. import pipeline
    from ..report import headline, html

    page = output or b / "report" / "compare.html"
    with progress("reading both runs and writing the page"):
        found = pipeline.both((str(a), Run(a)), (str(b), Run(b)))
        write_text(page, html.render(found, headline.sentences(found)))
    click.echo(page)
    if opened:
        click.launch(str(page.resolve()))


def _layers(a: Path, b: Path, as_json: bool) -> None:
    from ..comparison.layer_lists import together
    from ..report import layer_differences as text
    from .layers import read_layers

    tables = []
    for path in (a, b):
        table, notes, _ = read_layers(path, None, None)
        tables.append(table.to_pylist())
        for note in notes:
            log(f"{path}: {note}")
    found = together(*tables)
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "layers": text.records(found)}, indent=1))
        return
    for line in text.lines(found, str(a), str(b)):
        click.echo(one_line(line))


def _check_facts(a: Loaded, b: Loaded, anyway: bool) -> None:
    """Refuse what cannot be compared; warn of the rest."""
    from ..comparison import runs

    if a.facts is None or b.facts is None:
        log(f"{a.path} and {b.path} do not say what was measured where: it may differ")
        return
    silent = [n for n in runs.MUST_AGREE if a.facts.get(n) is None and b.facts.get(n) is None]
    if silent:
        log(f"neither run says its {', '.join(silent)}: they may differ")
    refused = runs.disagreements(a.facts, b.facts, runs.MUST_AGREE)
    for name, x, y in runs.disagreements(a.facts, b.facts, runs.SHOULD_AGREE):
        log(f"differs: {name}: {_word(x)} against {_word(y)}")
    if not refused:
        return
    text = ", ".join(f"{n} ({_word(x)} against {_word(y)})" for n, x, y in refused)
    if not anyway:
        raise InputError(
            f"not comparable with {a.path}: {text}", file=b.path, fix="--anyway compares them still"
        )
    log(f"not comparable: {text}")


def _word(value: Any) -> str:
    return "unknown" if value is None else str(value)


def _show(differences: list[Difference], *, table: bool) -> None:
    from ..comparison.runs import HIGHER, LOWER, SAME, UNSURE

    if once := sum(not d.a.repeated for d in differences):
        of = "" if once == len(differences) else f" of {once} of {len(differences)}"
        click.echo(
            f"Noise between runs was not measured{of} (--again RUN): two runs of the same differ, "
            f'too; "{HIGHER}" and "{LOWER}" are of these two runs alone.'
        )
    groups: dict[str, list[Difference]] = {}
    for d in differences:
        groups.setdefault(d.a.group, []).append(d)
    for group, members in groups.items():
        left = " (outputs not checked)" if group != "latency" and members[0].unchecked else ""
        click.echo(f"{one_line(group)}{left}:")
        clear = [d for d in members if d.verdict not in (SAME, UNSURE)]
        clear.sort(key=lambda d: -abs(d.b.median - d.a.median))
        for d in members if group == "latency" else clear[:SHOWN]:
            click.echo("  " + one_line(_line(d)))
        if group == "latency":
            continue
        if len(clear) > SHOWN:
            click.echo(f"  and {len(clear) - SHOWN} more that differ")
        same, unsure = (sum(d.verdict == v for d in members) for v in (SAME, UNSURE))
        if same:
            click.echo(f"  {same} not distinguishable")
        sure = sum(d.a.repeated and d.verdict != UNSURE for d in members)
        if clear and (chance := round(CHANCE * sure)):
            click.echo(f"  (of {sure} with 95 % intervals, up to {chance} differ by chance)")
        if unsure:
            click.echo(f"  {unsure} without an interval")
    if table:
        click.echo("These tables do not tell whether an engine's outputs were checked.")


def _line(d: Difference) -> str:
    from ..formatting import spoken_time as time

    text = f"{d.a.name}: {time(d.a.median)} -> {time(d.b.median)}"
    if d.change is not None:
        text += f", {d.change:+.1%}"
    if d.low is not None and d.high is not None:
        text += f" ({d.low:+.1%} to {d.high:+.1%})"
    unchecked = ", outputs not checked" if d.unchecked and d.a.group == "latency" else ""
    return f"{text}: {d.verdict}{unchecked}"
