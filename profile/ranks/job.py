"""A job of several ranks on this node: a workload of ours or a program of the user's, once for
each tool that watches it, with what each rank leaves."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ...core.capture_names import CaptureName, named
from ...core.cli.progress import log
from ...core.errors import InputError, LayerlineError
from ...core.files import folder, listing, machine_lock, read_json, write_json
from ...core.ranks import identity as ranks_
from ...core.run import SCHEMA_VERSION, Run, open_run
from ..eager.plugins import Schedule
from . import launch, tools
from .diagnosis import numbers
from .launch import Agents
from .options import Asked
from .outcome import Outcome
from .plan import STEM, Plan
from .worker import facts_of

TOOLS = ("nsys", "ncu")
# What a program of the user's can be watched by.
OWN = ("torch", *TOOLS)


@dataclass(frozen=True)
class Job:
    """Where it runs and what was asked for."""

    run: Run
    precision: str
    asked: Asked
    agents: Agents | None
    id: str

    @property
    def folder(self) -> Path:
        """What its ranks print, and how they ended."""
        return self.run.file("job", self.id)

    @property
    def captures(self) -> Path:
        """Where its captures go."""
        return self.run.file("captures")

    def plan(self, program: Sequence[str], **more: Any) -> Plan:
        """A plan with this job's places."""
        return Plan(
            folder=str(self.folder.absolute()), captures=str(self.captures.absolute()),
            precision=self.precision, program=list(program), ranks=self.asked.ranks, **more,
        )  # fmt: skip

    def launch(
        self, plan: Plan, around: Sequence[str] = (), timeout: float | None = None
    ) -> list[Outcome]:
        """Run it; `launch.run`."""
        return launch.run(plan, self.agents, around=around, timeout=self.asked.timeout or timeout)

    def under(self, plan: Plan, tool: str, *, windowed: bool) -> list[Outcome]:
        """Run it under a tool, around each of the chosen ranks or around all of this host, and in
        as many batches as were asked for."""
        ended: list[Outcome] = []
        together = self.asked.around_all if tool == "nsys" else self.asked.replay == "application"
        if together and self.agents is None:
            raise InputError(f"{tool} around all ranks needs torchrun here", fix="give --nproc")
        for batch in range(self.asked.batches if tool == "ncu" else 1):
            variant = str(batch + 1) if batch else ""
            place = CaptureName("train", self.precision, host=ranks_.host(), variant=variant)
            stem = str(place.path(self.captures.absolute()))
            if tool == "nsys":
                words = tools.nsys_prefix(self.asked, stem if together else STEM, windowed=windowed)
            else:
                at = stem if together else STEM
                words = tools.ncu_prefix(self.asked, at, batch, windowed=windowed)
            around = words if together else []
            each = [] if together else words
            changed = msgspec.structs.replace(plan, prefix=each, variant=variant)
            ended = self._one(changed, tool, around)
        return ended

    def _one(self, plan: Plan, tool: str, around: Sequence[str]) -> list[Outcome]:
        """Run it once under a tool; where it fails under ncu, say at which kernel that was."""
        if tool != "ncu":
            return self.launch(plan, around)
        try:
            ended = self.launch(plan, around, tools.NCU_SECONDS)
        except InputError as e:
            kernels = tools.last_kernels(self.captures)
            more = f"; ncu began last {kernels}" if kernels else ""
            raise InputError(e.what + more, file=e.file, fix=e.fix) from None
        finally:
            for path in tools.messages(self.captures):
                path.unlink()
        return ended


@contextmanager
def opened(path: Path, precision: str, asked: Asked) -> Iterator[Job]:
    """The job in its run directory. A node alone holds the directory and the machine; several
    nodes work in one directory, on machines that the scheduler gave them."""
    agents = asked.agents()
    id_ = asked.rdzv_id or launch.job_id(dict(os.environ))
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in id_)
    if agents is not None and agents.nodes == 1 and ranks_.identity(os.environ) is None:
        job = Job(open_run(path, create=True), precision, asked, agents, name)
        folder(job.captures)
        _drop_earlier(job)
        with machine_lock(f"running {agents.ranks} ranks"):
            yield job
        return
    job = Job(Run(path), precision, asked, agents, name)
    folder(job.captures)
    job.run.check_version()
    if not job.run.marker.exists():
        write_json(job.run.marker, {"schema_version": SCHEMA_VERSION})
    _drop_earlier(job)
    yield job


def _drop_earlier(job: Job) -> None:
    """Remove captures of an earlier job that would pass for this one's: of ranks that it does not
    have, and of ranks on another host where it has one host."""
    agents, gone = job.agents, set()
    if agents is None:
        return
    for path, name in named(job.captures).items():
        if name.rank is None or name.precision != job.precision:
            continue
        elsewhere = agents.nodes == 1 and name.host not in (None, ranks_.host())
        if name.rank >= agents.ranks or elsewhere:
            path.unlink(missing_ok=True)
            gone.add(name.rank)
    if gone:
        log(f"captures of {numbers(sorted(gone))} of an earlier job are gone")


def own(
    job: Job, program: Sequence[str], profile: Sequence[str], schedule: Schedule | None
) -> None:
    """Run a program of the user's, once for each tool; torch.profiler and the window of steps
    where it calls `watch.steps`."""
    for name in profile:
        if name not in OWN:
            raise InputError(
                f"{name} watches workloads of ours only", fix=f"of a program: {', '.join(OWN)}"
            )
    window = schedule or Schedule()
    first = window.wait + window.warmup
    watch = {"first": first, "last": first + window.active - 1}
    for tool in profile or ("",):
        plan = job.plan(program, watch={**watch, "torch": tool == "torch"})
        with _exporting(job, lambda rank: None) as left:
            if tool in TOOLS:
                ended = job.under(plan, tool, windowed=schedule is not None)
            else:
                ended = job.launch(plan)
        _told(job, tool, ended, left)


def _files(job: Job) -> set[tuple[str, int]]:
    return {(p.name, p.stat().st_mtime_ns) for p in listing(job.captures) if p.is_file()}


def _told(job: Job, tool: str, ended: Sequence[Outcome], left: Sequence[str]) -> None:
    """Say which ranks were captured. InputError where none was."""
    here = [r for r in ended if r.profiled and r.host == ranks_.host()]
    if tool and here and not any(CaptureName.parse(name) for name in left):
        fixes = {
            "torch": "call layerline.profile.ranks.watch.steps in it (docs/training/jobs.md), "
            "or take nsys",
            "nsys": "without --schedule nsys captures all of it",
            "ncu": "see that --launches is within what it launches",
        }
        raise InputError(f"{tool} captured nothing of the program", fix=fixes[tool])
    if tool:
        log(f"{tool}: {numbers([r.rank for r in here])} captured")


@contextmanager
def _exporting(job: Job, facts: Callable[[int], Mapping[str, Any] | None]) -> Iterator[list[str]]:
    """Export what nsys leaves in the block, also where a rank of it fails: what the others captured
    is there then. Gives a list that the names of all new captures of this host are put into.
    `facts` are of a rank."""
    before, left = _files(job), list[str]()
    try:
        yield left
    except LayerlineError:
        for name in _new(job, before):
            with contextlib.suppress(LayerlineError):
                _export(job, name, None)
        raise
    left += _new(job, before)
    for name in left:
        of = CaptureName.parse(name)
        _export(job, name, None if of is None or of.rank is None else facts(of.rank))


def _new(job: Job, before: set[tuple[str, int]]) -> list[str]:
    mine = f"@{ranks_.host()}."
    return sorted(name for name, _ in _files(job) - before if mine in name)


def _export(job: Job, name: str, facts: Mapping[str, Any] | None) -> None:
    if name.endswith(".nsys-rep"):
        tools.export(job.captures / name, CaptureName("train", job.precision))
        _meta(job, name, facts)


def _meta(job: Job, report: str, facts: Mapping[str, Any] | None) -> None:
    """What analysis needs to know of a report of nsys."""
    name = CaptureName.parse(report)
    document = {
        **(facts or {}), "schema_version": 1, "source": f"{Path(report).stem}.sqlite",
        "task": "train", "precision": job.precision,
        "rank": None if name is None else name.rank, "host": ranks_.host(), "job": job.id,
    }  # fmt: skip
    write_json(job.captures / f"{Path(report).stem}.nsys.meta.json", document)


def workload(job: Job, given: Mapping[str, Any], profile: Sequence[str]) -> dict[str, Any]:
    """Train a workload of ours on all ranks: once with what watches beside it, once more under
    each tool. `given` is the job of `profile.train.worker`; gives the facts of this node's first
    rank."""
    beside = [name for name in profile if name not in TOOLS]
    facts = _trained(job, {**given, "profile": beside}, None)
    for tool in (name for name in profile if name in TOOLS):
        under = {**given, "steps": 0, "warmup": 0, "profile": ["nsys"]}
        _trained(job, under, tool)
    return facts


def _trained(job: Job, given: Mapping[str, Any], tool: str | None) -> dict[str, Any]:
    path = folder(job.folder) / f"worker.{ranks_.host()}.{os.getpid()}.json"
    whole = {
        **given, "folder": str(job.captures.absolute()), "results": str(job.folder.absolute()),
        "ranks": job.asked.ranks,
    }  # fmt: skip
    write_json(path, whole)
    program = [sys.executable, "-P", "-m", "layerline.profile.ranks.worker", str(path.absolute())]
    plan = job.plan(program)

    def facts(rank: int) -> dict[str, Any]:
        found: dict[str, Any] = read_json(facts_of(job.folder, rank))
        return found

    with _exporting(job, facts):
        ended = job.launch(plan) if tool is None else job.under(plan, tool, windowed=True)
    return facts(min(r.rank for r in ended if r.host == ranks_.host()))
