"""The ledger as rows of text, one column per side: what was measured and whether it adds up.

Page and Markdown show the same rows. No number is made here except the words for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...core.stats import Estimate
from ...core.tables import PHASES
from .. import formatting
from ..comparison import lead
from ..formatting import percent, short
from ..model.comparison import Check, Side
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
HOST_NOTE = "per iteration of the capture, which makes calls dearer"
TONES = {True: "good", False: "bad", None: "none"}
MOSTLY = 0.5
_VERDICTS = {True: "adds up", False: "does not add up", None: "not checked"}
_ASKED = {True: "as asked", False: "not as asked", None: "see the note"}
_OUTPUTS = {True: "same outputs", False: "wrong outputs", None: "unknown"}
_CAPTURE = {True: "capture agrees", False: "capture does not", None: "capture cannot tell"}


class Cell(NamedTuple):
    """One entry: what is shown, a second line, exact values for a tooltip, good | bad | none |
    wrong."""

    text: str
    sub: str = ""
    exact: str = ""
    tone: str = ""


class Row(NamedTuple):
    """One line of the ledger: a cell per side."""

    label: str
    cells: Sequence[Cell]
    total: bool = False

    def known(self) -> bool:
        """Whether anything in it is known of any side."""
        return any(c.text != formatting.UNKNOWN or c.sub for c in self.cells)


class Group(NamedTuple):
    """Lines that belong together; `key`: the check's name, else a word of its own."""

    key: str
    title: str
    note: str
    rows: Sequence[Row]


class Tally(NamedTuple):
    """How many checks passed, failed and could not be made, without those of the precision."""

    passed: int
    failed: int
    unknown: int


def tally(sides: Iterable[Side]) -> Tally:
    """The checks of all these sides."""
    verdicts = [c.ok for s in sides for c in s.checks if c.name != PRECISION]
    return Tally(verdicts.count(True), verdicts.count(False), verdicts.count(None))


def failing(sides: Iterable[Side]) -> list[Check]:
    """Those of them that failed."""
    return [c for s in sides for c in s.checks if c.ok is False and c.name != PRECISION]


def profiled_apart(failing: Sequence[Check]) -> bool:
    """Whether all that failed is that the profiled run took another time: sums do add up."""
    return all(c.name == "iii" for c in failing)


def check_of(side: Side, name: str) -> Check | None:
    """The side's check of that name, or None."""
    return next((c for c in side.checks if c.name == name), None)


def groups(sides: Sequence[Side]) -> list[Group]:
    """The ledger of these sides; groups in which none has anything are left out, save the
    checks."""

    def row(label: str, cell: Callable[[Side], Cell], *, total: bool = False) -> Row:
        """What a wrong engine took is no result: greyed."""
        cells = [(s, cell(s)) for s in sides]
        return Row(label, [_grey(c) if s.wrong else c for s, c in cells], total)

    def fact(key: str, unit: str, scale: int = 1) -> Callable[[Side], Cell]:
        return lambda s: _amount(s.device.get(key), unit, scale)

    device = [
        row("Queued, device alone", lambda s: _series(s, "queued", s.queued)),
        row("Waiting for launches", lambda s: Cell(percent(s.launch_bound))),
        row("Between two builds", lambda s: Cell(percent(s.rebuild_noise))),
        row("Throughput, full queue", fact("throughput_per_second", "/s")),
        row("CUDA graph", lambda s: _yes(s.device.get("cuda_graph"))),
        row("GPU clock", fact("sm_mhz", "MHz")),
        row("GPU power", fact("power_mw", "W", 1000)),
        row("GPU temperature", fact("celsius", "°C")),
        row("GPU slowed down", lambda s: _throttled(s.device.get("throttled"))),
    ]
    latency = [
        row("Unprofiled", lambda s: _series(s, "latency", s.latency), total=True),
        row("Traced", lambda s: _series(s, "traced", s.traced)),
        *(r for r in device if r.known()),
    ]
    operations = [
        row("Operations, sum", lambda s: _time(s.operation_ns), total=True),
        row("Unresolved", lambda s: _time(s.unresolved_ns)),
        row("Coverage", lambda s: Cell(percent(s.coverage))),
    ]
    # What the host did; rows that no side has are left out.
    host = [row(label, partial(_host, key)) for key, label in _HOST.items()]
    host += [row(f"Device idle, host in {p}", partial(_idle, p)) for p in _idle_phases(sides)]
    host = [r for r in host if r.known()]
    if any(s.host for s in sides):
        host.append(row("Bound by launches, by share of latency", _bound, total=True))
    precision = [
        row("Asked for", lambda s: Cell(short(s.precision))),
        row("Computed in", _precisions),
    ]
    if any(check_of(s, PRECISION) for s in sides):
        precision.append(row("Verdict", _asked, total=True))
    names = dict.fromkeys([*CHECKS, *(c.name for s in sides for c in s.checks)])
    return [
        Group("latency", "Latency", "median, 95 % interval and count", latency),
        Group("operations", "Operations", "median per iteration of self times", operations),
        *([Group("host", "Host side", HOST_NOTE, host)] if host else []),
        *(_check(name, [check_of(s, name) for s in sides]) for name in names if name != PRECISION),
        Group(PRECISION, "Precision", "by share of time", precision),
        *_accuracy(sides),
    ]


def _grey(cell: Cell) -> Cell:
    return cell if cell.tone or cell.text == formatting.UNKNOWN else cell._replace(tone="wrong")


def _time(ns: int | None) -> Cell:
    return Cell(formatting.time(ns), exact=formatting.exact(ns))


def _series(side: Side, which: str, e: Estimate) -> Cell:
    exact = formatting.exact(e.median)
    if formatting.known(e.low) and formatting.known(e.high):
        exact += f", 95 % {formatting.exact(e.low)} to {formatting.exact(e.high)}"
    # What is wrong with it is a sentence: see `sentences`.
    faults = lead.faults(side, which)
    tone = "none" if faults else ""
    return Cell(formatting.time(e.median), cells_.interval(e), "; ".join([exact, *faults]), tone)


def _check(name: str, checks: Sequence[Check | None]) -> Group:
    terms = [dict(c.terms) if c else {} for c in checks]
    rows = [
        Row(short(term), [_time(t.get(term)) for t in terms])
        for term in dict.fromkeys(term for t in terms for term in t)
    ]
    rows.append(Row("Residual", [_residual(c) for c in checks]))
    rows.append(Row("Verdict", [_verdict(name, c) for c in checks], total=True))
    title = CHECKS.get(name) or EXTRA.get(name)
    return Group(
        name, f"Check {name}: {title}" if title else f"Check {name}", NOTES.get(name, ""), rows
    )


def _verdict(name: str, c: Check | None) -> Cell:
    """A side of one tool alone has nothing to hold against another's: that is no open question."""
    if c is None and name not in CHECKS:
        return Cell(formatting.UNKNOWN)
    ok = c.ok if c else None
    return Cell(_VERDICTS[ok], tone=TONES[ok])


def _residual(c: Check | None) -> Cell:
    if c is None or not formatting.known(c.residual_ns):
        return Cell(formatting.UNKNOWN)
    parts = [percent(c.residual_share)] if formatting.known(c.residual_share) else []
    if formatting.known(c.tolerance):
        parts.append(f"allowed {percent(c.tolerance)}")
    return _time(c.residual_ns)._replace(sub=", ".join(parts))


def _precisions(side: Side) -> Cell:
    run = side.precision_run
    if not run:
        return Cell("unknown")
    text = ", ".join(
        short(name, 40) if share == 1 else f"{short(name, 40)} {percent(share)}"
        for name, share in sorted(run.items(), key=lambda item: -(item[1] or 0))
    )
    audit = check_of(side, PRECISION)
    if audit is not None and audit.ok is not None:
        wrong = not audit.ok  # "unknown" of kernels whose name tells nothing is no verdict
    else:
        asked = {side.precision, "fp32" if side.precision == "tf32" else side.precision}
        wrong = sum(run.get(name) or 0 for name in asked) < MOSTLY
    return Cell(text, "not what was asked for", tone="bad") if wrong else Cell(text)


def _asked(side: Side) -> Cell:
    audit = check_of(side, PRECISION)
    return Cell(_ASKED[audit.ok], tone=TONES[audit.ok]) if audit else Cell(formatting.UNKNOWN)


def _amount(value: Any, unit: str, scale: int) -> Cell:
    if not formatting.known(value):
        return Cell(formatting.UNKNOWN)
    return Cell(f"{formatting.number(round(value / scale))} {unit}")


def _yes(value: bool | None) -> Cell:
    return Cell(formatting.UNKNOWN if value is None else "yes" if value else "no")


def _throttled(reasons: Mapping[str, float] | None) -> Cell:
    if not reasons:
        return Cell(formatting.UNKNOWN if reasons is None else "no")
    shares = ", ".join(f"{short(why, 40)} {percent(share)}" for why, share in reasons.items())
    return Cell("yes", shares, tone="bad")


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


def _host(key: str, side: Side) -> Cell:
    if side.host is None:
        return Cell(formatting.UNKNOWN)
    value = side.host.values.get(key)
    if value is None:
        return Cell(formatting.UNKNOWN, exact=side.host.missing.get(key, ""))
    if key in _COUNTS:
        return Cell(formatting.number(value.median))
    return _time(value.median)._replace(sub=cells_.interval(value))


def _idle_phases(sides: Sequence[Side]) -> list[str]:
    """The phases in which a device idled on any of the sides."""
    found = {p for s in sides if s.waiting for p in s.waiting.idle}
    return [p for p in PHASES if p in found]


def _idle(phase: str, side: Side) -> Cell:
    value = side.waiting.idle.get(phase) if side.waiting else None
    return _time(value.median)._replace(sub=cells_.interval(value)) if value else _time(None)


def _bound(side: Side) -> Cell:
    host = side.host
    if host is None or host.launch_bound is None:
        return Cell(formatting.UNKNOWN)
    sub = f"{percent(host.unprofiled_share)}, {_CAPTURE[host.confirmed]}"
    return Cell("yes", sub, tone="bad") if host.launch_bound else Cell("no", sub)


_PARITY = {
    "max_abs": "Largest absolute error",
    "max_rel": "Largest relative error",
    "cosine": "Cosine",
    "top1": "Top-1 agreement",
    "reference": "Reference",
    "weights": "Weights",
}

# What `ModelSpec.weights` says of them.
_WEIGHTS = {
    "random": "proves little",
    "loaded": "of the model's files",
    "own": "as its function makes them",
}


def _accuracy(sides: Sequence[Side]) -> list[Group]:
    parity = [s.parity or {} for s in sides]
    rows = [
        Row(label, [_parity(key, p.get(key)) for p in parity])
        for key, label in _PARITY.items()
        if any(p.get(key) is not None for p in parity)
    ]
    if any(s.outputs for s in sides):
        rows.append(Row("Verdict", [_outputs(s) for s in sides], total=True))
    return [Group("accuracy", "Accuracy", "on the same input", rows)] if any(parity) else []


def _outputs(side: Side) -> Cell:
    if side.outputs is None:
        return Cell(formatting.UNKNOWN)
    ok = side.outputs.ok
    return Cell(_OUTPUTS[ok], side.outputs.why, tone=TONES[ok])


def _parity(key: str, value: Any) -> Cell:
    if value is None:
        return Cell(formatting.UNKNOWN)
    if key == "weights":
        return Cell(str(value), _WEIGHTS.get(str(value), ""))
    if key == "top1":
        return Cell(percent(value))
    if key == "cosine" and formatting.known(value):
        return Cell(f"{value:.7f}".rstrip("0").rstrip("."), exact=repr(value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Cell(formatting.number(value), exact=repr(value) if formatting.known(value) else "")
    return Cell(short(value))
