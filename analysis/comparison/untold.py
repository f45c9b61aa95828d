"""Why a growth cannot be told, and what would tell it.

What a host adds to an engine's latency has one side: it makes processes slower, none faster. So a
growth of the code is in every process, in the fastest, too; one of the host's is in most of them.
How busy a host is differs between sessions, and no spread within one session contains that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import formatting
from ..model.baseline import LATENCY, MEMORY, QUEUED, Quantity
from .beside import SEVERAL
from .limits import Limit
from .spread import Change

# One-sided: how sure "not worse" is.
SURE = 0.95
_IN_TURN = "measure in turn (--measure)"
_QUIETER = "measure on a quieter machine"
_BY_DEVICE = "judge by the device alone (--by device)"
_MOST_PROCESSES, _MOST_ROUNDS = 20, 100


@dataclass(frozen=True)
class Compared:
    """A quantity of both sides, with its limit in its unit."""

    side: str
    a: Quantity
    b: Quantity
    change: Change
    limit: Limit
    in_turn: bool

    @property
    def units(self) -> tuple[int, int]:
        """How many values each side has."""
        return len(self.a.values), len(self.b.values)

    @property
    def apart(self) -> float | None:
        """The standard deviation of processes, as a share; None where runs are what lies apart."""
        error, before = self.change.error, self.change.before
        if error is None or not before or len(self.a.runs) > 1 or len(self.b.runs) > 1:
            return None
        return error / math.sqrt(sum(1 / n for n in self.units)) / before

    @property
    def most(self) -> float:
        """By how much it may grow."""
        return self.limit.of(self.change.before)


def of_host(c: Compared) -> bool:
    """Whether a latency that grew, though the device takes no longer, may have grown by a busier
    host alone: the fastest process grew by less than the limit, and by less than half of what the
    mean did.

    Of several sessions, and of values in turn, the spread contains what the host does.
    """
    if min(len(c.a.runs), len(c.b.runs)) > 1:
        return False
    fastest = min(c.b.values) - min(c.a.values)
    return fastest < min(c.most, c.change.by / 2)


def by_host(c: Compared) -> tuple[str, str]:
    """Why such a growth cannot be told, and what would tell."""
    a, b = (formatting.time(min(q.values)) for q in (c.a, c.b))
    why = f"the device takes no longer, and the fastest process {a} → {b}: it is the host"
    return why, f"{_BY_DEVICE}; or {_IN_TURN}, or {_QUIETER}"


def beside_device(whole: Compared, alone: Compared, told: tuple[str, str]) -> tuple[str, str]:
    """The same of a latency that scatters, with what was `told` of it."""
    why, fix = told
    if whole.apart and alone.apart is not None and alone.apart < whole.apart / 2:
        shares = (formatting.percent(share) for share in (whole.apart, alone.apart))
        why += ": {}, on the device alone {}: it is the host".format(*shares)
    return why, f"{_BY_DEVICE}; or {fix}"


def reason(c: Compared) -> tuple[str, str]:
    """Why it cannot be told, and what would tell."""
    n = max(2, *c.units)
    if c.change.error is None:
        return "one process each: how far processes lie apart is not known", _more(c, 5)
    if c.change.by - c.change.reach(SURE) > 0:
        return "it grew; by more than the limit or not is not sure", _enough(c, n)
    allowed, scale = c.change.allowance, c.change.before
    if scale and 0 < allowed < c.most and c.change.by + c.change.reach(SURE) - allowed <= c.most:
        much = formatting.percent(allowed / scale)
        return f"processes drift, or builds lie apart: {much} is allowed for that", _enough(c, n)
    return "processes lie further apart than the limit", _enough(c, n)


def _enough(c: Compared, n: int) -> str:
    """How many processes would tell a change of nothing from one of the limit."""
    error, allowance, most = c.change.error or 0, c.change.allowance, c.most
    ways = [_QUIETER] if c.in_turn else [SEVERAL]
    if not c.in_turn and c.side.startswith("engine/"):
        ways.append(_IN_TURN)
    if allowance >= most:
        if c.in_turn:  # what drifts has cancelled
            return f"{_passing(c)}: builds lie further apart than the limit"
        return f"{', or '.join(ways)}: they drift, or builds lie apart, by more than the limit"
    needed = math.ceil(n * (3 * error / (most - allowance)) ** 2)
    if needed > (_MOST_ROUNDS if c.in_turn else _MOST_PROCESSES):
        return ", or ".join([*ways, _passing(c)])
    return _more(c, max(needed, n + 1))


def _passing(c: Compared) -> str:
    """The limit by which a change of nothing is not worse; which change is seen is another one."""
    wider = 3 * (c.change.error or 0) + c.change.allowance
    if not c.change.before:
        return "allow more"
    name = "" if c.a.what == LATENCY else f"{c.a.name or c.a.what}="
    option = "--memory " if c.a.what == MEMORY else f"--slower {name}"
    return f"allow more: with {option}{wider / c.change.before:.1%} the same again passes"


def _more(c: Compared, n: int) -> str:
    """How to have `n` values: only of an engine's latency a run has several."""
    if c.in_turn:
        return f"measure more rounds (--rounds {n})"
    if not c.side.startswith("engine/") or c.a.what not in (LATENCY, QUEUED):
        return SEVERAL
    precision, _, backend = c.side.split("/")[1].partition(".")
    command = f"layerline profile RUN --what engine --processes {n}"
    return f"{command} --precision {precision} --backend {backend}, of both, or {SEVERAL}"
