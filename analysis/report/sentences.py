"""What the checks and the host side say, in sentences: what is wrong first, nothing twice; and
who makes the host wait.

A run of eighteen sides has more than eighty of them, most the same; what several sides have in
common is said once and names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import formatting
from ..formatting import filled, percent
from ..formatting import spoken_time as time
from ..model.comparison import Comparison, HostSide, Side, Wording
from ..model.waiting import Stretch, Wait, Waiting
from . import doubts, ledger, panels
from .cells import interval

HOST = "host side"
CAPTURE = "capture by nsys"
NSYS = "nsys"
_ORDER = ("bad", "none", "", "good")


@dataclass(frozen=True)
class Remark:
    """What a check or the host side says, once for all sides of which it is true. `tabled`: the
    ledger's rows say the same."""

    sides: str
    check: str
    text: str
    tone: str
    tabled: bool


class _Sentence(NamedTuple):
    check: str
    tone: str
    tabled: bool
    text: str


def of(comparison: Comparison) -> list[Remark]:
    """What the checks say: those that failed first, then those that could not be made, then the
    host side, then what adds up. What several sides have in common is said once."""
    sides: dict[_Sentence, list[str]] = {}
    wordings: dict[_Sentence, Wording] = {}
    for side in comparison.sides:
        for sentence, wording in _of_side(side):
            sides.setdefault(sentence, []).append(side.key)
            if wording is not None:
                wordings[sentence] = wording
    remarks = [
        Remark(_names(comparison, keys, s.check), s.check, s.text, s.tone, s.tabled)
        for s, keys in _joined(sides, wordings).items()
    ]
    return sorted(remarks, key=lambda s: (_ORDER.index(s.tone), s.check != "latency"))


def _of_side(side: Side) -> Iterator[tuple[_Sentence, Wording | None]]:
    if faults := doubts.series(side):
        text = f"Not settled: {'; '.join(faults)}."
        yield _Sentence("latency", "none", False, text), None
    for c in side.checks:
        if c.text:
            sentence = _Sentence(f"check {c.name}", ledger.TONES[c.ok], c.ok is True, c.text)
            yield sentence, c.wording
    for warning in side.warned:
        yield _Sentence(CAPTURE, "none", False, f"{warning}."), None
    if side.host:
        # Whether launches bind a side is a fact; a capture that says otherwise is a doubt.
        differs = side.host.confirmed is False
        tone = "bad" if differs else ""
        wording = host(side.host, side.device)
        yield _Sentence(HOST, tone, not differs, filled(wording.form, wording.figures)), wording
        # PyTorch's profiler never records the others.
        missing = side.host.missing if side.host.tool == NSYS else {}
        for what, why in missing.items():
            yield _Sentence(HOST, "", False, f"{what} is unknown: {why}."), None


def _joined(
    sides: Mapping[_Sentence, list[str]], wordings: Mapping[_Sentence, Wording]
) -> dict[_Sentence, list[str]]:
    """Sentences of one form that differ in one share alone as one, with the least and the most."""
    groups: dict[tuple[str, ...], list[_Sentence]] = {}
    for s in sides:
        form = (wordings[s].form, "form") if s in wordings else (s.text, "text")
        groups.setdefault((s.check, s.tone, *form), []).append(s)
    joined: dict[_Sentence, list[str]] = {}
    for group in groups.values():
        text = _range([wordings[s] for s in group]) if len(group) > 1 else None
        if text is None:
            joined |= {s: sides[s] for s in group}
        else:
            joined[group[0]._replace(text=text)] = [key for s in group for key in sides[s]]
    return joined


def _range(wordings: Sequence[Wording]) -> str | None:
    columns = list(zip(*(w.figures for w in wordings), strict=True))
    differ = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    shares = [f for i in differ[:1] for f in columns[i] if not isinstance(f, str)]
    if len(differ) != 1 or not shares:
        return None
    figures = list(wordings[0].figures)
    figures[differ[0]] = f"{percent(min(shares)).removesuffix(' %')} to {percent(max(shares))}"
    return filled(wordings[0].form, figures)


def _names(comparison: Comparison, keys: Sequence[str], check: str) -> str:
    """The sides in words; of the host side only those count that were captured by nsys."""
    hosts = [s.key for s in comparison.sides if s.host and s.host.tool == NSYS]
    if check == HOST and len(hosts) > 1 and set(keys) == set(hosts):
        return "every side under nsys"
    return panels.names(comparison, keys)


_SOURCES = {
    "queued": "Without {} the device waits for the host in {} of the latency.",
    "busy": "Without {} no kernel runs in {} of the latency.",
}
_VERDICTS = {
    True: "Bound by launches",
    False: "Not bound by launches",
    None: "Whether launches bound it without the tracer was not measured",
}


def host(side: HostSide, device: Mapping[str, object]) -> Wording:
    """What the host did under the tracer, and whether launches bind the side without. `device`: of
    the unprofiled run, which may have replayed a CUDA graph."""
    parts: list[str] = []
    figures: list[float | str] = []
    issue, busy, launches = (side.values.get(k) for k in ("issue", "busy", "launches"))
    if issue and busy and launches:
        parts.append(
            "Under {} the host takes {} for {} launches, which keep the device busy for {}."
        )
        figures += [side.tool, time(issue.median), f"{launches.median:,}", time(busy.median)]
    if side.unprofiled_source is not None and side.unprofiled_share is not None:
        parts.append(_SOURCES[side.unprofiled_source])
        figures += [side.tool, side.unprofiled_share]
    parts.append(f"{_VERDICTS[side.launch_bound]}{_capture(side, device)}.")
    return Wording(" ".join(parts), figures)


def _capture(side: HostSide, device: Mapping[str, object]) -> str:
    """What the capture says of the verdict."""
    if device.get("cuda_graph"):
        return f"; without {side.tool} it replayed a CUDA graph, so the two do not compare"
    if side.launch_bound is None or side.traced_share is None:
        return ""
    return {
        True: "; the capture agrees",
        False: "; the capture does not show why: its launches take less than its kernels",
        None: "; the capture cannot tell, because tracing makes launches dearer",
    }[side.confirmed]


# --- waiting ---

# Headings, and whether the column holds figures. Python and module are left out where no row has
# one.
COLUMNS = {
    "cause": ("Cause", False),
    "python": ("Python", False),
    "module": ("Module", False),
    "phase": ("Phase", False),
    "count": ("Times", True),
    "time": ("Waits", True),
    "share": ("Share of the step", True),
}
SHOWN = 20  # causes of a side
NO_STACKS = (
    "A trace without functions of Python does not tell who called: capture it with stacks for that."
)
NO_DEVICE = (
    "Of a capture without a device: nothing waits there. These operators would make the host wait "
    "for a device, because they hand it values or sizes that depend on them, unless what they read "
    "is kept on the host there, too, as the step counts of an optimizer are."
)
ON_DEVICE = (
    "Each cause per iteration: how often, for how long the host waited, and the share of the step. "
    "A wait is no loss in itself: it is one where the device then has nothing to do."
)


def waiting(comparison: Comparison) -> dict[str, Any] | None:
    """Notes, and the sides with something to say: label, rows of causes, sentences of stretches;
    None without any."""
    sides = [
        _waits_of(side.label, side.waiting)
        for side in comparison.sides
        if side.waiting is not None and (side.waiting.waits or side.waiting.stretches)
    ]
    notes = dict.fromkeys(n for s in comparison.sides if s.waiting for n in _notes(s.waiting))
    return {"notes": list(notes), "sides": sides} if sides else None


def _waits_of(label: str, waits: Waiting) -> dict[str, Any]:
    rows = [_row(w) for w in waits.waits[:SHOWN]]
    shown = {
        name: about
        for name, about in COLUMNS.items()
        if any(r[name] is not None for r in rows) or name not in ("python", "module")
    }
    return {
        "label": label,
        "columns": shown,
        "rows": rows,
        "left": max(0, len(waits.waits) - SHOWN),
        "stretches": [_stretch(s) for s in waits.stretches],
    }


def _notes(waits: Waiting) -> Iterator[str]:
    if waits.waits:
        yield ON_DEVICE if waits.on_device else NO_DEVICE
        if any(w.function is None and not w.lines for w in waits.waits) and not waits.stacks:
            yield NO_STACKS


def _row(w: Wait) -> dict[str, Any]:
    return {
        "cause": w.cause if w.call in (None, w.cause) else f"{w.cause}: {w.call}",
        "python": ", ".join(w.lines) or w.function,
        "module": "(model)" if w.module == "" else w.module,
        "phase": w.phase,
        "count": formatting.number(w.count),
        "time": formatting.UNKNOWN if w.time is None else formatting.time(w.time.median),
        "share": formatting.percent(w.share),
        "exact": "" if w.time is None else interval(w.time),
    }


def _stretch(s: Stretch) -> str:
    first, last = ("(model)" if m == "" else m or "no module" for m in (s.first, s.last))
    where = first if first == last else f"{first} to {last}"
    idle = formatting.percent(s.idle / s.time if s.time else None)
    return (
        f"{s.phase}, {where}: {s.operations:,} operations in {formatting.time(s.time)}, of which "
        f"the device waits {formatting.time(s.idle)} ({idle}) for the next launch "
        f"(iteration {s.iteration})."
    )
