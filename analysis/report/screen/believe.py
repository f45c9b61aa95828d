"""The ledger folded to one line a check, each with what is said of it and the figures by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...comparison import lead
from ...model.comparison import Comparison
from .. import ledger, sentences
from ..contents import Section

VERDICT = "Verdict"
# What remarks of a check belong to, where that is no check's own name.
_ABOUT = {sentences.HOST: "host", sentences.CAPTURE: "latency"}


@dataclass
class Check:
    """`tone` and `said`: the verdicts together; `panels`: the rows of each panel."""

    key: str
    title: str
    note: str
    tone: str = ""
    said: str = ""
    remarks: list[sentences.Remark] = field(default_factory=list)
    panels: list[tuple[Section, Sequence[ledger.Row]]] = field(default_factory=list)


def checks(
    comparison: Comparison, panels: Sequence[Section], remarks: Sequence[sentences.Remark]
) -> tuple[list[Check], list[sentences.Remark]]:
    """The lines, and the remarks that belong to none of them."""
    found: dict[str, Check] = {}
    for panel in panels:
        for group in panel["groups"]:
            line = found.setdefault(group.key, Check(group.key, group.title, group.note))
            line.panels.append((panel, group.rows))
    for line in found.values():
        line.tone, line.said = _verdict(comparison, line)
    left: list[sentences.Remark] = []
    for remark in remarks:
        key = _ABOUT.get(remark.check, remark.check.removeprefix("check "))
        (found[key].remarks if key in found else left).append(remark)
    return list(found.values()), left


def _verdict(comparison: Comparison, line: Check) -> tuple[str, str]:
    """The gravest verdict, and how many there are of the best."""
    if line.key == "latency":
        measured = [s for s in comparison.sides if s.latency.median is not None]
        settled = sum(not lead.faults(s) for s in measured)
        tone = "good" if measured and settled == len(measured) else "none"
        return tone, f"{settled} of {len(measured)} settled"
    cells = [c for _, rows in line.panels for r in rows if r.label == VERDICT for c in r.cells]
    tones = [c.tone for c in cells if c.tone]
    if not tones:
        return "", ""
    tone = next(t for t in ("bad", "good", "none", *tones) if t in tones)
    good = tones.count("good")
    words = next((c.text for c in cells if c.tone == "good"), "")
    words = words.replace("adds up", "add up") if good > 1 else words
    return tone, f"{good} of {len(tones)} {words}".rstrip()
