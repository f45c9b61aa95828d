"""What the checks and the host side say, in sentences: what is wrong first, nothing twice.

A run of eighteen sides has more than eighty of them, most the same; what several sides have in
common is said once and names them.
"""

from __future__ import annotations

import re
from typing import Any, TypedDict

from ..model.comparison import Comparison, Side
from . import doubts, ledger, panels

HOST = "host side"
CAPTURE = "capture by nsys"


class Said(TypedDict):
    """What a check or the host side says, once for all sides of which it is true. `tabled`: the
    ledger's rows say the same."""

    sides: str
    check: str
    text: str
    tone: str
    tabled: bool


def of(view: Comparison) -> list[Said]:
    """What the checks say: those that failed first, then those that could not be made, then the
    host side, then what adds up. What several sides have in common is said once."""
    keys: dict[tuple[str, str, str, bool], list[str]] = {}

    def add(side: Side, check: str, text: str, tone: str, *, tabled: bool) -> None:
        keys.setdefault((tone, check, text, tabled), []).append(side.key)

    for s in view.sides:
        if faults := doubts.series(s):
            add(s, "latency", f"Not settled: {'; '.join(faults)}.", "none", tabled=False)
        for c in s.checks:
            if c.text:
                add(
                    s,
                    f"check {c.name}",
                    c.text,
                    ledger.TONES[c.ok],
                    tabled=c.ok is True,
                )
        for warning in s.warned or ():
            add(s, CAPTURE, f"{warning}.", "none", tabled=False)
        host = s.host
        if host:
            # Whether launches bind a side is a fact; a capture that says otherwise is a doubt.
            differs = host.confirmed is False
            add(s, HOST, host.text, "bad" if differs else "", tabled=not differs)
            for what, why in host.missing.items():
                add(s, HOST, f"{what} is unknown: {why}.", "", tabled=False)
    order = {"bad": 0, "none": 1, "": 2, "good": 3}
    found: list[Said] = [
        {
            "sides": _told(view, sides, check),
            "check": check,
            "text": text,
            "tone": tone,
            "tabled": tabled,
        }
        for (tone, check, text, tabled), sides in _alike(keys).items()
    ]
    return sorted(found, key=lambda f: (order[f["tone"]], f["check"] != "latency"))


_Key = tuple[str, str, str, bool]
# No version: what nsys says of two of them is not true of those between.
_NUMBER = re.compile(r"(?<![\d.])(?<!version )\d[\d,]*(?:\.\d+)?")


def _alike(keys: dict[_Key, list[str]]) -> dict[_Key, list[str]]:
    """Sentences that are the same but for one number as one, with the least and the most of it.
    Those of checks that failed stay as they are."""
    groups: dict[tuple[Any, ...], list[_Key]] = {}
    for key in keys:
        tone, check, text, tabled = key
        form = text if tone == "bad" else _NUMBER.sub("#", text)
        groups.setdefault((tone, check, form, tabled), []).append(key)
    found: dict[_Key, list[str]] = {}
    for group in groups.values():
        numbers = [_NUMBER.findall(text) for _, _, text, _ in group]
        differ = [i for i, column in enumerate(zip(*numbers, strict=True)) if len(set(column)) > 1]
        if len(group) < 2 or len(differ) != 1:
            found |= {key: keys[key] for key in group}
            continue
        at = differ[0]
        ordered = sorted((n[at] for n in numbers), key=lambda n: float(n.replace(",", "")))
        tone, check, text, tabled = group[0]
        place = list(_NUMBER.finditer(text))[at]
        said = f"{text[: place.start()]}{ordered[0]} to {ordered[-1]}{text[place.end() :]}"
        found[tone, check, said, tabled] = [side for key in group for side in keys[key]]
    return found


def _told(view: Comparison, keys: list[str], check: str) -> str:
    """The sides in words; of the host side only those count that were captured by nsys."""
    hosts = [s.key for s in view.sides if s.host]
    if check == HOST and len(hosts) > 1 and set(keys) == set(hosts):
        return "every side under nsys"
    return panels.told(view, keys)
