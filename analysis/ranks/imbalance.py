"""Who makes whom wait, and why.

The exposed wait of a rank in a collective is what the rank that began it last made it wait. Where
its own host had nothing more for it meanwhile, nobody is to blame for it: that is told apart. Why
the last one was late is told by what it did since the group's previous collective ended (or its
step began), beside what the others of the group did meanwhile, on their devices or, hidden behind a
wait, on their hosts: the excess of each part over their median. A rank that was late since it had
waited for another, in another group, passes what it costs on to that one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
import pyarrow as pa

from ...core.intervals import Ints
from ..model.ranks import PARTS, Straggler
from .accounting import BLOCKED, COLUMNS, Ledger, Table
from .matching import Matched
from .unready import unready
from .waits import NONE, Waits

# Why a rank can be late; "wait" is that of another group. Host time without loading of data.
CAUSES = ("compute", "copy", "host", "data", "dependency", "launch", "wait", "transfer", "unknown")
_OF_CAUSE = {
    "compute": ("compute",), "copy": ("copy",), "host": ("idle_host",), "data": ("data",),
    "dependency": ("idle_dependency",), "launch": ("idle_launch",), "wait": ("wait",),
    "transfer": ("transfer",), "unknown": ("communication", "idle_unknown"),
}  # fmt: skip
_WAIT = CAUSES.index("wait")
HOPS = 8
# Of a step; below it nobody is named: so much is lost in any job.
LEAST_SHARE = 0.02
# Of a wait, what a cause must be at least to be named.
EXPLAINS = 0.25
CLEAR = 2  # times what the others cost at the median
_HOST = CAUSES.index("host")


@dataclass(frozen=True)
class Blame:
    """`waits`: ns that a rank (first) waited for another (second), in all steps. By rank and step:
    `cost`, ns that all others waited for it while their own hosts were ready, and `excess`, by
    cause, in the collectives for which it was the last; `unready`, ns that it waited while its own
    host had nothing more for it."""

    waits: Mapping[tuple[int, int], int]
    cost: Mapping[tuple[int, int | None], int]
    excess: Mapping[tuple[int, int | None], Mapping[str, int]]
    unready: Mapping[tuple[int, int | None], int]


def since_previous(ledger: Ledger, groups: Ints, numbers: Ints) -> Table:
    """What the rank did until the last rank of each of its rows began, since the row before of the
    same group ended or its step began: a column for each of CAUSES. What a rank computes beside a
    communication that waits is in it, so that the excesses add up to the exposed wait. It waits
    for others until its own row begins. `groups`: the group of each row, as code;
    `numbers`: its instance, -1 for a row that is not matched."""
    n = len(ledger.rows)
    at = np.searchsorted(ledger.step_start, _starts(ledger), side="right") - 1
    before = np.zeros((n, len(COLUMNS)), dtype=np.int64)
    if len(ledger.step_start):
        before = ledger.at_step_start[np.maximum(at, 0)]
    starts = _starts(ledger)
    last: dict[int, int] = {}
    for i in np.argsort(starts, kind="stable").tolist():
        if numbers[i] < 0:
            continue
        previous = last.get(int(groups[i]))
        if previous is not None and starts[previous] == starts[i]:  # sent and received as one
            before[i] = before[previous]
        elif previous is not None:
            before[i] = np.maximum(before[i], ledger.at_end[previous])
        last[int(groups[i])] = i
    until = ledger.at_latest.copy()
    until[:, BLOCKED] = ledger.at_start[:, BLOCKED]
    done = np.maximum(until - before, 0)
    column = {name: done[:, k] for k, name in enumerate(COLUMNS)}
    column["idle_host"] = column["idle_host"] - column["data"]
    return np.stack([sum(column[p] for p in _OF_CAUSE[c]) for c in CAUSES], axis=1)


def _starts(ledger: Ledger) -> Ints:
    starts: Ints = ledger.at_start[:, : len(PARTS)].sum(axis=1) + _base(ledger)
    return starts


def _base(ledger: Ledger) -> int:
    """The parts of a moment add up to the time since the capture's first: from there on."""
    if not len(ledger.step_start):
        return 0
    return int(ledger.step_start[0] - ledger.at_step_start[0, : len(PARTS)].sum())


def blame(rows: pa.Table, matched: Matched, waits: Waits, ledgers: Sequence[Ledger]) -> Blame:
    """Who made whom wait."""
    codes: dict[object, int] = {}
    group = np.array([codes.setdefault(g, len(codes)) for g in rows["group"].to_pylist()])
    n = len(rows)
    done = np.zeros((n, len(CAUSES)), dtype=np.int64)
    exposed_wait = np.zeros(n, dtype=np.int64)
    in_vain = np.zeros(n, dtype=np.int64)
    for one in ledgers:
        if len(one.rows):
            numbers = matched.instance[one.rows]
            own = unready(one, waits)
            done[one.rows] = since_previous(one, group[one.rows], numbers)
            done[one.rows, _HOST] += own.late
            in_vain[one.rows] = own.in_vain
            exposed_wait[one.rows] = one.exposed_wait
    rank = rows["rank"].to_numpy()
    waited: Counter[tuple[int, int]] = Counter()
    costs: Counter[tuple[int, int | None]] = Counter()
    excess: dict[tuple[int, int | None], Counter[str]] = defaultdict(Counter)
    lost: Counter[tuple[int, int | None]] = Counter()
    steps = rows["iteration"].to_pylist()
    for number, (answers, since) in _answers(rank, matched, waits, done, exposed_wait).items():
        members = matched.instances[number]
        step = steps[members[0]]
        for c, cause in enumerate(CAUSES):
            excess[answers, step][cause] += int(since[c])
        for i in members.tolist():
            if exposed_wait[i] and int(rank[i]) != answers:
                waited[int(rank[i]), answers] += int(exposed_wait[i])
                costs[answers, step] += int(exposed_wait[i] - in_vain[i])
                lost[int(rank[i]), steps[i]] += int(in_vain[i])
    of_cause = {k: dict(c) for k, c in excess.items()}
    return Blame(dict(waited), dict(costs), of_cause, dict(lost))


def _excess(done: Table, is_late: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    """What the late rank did beyond the median of the others, by cause."""
    late = done[int(np.argmax(is_late))]
    others = done[~is_late]
    result: Ints = late - np.median(others, axis=0).astype(np.int64) if len(others) else late
    return result


def _answers(
    rank: Ints, matched: Matched, waits: Waits, done: Table, exposed_wait: Ints
) -> dict[int, tuple[int, Ints]]:
    """Who answers for the wait in each instance that has some, and the excess of that rank: the
    late rank, or the one that it had itself waited for."""
    direct: dict[int, tuple[int, Ints, int | None]] = {}
    by_rank: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for number, members in matched.instances.items():
        for i in members[exposed_wait[members] > 0].tolist():
            by_rank[int(rank[i])].append((int(waits.end[i]), number, int(exposed_wait[i])))
    for mine in by_rank.values():
        mine.sort()
    for number, members in matched.instances.items():
        late = int(waits.late[members[0]])
        if late == NONE or not exposed_wait[members].any():
            continue
        why = _excess(done[members], rank[members] == late)
        passed = None
        if why[_WAIT] > 0 and 2 * why[_WAIT] > np.maximum(why, 0).sum():
            row = members[int(np.argmax(rank[members] == late))]
            passed = _waited_for(by_rank[late], int(waits.start[row]), int(done[row].sum()))
        direct[number] = (late, why, passed)
    result = {}
    for number in direct:
        at, hops = number, 0
        while (further := direct[at][2]) is not None and further in direct and hops < HOPS:
            at, hops = further, hops + 1
        result[number] = direct[at][:2]
    return result


def _waited_for(mine: Sequence[tuple[int, int, int]], moment: int, length: int) -> int | None:
    """The instance in which a rank waited longest within a length of time before a moment."""
    inside = [x for x in mine if moment - length <= x[0] <= moment]
    return max(inside, key=lambda x: x[2])[1] if inside else None


Average = Callable[[Sequence[int]], float]


def straggler(
    blamed: Blame, ranks: Sequence[int], steps: Sequence[int | None], step_ns: int
) -> Straggler | None:
    """The rank that costs the others most; None where no rank waits for another.

    By the median step, which a single hiccup does not move, where a rank is clearly to blame for
    that; else by the mean."""
    usual = _worst(blamed, ranks, steps, step_ns, median)
    if usual is not None and usual.clear and usual.share >= LEAST_SHARE:
        return usual
    return _worst(blamed, ranks, steps, step_ns, fmean)


def _worst(
    blamed: Blame,
    ranks: Sequence[int],
    steps: Sequence[int | None],
    step_ns: int,
    average: Average,
) -> Straggler | None:
    cost = {r: average([blamed.cost.get((r, s), 0) for s in steps]) for r in ranks}
    rank = min(cost, key=lambda r: (-cost[r], r))
    if not cost[rank] or not step_ns:
        return None
    wait = round(cost[rank] / max(len(ranks) - 1, 1))
    of_step = [blamed.excess.get((rank, s), {}) for s in steps]
    # What it was late by in one collective it may have made good before the next.
    excess = {c: min(round(average([of.get(c, 0) for of in of_step])), wait) for c in CAUSES}
    cause: str | None = max(excess, key=lambda c: excess[c])
    if cause is not None and excess[cause] < EXPLAINS * wait:
        cause = None
    typical = median([cost[r] for r in ranks if r != rank]) if len(ranks) > 1 else 0
    clear = cause is not None and cost[rank] >= CLEAR * typical
    worst_in = sum(
        blamed.cost.get((rank, s), 0) >= max(1, *(blamed.cost.get((r, s), 0) for r in ranks))
        for s in steps
    )
    return Straggler(
        rank, wait / step_ns, wait, cause, excess,
        clear=clear, steps_worst=worst_in, steps=len(steps), usual=average is median,
    )  # fmt: skip
