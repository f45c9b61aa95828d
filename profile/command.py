"""`layerline profile`: measure engines, the eager model, and its training."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..core import documents
from ..core.accuracy.limits import Asked, Limits, judge
from ..core.capture_names import TORCH_TASKS
from ..core.cli.accuracy_limits import limit_options
from ..core.cli.options import examples, listed, no_use
from ..core.cli.progress import log
from ..core.errors import CheckFailed, InputError, LayerlineError
from ..core.run import Run, Step, open_run
from ..engines import backend as backends
from ..engines.command import engine_options, if_possible_option
from . import dry_run as dry_run_
from . import steps
from .accuracy import gate
from .accuracy.command import sentence
from .accuracy.located import located
from .accuracy.values import Reference
from .beside import Beside
from .eager.stage import Eager, reference_step, sides
from .engine import measure, rebuild, trace
from .engine.stage import Engine
from .ncu import step as step_
from .ncu.tool import no_gpu
from .steps import COUNTERS, REBUILD

WHAT = ("engine", "eager", "train", COUNTERS)


def _what(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    found = listed(values)
    for w in found:
        if w not in (*WHAT, REBUILD, "all"):
            raise click.BadParameter(f"{w!r} is not one of {', '.join(WHAT)}, {REBUILD}, all")
    chosen = WHAT if not found or "all" in found else tuple(w for w in WHAT if w in found)
    return (*chosen, REBUILD) if REBUILD in found else chosen


@click.command(
    epilog=examples(
        "layerline profile runs/gpt2                    # all that this machine can",
        "layerline profile runs/gpt2 --what engine --precision fp16",
        "layerline profile runs/gpt2 --force            # again, on an idle machine",
    )
)
@engine_options
@click.option(
    "--what",
    multiple=True,
    callback=_what,
    help="What to measure: engine, eager, train, ncu (counters of the engines) or all; rebuild "
    "builds each engine again, to tell how much two builds differ.  [default: all]",
)
@steps.repeat_options("measurement", "15 unprofiled, 10 profiled")
@click.option(
    "--trace-iterations",
    type=click.IntRange(min=1),
    default=trace.ITERATIONS,
    show_default=True,
    help="How many inferences nsys captures of an engine.",
)
@limit_options
@click.option("--anyway", is_flag=True, help="Also measure engines whose outputs are wrong.")
@click.option("--force", is_flag=True, help="Also measure again what is still valid.")
@click.option("--dry-run", is_flag=True, help="Print the commands that would run, and run none.")
@if_possible_option
def profile(
    run_path: Path,
    wanted: tuple[str, ...],
    backend: str | None,
    what: tuple[str, ...],
    trace_iterations: int,
    min_cosine: dict[str, float],
    min_top1: dict[str, float],
    anyway: bool,
    force: bool,
    dry_run: bool,
    if_possible: bool,
    **limits: Any,
) -> None:
    """Measure engines and the eager model, in inference and training.

    The outputs of each engine are compared with those of eager fp32 first. An engine that computes
    something else is not measured, and the command then ends with 1.

    Each measurement repeats until it is precise enough, or says that it is not. Nothing is measured
    beside a build or another measurement. What is still valid is not measured again without
    --force. `layerline ncu` measures hardware counters alone, with more options.
    """
    _check_limits(what, backend)
    run = open_run(run_path)
    if if_possible:
        wanted = tuple(p for p in wanted if measure.built(run, p, backends.choose(backend)))
        if not wanted:
            return
    if dry_run:
        _show(run, wanted, backend, what, limits, trace_iterations)
        return
    if force:
        steps.forget(run, what, wanted, backends.choose(backend).name)
    with _going_on(if_possible):
        chosen = backends.choose(backend) if {"engine", REBUILD, COUNTERS} & {*what} else None
        subjects = [] if chosen is None else _subjects(run, wanted, chosen)
        wrong: dict[str, str] = {}
        limits_ = Asked(min_cosine, min_top1)
        with contextlib.ExitStack() as stack:
            beside = stack.enter_context(Beside())  # left last: what it waits for has ended then
            eager = stack.enter_context(Eager(run, sides(run, what, wanted, limits)))
            if "engine" in what or "eager" in what:
                eager.start([reference_step(run)])
            else:
                eager.start()
            if "engine" in what:
                wrong = _wrong(subjects, eager, limits_)
            elif "eager" in what:
                eager.reference()
            eager.measure()
            right = [s for s in subjects if anyway or s.precision not in wrong]
            engines = []
            for subject in right if "engine" in what else ():
                engines.append(stack.enter_context(Engine(subject, limits, trace_iterations)))
                engines[-1].measure()
            eager.capture(beside)
            for engine in engines:
                engine.capture(beside)
            beside.wait()
            eager.finish()
        refused = None
        for subject in right:
            if COUNTERS in what and _counts(subject.backend, what):
                by_name = not set(WHAT) <= set(what)
                refused = step_.counters(subject, by_name=by_name, refused=refused)
            if REBUILD in what:
                _rebuild(subject, limits)
        for subject in subjects:
            if subject.precision in wrong:
                _locate(subject, limits_.limits(subject.precision))
        if wrong:
            more = "" if anyway else "; nothing else was measured of it (--anyway measures it)"
            fix = "layerline accuracy says in which module"
            raise CheckFailed("; ".join(wrong.values()) + more, file=run.path, fix=fix)


@contextlib.contextmanager
def _going_on(wanted: bool) -> Iterator[None]:
    """Say what went wrong and go on, where that is `wanted`."""
    try:
        yield
    except LayerlineError as e:
        if not wanted:
            raise
        log(f"not measured: {e.line()}")


def _subjects(run: Run, wanted: Sequence[str], chosen: backends.Backend) -> list[measure.Subject]:
    _check_traced(chosen)
    for precision in wanted:
        backends.check_precision(chosen, precision)
    return [measure.subject(run, precision, chosen) for precision in wanted]


def _check_limits(what: Sequence[str], backend: str | None) -> None:
    """UsageError where an option is given that nothing which is to be measured has; InputError for
    an unknown backend, though no engine may be measured."""
    named = " and ".join(what)
    if "engine" not in what:
        no_use(["trace_iterations"], f"for {named}: it is of engines under nsys")
    if not {"engine", REBUILD} & {*what}:
        no_use(["processes"], f"for {named}: it is of the latencies of engines")
    if {*what} == {COUNTERS}:
        no_use(["iterations", "target", "seconds"], f"for {named}: counters are taken once")
    if backend is not None:
        _check_traced(backends.load(backend))


def _check_traced(backend: backends.Backend) -> None:
    if not backend.traceable:
        no_use(["trace_iterations"], f"with {backend.name}: nsys captures nothing of it")


def _counts(backend: backends.Backend, what: Sequence[str]) -> bool:
    """Whether a backend runs kernels whose launches are told apart; where counters were asked for
    by name and it does not InputError, or ToolMissing where it would on a GPU."""
    if backend.tells_launches and backend.traceable:
        return True
    if set(WHAT) <= set(what):
        return False
    if backend.tells_launches:
        raise no_gpu()
    raise InputError(f"counters of {backend.name} engines are not read", fix="use tensorrt")


def _show(
    run: Run,
    wanted: Sequence[str],
    backend: str | None,
    what: Sequence[str],
    limits: dict[str, Any],
    traced: int,
) -> None:
    """Print what would run."""
    lines = [dry_run_.torch_side(w, p) for w in TORCH_TASKS if w in what for p in wanted]
    if {"engine", COUNTERS} & {*what}:
        chosen = backends.choose(backend)
        plans = steps.unprofiled(limits, chosen), steps.plan(limits, most=60, seconds=10.0)
        for precision in wanted:
            subject = measure.subject(run, precision, chosen)
            if "engine" in what:
                lines += dry_run_.engine(subject, *plans, traced)
            if COUNTERS in what and _counts(chosen, what):
                lines.append(step_.command_lines(subject))
    if REBUILD in what:
        lines.append("# rebuild: the engines stage again in RUN/rebuild, and latency of both")
    click.echo("\n".join(lines))


def _rebuild(of: measure.Subject, limits: dict[str, Any]) -> None:
    plan = steps.unprofiled(limits, of.backend)
    step = steps.of_engine(of, REBUILD, plan.as_json(), [".rebuild.json"])
    work = partial(rebuild.rebuild, of, plan)
    steps.perform(step, work, lambda: backends.require(of.backend))


def _wrong(subjects: Sequence[measure.Subject], eager: Eager, asked: Asked) -> dict[str, str]:
    """By precision, what is wrong with engines that do not compute what eager does."""
    modules = Reference(eager.run, eager.worker)
    found = {s.precision: _parity(s, eager, modules, asked) for s in subjects}
    return {precision: why for precision, why in found.items() if why}


def _parity(of: measure.Subject, eager: Eager, modules: Reference, asked: Asked) -> str | None:
    """That the engine does not compute what eager fp32 does, whatever the engine's precision; None
    where it does or that cannot be told: then a fact is left."""
    steps.outputs(of)
    name = steps.name_of(of, "accuracy")
    reference = eager.reference()
    if reference is None:
        fix = "profile where PyTorch is installed"
        steps.skip(of.run, name, f"accuracy of {of.precision}", "no eager fp32 outputs", fix)
        return None
    limits = asked.limits(of.precision)
    inputs = [of.capture(".outputs.npz"), reference]
    step = Step(of.run, name, {"limits": limits._asdict()}, inputs, [of.capture(".accuracy.json")])
    if not step.valid():
        steps.record(step, partial(measure.accuracy, of, reference, limits))
    figures = documents.checked(of.capture(".accuracy.json"), documents.Accuracy)
    verdict = gate.judge(of, judge(figures, limits), figures, limits, modules)
    words = f"the {of.precision} engine of {of.backend.name}"
    if verdict.ok is None:
        log(f"{words}: it is unknown whether it computes what eager does: {verdict.why}")
    return f"{words} does not compute what eager does: {verdict.why}" if verdict.wrong else None


def _locate(of: measure.Subject, limits: Limits) -> None:
    """Say in which module a wrong engine goes wrong, where that can be told."""
    try:
        found = located(of, limits)
    except LayerlineError as e:  # not asked for: that the engine is wrong is told all the same
        log(f"where the {of.precision} engine goes wrong is not known: {e.line()}")
        return
    log(f"the {of.precision} engine of {of.backend.name}: {sentence(found, of.backend)}")
