"""Whether to believe the answer, one chip a question, each with the place of its evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...comparison import lead
from ...formatting import counted, known, percent
from ...model.comparison import Comparison, Side
from .. import ledger
from ..headline import BUSY

GOOD, BAD, UNSURE = "good", "bad", "unsure"
MARKS = {GOOD: "✓", BAD: "✗", UNSURE: "?"}
ALL, POOR_COVERAGE, MOSTLY = 0.995, 0.9, 0.9


class Chip(NamedTuple):
    """`tone`: good, bad or unsure; `evidence`: the id of the place that tells."""

    tone: str
    text: str
    evidence: str

    @property
    def mark(self) -> str:
        """The tone as a sign."""
        return MARKS[self.tone]


def of(comparison: Comparison, sides: Sequence[Side]) -> list[Chip]:
    """The chips of what these sides tell, the one that the answer is about last among them."""
    found = [_outputs(s) for s in sides if s.task == "engine"][-1:]
    found += [_sums(sides), *_precision(sides[-1]), *_covered(sides), *_settled(sides)]
    found.append(_machine(comparison, sides))
    if files := {s.file for s in comparison.skipped if s.file}:
        found.append(Chip(BAD, f"{counted(len(files), 'file')} cannot be used", "skipped"))
    return found


def _outputs(side: Side) -> Chip:
    if side.outputs is None:
        return Chip(UNSURE, "outputs not checked", "b-accuracy")
    if side.outputs.wrong:
        return Chip(BAD, "outputs wrong", "b-accuracy")
    if side.outputs.ok is None:
        return Chip(UNSURE, "outputs unknown", "b-accuracy")
    parity = side.parity or {}
    top1 = parity.get("top1")
    more = f", top-1 {percent(top1)}" if known(top1) else ""
    if parity.get("random_weights"):
        more = ", weights random"
    return Chip(GOOD, f"outputs match{more}", "b-accuracy")


def _sums(sides: Sequence[Side]) -> Chip:
    passed, failed, unknown = ledger.tally(sides)
    failing = ledger.failing(sides)
    if failed:
        text = f"{failed} of {passed + failed + unknown} sums do not add up"
        if ledger.profiled_apart(failing):
            share = max((c.residual_share or 0.0 for c in failing), key=abs)
            text = f"profiled run {percent(abs(share))} {'longer' if share > 0 else 'shorter'}"
        return Chip(BAD, text, f"b-{failing[0].name}")
    if not passed:
        return Chip(UNSURE, "sums not checked", "ledger")
    return Chip(GOOD, f"numbers add up, {passed} of {passed + unknown}", "b-i")


def _precision(side: Side) -> Iterator[Chip]:
    audit = ledger.check_of(side, ledger.PRECISION)
    share = side.precision_run.get(side.precision)
    if lead.lack(side) is not None or (audit is not None and audit.ok is False):
        yield Chip(BAD, f"{side.precision} did not run", "b-precision")
    elif share is not None and known(share):
        sure = share >= MOSTLY or (audit is not None and audit.ok is True)
        tone = GOOD if sure else UNSURE
        yield Chip(tone, f"{side.precision} ran, {percent(share)}", "b-precision")
    elif side.task == "engine":
        yield Chip(UNSURE, "precision unknown", "b-precision")


def _covered(sides: Sequence[Side]) -> Iterator[Chip]:
    covered = [s.coverage for s in sides if s.coverage is not None]
    if covered:
        least = min(covered)
        text = "all time has a module" if least >= ALL else f"{percent(least)} of time has a module"
        yield Chip(BAD if least < POOR_COVERAGE else GOOD, text, "unresolved")


def _settled(sides: Sequence[Side]) -> Iterator[Chip]:
    measured = [s for s in sides if s.latency.median is not None]
    restless = [s for s in measured if lead.faults(s)]
    if restless:
        who = "neither" if len(restless) == 2 else restless[0].label
        text = "neither settled" if who == "neither" else f"{who} not settled"
        yield Chip(UNSURE, text, "b-latency")
    elif len(measured) < len(sides):
        yield Chip(UNSURE, "latency not measured", "b-latency")
    elif any(s.latency.low is None for s in measured):
        yield Chip(UNSURE, "too few samples", "b-latency")
    else:
        yield Chip(GOOD, "settled", "b-latency")


def _machine(comparison: Comparison, sides: Sequence[Side]) -> Chip:
    keys = {s.key for s in sides}
    bent = {c.what: c for c in comparison.comparability if keys & set(c.sides)}
    if BUSY in bent:
        return Chip(UNSURE, "machine busy", "comparability")
    if "GPU slowed down" in bent:
        return Chip(UNSURE, "GPU slowed down", "comparability")
    if not keys <= comparison.load.keys():
        return Chip(UNSURE, "machine load unknown", "comparability")
    return Chip(GOOD, "machine quiet", "comparability")
