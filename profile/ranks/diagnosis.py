"""Why a job of several ranks failed: by how each rank ended, what it printed last, and which
collective it was in.

When one rank dies the others lose their peer, and their errors are only its consequence. So what
is told is the cause that lies deepest: a rank that was killed, that ran out of memory, that lacks a
module, that raised an error of its own; only then a time-out of a collective, and who did not come;
and a lost peer only where nothing else is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...core.errors import InputError, one_line
from ...core.files import listing
from ...core.ranks import flight_recorder
from ...core.ranks.flight_recorder import Dump, Entry
from ...core.ranks.identity import spelled
from . import outcome
from .outcome import Outcome

RECORDED = "flight_recorder_rank_"  # and the rank: a dump's name

# Depth of a cause: 0 is the cause itself.
CAUSE, TIMEOUT, CONSEQUENCE = 0, 1, 2
_TAIL = 200_000  # bytes of a log


@dataclass(frozen=True)
class Reason:
    """Why one rank ended: `what` in the words after "rank 3", and what to try."""

    what: str
    fix: str
    depth: int = CAUSE


MEMORY = "take a smaller batch or sequence, or checkpointing; --profile memory shows what holds it"
# What a rank prints last, the deepest cause first; {0} is the first group.
_PATTERNS: tuple[tuple[str, str, str, int], ...] = (
    (
        r"ModuleNotFoundError: No module named '([^']+)'",
        "has no module {0}",
        "install it for the interpreter that runs on the nodes, or name that one",
        CAUSE,
    ),
    (
        r"OutOfMemoryError: (?:CUDA|HIP|XPU) out of memory\. (Tried to allocate [\d.]+ \w+)?",
        "ran out of GPU memory ({0})",
        MEMORY,
        CAUSE,
    ),
    (
        r"(?:MemoryError|DefaultCPUAllocator: can't allocate memory)",
        "ran out of memory",
        MEMORY,
        CAUSE,
    ),
    (
        r"Duplicate GPU detected",
        "shares its GPU with another rank, which NCCL refuses",
        "use as many ranks on a node as it has GPUs, or gloo",
        CAUSE,
    ),
    (
        r"(?:EADDRINUSE|[Aa]ddress already in use)",
        "found its port in use",
        "give another --rdzv-endpoint or MASTER_PORT",
        CAUSE,
    ),
    (
        r"Received data size doesn't match expected size",
        "was sent another size than its collective has",
        "see that all ranks call the same collectives, with tensors of one size",
        CAUSE,
    ),
    (
        r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d+), OpType=(\w+).*?"
        r"Timeout\(ms\)=(\d+)",
        "waited {2} ms for NCCL's {1} number {0}",
        "see what the rank that did not come was doing",
        TIMEOUT,
    ),
    (
        r"Timed out waiting (\d+)ms for (\w+) operation to complete",
        "waited {0} ms for gloo to {1}",
        "see what the rank that did not come was doing",
        TIMEOUT,
    ),
    (
        r"(Connection (?:closed|reset) by peer|ncclRemoteError|remote process exited"
        r"|NCCL communicator was aborted|Broken pipe|Socket closed|recvValue failed)",
        "lost its peer ({0})",
        "see the logs of the other ranks, and the nodes",
        CONSEQUENCE,
    ),
)  # fmt: skip
OWN = re.compile(r"^error: (.*)$", re.M)
_ERROR = re.compile(r"^(?:\[rank\d+\]: ?)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*)$", re.M)
_THROWN = re.compile(r"^  what\(\):\s+(.*)$", re.M)  # an exception of C++ that nothing caught
LEAVE = "leave"  # of `leaving.exit_when_told`, which prints the stack
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+) in (\S+)', re.M)
_SIGNALS = {
    9: (
        "was killed (SIGKILL), most likely for want of memory on its host",
        f"see dmesg there; {MEMORY}",
    ),
    11: ("crashed (SIGSEGV)", "its log has where each thread was"),
    7: ("crashed (SIGBUS)", "a full /dev/shm? give the container --ipc=host or more shared memory"),
    6: ("aborted (SIGABRT)", "its log says why"),
}  # fmt: skip


def reason(ended: Outcome, printed: str) -> Reason:
    """Why a rank that did not end well ended, by its log."""
    best: Reason | None = None
    for pattern, what, fix, depth in _PATTERNS:
        found = re.search(pattern, printed)
        if found is not None and (best is None or depth < best.depth):
            words = what.format(*(g or "" for g in found.groups())).replace(" ()", "")
            best = Reason(words, fix, depth)
    at = None if ended.told else place(printed)
    where = f" in {at}" if at is not None else ""
    if best is not None:
        return replace(best, what=best.what + where)
    code = ended.code or 0
    number = -code if code < 0 else code - 128  # nsys, ncu and shells exit so for their program
    if number in _SIGNALS:
        what, fix = _SIGNALS[number]
        thrown = "".join(f": {one_line(text)[:300]}" for text in _THROWN.findall(printed)[-1:])
        return Reason(f"{what}{where}{thrown}", fix)
    if own := OWN.findall(printed):  # what is wrong and what to do, of a workload of ours
        return Reason(f"{ended.ending()}: {one_line(own[-1])[:400]}", "")
    errors = _ERROR.findall(printed)
    last = errors or [line for line in printed.splitlines() if line.strip()]
    said = f": {one_line(last[-1])[:300]}" if last else ""
    return Reason(f"{ended.ending()}{said}", "its log says more")


def printed_by(folder: Path, ended: Outcome) -> str:
    """The end of a rank's log."""
    try:
        data = outcome.log_of(folder, ended).read_bytes()
    except OSError:
        return ""
    return data[-_TAIL:].decode(errors="replace")


def place(printed: str) -> str | None:
    """Where a rank that was sent SIGABRT stood: ``load (own.py:12)``, the innermost frame of the
    user's code in the thread that began the program; None where Python told nothing."""
    blocks = re.split(r"^(?:Current thread|Thread) 0x.*$", printed, flags=re.M)[1:]
    for block in reversed(blocks):
        found: list[tuple[str, str, str]] = _FRAME.findall(block)
        frames = [f for f in found if f[2] != LEAVE]
        if any(name == "<module>" for _, _, name in frames):
            own = [f for f in frames if not flight_recorder.is_library(f[0])] or frames
            file, line, name = own[0]
            inside = frames[0][2]
            where = f"{Path(file).name}:{line}"
            return f"{name} ({where})" if inside == name else f"{inside} ({where})"
    return None


@dataclass(frozen=True)
class Failure:
    """Why a job failed, in one line, and what to try."""

    what: str
    fix: str


def failure(folder: Path, ranks: Sequence[Outcome], timeout: float | None = None) -> Failure | None:
    """Why the job failed whose ranks ended so; None where all ended well. `timeout`: that it was
    ended because it took longer, in seconds."""
    printed = {r.rank: printed_by(folder, r) for r in ranks}
    bad = [r for r in ranks if not r.well and not r.told and r.code is not None]
    mute = [r for r in ranks if r.ended_ns is None]
    told = [r for r in ranks if r.told]
    reasons = [(r, reason(r, printed[r.rank])) for r in bad]
    reasons += [(r, Reason(r.ending(), "see dmesg on its host")) for r in mute]
    causes = [(r, why) for r, why in reasons if why.depth == CAUSE]
    if causes:
        causes.sort(key=lambda pair: pair[0].ended_ns or 0)
        return Failure(_grouped(causes), causes[0][1].fix)
    if timeout is not None or any(why.depth == TIMEOUT for _, why in reasons):
        return _frozen(folder, reasons, told, printed, timeout)
    if not reasons:
        return None
    # A rank that takes fewer steps leaves the others without a peer, and ends well.
    first = min(r.ended_ns or 0 for r, _ in reasons)
    gone = [r.rank for r in ranks if r.well and r.ended_ns is not None and r.ended_ns < first]
    if gone:
        before = f"{numbers(gone)} had ended by then, without an error"
        return Failure(f"{_grouped(reasons)}; {before}", "see that all ranks take as many steps")
    return Failure(_grouped(reasons), reasons[0][1].fix)


def _grouped(reasons: Sequence[tuple[Outcome, Reason]]) -> str:
    """Ranks that ended for the same reason are told together."""
    by_what: dict[str, list[Outcome]] = {}
    for rank, why in reasons:
        by_what.setdefault(why.what, []).append(rank)
    return "; ".join(f"{_names(ranks)} {_verb(what, ranks)}" for what, ranks in by_what.items())


def _verb(what: str, ranks: Sequence[Outcome]) -> str:
    plural = {"was": "were", "has": "have"}
    verb, _, rest = what.partition(" ")
    return what if len(ranks) == 1 else f"{plural.get(verb, verb)} {rest}"


def _names(ranks: Sequence[Outcome]) -> str:
    if len(ranks) == 1:
        return ranks[0].words
    return numbers([r.rank for r in ranks])


def _frozen(
    folder: Path,
    reasons: Sequence[tuple[Outcome, Reason]],
    told: Sequence[Outcome],
    printed: dict[int, str],
    timeout: float | None,
) -> Failure:
    """What stood still: a collective that some ranks entered and others did not."""
    timeouts = [pair for pair in reasons if pair[1].depth == TIMEOUT]
    parts = [f"it did not end within {timeout:g} s"] if timeout is not None else []
    parts += [_grouped(timeouts)] if timeouts else []
    dumps, problems = recorded(folder)
    met = waiting(dumps)
    if met is not None:
        collective, there, missing = met
        parts.append(f"{numbers(there)} entered {collective.words}, and {numbers(missing)} did not")
    where: dict[str, list[int]] = {}
    for rank in told:
        if (at := place(printed[rank.rank])) is not None:
            where.setdefault(at, []).append(rank.rank)
    parts += [f"{numbers(ranks)} stood in {at}" for at, ranks in where.items()]
    fix = "look there; a longer time-out helps only where it was slow, not stuck"
    return Failure("; ".join([*parts, *problems]), fix)


def recorded(folder: Path) -> tuple[dict[int, Dump], list[str]]:
    """The dumps that ranks left in a folder, by rank; problems with the files."""
    found: dict[int, Dump] = {}
    problems = []
    for path in listing(folder):
        if path.name.startswith(RECORDED):
            try:
                dump = flight_recorder.read(path)
            except InputError as e:
                problems.append(e.line())
            else:
                found[-1 if dump.rank is None else dump.rank] = dump
    return found, problems


def waiting(dumps: Mapping[int, Dump]) -> tuple[Entry, list[int], list[int]] | None:
    """The last collective that some ranks of a group entered and others did not, with the ranks
    that did and those that did not; None where all came equally far. Of several, the one that
    misses the fewest ranks."""
    collectives = [e for d in dumps.values() for e in d.entries if not e.point_to_point]
    found = []
    for group in dict.fromkeys(e.group for e in collectives):
        of_group = [e for e in collectives if e.group == group]
        first = max(of_group, key=lambda e: e.number)
        reached = {rank: dump.reached(group) for rank, dump in dumps.items()}
        members = {r for d in dumps.values() for r in d.groups.get(group, ())}
        there = {rank for rank, number in reached.items() if number == first.number}
        missing = (members | {rank for rank, number in reached.items() if number}) - there
        if missing:
            found.append((first, sorted(there), sorted(missing)))
    return min(found, key=lambda one: len(one[2]), default=None)


def numbers(ranks: Sequence[int]) -> str:
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word} {spelled(ranks)}"
