"""What is known of the ranks of a job: of each by its own capture, and of all of them together.

Times of a capture are nanoseconds on its own clock; of a `Job`, on the clock of all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from ...core.ranks.identity import spelled
from ...core.tables import schema

# What a moment of a rank is, the first that applies: of what runs on its device (on a CPU: of its
# operators), and where nothing runs, why not.
COMPUTE, COMMUNICATION, COPY, HOST, DEPENDENCY, LAUNCH, UNKNOWN = range(7)
# A part of a step: a moment of communication is transfer, or waiting for a peer, or (no partner is
# known) communication.
PARTS = (
    "compute", "transfer", "wait", "communication", "copy",
    "idle_host", "idle_dependency", "idle_launch", "idle_unknown",
)  # fmt: skip
PART_OF_KIND = {
    COMPUTE: "compute", COPY: "copy", HOST: "idle_host", DEPENDENCY: "idle_dependency",
    LAUNCH: "idle_launch", UNKNOWN: "idle_unknown",
}  # fmt: skip

# Operations in which no rank ends before the last one has begun.
SYNCHRONISING = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "barrier")
POINT_TO_POINT = ("send", "recv")
GROUPED = "coalesced"  # several as one, of which nothing says what they are

# One row for each communication of a rank. `issued`: when the host asked for it. `start` and `end`
# are null where no interval is known. `bytes`: the rank's own part for all-gather and
# reduce-scatter, else its whole buffer. `peer`: the other rank of a send or recv, its number in the
# group where this is null. `stream`: of the device, or the thread that a library ran it on.
# `known_by`: record (the library's own), name (of the kernel), order (the k-th call is the k-th
# range).
COLLECTIVES = schema(
    "group text, operation text, phase text, module text, dtype text, known_by text, "
    "sequence int, iteration int, issued int, start int, end int, bytes int, peer int, "
    "group_size int, stream int"
)
# Disjoint, in order, without holes: what each moment of the capture is.
SEGMENTS = schema("start int, end int, kind byte")
# `host_start` and `host_end`: when the step's range began and ended on the host, which may be ahead
# of its device, or without a range what it asked for; null where the host computes itself.
STEPS = schema("iteration int, start int, end int, host_start int, host_end int")
# Ranges that say what the host did: "data", an action of a pipeline, or "sync": it waited for its
# device, or for a library that communicates on the host.
SPANS = schema("kind text, name text, start int, end int, iteration int, stage int, microbatch int")
# Sums of compute by name: operators on a CPU (own time), kernels on a device. Of kernels also
# `grid`, null where it is not known; `beside_count` and `beside_ns`: of the calls that ran, if only
# in part, while a kernel of communication ran on their device; `alone`: how long each of the others
# took, ns. On a CPU these are null.
WORK = schema(
    "name coded, phase coded, module coded, grid coded, iteration int, count int, total_ns int, "
    "beside_count int, beside_ns int, alone ints"
)
# What ran: kernels and copies of a device, operators that compute on a CPU.
OPERATIONS = schema("name coded, start int, end int, stream int, iteration int")
PARTIAL = {
    "collectives": COLLECTIVES, "segments": SEGMENTS, "steps": STEPS, "spans": SPANS, "work": WORK,
    "operations": OPERATIONS,
}  # fmt: skip


class Group(msgspec.Struct, frozen=True):
    """A process group: `name` is unique in the job; `ranks` None where they are not known."""

    name: str
    about: str = ""
    ranks: tuple[int, ...] | None = None

    @property
    def key(self) -> str:
        """What the group is called in tables: its name and ranks, ``1:0-7``."""
        return self.name if self.ranks is None else f"{self.name}:{spelled(self.ranks)}"


class Identity(msgspec.Struct, frozen=True):
    """Whose capture a file is. `rank`, `world` None: not known; `report`: the file of several
    ranks that it is a part of, with one clock for all."""

    source: str
    tool: str
    rank: int | None = None
    world: int | None = None
    backend: str | None = None
    host: str | None = None
    device: bool = False
    groups: tuple[Group, ...] = ()
    notes: tuple[str, ...] = ()
    report: str | None = None
    collectives_without_interval: int = 0


@dataclass(frozen=True)
class RankCapture:
    """One rank's capture: whose it is, and its tables (`PARTIAL`)."""

    identity: Identity
    collectives: pa.Table
    segments: pa.Table
    steps: pa.Table
    spans: pa.Table
    work: pa.Table
    operations: pa.Table

    @property
    def rank(self) -> int:
        """The rank; only once `identity.settled` has seen that it is known."""
        assert self.identity.rank is not None
        return self.identity.rank


@dataclass(frozen=True)
class Clock:
    """How far a rank's clock is ahead of the clock of all, ns, and how sure that is; `part`: ranks
    of one part can be compared, None for a rank that shares no communication with another."""

    offset: int = 0
    uncertainty: int | None = None
    part: int | None = None
    by: str = ""


@dataclass(frozen=True)
class Straggler:
    """The rank whose lateness costs the others most. `share`: of a step, what it makes the others
    wait on average; `cause`: why it is late (`ranks.imbalance.CAUSES`), None where nothing says;
    `clear`: it costs at least twice what the others do at the median; `excess_ns`: by cause, each
    step, over the median of the others; `work`: what takes it longer than the others most, with
    the ratio; `steps_worst` of `steps`: in how many no other costs more; `usual`: all of this is
    of the median step, else of the mean, as a few steps cost it."""

    rank: int
    share: float
    wait_ns: int
    cause: str | None
    excess_ns: Mapping[str, int]
    work: str | None = None
    work_ratio: float | None = None
    clear: bool = True
    steps_worst: int = 0
    steps: int = 0
    usual: bool = True


@dataclass(frozen=True)
class WhatIf:
    """The median step under an assumption, and as it was, by the same replay; without a straggler
    that few steps have, the mean step."""

    name: str
    step_ns: int
    unchanged_ns: int
    by_step: Sequence[int] = ()


@dataclass(frozen=True)
class Bubble:
    """The bubble of a pipeline's rank, of a step: in all, before the first backward (`warmup`),
    between (`steady`), after the last forward (`drain`). `stages`: those of the rank, none where
    nothing names them; `split`: backward is done in two parts. `ranks`: of the pipeline; `ideal`:
    the share of a step that the ideal schedule leaves idle; None where they are not known."""

    rank: int
    stages: tuple[int, ...]
    step_ns: int
    bubble_ns: int
    warmup_ns: int
    steady_ns: int
    drain_ns: int
    microbatches: int
    split: bool = False
    ranks: int | None = None
    ideal: float | None = None

    @property
    def share(self) -> float:
        """Of the step."""
        return self.bubble_ns / self.step_ns if self.step_ns else 0.0

    @property
    def beyond_ns(self) -> int | None:
        """Of a step, what the rank idles beyond the ideal schedule for as much work; below 0 where
        it has more than an equal share of the work."""
        if self.ideal is None:
            return None
        work = self.step_ns - self.bubble_ns
        return round(self.bubble_ns - work * self.ideal / (1 - self.ideal))


@dataclass(frozen=True)
class Picture:
    """One step of all ranks on one clock: `parts`, by rank, is the part (an index of PARTS, -1 for
    none) that prevails in each of equally long pieces from `low` to `high`. `ends`: when the
    collectives that joined the most ranks ended."""

    iteration: int | None
    low: int
    high: int
    parts: Mapping[int, Sequence[int]]
    ends: Sequence[int]


@dataclass(frozen=True)
class Job:
    """All ranks together. `collectives` and `ranks` are the tables of the contract."""

    identities: Sequence[Identity]
    missing: Sequence[int]
    world: int | None
    groups: Mapping[str, Group]
    clocks: Mapping[int, Clock]
    iterations: Sequence[int | None]
    collectives: pa.Table
    ranks: pa.Table
    kinds: pa.Table
    modules: pa.Table
    waits: Mapping[tuple[int, int], int]
    straggler: Straggler | None
    what_if: Sequence[WhatIf]
    path: Mapping[tuple[int, str], int]
    pictures: Sequence[Picture]
    bubbles: Sequence[Bubble]
    step_ns: int
    notes: Sequence[str] = field(default_factory=tuple)
