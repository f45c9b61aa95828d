"""``layerline report``: tables, report and record of a run directory."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ...core.accuracy.limits import Asked
from ...core.cli.accuracy_limits import limit_options
from ...core.cli.columns import aligned
from ...core.cli.options import FilePath, examples, run_argument
from ...core.cli.progress import Doing, log, progress
from ...core.errors import InputError, one_line
from ...core.files import listing, read_json, sha256, write_json, write_text
from ...core.run import Run, Step, open_run
from ..rundir import age, incomplete, problems

TIMELINE = "timeline.perfetto-trace"
TABLES = ("ops", "layers", "latency", "modules")
# Those of what not every run has measured.
SOME_TABLES = ("counters", "accuracy")
REPORT = ("index.html", "report.md", "summary.md", "layers.csv", "summary.json", TIMELINE)
# What the summary at the end shows at most: of the headline, and of the comparisons.
_LINES, _WIDTH, _ROWS = 3, 100, 12
_SIGNS = {"bad": "✗", "unsure": "?", "good": "✓"}
_WHERE = "layerline accuracy says in which module"


@click.command(
    epilog=examples(
        "layerline report runs/gpt2 --open",
        "layerline report runs/gpt2 --min-cosine fp16=0.999",
        "layerline report runs/gpt2 --summary >comment.md",
        "layerline report runs/gpt2 -q                  # for scripts: no progress",
        "layerline report runs/gpt2 --baseline ci/cost.json",
    )
)
@run_argument()
@limit_options
@click.option("--open", "opened", is_flag=True, help="Open the page in the browser.")
@click.option(
    "--summary",
    "short",
    is_flag=True,
    help="Print report/summary.md alone: Markdown of at most 25 lines, for a pull request.",
)
@click.option("--force", is_flag=True, help="Make the report again even if it is up to date.")
@click.option("--baseline", type=FilePath(dir_okay=False), help="A baseline file of `layerline "
              "gate`: the page then shows the latencies that it kept, and this run's.")  # fmt: skip
def report(
    run_path: Path,
    min_cosine: dict[str, float],
    min_top1: dict[str, float],
    opened: bool,
    short: bool,
    force: bool,
    baseline: Path | None,
) -> None:
    """Compare what was measured, and write the page.

    RUN/report then holds index.html, report.md, summary.md, layers.csv, summary.json, a timeline
    for ui.perfetto.dev and, where counters were measured, counters.csv; RUN/tables holds the
    tables. It reads files only, so a run may come from another machine.

    It ends with 1 where the outputs of an engine are not those of eager fp32 (its times are then no
    result), where an engine ran in another precision than it claims, or where a file of the run
    cannot be used. The report is written all the same, from what can be used.
    """
    run = open_run(run_path)
    if not listing(run.file("captures")):
        raise InputError("nothing was captured", file=run.path, fix="layerline profile measures it")
    limits = Asked(min_cosine, min_top1)
    step = _step(run, limits, baseline)
    if force or not step.valid():
        with step.recording(), progress("reading the captures and comparing them") as doing:
            _write(run, limits, doing, baseline)
    else:
        log("analysis/report: up to date")
    summary = read_json(run.file("report", "summary.json"))
    if short:
        click.echo(run.file("report", "summary.md").read_text(encoding="utf-8"), nl=False)
    else:
        _show(run, summary)
    if opened:
        click.launch(str(run.file("report", "index.html").resolve()))
    _judge(run, summary)


def _step(run: Run, limits: Asked, baseline: Path | None) -> Step:
    options = limits.as_json()
    if baseline is not None:
        options = {**options, "baseline": sha256(baseline)}
    inputs = [*age.inputs(run), *age.beside(run)]
    return Step(run, age.STEP, options, inputs, _outputs(run))


def _outputs(run: Run) -> list[Path]:
    written = [run.file("tables", f"{name}.parquet") for name in TABLES]
    written += [run.file("report", name) for name in REPORT]
    return [*written, run.file("run.json")]


def _write(run: Run, limits: Asked, doing: Doing, baseline: Path | None) -> None:
    # Not at the top: an up-to-date report needs neither pandas nor templates.
    from ...core.tables import write_parquet
    from ..captures import samples
    from ..model.baseline import read
    from ..pipeline import analyse
    from ..report import headline, html, markdown, tables_csv
    from ..report.gate import trend
    from ..report.summary_json import summary
    from ..rundir import record
    from ..timeline import captures, writer

    before = None if baseline is None else read(baseline)
    result = analyse(run, limits)
    doing.now("writing the tables and the page")
    sentences = headline.sentences(result.comparison)
    for name in TABLES:
        write_parquet(run.file("tables", f"{name}.parquet"), result.tables[name])
    # Those of an earlier report would be believed.
    some = {name: run.file("tables", f"{name}.parquet") for name in SOME_TABLES}
    counters_csv = run.file("report", "counters.csv")
    more = [*some.values(), counters_csv]
    for path in more:
        path.unlink(missing_ok=True)
    for name in some.keys() & result.tables.keys():
        write_parquet(some[name], result.tables[name])
    if (counters := result.comparison.counters) is not None and counters.sides:
        write_text(counters_csv, tables_csv.counters(result.comparison))
    timelines = captures.of_run(run, result.captures, result.tables.get("counters"))
    writer.write(run.file("report", TIMELINE), timelines)
    past = None
    if before is not None:
        past = trend.of(before, samples.of_run(run, result.captures, result.comparison))
    page = html.render(result.comparison, sentences, TIMELINE if timelines else None, past)
    write_text(run.file("report", "index.html"), page)
    write_text(run.file("report", "report.md"), markdown.render(result.comparison, sentences))
    write_text(run.file("report", "summary.md"), markdown.summary(result.comparison, sentences))
    write_text(run.file("report", "layers.csv"), tables_csv.layers(result.comparison))
    figures = summary(result.comparison, sentences, result.doubtful)
    write_json(run.file("report", "summary.json"), figures)
    written = [*_outputs(run)[:-1], *(p for p in more if p.exists())]
    record.add_files(result.record, run, written)
    write_json(run.file("run.json"), result.record)


def _show(run: Run, summary: Mapping[str, Any]) -> None:
    """What fits a screen: the answer, the comparisons, where the page is."""
    for line in brief(summary):
        click.echo(line)
    rows = summary.get("comparisons") or ()
    if len(rows) > 1:
        click.echo()
        for line in _comparisons(rows[:_ROWS]):
            click.echo(line)
        if len(rows) > _ROWS:
            click.echo(f"and {len(rows) - _ROWS} more comparisons in report.md")
        click.echo()
    click.echo(run.file("report", "index.html"))


def brief(summary: Mapping[str, Any]) -> list[str]:
    """The answer of the page, the figures below it, and whether to believe it: what is wrong
    first, then what is unsure. Two lines each at most, none of more than 100 characters. That the
    run was copied in part comes before all.

    Where the run has no answer (a sweep alone) the headline's first sentences.
    """
    from ..model.comparison import IN_PART

    answer, files = summary.get("answer"), summary.get("unusable") or ()
    part = next((one["why"] for one in files if one["what"] == IN_PART), None)
    if answer is None:
        lines = list(summary.get("headline", ()))[:_LINES]
    else:
        chips = sorted(answer["doubts"], key=lambda chip: [*_SIGNS].index(chip["tone"]))
        said = " · ".join(f"{_SIGNS[chip['tone']]} {chip['text']}" for chip in chips)
        lines = [answer["text"], " ".join(answer["lines"]), said]
        lines = lines if part is None else [part, answer["text"], said]
    return [
        part
        for line in lines
        for part in textwrap.wrap(one_line(line), _WIDTH, max_lines=2, placeholder=" …")
    ]


def _comparisons(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """All comparisons as lines; where time is saved only in a terminal that is wide enough, it
    stands in the report."""
    columns = {
        "times": "",
        "side": "side",
        "against": "as",
        "interval": "95 %",
        "saves": "saves most in",
        "loses": "loses most in",
        "note": "note",
    }
    lines = _aligned(columns, rows)
    if max(map(len, lines)) <= shutil.get_terminal_size().columns:
        return lines
    return _aligned({c: h for c, h in columns.items() if c not in ("saves", "loses")}, rows)


def _aligned(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [[one_line(str(r.get(c, ""))) for c in columns] for r in rows]
    return list(aligned([*columns.values()], cells))


def _judge(run: Run, summary: Mapping[str, Any]) -> None:
    """CheckFailed where an engine computes something else than eager, or did not run in the
    precision that it was built for, or the report is without a file that cannot be used."""
    if doubtful := summary.get("not_as_left"):
        log(incomplete.line(doubtful))
    wrong = [
        (f"{name} does not compute what eager does: {of['why']}.", _WHERE)
        for name, e in summary["engines"].items()
        if (of := e.get("outputs") or {}).get("ok") is False
    ]
    checks = [e.get("closure", {}).get("precision") or {} for e in summary["engines"].values()]
    fix = "measure a larger model, or ask for the precision that ran"
    wrong += [(str(c["text"]), fix) for c in checks if c.get("ok") is False]
    report = run.file("report", "report.md")
    if error := problems.failed(summary.get("unusable") or (), report, wrong):
        raise error
