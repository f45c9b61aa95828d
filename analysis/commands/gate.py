"""``layerline gate BASELINE NEW``: not slower, slower, or cannot tell."""

from __future__ import annotations

import datetime
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from ...core.cli.options import (
    SECONDS,
    FilePath,
    Finite,
    examples,
    listed,
    no_use,
    once_each,
)
from ...core.cli.output import say
from ...core.errors import InputError

if TYPE_CHECKING:
    from ..comparison.limits import Limits
    from ..model.baseline import Baseline, SideSamples
    from ..model.verdict import Verdict

# Of --measure: so narrow that a process's own interval adds nothing to their spread.
_TARGET = 0.005
_FORMS = ("markdown", "junit", "json", "annotations")


@dataclass(frozen=True)
class _Asked:
    """The options, by their names on the command line."""

    slower: Sequence[str]
    floor: Sequence[str]
    memory: str | None
    accuracy: float | None
    coverage: str | None
    require: Sequence[str]
    side: Sequence[str]
    by: str | None
    limits: Path | None
    other_machine: bool
    save: Path | None
    update: bool
    reason: str
    output: Sequence[Path]
    form: str
    measure: bool
    rounds: int
    seconds: float


@click.command(
    epilog=examples(
        "layerline gate runs/before runs/after --slower 3%",
        "layerline gate --save ci/cost.json runs/before",
        "layerline gate ci/cost.json runs/after --form annotations -o cost.xml",
        "layerline gate --measure runs/before runs/after --rounds 10",
    )
)
@click.argument("paths", metavar="BASELINE NEW...", nargs=-1, type=FilePath(), required=True)
@click.option("--slower", multiple=True, metavar="[NAME=]PERCENT", help="How much more time is "
              "allowed: 3%, attn=5%; NAME: latency, queued, operations, kinds, modules, or a kind "
              "or module.  [default: latency=3%, kinds=5%, modules=10%]")  # fmt: skip
@click.option("--floor", multiple=True, metavar="NAME=AMOUNT", help="No less is a change: "
              "latency=2us, modules=5us, memory=1MB.  [default: these]")  # fmt: skip
@click.option("--memory", metavar="PERCENT", help="How much more memory.  [default: 2%]")
@click.option("--accuracy", type=Finite(min=0, max=2), help="By how much the cosine of outputs "
              "may fall; whether outputs are wrong is judged in any case.")  # fmt: skip
@click.option("--coverage", metavar="PERCENT", help="How much less of the time may be resolved to "
              "modules.  [default: 1%]")  # fmt: skip
@click.option("--require", multiple=True, metavar="SIDE", help="A side that both must have: "
              "engine:fp16.tensorrt. Repeatable.")  # fmt: skip
@click.option("--side", multiple=True, metavar="SIDE", help="Judge this side only. Repeatable.")
@click.option("--by", type=click.Choice(["latency", "device"]), help="What decides of an engine: "
              "its latency, or its time on the device alone (queued) where both have that. A "
              "latency that is slower is so in any case.  [default: latency]")  # fmt: skip
@click.option("--limits", type=FilePath(), help="A TOML file of all these (docs/ci.md).")
@click.option("--other-machine", is_flag=True, help="Compare other machines, too.")
@click.option("--save", type=FilePath(dir_okay=False), metavar="FILE", help="Write the runs named "
              "as a baseline file of at most 200 kB, and judge nothing.")  # fmt: skip
@click.option("--update", is_flag=True, help="Make NEW the baseline in BASELINE, a file, and keep "
              "what it replaces as a trend.")  # fmt: skip
@click.option("--reason", default="", help="Why, for --update; it is kept in the file.")
@click.option("-o", "--output", multiple=True, type=FilePath(dir_okay=False), help="Write the "
              "verdict: .md, .xml (JUnit) or .json. Repeatable.")  # fmt: skip
@click.option("--form", type=click.Choice(["text", *_FORMS]), default="text", show_default=True,
              help="What is printed; annotations are GitHub's.")  # fmt: skip
@click.option("--measure", is_flag=True, help="Measure the engines of two runs, BASELINE and NEW, "
              "in turn, a process each time: what drifts is the same for both.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=2, max=100), default=5, show_default=True,
              help="Of --measure: how many processes of each.")  # fmt: skip
@click.option("--seconds", type=SECONDS, default=5.0, show_default=True,
              help="Of --measure: at most so long, for each process.")  # fmt: skip
def gate(paths: tuple[Path, ...], **options: Any) -> int:
    """Judge a run by a baseline: slower, not slower, or cannot tell.

    Exit codes: 0 not slower, 1 slower or wrong, 4 cannot tell.

    Both are run directories, or files of `gate --save`; several NEW are runs of the same thing,
    and their spread counts. The spread between processes decides, so measure latencies with
    `layerline profile RUN --what engine --processes 5` or more (on a CPU it takes one process
    without). Reads captures, never a report.

    Worse is what grew by more than its limit, and not by chance; not worse is what grew by less
    for sure. How large a growth is seen 19 times in 20 is always printed.
    """
    asked = _Asked(**options)
    if asked.save is not None:
        _save(asked, paths)
        return 0
    _check(asked, paths)
    from ..comparison import gate as gate_

    if asked.measure:
        before, after = _measured(paths, asked, _limits(asked, paths[0], None))
    else:
        before, after = _read(paths[:1]), _read(paths[1:])
    limits = _limits(asked, paths[0], before)
    names = str(paths[0]), ", ".join(map(str, paths[1:]))
    verdict = gate_.judge(before, after, limits, names)
    for path in asked.output:
        _write(path, verdict)
    say(_rendered(asked.form, verdict))
    if asked.update:
        _update(paths, asked, before, after, limits)
        return 0
    return verdict.code


def _check(asked: _Asked, paths: Sequence[Path]) -> None:
    """What is wrong with the command line is said before minutes of measuring."""
    from ...core.files import apart

    if len(paths) < 2:
        raise click.UsageError("name a BASELINE and a NEW run")
    if asked.reason and not asked.update:
        raise click.UsageError("--reason is of --update")
    for path in asked.output:
        apart(path, *paths)
        _form(path)
    if asked.update and paths[0].is_dir():
        what = "is a run, and --update writes a file"
        raise InputError(what, file=paths[0], fix="--save makes one")
    if asked.update and not asked.reason.strip():
        raise click.UsageError("--update needs --reason: why this is the baseline from now on")
    if not asked.measure:
        no_use(["rounds", "seconds"], "without --measure")
        once_each(paths)


def _read(paths: Sequence[Path]) -> Baseline:
    """Runs of one thing, or a baseline file."""
    from ..captures.samples import joined
    from ..model.baseline import read

    return joined([_of_run(p) if p.is_dir() else read(p) for p in paths])


def _of_run(path: Path) -> Baseline:
    from ...core.capture_names import named
    from ...core.files import listing
    from ...core.run import Run
    from ..captures.samples import of_run
    from ..pipeline import analyse

    run = Run(path)
    run.check_version()
    if not listing(run.file("captures")):
        raise InputError("nothing was captured", file=path, fix="layerline profile measures it")
    names = named(run.file("captures")).values()
    if names and all(name.rank is not None or name.host for name in names):
        return of_run(run)  # of ranks alone
    result = analyse(run)
    return of_run(run, result.captures, result.comparison)


def _measured(paths: Sequence[Path], asked: _Asked, limits: Limits) -> tuple[Baseline, Baseline]:
    """Two runs, their engines measured in turn."""
    from ...core.capture_names import ENGINES
    from ...core.files import sha256
    from ...core.run import Run
    from ...profile.engine.measure import Plan
    from ...profile.turns import in_turn
    from ..captures.samples import joined

    if len(paths) != 2 or not all(p.is_dir() for p in paths):
        raise click.UsageError("--measure takes two run directories, BASELINE and NEW")
    with tempfile.TemporaryDirectory(prefix="layerline-gate-") as folder:
        plan = Plan(most=500, target=_TARGET, seconds=asked.seconds)
        runs = [Run(p) for p in paths]
        turns = in_turn(runs, asked.rounds, plan, Path(folder), limits.judges)
        both = [joined([_of_run(turn.path) for turn in of]) for of in turns]
    for path, one in zip(paths, both, strict=True):
        for key, side in one.sides.items():
            stem = key.split("/")[1]
            files = (path / "engines" / f"{stem}{s}" for s in ENGINES)
            side.builds = [sha256(f)[:16] for f in files if f.is_file()][:1]
    ended = datetime.datetime.now(datetime.UTC).isoformat()
    before, after = (structs.replace(one, in_turn=ended) for one in both)
    return before, after


def _limits(asked: _Asked, path: Path, before: Baseline | None) -> Limits:
    """Those of the baseline in `path`, of the file, and of the options, the later ones first."""
    from ..comparison import limits as limits_

    found = limits_.Limits(other_machine=asked.other_machine)
    if before is not None and before.limits:
        found = found.over(limits_.form(before.limits, path))
    if asked.limits is not None:
        found = found.over(limits_.read(asked.limits))
    return found.over(
        limits_.LimitsFile(
            slower=limits_.given(listed(asked.slower)),
            floor=limits_.given(listed(asked.floor)),
            memory=asked.memory,
            accuracy=asked.accuracy,
            coverage=asked.coverage,
            require=list(listed(asked.require)),
            sides=list(listed(asked.side)),
            by=asked.by,
        )
    )


def _save(asked: _Asked, paths: Sequence[Path]) -> None:
    """A baseline file of the runs."""
    from ...core.files import apart
    from ...core.run import now
    from ..model import baseline

    no_use(
        ("update", "reason", "output", "form", "measure", "rounds", "seconds"),
        "with --save: nothing is judged",
    )
    assert asked.save is not None
    apart(asked.save, *paths)
    once_each(paths)
    made = _read(paths)
    limits = replace(_limits(asked, paths[0], made), other_machine=False)
    sides = _usable(made, limits, paths[0])
    kept = structs.replace(made, made=now(), sides=sides, limits=limits.as_json())
    baseline.write(asked.save, kept)
    say(f"{asked.save}: {', '.join(sides)}")


def _usable(made: Baseline, limits: Limits, path: Path) -> dict[str, SideSamples]:
    """The sides that are judged; InputError where nothing should be held to this."""
    from ..comparison.limits import of_sides

    sides = {k: s for k, s in made.sides.items() if limits.judges(k)}
    wrong = [k for k, s in sides.items() if s.outputs is not None and s.outputs.ok is False]
    if strange := limits.strange_sides(made.sides):
        what = f"has no side {strange[0]!r} ({of_sides(made.sides)})"
        raise InputError(what, file=path, fix="name one of these")
    if not sides:
        raise InputError("has no side to judge", file=path, fix="measure it (layerline profile)")
    if wrong:
        what = f"{', '.join(wrong)} does not compute what eager does: it is no baseline"
        raise InputError(what, file=path, fix="layerline accuracy says in which module")
    if made.stale:
        raise InputError(made.stale[0], file=path, fix="measure again (layerline profile)")
    for file, why in made.lost.items():
        what = f"{file} cannot be used ({why}): a baseline is whole"
        raise InputError(what, file=path, fix="copy that file again, or make it again")
    return sides


def _update(
    paths: Sequence[Path], asked: _Asked, before: Baseline, after: Baseline, limits: Limits
) -> None:
    from ...core.run import now
    from ..comparison.gate import updated
    from ..model import baseline

    path, new = paths[0], ", ".join(map(str, paths[1:]))
    sides = _usable(after, limits, paths[1])
    kept = structs.replace(after, sides=sides, made=now())
    baseline.write(path, updated(before, kept, asked.reason, baseline.KEPT))
    say(f"{path}: the baseline is now {new}")


def _rendered(form: str, verdict: Verdict) -> str:
    from ..report.gate import ci, text

    if form == "json":
        return json.dumps(verdict.as_json(), indent=1)
    forms: dict[str, Callable[[Verdict], str]] = {
        "text": text.terminal,
        "markdown": text.markdown,
        "junit": ci.junit,
        "annotations": ci.annotations,
    }
    return forms[form](verdict).rstrip("\n")


def _write(path: Path, verdict: Verdict) -> None:
    from ...core.files import write_text

    write_text(path, _rendered(_form(path), verdict) + "\n")


def _form(path: Path) -> str:
    form = {".md": "markdown", ".xml": "junit", ".json": "json"}.get(path.suffix)
    if form is None:
        raise InputError("is of no known form", file=path, fix="end it in .md, .xml or .json")
    return form
