"""Which engine each inference of a capture is of.

An enqueue's range carries no name of its engine. What tells engines apart is their process and
the names of the outermost layers in their enqueues: each engine marks its own. An enqueue whose
names are some of those of exactly one other engine of its process is of that one: the capture
began or ended inside it, or a conditional layer did not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..readers.nsys import schema
from ..readers.nsys.attribution import Attribution
from ..readers.nsys.range_forest import Flags, Indices

Kind = tuple[int, frozenset[int]]  # process key, and codes of names


@dataclass(frozen=True)
class Engines:
    """`of`: number of the engine per iteration, from 0, in the order of their first iteration.
    `processes`: the process id of each."""

    of: Indices
    processes: list[int]

    def __len__(self) -> int:
        return len(self.processes)

    @property
    def iterations(self) -> list[int]:
        """How many iterations each engine has."""
        return np.bincount(self.of, minlength=len(self)).tolist()  # type: ignore[no-any-return]

    def note(self, names: Sequence[Sequence[str]]) -> list[str]:
        """The engines by their layers' `names` and how often each ran; nothing of a single one."""
        if len(self) == 1:
            return []
        parts = [
            f"engine {i} ({own[0]}"
            + (f" and {len(own) - 1} more layers" if len(own) > 1 else "")
            + f"; process {process}) {count} enqueues"
            for i, (own, count, process) in enumerate(
                zip(names, self.iterations, self.processes, strict=True), 1
            )
        ]
        return [
            f"the capture holds {len(self)} engines, told apart by their processes and layers: "
            + ", ".join(parts)
        ]


def one(iterations: int) -> Engines:
    """All iterations as those of one engine."""
    return Engines(np.zeros(iterations, np.int32), [0])


def engines(attribution: Attribution, homes: Indices, around: Indices, outermost: Flags) -> Engines:
    """The engine of each iteration.

    `homes`: a piece per iteration, in its enqueue or around the capture of its CUDA graph.
    `around`: per piece the enqueue's piece around it, -1 for none. `outermost`: which pieces are
    layers that lie in no other layer of their enqueue.
    """
    owner, ranges = attribution.forest.owner, attribution.capture.ranges
    enqueues = np.where(around[homes] >= 0, owner[around[homes]], -1)
    wanted = np.zeros(len(ranges) + 1, np.bool_)
    wanted[enqueues] = True
    inside = np.flatnonzero(outermost & (around >= 0))
    holder = owner[around[inside]]
    inside, holder = inside[wanted[holder]], holder[wanted[holder]]
    names = _names(holder, ranges.name[owner[inside]], len(attribution.capture.names))
    processes = np.asarray([t >> schema.PROCESS_SHIFT for t in ranges.threads], np.int64)
    process = processes[ranges.thread[owner[homes]]].tolist()
    nothing: frozenset[int] = frozenset()
    kinds = [(p, names.get(e, nothing)) for p, e in zip(process, enqueues.tolist(), strict=True)]
    whole = _whole(list(dict.fromkeys(kinds)))
    number: dict[Kind, int] = {}
    of = [number.setdefault(whole[kind], len(number)) for kind in kinds]
    return Engines(np.asarray(of, np.int32), [p & schema.PROCESS_MASK for p, _ in number])


def _names(holder: npt.NDArray[np.int32], name: Indices, count: int) -> dict[int, frozenset[int]]:
    """The set of names in each range."""
    pairs = np.unique(holder.astype(np.int64) * count + name)
    ranges, codes = np.divmod(pairs, max(count, 1))
    begins = np.flatnonzero(np.diff(ranges, prepend=-1))
    known: dict[bytes, frozenset[int]] = {}
    names = {}
    for part, at in zip(np.split(codes, begins[1:]), ranges[begins].tolist(), strict=False):
        key = part.tobytes()
        if key not in known:
            known[key] = frozenset(part.tolist())
        names[at] = known[key]
    return names


def _whole(kinds: Sequence[Kind]) -> dict[Kind, Kind]:
    """Per kind of enqueue the engine that it is of."""
    largest = [k for k in kinds if not any(k[0] == o[0] and k[1] < o[1] for o in kinds)]
    engine = {}
    for kind in kinds:
        around = [k for k in largest if k[0] == kind[0] and kind[1] < k[1]]
        engine[kind] = around[0] if len(around) == 1 else kind
    return engine
