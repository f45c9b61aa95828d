"""The ledger as rows of text, one column per side: what was measured and whether it adds up.

Both renderers show the same rows. No number is made here except the words for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

from .. import formatting
from ..comparison import lead
from ..model.comparison import Check, HostSide, Side
from . import cells as cells_

CHECKS = {
    "i": "Each operation counted once",
    "ii": "Span of the operations against latency",
    "iii": "Traced against unprofiled latency",
}
# Only where some side was captured by two tools.
EXTRA = {"sources": "nsys against torch.profiler"}
NOTES = {
    "i": "sums over the whole capture",
    "ii": "each column is one iteration, the one with its median residual: a column adds up, and "
    "two columns may show the same phase of different iterations",
    "iii": "medians",
    "sources": "medians per iteration",
}
PRECISION = "precision"  # its verdict stands with the precisions
VERDICTS = {True: "adds up", False: "does not add up", None: "not checked"}
TONES = {True: "good", False: "bad", None: "none"}


MOSTLY = 0.5
HOST_NOTE = "per iteration under nsys, which makes calls dearer"


class Cell(TypedDict):
    """One entry: what is shown, a second line, exact values for a tooltip, good | bad | none."""

    text: str
    sub: str
    exact: str
    tone: str


class Row(TypedDict):
    """One line of the ledger: a cell per side."""

    label: str
    cells: list[Cell]
    total: bool


class Group(TypedDict):
    """Lines that belong together."""

    title: str
    note: str
    rows: list[Row]


def groups(sides: Sequence[Side]) -> list[Group]:
    """The ledger of these sides; groups in which none has anything are left out, save the
    checks."""
    latency = [
        _row("Unprofiled", [_estimate(s, "latency") for s in sides], total=True),
        _row("Traced", [_estimate(s, "traced") for s in sides]),
    ]
    latency += _device(sides)
    where = [
        _row("Operations, sum", [_time(s.operation_ns) for s in sides], total=True),
        _row("Unresolved", [_time(s.unresolved_ns) for s in sides]),
        _row("Coverage", [_plain(formatting.percent(s.coverage)) for s in sides]),
    ]
    result: list[Group] = [
        {"title": "Latency", "note": "median, 95 % interval and count", "rows": latency},
        {"title": "Operations", "note": "median per iteration of self times", "rows": where},
    ]
    if any(s.host for s in sides):
        result.append({"title": "Host side", "note": HOST_NOTE, "rows": _host(sides)})
    for check in _checks(sides):
        name = CHECKS.get(check) or EXTRA.get(check)
        title = f"Check {check}: {name}" if name else f"Check {check}"
        note = NOTES.get(check, "")
        result.append({"title": title, "note": note, "rows": _check(check, sides)})
    precision = [
        _row("Asked for", [_plain(s.precision) for s in sides]),
        _row("Computed in", [_precisions(s) for s in sides]),
        _row("Verdict", [_asked(s) for s in sides], total=True),
    ]
    if not any(check_of(s, PRECISION) for s in sides):
        del precision[-1]
    result.append({"title": "Precision", "note": "by share of time", "rows": precision})
    if any(s.parity for s in sides):
        result.append({"title": "Accuracy", "note": "on the same input", "rows": _parity(sides)})
    return result


class Tally(NamedTuple):
    """How many checks passed, failed and could not be made, without those of the precision."""

    passed: int
    failed: int
    unknown: int


def tally(sides: Sequence[Side]) -> Tally:
    """The checks of all these sides."""
    verdicts = [c.ok for s in sides for c in s.checks if c.name != PRECISION]
    return Tally(verdicts.count(True), verdicts.count(False), verdicts.count(None))


def check_of(side: Side, name: str) -> Check | None:
    """The side's check of that name, or None."""
    return next((c for c in side.checks if c.name == name), None)


def _checks(sides: Sequence[Side]) -> list[str]:
    found = [c.name for s in sides for c in s.checks if c.name != PRECISION]
    return list(dict.fromkeys([*CHECKS, *found]))


def _cell(text: str, sub: str = "", exact: str = "", tone: str = "") -> Cell:
    return {"text": text, "sub": sub, "exact": exact, "tone": tone}


def _row(label: str, cells: list[Cell], *, total: bool = False) -> Row:
    return {"label": label, "cells": cells, "total": total}


def _plain(text: Any) -> Cell:
    return _cell(formatting.short(text))


def _time(ns: int | None) -> Cell:
    return _cell(formatting.time(ns), exact=formatting.exact(ns))


def _estimate(side: Side, which: str) -> Cell:
    e = {"latency": side.latency, "traced": side.traced, "queued": side.queued}[which]
    if e is None:
        return _cell(formatting.UNKNOWN)
    exact = formatting.exact(e.median)
    if formatting.known(e.low) and formatting.known(e.high):
        exact += f", 95 % {formatting.exact(e.low)} to {formatting.exact(e.high)}"
    # What is wrong with it is a sentence: see `sentences`.
    faults = lead.faults(side, which)
    exact = "; ".join([exact, *faults])
    tone = "none" if faults else ""
    return _cell(formatting.time(e.median), sub=cells_.interval(e), exact=exact, tone=tone)


def _check(check: str, sides: Sequence[Side]) -> list[Row]:
    found = [check_of(s, check) for s in sides]
    names = dict.fromkeys(name for c in found if c for name, _ in c.terms)
    rows = []
    for name in names:
        values = [next((ns for n, ns in c.terms if n == name), None) if c else None for c in found]
        rows.append(_row(formatting.short(name), [_time(v) for v in values]))
    rows.append(_row("Residual", [_residual(c) for c in found]))
    rows.append(_row("Verdict", [_verdict(check, c) for c in found], total=True))
    return rows


def _verdict(check: str, c: Check | None) -> Cell:
    """A side of one tool alone has nothing to hold against another's: that is no open question."""
    if c is None and check not in CHECKS:
        return _cell(formatting.UNKNOWN)
    ok = c.ok if c else None
    return _cell(VERDICTS[ok], tone=TONES[ok])


def _residual(c: Check | None) -> Cell:
    if c is None or not formatting.known(c.residual_ns):
        return _cell(formatting.UNKNOWN)
    sub = formatting.percent(c.residual_share) if formatting.known(c.residual_share) else ""
    if formatting.known(c.tolerance):
        sub += f"{', ' if sub else ''}allowed {formatting.percent(c.tolerance)}"
    return _cell(formatting.time(c.residual_ns), sub=sub, exact=formatting.exact(c.residual_ns))


def _precisions(side: Side) -> Cell:
    run = side.precision_run
    if not run:
        return _cell("unknown")
    text = ", ".join(
        formatting.short(name, 40)
        if share == 1
        else f"{formatting.short(name, 40)} {formatting.percent(share)}"
        for name, share in sorted(run.items(), key=lambda item: -(item[1] or 0))
    )
    audit = check_of(side, PRECISION)
    if audit is not None and audit.ok is not None:
        wrong = not audit.ok  # "unknown" of kernels whose name tells nothing is no verdict
    else:
        asked = {side.precision, "fp32" if side.precision == "tf32" else side.precision}
        wrong = sum(run.get(name) or 0 for name in asked) < MOSTLY
    return _cell(text, tone="bad" if wrong else "", sub="not what was asked for" if wrong else "")


_ASKED = {True: "as asked", False: "not as asked", None: "see the note"}


def _asked(side: Side) -> Cell:
    found = check_of(side, PRECISION)
    if found is None:
        return _cell(formatting.UNKNOWN)
    return _cell(_ASKED[found.ok], tone=TONES[found.ok])


def _device(sides: Sequence[Side]) -> list[Row]:
    """What was measured beside the latency; rows that no side has are left out."""
    about = [s.device or {} for s in sides]

    def fact(key: str, unit: str, scale: int = 1) -> list[Cell]:
        values = [a.get(key) for a in about]
        whole = [
            round(v / scale) if v is not None and formatting.known(v) else None for v in values
        ]
        shown = [formatting.number(v) for v in whole]
        return [_cell(f"{t} {unit}" if t != formatting.UNKNOWN else t) for t in shown]

    rows = [
        _row("Queued, device alone", [_estimate(s, "queued") for s in sides]),
        _row(
            "Waiting for launches",
            [_plain(formatting.percent(s.launch_bound)) for s in sides],
        ),
        _row(
            "Between two builds",
            [_plain(formatting.percent(s.rebuild_noise)) for s in sides],
        ),
        _row("Throughput, full queue", fact("throughput_per_second", "/s")),
        _row("CUDA graph", [_yes(a.get("cuda_graph")) for a in about]),
        _row("GPU clock", fact("sm_mhz", "MHz")),
        _row("GPU power", fact("power_mw", "W", 1000)),
        _row("GPU temperature", fact("celsius", "°C")),
        _row("GPU slowed down", [_throttled(a.get("throttled")) for a in about]),
    ]
    return [r for r in rows if any(c["text"] != formatting.UNKNOWN for c in r["cells"])]


# Names of `analysis.host.calls`, in the order they are shown.
_HOST = {
    "launches": "Launches",
    "issue": "Issuing, first to last launch",
    "launch": "Calls that launch",
    "copy": "Copies and sets",
    "synchronise": "Synchronising",
    "other": "Other calls into CUDA",
    "cuBLAS": "In cuBLAS",
    "cuDNN": "In cuDNN",
    "waits": "Waiting in the system",
    "busy": "Device busy",
    "idle": "Device idle between operations",
    "idle_for_host": "of it, for the next launch",
    "gaps": "Gaps between operations",
}
_COUNTS = ("launches", "gaps")


def _host(sides: Sequence[Side]) -> list[Row]:
    """What the host did; the verdict in its last row. Rows that no side has are left out."""
    about = [s.host for s in sides]
    rows = []
    for key, label in _HOST.items():
        cells = [_host_cell(key, h) for h in about]
        if any(c["text"] != formatting.UNKNOWN or c["sub"] for c in cells):
            rows.append(_row(label, cells))
    verdicts = [_bound(h) for h in about]
    return [*rows, _row("Bound by launches, by share of latency", verdicts, total=True)]


def _host_cell(key: str, host: HostSide | None) -> Cell:
    found = host.values.get(key) if host else None
    if found is None:
        missing = (host.missing.get(key) if host else None) or ""
        return _cell(formatting.UNKNOWN, exact=missing)
    if key in _COUNTS:
        return _cell(formatting.number(found.median))
    return _cell(
        formatting.time(found.median), cells_.interval(found), formatting.exact(found.median)
    )


def _bound(host: HostSide | None) -> Cell:
    if host is None or host.launch_bound is None:
        return _cell(formatting.UNKNOWN)
    text = "yes" if host.launch_bound else "no"
    share = formatting.percent(host.unprofiled_share)
    return _cell(text, f"{share}, {_CAPTURE[host.confirmed]}", tone=_BOUND[text])


_CAPTURE = {True: "capture agrees", False: "capture does not", None: "capture cannot tell"}
_BOUND = {"yes": "bad", "no": ""}


def _yes(value: Any) -> Cell:
    return _cell(formatting.UNKNOWN if value is None else "yes" if value else "no")


def _throttled(reasons: Any) -> Cell:
    if reasons is None:
        return _cell(formatting.UNKNOWN)
    if not reasons:
        return _cell("no")
    text = ", ".join(
        f"{formatting.short(why, 40)} {formatting.percent(s)}" for why, s in reasons.items()
    )
    return _cell("yes", sub=text, tone="bad")


_PARITY = {
    "max_abs": "Largest absolute error",
    "max_rel": "Largest relative error",
    "cosine": "Cosine",
    "top1": "Top-1 agreement",
    "reference": "Reference",
    "random_weights": "Weights",
}


def _parity(sides: Sequence[Side]) -> list[Row]:
    keys = dict.fromkeys([*_PARITY, *(k for s in sides for k in s.parity or {})])
    rows = []
    for key in keys:
        values = [(s.parity or {}).get(key) for s in sides]
        if any(v is not None for v in values):
            rows.append(
                _row(_PARITY.get(key, formatting.short(key)), [_fact(key, v) for v in values])
            )
    return rows


def _fact(key: str, value: Any) -> Cell:
    if value is None:
        return _cell(formatting.UNKNOWN)
    if key == "random_weights":
        return _cell("random", sub="proves little") if value else _cell("trained")
    if key == "top1":
        return _cell(formatting.percent(value))
    if key == "cosine" and formatting.known(value):
        return _cell(f"{value:.7f}".rstrip("0").rstrip("."), exact=repr(value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _cell(formatting.number(value), exact=repr(value) if formatting.known(value) else "")
    return _plain(value)
