"""What two engines' layers have in common and what not, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..comparison.layer_lists import Together
from ..formatting import percent
from ..formatting import spoken_time as time

SHOWN = 25


def records(found: Sequence[Together]) -> list[dict[str, Any]]:
    """For JSON: what did the same work; null times are not known."""
    return [
        {
            "a": list(t.a),
            "b": list(t.b),
            "a_ns": t.a_ns,
            "b_ns": t.b_ns,
            "changes": [{"what": w, "a": x, "b": y} for w, x, y in t.changes],
        }
        for t in found
    ]


def lines(found: Sequence[Together], a: str, b: str) -> Iterator[str]:
    """The layers that differ or take another time, what changed most first."""
    for side, name, ns in (("A", a, [t.a_ns for t in found]), ("B", b, [t.b_ns for t in found])):
        count = sum(len(t.a if side == "A" else t.b) for t in found)
        known = [n for n in ns if n is not None]
        total = f", {time(sum(known))} in one iteration" if any(known) else ", no times"
        yield f"{side}: {name}: {count} layers{total}"
    shown = [t for t in found if t.differs or t.more_ns]
    for t in shown[:SHOWN]:
        yield from _lines(t)
    if len(shown) > SHOWN:
        yield f"and {len(shown) - SHOWN} more that differ (all with --json)"
    same = len(found) - len(shown)
    if same:
        yield f"{same} the same"
    if any(t.more_ns is not None for t in found):
        yield "One measurement of each: the noise between runs is not known."


def _lines(t: Together) -> Iterator[str]:
    change = ""
    if t.more_ns is not None:
        change = f"{_signed(t.more_ns)}  {time(t.a_ns)} -> {time(t.b_ns)}"
        if t.a_ns and t.b_ns:
            change += f" ({'+' if t.more_ns >= 0 else '−'}{percent(abs(t.more_ns) / t.a_ns)})"
    if t.a == t.b:
        yield f"{change}  {t.a[0]}".strip()
    else:
        yield f"{change}  {_count(t.a, 'A')}, {_count(t.b, 'B')}:".strip()
        yield from (f"  A  {name}" for name in t.a)
        yield from (f"  B  {name}" for name in t.b)
    yield from (f"     {what} {x} -> {y}" for what, x, y in t.changes)


def _count(names: Sequence[str], side: str) -> str:
    if not names:
        return f"none in {side}"
    return f"{len(names)} layer{'s' if len(names) > 1 else ''} in {side}"


def _signed(ns: float) -> str:
    return f"{'+' if ns > 0 else '−' if ns < 0 else '±'}{time(abs(ns))}"
