"""What a gate is held to: how much slower, larger or less accurate the new side may be."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import Struct

from ...core.documents.forms import check
from ...core.errors import InputError
from ...core.files import at_most, open_regular
from ..model.baseline import KIND, LATENCY, MEMORY, MODULE, OPERATIONS, QUEUED, Quantity

# Of each of these names, the most by which it may grow, as a share; a kind or a module by its own
# name goes before. Smaller ones are looked at together, so single chance matters more.
SLOWER = {LATENCY: 0.03, QUEUED: 0.03, OPERATIONS: 0.03, "kinds": 0.05, "modules": 0.10}
# And by how much it must grow in any case, in ns (bytes of memory): timers tick in microseconds.
FLOORS = {LATENCY: 2_000, QUEUED: 2_000, OPERATIONS: 2_000, "kinds": 5_000, "modules": 5_000,
          MEMORY: 1_000_000}  # fmt: skip
MEMORY_LARGER = 0.02
COVERAGE_LESS = 0.01
# A kind or module must also grow by this share of all operations, else it is nobody's concern.
OF_ALL = 0.005
# What decides of an engine's time.
DEVICE = "device"
BY = (LATENCY, DEVICE)
_GROUPS = {KIND: "kinds", MODULE: "modules"}
_TIMES = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_BYTES = {"B": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}
_AMOUNT = re.compile(r"([0-9.]+)\s*([a-zA-Zµ]+)")


class LimitsFile(Struct, kw_only=True, forbid_unknown_fields=True):
    """The TOML file, and what a baseline keeps: shares as "3%", floors as "2us" or "1MB". `by`: one
    of `BY`."""

    slower: dict[str, str] = {}
    floor: dict[str, str] = {}
    memory: str | None = None
    accuracy: float | None = None
    coverage: str | None = None
    require: list[str] = []
    sides: list[str] = []
    by: str | None = None


@dataclass(frozen=True)
class Limit:
    """`share` of the baseline's, or `floor` in its unit, whichever is more. `asked`: by its name,
    or a latency: it must be told."""

    share: float
    floor: float
    asked: bool
    floor_of: str = "the floor"

    def of(self, before: float) -> float:
        """By how much it may grow, in its unit."""
        return max(self.share * before, self.floor)

    def by_floor(self, before: float) -> str:
        """What the limit is, in words, where the share is less than it; else empty."""
        return self.floor_of if self.floor > self.share * before else ""


@dataclass(frozen=True)
class Limits:
    """`accuracy`: the most by which a cosine may be below the baseline's; None: not judged beside
    the verdict on the outputs. `require`, `sides`: keys of sides or how they begin. `by_device`:
    the time on the device alone decides where it was measured, and latency does not."""

    slower: Mapping[str, float] = field(default_factory=dict)
    floors: Mapping[str, float] = field(default_factory=dict)
    memory: float = MEMORY_LARGER
    accuracy: float | None = None
    coverage: float = COVERAGE_LESS
    require: Sequence[str] = ()
    sides: Sequence[str] = ()
    other_machine: bool = False
    by_device: bool = False

    def of(self, quantity: Quantity, operations: float | None) -> Limit:
        """The limit of one quantity; `operations`: all of its side's, in ns."""
        group = _GROUPS.get(quantity.what, quantity.what)
        if quantity.what == MEMORY:
            return Limit(self.memory, self.floors.get(MEMORY, FLOORS[MEMORY]), False)
        own = _named(self.slower, quantity) if group != quantity.what else None
        share = own if own is not None else self.slower.get(group, SLOWER[group])
        floor = _named(self.floors, quantity) if group != quantity.what else None
        if floor is None:
            floor = self.floors.get(group, FLOORS[group])
        whole = group == quantity.what
        floor_of = "the floor"
        if not whole and own is None and operations and OF_ALL * operations > floor:
            floor, floor_of = OF_ALL * operations, f"{OF_ALL * 100:g} % of all operations"
        asked = own is not None or quantity.what == LATENCY or (whole and group in self.slower)
        return Limit(share, floor, asked, floor_of)

    def judges(self, key: str) -> bool:
        """Whether a side is judged."""
        return not self.sides or any(meant(name, key) for name in self.sides)

    def names(self) -> list[str]:
        """What kinds and modules have limits or floors of their own."""
        own = (*(self.slower.keys() - SLOWER.keys()), *(self.floors.keys() - FLOORS.keys()))
        return sorted(set(own))

    def strange_sides(self, keys: Iterable[str]) -> list[str]:
        """What was named to be judged and is none of these sides."""
        known = list(keys)
        return [name for name in self.sides if not any(meant(name, key) for key in known)]

    def over(self, other: LimitsFile) -> Limits:
        """With what `other` says instead. InputError where that is no amount."""
        said = other.slower.items()
        return replace(
            self,
            slower={**self.slower, **{n: share(text) for n, text in said}},
            floors={**self.floors, **{n: amount(text, n) for n, text in other.floor.items()}},
            memory=self.memory if other.memory is None else share(other.memory),
            accuracy=self.accuracy if other.accuracy is None else _below(other.accuracy),
            coverage=self.coverage if other.coverage is None else share(other.coverage),
            require=[*self.require, *(r for r in other.require if r not in self.require)],
            sides=other.sides or self.sides,
            by_device=self.by_device if other.by is None else _by_device(other.by),
        )

    def as_json(self) -> dict[str, Any]:
        """For a baseline, in the form of the file; what is the default is left out."""
        written: dict[str, Any] = {
            "slower": {n: f"{s * 100:g}%" for n, s in self.slower.items()},
            # Digits alone: what is written is read by `amount`.
            "floor": {n: f"{v:.12g}{'B' if n == MEMORY else 'ns'}" for n, v in self.floors.items()},
            "require": list(self.require),
            "sides": list(self.sides),
        }
        if self.memory != MEMORY_LARGER:
            written["memory"] = f"{self.memory * 100:g}%"
        if self.coverage != COVERAGE_LESS:
            written["coverage"] = f"{self.coverage * 100:g}%"
        if self.accuracy is not None:
            written["accuracy"] = self.accuracy
        if self.by_device:
            written["by"] = DEVICE
        return {k: v for k, v in written.items() if v not in ({}, [])}


MOST_BYTES = 1 << 20


def read(path: Path) -> LimitsFile:
    """A file of limits. InputError says what is wrong with it."""
    try:
        with open_regular(path) as file:
            text = at_most(file, MOST_BYTES)
        if text is None:
            what = f"is larger than {MOST_BYTES >> 20} MiB"
            raise InputError(what, file=path, fix="name a TOML file of limits")
        document = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as e:  # no TOML, no UTF-8
        raise InputError(f"is no TOML ({e})", file=path, fix="see docs/ci.md") from None
    return form(document, path)


def form(document: Mapping[str, Any], path: Path | None = None) -> LimitsFile:
    """Limits as they are written. InputError where they are of another form."""
    found = check(document, LimitsFile, path, "see docs/ci.md")
    try:
        Limits().over(found)
    except InputError as e:
        raise InputError(e.what, file=path, fix=e.fix) from None
    return found


def given(texts: Iterable[str]) -> dict[str, str]:
    """Of ``3%`` and ``attn=5%``: by name; without a name it is of the latency."""
    found = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        found[name.strip() if equals else LATENCY] = value.strip()
    return found


def share(text: str) -> float:
    """``3%`` as 0.03. InputError for another text."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / 100
    except ValueError:
        value = -1.0
    if not text.strip().endswith("%") or not 0 <= value < 1e6:
        raise InputError(f"{text!r} is no limit", fix='write it as "3%"')
    return value


def amount(text: str, name: str) -> float:
    """``2us`` as 2000, ``1MB`` of memory as 1000000. InputError for another text, or a unit that
    is not of what `name` is measured in."""
    found = _AMOUNT.fullmatch(text.strip())
    units, example = (_BYTES, "1MB") if name == MEMORY else (_TIMES, "2us")
    try:
        number = float(found[1]) if found and found[2] in units else None
    except ValueError:
        number = None
    if found is None or number is None:
        raise InputError(f"{text!r} is no floor of {name}", fix=f'write it as "{example}"')
    return number * units[found[2]]


def _below(cosine: float) -> float:
    """By how much a cosine may fall: of no number, and of none below 0, anything would be told."""
    if not 0 <= cosine <= 2:
        raise InputError(f"accuracy {cosine:g} is no limit", fix="write a number from 0 to 2")
    return cosine


def _by_device(text: str) -> bool:
    if text not in BY:
        raise InputError(f"by {text!r} is unknown", fix=f"write {' or '.join(BY)}")
    return text == DEVICE


def meant(name: str, key: str) -> bool:
    """Whether a name such as ``engine:fp16.tensorrt`` means a side's key."""
    name = name.replace(":", "/").strip("/")
    return key == name or key.startswith(f"{name}/")


def of_sides(keys: Iterable[str]) -> str:
    """What sides there are, in words."""
    return f"there is {', '.join(keys) or 'none'}"


def fits(name: str, quantity: Quantity) -> bool:
    """Whether a limit's name means a kind or module: whole, its last part, or a pattern.

    A kind has stars in its own name: ``transformer.h.*.attn`` is meant as it is written.
    """
    if name == quantity.name:
        return True
    if quantity.what == MODULE and "*" in name:
        return fnmatchcase(quantity.name, name)
    return quantity.what == KIND and quantity.name.rpartition(".")[2] == name


def _named(values: Mapping[str, float], quantity: Quantity) -> float | None:
    return next((v for n, v in values.items() if n not in SLOWER and fits(n, quantity)), None)
