"""What a gate says of two baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .baseline import LATENCY, QUEUED


class Status(StrEnum):
    """Of one thing that was judged."""

    WORSE = "worse"
    UNTOLD = "cannot tell"
    FASTER = "better"
    SAME = "not worse"


# Exit codes. 2 and 3 are bad usage and what is missing, as of every command.
NOT_SLOWER, SLOWER, CANNOT_TELL = 0, 1, 4


@dataclass(frozen=True)
class Judged:
    """One quantity. `before` and `after`: the means, in `unit`; shares over `before`: `change` with
    its 95 % bounds `low` and `high` (one-sided each), `limit`, and `visible`: the growth that this
    comparison would have called worse 19 times in 20; None where unknown, `low` also where nothing
    would be left of `before`.

    `limit_of`: what the limit is where it is more than its share. `decides`: where it cannot be
    told, neither can the whole. `fix`: what to do then.
    """

    side: str
    what: str
    name: str
    unit: str
    before: float
    after: float
    change: float | None
    low: float | None
    high: float | None
    limit: float | None
    visible: float | None
    status: Status
    decides: bool
    units: tuple[int, int]  # how many values each side has
    why: str = ""
    fix: str = ""
    limit_of: str = ""


@dataclass(frozen=True)
class Finding:
    """What is wrong or cannot be told beside times: outputs, a side that is gone, coverage, stale
    captures, another machine."""

    side: str
    status: Status
    text: str
    fix: str = ""


@dataclass(frozen=True)
class Changed:
    """What else is another than in the baseline, each in words."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Verdict:
    """The whole. `judged`: the quantities, by side, what decides first. `trend`: latency by side in
    this and earlier baselines, the oldest first, the new one last. `unchecked`: engines of which
    nobody knows whether they are right."""

    before: str
    after: str
    judged: Sequence[Judged]
    findings: Sequence[Finding]
    changed: Sequence[Changed]
    remarks: Sequence[str] = ()
    trend: Sequence[tuple[str, Sequence[int]]] = ()
    unchecked: Sequence[str] = ()

    @property
    def code(self) -> int:
        """The exit code: what is worse goes before what cannot be told."""
        statuses = [f.status for f in self.findings]
        statuses += [j.status for j in self.judged if j.decides or j.status is Status.WORSE]
        if Status.WORSE in statuses:
            return SLOWER
        told = any(j.decides for j in self.judged)
        return CANNOT_TELL if Status.UNTOLD in statuses or not told else NOT_SLOWER

    @property
    def answer(self) -> str:
        """In words."""
        if self.code == SLOWER:
            wrong = any(f.status is Status.WORSE for f in self.findings)
            slower = any(j.status is Status.WORSE for j in self.judged)
            return "slower and wrong" if wrong and slower else "wrong" if wrong else "slower"
        return "cannot tell" if self.code == CANNOT_TELL else "not slower"

    def of(self, *statuses: Status) -> list[Judged]:
        """Those of a status, in their order."""
        return [j for j in self.judged if j.status in statuses]

    @property
    def untold(self) -> list[Judged]:
        """What decides and cannot be told."""
        return [j for j in self.of(Status.UNTOLD) if j.decides]

    @property
    def visible(self) -> tuple[Judged, float] | None:
        """The latency (of a side that the device alone decides: that) of which the growth that is
        seen 19 times in 20 is the largest, with that; None without."""
        whole = [j for what in (QUEUED, LATENCY) for j in self.judged if j.what == what]
        deciding = {j.side: j for j in whole if j.decides}.values()
        found = [(j, j.visible) for j in deciding if j.visible]
        return max(found, key=lambda f: f[1], default=None)

    def as_json(self) -> dict[str, Any]:
        """For a script: all that was judged."""
        return {
            "schema_version": 1,
            "answer": self.answer,
            "exit_code": self.code,
            "baseline": self.before,
            "new": self.after,
            "judged": [vars(j) for j in self.judged],
            "findings": [vars(f) for f in self.findings],
            "changed": [vars(c) for c in self.changed],
            "remarks": list(self.remarks),
            "trend": {key: list(values) for key, values in self.trend},
            "unchecked": list(self.unchecked),
        }
