"""A worker under ncu: the launches that need replaying, and which of the others they are.

Leaves ``captures/{precision}.{backend}.ncu-rep`` (``eager.{precision}.ncu-rep``, ``train.…``; a
second one, ``….2.ncu-rep``, where the first missed a kind of work), NVIDIA's raw page of each
(``….ncu.csv``), ``….ncu.plan.json`` where an nsys capture tells the launches, and
``….ncu.meta.json``: how it was taken.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerline.core import machine
from layerline.core.errors import CheckFailed, InputError, LayerlineError, ToolMissing
from layerline.core.files import replacing, write_json
from layerline.core.progress import log, progress
from layerline.core.run import Run
from layerline.engines import launch
from layerline.engines.backend import Worker, inputs_path

from . import ncu, ncu_launches, ncu_plan
from .engine import SCHEMA_VERSION, Subject
from .ncu_plan import Plan, Seen

SUFFIXES = (".ncu-rep", ".ncu.meta.json")
# Before a capture of chosen invocations nothing may run: they are counted from the first launch.
WARMUP = 2
OUTPUT = "capture"


@dataclass(frozen=True)
class Capture:
    """One report of ncu: where it is now, its launches where they can be read, and its cost."""

    report: Path
    seen: list[Seen] | None
    launches: int
    seconds: float
    command: list[str]
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """What is captured: a worker with its job, and the names of the files.

    `job` takes the number of warming iterations. `sqlite`: the nsys export of the same work.
    `about` goes into the meta file.
    """

    run: Run
    stem: str
    worker: Worker
    job: Callable[[int], dict[str, Any]]
    inputs: list[Path]
    sqlite: Path | None
    about: dict[str, Any]

    def file(self, suffix: str) -> Path:
        """A file of this capture."""
        return self.run.file("captures", self.stem + suffix)

    def plan(self) -> Plan | None:
        """What to replay, by the run's nsys capture; null where there is none."""
        if self.sqlite is None or not self.sqlite.exists():
            return None
        return ncu_plan.plan(ncu_launches.of_nsys(self.sqlite))


def engine_target(of: Subject) -> Target:
    """One inference of an engine between profiler start and stop, on an idle stream: a replay
    would wait for a gate."""

    def job(warmup: int) -> dict[str, Any]:
        plan = {"warmup": warmup, "iterations": {"min": 1, "max": 1}, "target": 1.0, "seconds": 60}
        options = {**of.backend.job_options(of.run, of.precision), "queued": False}
        return launch.job(
            "trace", of.engine, inputs_path(of.run), of.precision,
            threads=of.threads, options=options, plan=plan,
        )  # fmt: skip

    about = {"precision": of.precision, "backend": of.backend.name, "engine": of.engine.name}
    sqlite = of.capture(".sqlite")
    worker = of.backend.worker()
    return Target(
        of.run, f"{of.precision}.{of.backend.name}", worker, job, of.inputs(), sqlite, about
    )


def torch_target(run: Run, what: str, precision: str) -> Target:
    """One inference of the eager model, or one step of its training; every launch is replayed."""

    def job(warmup: int) -> dict[str, Any]:
        model = run.file("export", "model.json")
        return {
            "task": what,
            "precision": precision,
            "model": str(model),
            "options": {"warmup": warmup},
        }

    worker = Worker((sys.executable, "-P", "-m", "layerline.profile.ncu_eager_worker"))
    inputs = [run.file("export", "model.json"), inputs_path(run)]
    about = {"precision": precision, "what": what}
    return Target(run, f"{what}.{precision}", worker, job, inputs, None, about)


def once(
    of: Target,
    options: ncu.Options,
    filters: list[str],
    report: Path,
    *,
    timeout: float,
    warmup: int = WARMUP,
) -> Capture:
    """Run the worker under ncu once; the report goes to `report`.

    ToolMissing where ncu may not or cannot; InputError naming the kernel where it hung or died.
    """
    tool = ncu.command()
    with tempfile.TemporaryDirectory(prefix="layerline-ncu-") as folder:
        output = Path(folder, OUTPUT)
        before = ncu.prefix(tool, options, output, filters)
        started = time.perf_counter()
        with progress(f"{of.stem} under ncu"):
            answer = _call(of, of.job(warmup), before, output, timeout)
        seconds = time.perf_counter() - started
        written = ncu.check(output, answer.get("said", ""))
        launches = ncu.profiled(ncu.said(output))
        with replacing(report) as made:
            made.write_bytes(written.read_bytes())
    shown = ncu.prefix(tool, options, Path("NAME"), filters)
    seen = ncu_launches.of_report(report)
    launches = launches if seen is None else len(seen)
    return Capture(report, seen, launches, seconds, shown, answer.get("facts", {}))


def _call(
    of: Target, what: dict[str, Any], before: list[str], output: Path, timeout: float
) -> dict[str, Any]:
    try:
        return launch.call(of.worker, what, prefix=before, timeout=timeout)
    except LayerlineError as e:
        text = ncu.said(output)
        ncu.refuse(text + e.what)
        last = ncu.last_kernel(text)
        if last is None:
            raise
        fix = "leave it out with --kernel-name '^(?!NAME)', or give a longer --timeout"
        raise InputError(f"{e.what}; the last kernel that ncu began is {last}", fix=fix) from None


def capture(of: Target, options: ncu.Options, *, every: bool, timeout: float) -> dict[str, Any]:
    """Capture one inference's counters; gives facts. LayerlineError on failure."""
    before = machine.state()
    plan = of.plan()
    if plan is None:
        log(f"{of.stem}: no nsys capture tells equal launches apart; every one is replayed")
    if options.kernel_name or options.nvtx_include or options.replay_mode in ("range", "app-range"):
        plan, every = None, False  # the user chooses
    parts = _parts(of, options, plan, every=every, timeout=timeout)
    measured, wrong = _matched(parts, plan, every=every)
    unread = any(p.seen is None for p in parts)
    if plan is not None:
        write_json(of.file(".ncu.plan.json"), ncu_plan.document(plan.launches, measured))
    csvs = [_csv(p.report) for p in parts]
    document = {
        "schema_version": SCHEMA_VERSION,
        "source": parts[0].report.name,
        "reports": [p.report.name for p in parts],
        **of.about,
        "options": options.as_json(),
        "every": every or plan is None,
        "commands": [p.command for p in parts],
        "seconds": [round(p.seconds, 3) for p in parts],
        "launches": None if plan is None else len(plan.launches),
        "replayed": sum(p.launches for p in parts),
        "planned": None if plan is None or every else len(plan.chosen),
        # Null: nothing here reads reports, so what was captured is matched to the plan later.
        "verified": None if unread or plan is None else wrong is None,
        "csv": csvs,
        "clock_control": options.clock_control or "base",
        "machine": {"before": before, "after": machine.state()},
        "facts": parts[0].facts,
    }
    write_json(of.file(".ncu.meta.json"), document)
    if wrong is not None:
        raise wrong
    return {k: document[k] for k in ("launches", "replayed", "seconds", "verified")}


def _parts(
    of: Target, options: ncu.Options, plan: Plan | None, *, every: bool, timeout: float
) -> list[Capture]:
    """The capture, and a second one by kernel names where the first missed a kind of work."""
    report = of.file(".ncu-rep")
    for old in (".2.ncu-rep", ".2.ncu.csv", ".ncu.csv", ".ncu.plan.json"):  # of an earlier capture
        of.file(old).unlink(missing_ok=True)
    if not plan and of.sqlite is None and not options.kernel_name:
        options = dataclasses.replace(options, kernel_name=ncu.NO_NCCL)
    if plan is None or every or len(plan.chosen) == len(plan.launches):
        return [once(of, options, [], report, timeout=timeout)]
    try:
        first = once(of, options, plan.filters(), report, timeout=timeout, warmup=0)
    except InputError as e:
        if e.what != ncu.NO_KERNEL:
            raise
        log(f"{of.stem}: ncu found none of the chosen invocations; by names instead")
        names = ncu_plan.names_pattern(plan.functions)
        return [once(of, options, ["--kernel-name", f"regex:{names}"], report, timeout=timeout)]
    if first.seen is None:
        return [first]
    try:
        found = ncu_plan.match(plan.launches, first.seen, every=False)
    except CheckFailed:
        return [first]  # said by the caller, when the capture is safe
    lacking = ncu_plan.missing(plan.launches, found.values())
    if not lacking:
        return [first]
    log(f"{of.stem}: {len(lacking)} kinds of work were not captured; once more by their names")
    names = ncu_plan.names_pattern(x.function for x in lacking)
    more = of.file(".2.ncu-rep")
    second = once(of, options, ["--kernel-name", f"regex:{names}"], more, timeout=timeout)
    return [first, second]


def _matched(
    parts: list[Capture], plan: Plan | None, *, every: bool
) -> tuple[dict[str, dict[int, int]], CheckFailed | None]:
    """Of each report that can be read, its launches in the plan; and what does not fit."""
    found: dict[str, dict[int, int]] = {}
    for part in parts:
        if plan is None or part.seen is None:
            continue
        try:
            found[part.report.name] = ncu_plan.match(plan.launches, part.seen, every=every)
        except CheckFailed as e:
            return {}, CheckFailed(e.what, file=part.report, fix=e.fix)
    return found, None


def _csv(report: Path) -> str | None:
    """NVIDIA's raw page beside the report; a note where ncu cannot print it."""
    path = report.with_name(report.name.removesuffix(".ncu-rep") + ".ncu.csv")
    try:
        ncu.write_csv(report, path)
    except ToolMissing as e:
        log(e.line())
        return None
    return path.name
