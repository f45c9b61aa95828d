"""A worker under ncu: the launches that need replaying, and which of the others they are.

Leaves ``captures/{precision}.{backend}.ncu-rep`` (``eager.{precision}.ncu-rep``, ``train.…``; a
second one, ``….2.ncu-rep``, where the first missed a kind of work), NVIDIA's raw page of each
(``….ncu.csv``), ``….ncu.plan.json`` where an nsys capture tells the launches, and
``….ncu.meta.json``: how it was taken and what it cost. A capture of every launch has the same
files with ``.ncu-every`` after the stem, so that the two lie side by side.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core import machine
from ...core.cli.progress import log, progress
from ...core.errors import CheckFailed, InputError, LayerlineError, ToolMissing
from ...core.files import replacing, sha256, write_json
from ...core.replay import match
from ...core.replay import plan as plan_
from ...core.replay.match import Seen
from ...core.replay.plan import Launch, Plan
from ...engines import launch
from ..engine.measure import SCHEMA_VERSION
from . import launches as launches_
from . import tool as tool_
from .target import WARMUP, Target

SUFFIXES = (".ncu-rep", ".ncu.meta.json")
OUTPUT = "capture"


@dataclass(frozen=True)
class Capture:
    """One report of ncu: where it is now, its launches where they can be read, and its cost."""

    report: Path
    seen: list[Seen] | None
    launches: int
    seconds: float
    command: list[str]
    profiled_seconds: float | None  # from profiler start to stop, without program start-up
    facts: dict[str, Any]


def once(
    of: Target,
    options: tool_.Options,
    filters: list[str],
    report: Path,
    *,
    timeout: float,
    warmup: int = WARMUP,
) -> Capture:
    """Run the worker under ncu once; the report goes to `report`.

    ToolMissing where ncu may not or cannot; InputError naming the kernel where it hung or died.
    """
    tool = tool_.command()
    with tempfile.TemporaryDirectory(prefix="layerline-ncu-") as folder:
        output = Path(folder, OUTPUT)
        before = tool_.prefix(tool, options, output, filters)
        started = time.perf_counter()
        with progress(f"{of.stem} under ncu"):
            answer = _call(of, of.job(warmup), before, output, timeout)
        seconds = time.perf_counter() - started
        written = tool_.check(output, answer["printed"])
        launches = tool_.profiled(tool_.messages(output))
        with replacing(report) as temporary:
            temporary.write_bytes(written.read_bytes())
    command = tool_.prefix(tool, options, Path("NAME"), filters)
    seen = launches_.of_report(report)
    launches = launches if seen is None else len(seen)
    facts = answer.get("facts", {})
    # From profiler start to stop by the worker's host clock, replays included.
    ns = facts.get("profiled_ns")
    if ns is None and answer.get("host_ns"):
        ns = sum(answer["host_ns"])
    profiled = None if ns is None else ns / 1e9
    return Capture(report, seen, launches, seconds, command, profiled, facts)


def _call(
    of: Target, what: dict[str, Any], before: list[str], output: Path, timeout: float
) -> dict[str, Any]:
    try:
        return launch.call(of.worker, what, prefix=before, timeout=timeout)
    except PermissionError:  # a tool that runs as root does not end for its user
        raise InputError(
            f"ncu did not end within {timeout:g} s and cannot be ended: it runs as another user",
            fix="end it with sudo kill, and give a longer --timeout",
        ) from None
    except LayerlineError as e:
        text = tool_.messages(output)
        tool_.refuse(text + e.what)
        last = tool_.last_kernel(text)
        if last is None:
            raise
        fix = "leave it out with --kernel-name '^(?!NAME)', or give a longer --timeout"
        raise InputError(f"{e.what}; the last kernel that ncu began is {last}", fix=fix) from None


def capture(of: Target, options: tool_.Options, *, every: bool, timeout: float) -> dict[str, Any]:
    """Capture one iteration's counters; gives facts. LayerlineError on failure.

    With `every`, `of` should be `Target.every()`, so that both kinds of capture are kept.
    """
    before = machine.state()
    inputs = {p.name: sha256(p) for p in of.inputs}
    plan = of.plan()
    if plan is None:
        also = ", and none has a layer" if of.layers is not None else ""
        log(f"{of.stem}: no nsys capture tells equal launches apart; every one is replayed{also}")
    users = options.filtered
    if users:
        plan, every = None, False  # the user chooses
    parts, chosen = _parts(of, options, plan, every=every, timeout=timeout)
    measured, wrong = _matched(parts, plan, chosen)
    if plan is not None:
        write_json(of.file(".ncu.plan.json"), plan_.document(plan.launches, measured, chosen))
    pages = [_csv(p.report) for p in parts]
    replayed = sum(_counted(p, page) for p, page in zip(parts, pages, strict=True))
    launches = len(plan.launches) if plan else None if users else replayed
    about = {
        "schema_version": SCHEMA_VERSION,
        "source": parts[0].report.name,
        "reports": [p.report.name for p in parts],
        **of.about,
        "options": options.as_json(),
        "inputs": inputs,
        "every": chosen is None and not users,
        "commands": [p.command for p in parts],
        # Of the whole run of the program, and of what ncu replayed in it.
        "seconds": [round(p.seconds, 3) for p in parts],
        "profiled_seconds": [
            None if p.profiled_seconds is None else round(p.profiled_seconds, 6) for p in parts
        ],
        "launches": launches,
        "replayed": replayed,
        "share": round(replayed / launches, 6) if launches else None,
        "planned": None if chosen is None else len(chosen),
        # Null: nothing here reads reports, so what was captured is matched to the plan later.
        "verified": None if plan is None or None in [p.seen for p in parts] else wrong is None,
        "csv": pages,
        "clock_control": options.clock_control or tool_.CLOCKS,
        "machine": {"before": before, "after": machine.state()},
        "facts": parts[0].facts,
    }
    write_json(of.file(".ncu.meta.json"), about)
    if wrong is not None:
        raise wrong
    return {k: about[k] for k in ("launches", "replayed", "share", "seconds", "verified")}


def _parts(
    of: Target, options: tool_.Options, plan: Plan | None, *, every: bool, timeout: float
) -> tuple[list[Capture], list[Launch] | None]:
    """The capture, and a second one by kernel names where the first missed a kind of work; with
    the launches that it was to hold, None for every one."""
    report = of.file(".ncu-rep")
    for old in (".2.ncu-rep", ".2.ncu.csv", ".ncu.csv", ".ncu.plan.json"):  # of an earlier capture
        of.file(old).unlink(missing_ok=True)
    if of.torch and not options.kernel_name and not options.of_ranges:
        options = dataclasses.replace(options, kernel_name=tool_.NO_NCCL)
    whole = functools.partial(once, of, options, timeout=timeout)

    def every_instead(why: str) -> tuple[list[Capture], None]:
        log(f"{of.stem}: {why}")
        log(f"{of.stem}: every launch is replayed instead")
        return [whole([], report)], None

    if plan is None or every or len(plan.chosen) == len(plan.launches):
        return [whole([], report)], None
    chosen = plan.chosen
    alone = dataclasses.replace(options, kernel_name="")  # the plan's names say which kernels
    try:
        first = once(of, alone, plan.filters(), report, timeout=timeout, warmup=of.warmup)
    except InputError as e:
        if e.what != tool_.NO_KERNEL:
            raise
        why = "ncu found none of the chosen invocations"
        if of.torch:
            return every_instead(why)
        log(f"{of.stem}: {why}")
        log("all launches of the same kernels are replayed instead")
        names = plan_.names_filter(plan.functions)
        return [whole(names, report)], [x for x in plan.launches if x.function in plan.functions]
    if first.seen is None:  # only the number of its launches can be seen
        count = _counted(first, _csv(first.report))
        if count == len(chosen):
            return [first], chosen
        why = f"ncu captured {count} launches, and {len(chosen)} were chosen"
        if of.torch:
            return every_instead(why)
        log(f"{of.stem}: {why}")
        log(f"{of.stem}: kinds of work may lack counters; `layerline report` says which")
        return [first], chosen
    try:
        index_of = match.planned_of(plan.launches, chosen, first.seen)
    except CheckFailed as e:
        # An engine's is said by the caller, when the capture is safe.
        return every_instead(e.what) if of.torch else ([first], chosen)
    lacking = plan_.missing(plan.launches, index_of.values())
    if not lacking:
        return [first], chosen
    why = f"{len(lacking)} kinds of work were not captured"
    if of.torch:  # a second capture's launches could not be told apart by layers
        return every_instead(why)
    log(f"{of.stem}: {why}; once more by their names")
    names = plan_.names_filter(x.function for x in lacking)
    return [first, whole(names, of.file(".2.ncu-rep"))], chosen


def _matched(
    parts: list[Capture], plan: Plan | None, chosen: list[Launch] | None
) -> tuple[dict[str, dict[int, int]], CheckFailed | None]:
    """Of each report that can be read, its launches in the plan; and what does not fit."""
    index_of: dict[str, dict[int, int]] = {}
    for number, part in enumerate(parts):
        if plan is None or part.seen is None:
            continue
        try:
            if number:  # by names: which launches these were is told by their layers
                index_of[part.report.name] = match.match(plan.launches, part.seen, every=False)
            else:
                index_of[part.report.name] = match.planned_of(plan.launches, chosen, part.seen)
        except CheckFailed as e:
            return {}, CheckFailed(e.what, file=part.report, fix=e.fix)
    return index_of, None


def _counted(part: Capture, page: str | None) -> int:
    """Launches of a report: as it tells itself, else by the rows of its page (not its header, its
    row of units and ncu's warnings), else by ncu's progress lines, which not every capture has."""
    if part.seen is not None or page is None:
        return part.launches
    with part.report.with_name(page).open(encoding="utf-8", newline="") as f:
        return sum(1 for row in csv.reader(f) if row and row[0].isdigit())


def _csv(report: Path) -> str | None:
    """NVIDIA's raw page beside the report; a note where ncu cannot print it."""
    path = report.with_name(report.name.removesuffix(".ncu-rep") + ".ncu.csv")
    try:
        tool_.write_csv(report, path)
    except ToolMissing as e:
        log(e.line())
        return None
    return path.name
