"""`layerline train`: train a model on text, and profile it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from ...core.cli.options import FilePath, Finite, examples, given, listed, no_use
from ...core.cli.progress import log, progress
from ...core.errors import InputError, ToolMissing
from ...core.ranks import identity as ranks_
from ...core.run import Run, Step, code_hash, open_run
from ...export import overrides, own
from ...export.models import folder_files, onnx_precision
from ...workloads.request import WORKLOADS, Request, check, defaults, has_gpu
from ...workloads.text import files_of, tokenizer_file
from .. import nsys, steps
from ..eager import plugins, process
from ..ranks.options import Asked, WithProgram, program, rank_options
from .process import Plan, capture, outputs

_KINDS = ", ".join(plugins.PLUGINS)


def _device(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"cpu|cuda(:\d{1,4})?", value):
        raise click.BadParameter(f"{value} is not cpu, cuda or cuda:1, say.")
    return value


@click.command(
    cls=WithProgram,
    epilog=examples(
        "layerline train gpt2 --model tiny --run runs/train",
        "layerline train gpt2 --model tiny --run runs/mem --steps 8 --profile memory",
        "layerline train llama --model tiny --nproc 2 --run runs/many",
        "layerline train --nproc 8 --run runs/own -- python own.py",
    ),
)
@click.argument("workload", metavar=f"{{{'|'.join(WORKLOADS)}}} | -- PROGRAM …", required=False)
@click.option(
    "--run", "run_path", type=FilePath(), required=True, metavar="RUN", help="The run directory."
)
@click.option(
    "--model", help="A size that the workload knows (tiny, for one) or a Hugging Face folder."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change one value of the model's configuration; repeatable.",
)
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    default=("fp32",),
    show_default=True,
    help="fp32, tf32, fp16 or bf16 (these two by autocast); repeat it or join with commas.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    help="Sequences of a micro-batch.  [default: the workload's, 1]",
)
@click.option(
    "--seq",
    type=click.IntRange(min=2),
    help="Tokens of a sequence.  [default: the workload's, 128]",
)
@click.option(
    "--accumulate", type=click.IntRange(min=1),
    help="Micro-batches in a step.  [default: the workload's, 1]",
)  # fmt: skip
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    help="Steps to time before any is captured.  [default: the workload's, 30]",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of weights and data.",
)
@click.option(
    "--learning-rate",
    type=Finite(min=0),
    default=Request.learning_rate,
    show_default=True,
    help="The optimizer's learning rate.",
)
@click.option(
    "--checkpoint", is_flag=True, help="Recompute each block in backward, to save memory."
)
@click.option(
    "--compile",
    is_flag=True,
    help="Use torch.compile: costs are told by module, as far as inductor says which.",
)
@click.option("--fused", is_flag=True, help="Use AdamW in one kernel.")
@click.option(
    "--deterministic", is_flag=True, help="Compute the same bits each time, also on a GPU."
)
@click.option(
    "--text",
    type=FilePath(exists=True),
    help="A file or folder of text.  [default: text that comes with PyTorch]",
)
@click.option(
    "--tokenizer",
    type=FilePath(exists=True),
    help="A folder with a tokenizer.json.  [default: a byte-level one is trained]",
)
@click.option(
    "--device",
    callback=_device,
    help="cpu, cuda or cuda:1, say.  [default: a GPU where there is one]",
)
@click.option(
    "--profile",
    "profile",
    multiple=True,
    default=("torch,operators",),
    show_default=True,
    help=f"What to record: {_KINDS}; repeat it or join with commas.",
)
@click.option(
    "--schedule",
    metavar="WAIT,WARMUP,ACTIVE[,REPEAT]",
    default="0,1,6,1",
    show_default=True,
    help="Which steps torch and nsys capture, counted from the end of --steps.",
)
@click.option(
    "--stacks",
    is_flag=True,
    help="With --profile operators: also record the Python lines of every operator.",
)
@click.option(
    "--tensorboard",
    type=FilePath(file_okay=False),
    metavar="DIR",
    help="Also write traces for TensorBoard into this folder.",
)
@click.option("--force", is_flag=True, help="Train again though the result is still valid.")
@rank_options
def train(
    run_path: Path,
    precisions: tuple[str, ...],
    settings: tuple[str, ...],
    profile: tuple[str, ...],
    schedule: str,
    stacks: bool,
    tensorboard: Path | None,
    force: bool,
    **asked: Any,
) -> None:
    """Train a model and measure its steps, on one rank or many.

    gpt2 (causal) and bert (masked) train on text; llama, gpt-layouts and sequence-parallel are for
    several ranks; own.py:build, or package.module:function, is your own model with its inputs and
    loss, and is executed (`layerline init own.py` writes one).

    Steps are timed alone first, then captured. `layerline report RUN` shows what a step costs, and
    `layerline memory`, `parameters`, `graph` and `ranks` what --profile recorded.

    With --nproc, or where srun or mpiexec started it, it trains on many ranks, and each leaves
    captures of its own. With `-- PROGRAM` it runs a program of yours instead of a workload.
    """
    ranks = Asked(**{f.name: asked.pop(f.name) for f in fields(Asked)})
    names = listed(profile)
    words, window = _checked(asked["workload"], listed(precisions), names, schedule)
    if words is not None:
        _program(run_path, words, listed(precisions), ranks, names, window)
        return
    options = {
        "schedule": schedule,
        "stacks": stacks,
        "tensorboard": None if tensorboard is None else str(tensorboard.resolve()),
    }
    usual = defaults(asked["workload"], asked["model"], asked["device"])
    if usual.model and asked["model"] is None:
        here = "with" if has_gpu(asked["device"]) else "without"
        log(f"{asked['workload']}: --model {usual.model}, the default {here} a GPU")
    asked |= {k: v for k, v in vars(usual).items() if asked[k] is None}
    steps = asked.pop("steps")
    asked |= {k: str(asked[k].resolve()) for k in ("text", "tokenizer") if asked[k]}
    asked |= {"cache": str((run_path / "text").resolve()), "settings": overrides.split(settings)}
    plan = Plan(steps=steps, profile=names, options=options)
    if ranks.several:
        for precision in listed(precisions):
            _many(run_path, _request(precision, asked), plan, ranks)
        if ranks.nproc is not None:  # else each rank is a process like this one
            _told(run_path, {"ranks": ("torch", "nsys")}, names)
        return
    _no_use_alone()
    run = open_run(run_path, create=True)
    for precision in listed(precisions):
        perform(run, _request(precision, asked), plan, force)
    _told(run_path, {"report": ("torch", "nsys")}, names)


def _checked(
    workload: str | None, precisions: Sequence[str], names: Sequence[str], schedule: str
) -> tuple[list[str] | None, plugins.Schedule]:
    """The program after ``--``, None for a workload, and the window. Refuses what no machine
    trains."""
    words, window = program(), plugins.Schedule.parse(schedule)
    for precision in precisions:
        onnx_precision(precision)
    if words is not None:
        if workload is not None:
            raise click.UsageError("a workload or a program after --, not both")
        return words, window
    if workload is None:
        raise click.UsageError(f"name a workload ({', '.join(WORKLOADS)}) or a program after --")
    check(workload)
    plugins.check(names)
    return None, window


def check_words(words: Sequence[str]) -> None:
    """Refuse words of this command that no machine takes: a job would wait for its nodes with them.
    Files may be on the nodes alone, and are not looked for."""
    try:
        context = train.make_context(train.name, ["--run", "run", *words])
    except click.BadParameter as e:
        if e.param is None or not isinstance(e.param.type, FilePath):
            raise
        return
    with context:
        asked = context.params
        _checked(
            asked["workload"],
            listed(asked["precisions"]),
            listed(asked["profile"]),
            asked["schedule"],
        )
        ranks_.chosen(asked["ranks"])


def _told(run_path: Path, of: Mapping[str, Sequence[str]], names: Sequence[str]) -> None:
    """Which commands tell what was recorded; `of`: those for captures of these names."""
    of = {**of, **{name: (name,) for name in ("memory", "parameters", "graph")}}
    commands = [command for command, kinds in of.items() if set(kinds) & set(names)]
    if commands:
        log("next: " + "; ".join(f"layerline {command} {run_path}" for command in commands))


def _program(
    path: Path,
    words: list[str],
    precisions: tuple[str, ...],
    asked: Asked,
    names: tuple[str, ...],
    schedule: plugins.Schedule,
) -> None:
    """Run a program of the user's on the ranks. A profiler or a window that is not named is none:
    the defaults are those of workloads."""
    from ..ranks import job

    if len(precisions) != 1:
        raise click.UsageError("of a program name one --precision: it stands in its files' names")
    names = names if given("profile") else ()
    if asked.nproc is None and not asked.several:
        asked = replace(asked, nproc=1)
    with job.opened(path, precisions[0], asked) as made:
        job.own(made, words, names, schedule if given("schedule") else None)


def _many(path: Path, request: Request, plan: Plan, asked: Asked) -> None:
    from ..ranks import job

    if "ncu" in plan.profile:
        raise click.UsageError("ncu watches programs after --; see layerline ncu for workloads")
    with job.opened(path, request.precision, asked) as made:
        where = "" if asked.nproc is None else f" on {asked.nproc} ranks"
        with progress(f"training {request.workload} {request.precision}{where}"):
            facts = job.workload(made, plan.job(request, Path()), plan.profile)
    _said(request, facts)


def _no_use_alone() -> None:
    names = [f.name for f in fields(Asked) if f.name not in ("nproc", "nnodes")]
    no_use(names, "without --nproc")


def _request(precision: str, asked: dict[str, Any]) -> Request:
    request = Request(precision=precision, **asked)
    code = own.target(request.workload)
    if code is None:
        return request
    own.look(code, request.settings)
    log(f"{code}: this is your code, and it is executed")
    return replace(request, workload=str(code))


def perform(run: Run, request: Request, plan: Plan, force: bool = False) -> None:
    """Train and measure once, unless that is valid already."""
    why = process.why_not(request.precision, {"device": request.device})
    if why:
        raise ToolMissing(
            f"training in {request.precision} is not run on this machine: {why}",
            fix="use fp32, bf16 or a GPU",
        )
    if "nsys" in plan.profile:
        nsys.command()
    given = {**request.as_dict(), **plan.job(request, Path()), "code": code_hash("workloads")}
    name = f"profile/train.{request.precision}"
    step = Step(run, name, given, _inputs(request), outputs(run, request.precision, plan.profile))
    if steps.trained_by(run, request.precision) == steps.PROFILE:
        if not force:
            raise InputError(
                f"captures/train.{request.precision}.* are those of `{steps.PROFILE}`",
                file=run.path,
                fix="choose another --run, or replace them with --force",
            )
        steps.drop_training(run, request.precision)
    before = ((step.manifest() or {}).get("options") or {}).get("request")
    if force or own.target(request.workload) is not None:  # what that imports is not known here
        run.manifest_path(name).unlink(missing_ok=True)
    steps.perform(step, partial(_trained, run, request, plan))
    if before not in (None, given["request"]):
        # What watched another training would be read as of this one.
        steps.remove_training(run, request.precision, but=step.outputs)


def _inputs(request: Request) -> list[Path]:
    """The files that decide what is trained."""
    text, tokenizer = request.path("text"), request.path("tokenizer")
    found = [] if text is None else files_of(text)
    found += [] if tokenizer is None else [tokenizer_file(tokenizer)]
    code = own.target(request.workload)
    found += [code.file] if code is not None and code.file is not None else []
    model = Path(request.model or "")
    return found + (folder_files(model) if request.model and model.is_dir() else [])


def _trained(run: Run, request: Request, plan: Plan) -> dict[str, Any]:
    facts = capture(run, request, plan)
    _said(request, facts)
    return facts


def _said(request: Request, facts: dict[str, Any]) -> None:
    losses = facts["losses"]
    if any(losses):  # else nothing was learnt
        log(f"{request.workload} {request.precision}: loss {losses[0]:.3f} to {losses[-1]:.3f}")
    for found in facts.get("graph_breaks", ()):
        log(f"torch.compile breaks the graph at {found['place']} ({found['why']})")
