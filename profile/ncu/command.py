"""`layerline ncu`: hardware counters of a run's engines, of its eager model, of its training."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ...core.cli.options import SECONDS, examples, listed, no_use, run_argument
from ...core.cli.progress import log
from ...core.errors import InputError, ToolMissing
from ...core.files import machine_lock, writable, write_json
from ...core.replay import pieces as pieces_
from ...core.run import Run, Step, open_run
from ...core.tool_commands import words
from ...engines import backend as backends
from ...engines import launch
from ...engines.command import precisions
from ..eager.process import cuda_usable
from ..engine import measure as measure_
from . import capture, in_pieces, target, tool
from .target import Target

WORK = ("engine", "eager", "train")


def _given(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Each value once; empty text is as if the option was not given, as in `listed`."""
    return tuple(dict.fromkeys(v.strip() for v in values if v.strip()))


@click.command(
    "ncu",
    epilog=examples(
        "layerline ncu runs/gpt2 --precision fp16 --roofline",
        "layerline ncu runs/gpt2 --of train --precision fp32 --set full",
        "layerline ncu runs/gpt2 --dry-run                # what would run",
        "layerline ncu --query                            # the metrics of this GPU",
    ),
)
@run_argument(required=False)
@click.option(
    "--precision",
    "wanted",
    multiple=True,
    callback=precisions,
    help="fp32, tf32, fp16 or bf16; repeat it or join with commas.  [default: fp32,fp16]",
)
@click.option("--backend", default="tensorrt", show_default=True, help="Whose engine to measure.")
@click.option(
    "--of",
    "work",
    type=click.Choice(WORK),
    default="engine",
    show_default=True,
    help="Whose kernels to measure.",
)
@click.option(
    "--section",
    "sections",
    multiple=True,
    callback=_given,
    help="A section, as ncu names it; repeatable.  [default: ComputeWorkloadAnalysis]",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    callback=_given,
    help="A set of sections, as ncu names it; repeatable.",
)
@click.option(
    "--metrics",
    multiple=True,
    callback=lambda _context, _parameter, values: listed(values),
    help="Metrics, joined with commas.",
)
@click.option("--roofline", is_flag=True, help="Also measure what the roofline needs.")
@click.option(
    "--replay-mode",
    type=click.Choice(("kernel", "application", *tool.RANGES)),
    help="What ncu repeats. range and app-range measure the whole iteration, or each range of "
    "--nvtx-include, as one.  [default: kernel]",
)
@click.option(
    "--cache-control",
    type=click.Choice(("all", "none")),
    help="Which caches ncu empties before each replay.  [default: all]",
)
@click.option(
    "--clock-control",
    type=click.Choice(("base", "none")),
    help="The clock that ncu fixes.  [default: base]",
)
@click.option(
    "--kernel-name", help="Measure only kernels whose name matches this regular expression."
)
@click.option(
    "--nvtx-include",
    multiple=True,
    callback=_given,
    help="Measure only inside these NVTX ranges, written as for ncu.",
)
@click.option(
    "--every", is_flag=True, help="Replay every launch, also those that are the same work."
)
@click.option(
    "--batch-launches",
    type=click.IntRange(min=1),
    help="Measure at most so many launches in one run of the program. Finished parts are kept.",
)
@click.option(
    "--passes",
    type=click.IntRange(min=1),
    help="Measure at most so many of --metrics in one run of the program.",
)
@click.option("--query", is_flag=True, help="Only write the list of this GPU's metrics to a file.")
@click.option(
    "--timeout",
    type=SECONDS,
    default=1800,
    show_default=True,
    help="End a run of the program after so many seconds.",
)
@click.option("--dry-run", is_flag=True, help="Print the commands that would run, and run none.")
def ncu(
    run_path: Path | None,
    wanted: tuple[str, ...],
    backend: str,
    work: str,
    query: bool,
    every: bool,
    batch_launches: int | None,
    passes: int | None,
    timeout: float,
    dry_run: bool,
    **asked: Any,
) -> None:
    """Measure hardware counters with Nsight Compute.

    Launches that are the same work, by the run's nsys capture, are replayed once or twice; the
    others are given the same counters and marked. That takes a fraction of the time. Durations in
    these captures are those of replayed, serialised kernels: they are never latencies.
    """
    if query:
        others = {p.name or "" for p in click.get_current_context().command.params}
        no_use(others - {"run_path", "query", "timeout"}, "with --query, which lists all metrics")
        _query(run_path, timeout)
        return
    if run_path is None:
        raise click.UsageError("Missing argument 'RUN'.")
    if work != "engine":
        no_use(["backend"], f"with --of {work}, which has no engine")
    options = _options(asked)
    if passes and not options.metrics:
        raise click.UsageError("--passes divides --metrics, and there are none")
    _of_ranges(options, every=every, cut=batch_launches)
    run = open_run(run_path)
    if work == "engine":
        targets = _engines(run, wanted, backend)
    else:
        targets = [target.torch_target(run, work, precision) for precision in wanted]
    if not dry_run:
        _able(work, backend)
    for of in targets:
        if dry_run:
            click.echo(command_line(of, options, every=every or bool(batch_launches or passes)))
            if most := _most(batch_launches, passes):
                click.echo(f"# in pieces, each a run of its own with {most}")
        elif batch_launches or passes:
            cut = pieces_.Cut(batch_launches, passes)
            pieces = _kept_as(of, options, every=True)
            capturing = functools.partial(in_pieces.capture, pieces, options, cut, timeout=timeout)
            kept = {"cut": vars(cut)}, [".ncu.batches/manifest.json", ".ncu.meta.json"]
            measure(pieces, options, *kept, capturing)
        else:
            measure_one(of, options, every=every, timeout=timeout)


def _most(launches: int | None, metrics: int | None) -> str:
    """What a piece has at most, as text; empty where the work is not cut."""
    parts = {"launches": launches, "metrics": metrics}
    limits = " and ".join(f"{most} {what}" for what, most in parts.items() if most)
    return limits and f"at most {limits}"


def _kept_as(of: Target, options: tool.Options, *, every: bool) -> Target:
    """The target with the names of the files that such a capture leaves."""
    if options.of_ranges:
        return of.whole()
    return of.every() if every else of


def measure_one(of: Target, options: tool.Options, *, every: bool, timeout: float) -> None:
    """The step of a capture in one run of the program; nothing where it is still valid."""
    of = _kept_as(of, options, every=every)
    work = functools.partial(capture.capture, of, options, every=every, timeout=timeout)
    measure(of, options, {"every": every}, list(capture.SUFFIXES), work)


def _engines(run: Run, wanted: tuple[str, ...], backend: str) -> list[Target]:
    chosen = backends.choose(backend)
    if not chosen.traceable and chosen.tells_launches:
        raise tool.no_gpu()
    if not chosen.traceable:
        raise InputError(f"counters of {chosen.name} engines are not taken", fix="use tensorrt")
    for precision in wanted:
        backends.check_precision(chosen, precision)
    return [target.engine_target(measure_.subject(run, p, chosen)) for p in wanted]


def _able(work: str, backend: str) -> None:
    """ToolMissing where this machine cannot capture."""
    tool.command()
    if work == "engine":
        backends.require(backends.choose(backend))
    elif not cuda_usable():
        raise tool.no_gpu()


def _options(asked: dict[str, Any]) -> tool.Options:
    texts = {k: (v or "").strip() for k, v in asked.items() if v is None or isinstance(v, str)}
    return tool.Options(**{**asked, **texts})


def _of_ranges(options: tool.Options, *, every: bool, cut: int | None) -> None:
    """UsageError where what is asked for goes by kernels and the replay mode does not."""
    kernels = {"--kernel-name": options.kernel_name, "--every": every, "--batch-launches": cut}
    wrong = [name for name, given in kernels.items() if given]
    if options.of_ranges and wrong:
        raise click.UsageError(
            f"{wrong[0]} chooses kernels, and --replay-mode {options.replay_mode} measures ranges"
        )


def _query(path: Path | None, timeout: float) -> None:
    if path is not None and not path.is_dir():
        raise InputError(
            "no such run directory", file=path, fix="name a run, or leave out --run to write here"
        )
    file = (path / "captures" if path else Path()) / "ncu-metrics.txt"
    writable(file)
    count = tool.query(file, timeout)
    click.echo(f"{count} metrics in {file}")


def command_line(of: Target, options: tool.Options, *, every: bool) -> str:
    """The command as text, with the worker's job."""
    of = _kept_as(of, options, every=every)
    plan = None if every or options.filtered else of.plan()
    filters = [] if plan is None else plan.filters()
    before = tool.prefix(words("NCU", "ncu"), options, of.file(""), filters)
    warmup = target.WARMUP if plan is None else of.warmup
    return launch.shell_line([*before, *of.worker.command], of.job(warmup))


def measure(
    of: Target,
    options: tool.Options,
    also: dict[str, Any],
    suffixes: list[str],
    work: Callable[[], dict[str, Any]],
) -> None:
    """A step that leaves the files of these suffixes; nothing is done where it is valid."""
    step = step_of(of, {**options.as_json(), **also}, suffixes)
    if step.valid():
        log(f"{step.name}: up to date")
        return
    refused = of.file(".ncu.refused.json")
    refused.unlink(missing_ok=True)
    with machine_lock(f"measuring {step.name}"), step.recording() as facts:
        try:
            facts.update(work())
        except ToolMissing as e:
            # The report says why this side has no counters, also where it is made elsewhere.
            write_json(refused, {"schema_version": 1, "why": e.what, "fix": e.fix})
            raise


def step_of(of: Target, options: dict[str, Any], suffixes: list[str]) -> Step:
    """The step of a capture."""
    sqlite = [of.sqlite] if of.sqlite is not None and of.sqlite.exists() else []
    outputs = [of.file(s) for s in suffixes]
    return Step(of.run, f"profile/{of.stem}.ncu", options, [*of.inputs, *sqlite], outputs)
