"""`layerline engines`: build the engines of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..core.capture_names import PRECISIONS
from ..core.cli.options import FilePath, examples, listed, no_use, run_argument
from ..core.cli.progress import log, progress
from ..core.errors import InputError, LayerlineError
from ..core.files import machine_lock
from ..core.run import Run, Step, open_run
from . import plans
from .backend import (
    Backend,
    BuildOptions,
    check_options,
    check_precision,
    choose,
    nodes_path,
    require,
)

DEFAULT_PRECISIONS = ("fp32", "fp16")


def precisions(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """A click callback: repeated or joined by commas, each once, in the order given."""
    chosen = listed(values)
    for precision in chosen:
        if precision not in PRECISIONS:
            raise click.BadParameter(f"{precision!r} is not one of {', '.join(PRECISIONS)}")
    return chosen or DEFAULT_PRECISIONS


def given_precisions(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """As `precisions`, but nothing where none is given."""
    return precisions(context, parameter, values) if any(v.strip() for v in values) else ()


def _capability(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> str | None:
    """Empty is as if not given; 8.9 is 89."""
    digits = (value or "").strip().replace(".", "", 1)
    if digits and not (digits.isdecimal() and digits.isascii() and len(digits) in (2, 3)):
        raise click.BadParameter(f"{value!r} is no compute capability; give one as 89 or 8.9")
    return digits or None


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every stage that takes engines: RUN (run_path), --precision (wanted),
    --backend."""
    for option in (
        click.option(
            "--backend",
            help="tensorrt, onnxruntime-cuda, onnxruntime or inductor.  [default: the first that "
            "runs here]",
        ),
        click.option(
            "--precision",
            "wanted",
            multiple=True,
            callback=precisions,
            help="fp32, tf32, fp16 or bf16; repeat it or join with commas.  [default: fp32,fp16]",
        ),
        run_argument(),
    ):
        command = option(command)
    return command


if_possible_option = click.option(
    "--if-possible",
    is_flag=True,
    help="Where the backend cannot do it here, say why, and do not fail: the report says it too.",
)


@click.command(
    epilog=examples(
        "layerline engines runs/gpt2                    # fp32 and fp16",
        "layerline engines runs/gpt2 --precision bf16 --backend tensorrt",
        "layerline engines runs/gpt2 --precision fp16 --engine own.plan",
        "layerline engines runs/gpt2 --backend inductor # torch.compile's compiler",
    )
)
@engine_options
@click.option(
    "--optimization-level",
    help="How hard the builder tries. ONNX Runtime: disable, basic, extended or all. TensorRT: "
    "0 to 5. inductor: default, max-autotune or "
    "reduce-overhead.",
)
@click.option(
    "--workspace-mib",
    type=click.IntRange(min=1),
    help="TensorRT: at most so much memory for a layer's workspace, in MiB.",
)
@click.option(
    "--timing-cache",
    type=FilePath(dir_okay=False),
    help="TensorRT: the timing cache to use and update.  [default: an empty one, not kept]",
)
@click.option(
    "--compute-capability",
    metavar="CC",
    callback=_capability,
    help="TensorRT-RTX: build for a GPU that is not here, by its compute capability, e.g. 89.",
)
@click.option(
    "--precision-plan",
    type=FilePath(dir_okay=False),
    help="Keep the modules that this file names in fp32. `layerline accuracy --plan` writes one.",
)
@click.option(
    "--engine",
    type=FilePath(dir_okay=False),
    help="TensorRT: take this engine, built elsewhere from the run's ONNX file, instead of "
    "building one. Name its --precision.",
)
@click.option("--dry-run", is_flag=True, help="Print the commands that would run, and run none.")
@if_possible_option
@click.option(
    "--threads", type=click.IntRange(min=1), help="CPU threads to use.  [default: all usable]"
)
def engines(
    run_path: Path,
    wanted: tuple[str, ...],
    backend: str | None,
    optimization_level: str | None,
    threads: int | None,
    dry_run: bool,
    engine: Path | None,
    precision_plan: Path | None,
    if_possible: bool,
    **builder: Any,
) -> None:
    """Build an inference engine for each precision.

    It is built from the exported ONNX file. Beside it lie the list of its layers, with the ONNX
    nodes and modules that each is made of, and a record of how it was built. An engine that is
    still valid is not built again.
    """
    run = open_run(run_path)
    if engine is not None:
        if len(wanted) != 1 or dry_run:
            raise InputError(
                "--engine is one engine of one precision, and is copied, not built",
                fix="give one --precision and no --dry-run",
            )
        decided = ("optimization_level", "threads", "precision_plan", *builder)
        no_use(decided, "with --engine, which is built already")
        take(run, wanted[0], choose(backend or "tensorrt"), engine)
        return
    chosen = choose(backend)
    given = {k: str(v) if isinstance(v, Path) else v for k, v in builder.items() if v is not None}
    asked = BuildOptions(optimization_level, threads, given)
    check_options(chosen, asked)
    for precision in wanted:
        check_precision(chosen, precision)
    planned = {} if precision_plan is None else plans.asked(run, precision_plan, wanted, chosen)
    for precision in wanted:
        more = planned.get(precision, {})
        wish = replace(asked, build={**asked.build, **more})
        if dry_run:
            show(run, precision, chosen, wish)
        elif if_possible:
            _try(run, precision, chosen, wish)
        else:
            build(run, precision, chosen, wish)


def _try(run: Run, precision: str, backend: Backend, asked: BuildOptions) -> None:
    """Build one engine where that is possible here and worth its time; else record why not."""
    why = backend.unavailable() or backend.not_worth(precision)
    try:
        if why is None:
            build(run, precision, backend, asked)
            return
        what, fix = why.reason, why.remedy
    except LayerlineError as e:
        what, fix = e.what, e.fix or ""
    log(f"no {precision} engine of {backend.name}: {what}; {fix}")
    step = Step(run, f"engines/{precision}.{backend.name}", {"skipped": what}, [], [])
    if step.valid():
        return
    for left in backend.outputs(run, precision):
        left.unlink(missing_ok=True)
    with step.recording() as facts:
        facts["skipped"] = {"what": f"{precision} {backend.name}", "why": what, "fix": fix}


def show(run: Run, precision: str, backend: Backend, asked: BuildOptions) -> None:
    """Print what `build` would run."""
    commands = backend.plan(run, precision, backend.options(asked))
    nothing = f"# {precision} {backend.name}: built in this process, no command"
    click.echo("\n".join(commands) or nothing)


def build(run: Run, precision: str, backend: Backend, asked: BuildOptions) -> None:
    """Build one engine where it is not valid. Raises LayerlineError."""
    source = backend.source(run, precision)
    if not source.exists():
        raise InputError(
            "no such file",
            file=source,
            fix=f"layerline export {run.path} --precision {precision} --backend {backend.name}",
        )
    options = backend.options(asked)
    step = Step(
        run,
        f"engines/{precision}.{backend.name}",
        options,
        [*backend.inputs(run, precision), *plans.more_inputs(run, precision, backend, options)],
        backend.outputs(run, precision),
    )
    _perform(step, backend, f"building {step.name}", lambda: backend.build(run, precision, options))


def take(run: Run, precision: str, backend: Backend, file: Path) -> None:
    """Take an engine that was built elsewhere into the run: copy it, list its layers, record
    where it is from.

    It is the user's own (``trtexec --saveEngine``, another program), built from the run's ONNX
    file: its layers are then resolved as those of an engine of ours. How it was built is not known,
    so there is no noise of rebuilding, and network.json is empty: layers that TensorRT left unnamed
    go by their order.

    InputError where the file, the run's export or the backend does not allow it; ToolMissing where
    nothing here can load it.
    """
    if not backend.takes_engines:
        raise InputError(
            f"{backend.name} takes no engine that was built elsewhere", fix="use --backend tensorrt"
        )
    check_precision(backend, precision)
    if not file.is_file():
        raise InputError("no such engine file", file=file)
    nodes = nodes_path(run, backend.source(run, precision).stem)
    if not nodes.exists():
        fix = f"layerline export {run.path} --precision {precision}"
        raise InputError("no such file", file=nodes, fix=fix)
    options = {"built_elsewhere": True, "backend": backend.options(BuildOptions())}
    outputs = backend.outputs(run, precision)
    inputs = [file.absolute(), nodes]
    step = Step(run, f"engines/{precision}.{backend.name}", options, inputs, outputs)
    what = f"taking {file.name} as {step.name}"
    _perform(step, backend, what, lambda: backend.take(run, precision, file))


def _perform(step: Step, backend: Backend, what: str, work: Callable[[], dict[str, Any]]) -> None:
    """Run a step that is not valid, where the backend runs and the step's inputs are there."""
    if step.valid():
        log(f"{step.name}: up to date")
        return
    require(backend)
    for needed in step.inputs:
        if not needed.exists():
            raise InputError("no such file", file=needed, fix=f"layerline export {step.run.path}")
    with machine_lock(what), progress(what), step.recording() as facts:
        facts.update(work())
