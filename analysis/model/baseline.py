"""A baseline: what a gate compares with, small enough to live beside the code.

The medians of processes by run, the machine, versions and limits; no captures. Of a run directory
the same is made when it is judged, so a gate takes both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from msgspec import Struct, field

from ...core.documents import Document, of_form
from ...core.documents.forms import Amount, Count, Share
from ...core.errors import InputError
from ...core.files import read_json, write_text

SCHEMA_VERSION = 1
MAX_BYTES = 200_000
KEPT = 50  # earlier baselines, in short

# What is judged, in the order in which it is shown.
LATENCY, QUEUED, OPERATIONS, MEMORY, KIND, MODULE = WHAT = (
    "latency", "queued", "operations", "memory", "kind", "module",
)  # fmt: skip


class Quantity(Struct, kw_only=True, omit_defaults=True):
    """One thing that was measured, in ns or bytes.

    `runs`: of each run the median of each of its processes, in the order in which they ran.
    `within`: half of the 95 % interval of a process's median, on average; None where a process has
    none. `exact`: it is the same each time (what an allocator counts). `shared`: layers that are
    partly another module's are in it.
    """

    what: str
    name: str = ""
    runs: list[list[Count]] = []
    within: Amount | None = None
    exact: bool = False
    shared: bool = False

    def __post_init__(self) -> None:
        if self.what not in WHAT:
            raise ValueError(f"what is {self.what!r}, none of {', '.join(WHAT)}")
        if not self.runs or not all(self.runs):
            raise ValueError(f"runs of {self.what} {self.name!r} lack values")

    @property
    def key(self) -> tuple[str, str]:
        """What two baselines are matched by."""
        return self.what, self.name

    @property
    def values(self) -> list[int]:
        """Of all processes."""
        return [value for run in self.runs for value in run]


class Outputs(Struct, kw_only=True, omit_defaults=True):
    """Whether an engine computes what eager does; None: not known."""

    ok: bool | None = None
    why: str = ""
    cosine: float | None = None


class SideSamples(Struct, kw_only=True, omit_defaults=True):
    """One side. `builds`: the engine's hash, by run. `build_noise`: how far two builds of it lay
    apart, over the first; None: not measured. `on_gpu` None: not known."""

    outputs: Outputs | None = None
    coverage: list[Share] = []
    builds: list[str] = []
    build_noise: Amount | None = None
    on_gpu: bool | None = None
    sm_mhz: Amount | None = None
    quantities: list[Quantity] = []

    def quantity(self, what: str, name: str = "") -> Quantity | None:
        """One of them; None where it was not measured."""
        return next((q for q in self.quantities if q.key == (what, name)), None)


class Past(Struct, kw_only=True, omit_defaults=True):
    """A baseline that was replaced by a newer one. `figures`: the latency of each side in ns."""

    made: str = ""
    reason: str = ""
    figures: dict[str, Count] = {}


class Baseline(Document, kw_only=True, omit_defaults=True):
    """The whole. `facts`: what may have changed beside the time. `stale`: captures of something
    that was made again since. `lost`: files that are there and cannot be used, with the reason.
    `in_turn`: the same in two of them whose processes ran in turn, first one's, then the other's.
    `left_out`: how many modules there was no room for.
    """

    FIX: ClassVar[str] = "make it again (layerline gate --save)"

    baseline_version: int
    title: str = ""
    made: str = ""
    reason: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    sides: dict[str, SideSamples] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    in_turn: str | None = None
    left_out: Count = 0
    limits: dict[str, Any] = field(default_factory=dict)
    history: list[Past] = field(default_factory=list)

    def past(self) -> Past:
        """This one, once it is replaced."""
        medians = {
            key: round(sum(q.values) / len(q.values))
            for key, side in self.sides.items()
            if (q := side.quantity(LATENCY)) is not None
        }
        return Past(made=self.made, reason=self.reason, figures=medians)


def read(path: Path) -> Baseline:
    """A baseline file. InputError where it is none, or of another version."""
    document = read_json(path)
    if not isinstance(document, dict) or "baseline_version" not in document:
        raise InputError("is no baseline of a gate", file=path, fix="name a run directory, or "
                         "a file that layerline gate --save made")  # fmt: skip
    if document["baseline_version"] != SCHEMA_VERSION:
        raise InputError(
            f"baseline of version {document['baseline_version']!r}, this layerline reads "
            f"{SCHEMA_VERSION}",
            file=path,
            fix=Baseline.FIX,
        )
    return of_form(document, Baseline, path)


def write(path: Path, baseline: Baseline) -> None:
    """Write it, one quantity a line, so that a difference between two can be read. The cheapest
    modules are left out where it would be too large. InputError where that does not help."""
    text = _text(baseline)
    while len(text.encode()) > MAX_BYTES:
        smaller = _without_cheapest(baseline)
        if smaller is None:
            raise InputError(
                f"a baseline of these runs has more than {MAX_BYTES:,} bytes",
                file=path,
                fix="name fewer runs, or fewer sides (--side)",
            )
        baseline, text = smaller, _text(smaller)
    write_text(path, text)


def _without_cheapest(baseline: Baseline) -> Baseline | None:
    """Without a quarter of the modules of each side; None where none is left."""
    sides, left_out = {}, baseline.left_out
    for key, side in baseline.sides.items():
        modules = [q for q in side.quantities if q.what == MODULE]
        modules.sort(key=lambda q: max(q.values))
        gone = {q.name for q in modules[: -(-len(modules) // 4)]}
        left_out += len(gone)
        kept = [q for q in side.quantities if q.what != MODULE or q.name not in gone]
        sides[key] = msgspec.structs.replace(side, quantities=kept)
    if left_out == baseline.left_out:
        return None
    return msgspec.structs.replace(baseline, sides=sides, left_out=left_out)


def _text(baseline: Baseline) -> str:
    document = msgspec.to_builtins(baseline)
    sides = document.pop("sides", {})  # last: they are long
    return _lines({**document, "sides": sides}, 0) + "\n"


def _lines(value: Any, depth: int) -> str:
    """JSON, with objects and lists of objects over several lines down to a quantity."""
    pad = " " * (depth + 1)
    if isinstance(value, dict) and value and not _small(value):
        inner = [f"{pad}{json.dumps(k)}: {_lines(v, depth + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(inner) + f"\n{' ' * depth}}}"
    if isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        inner = [pad + json.dumps(v, ensure_ascii=False) for v in value]
        return "[\n" + ",\n".join(inner) + f"\n{' ' * depth}]"
    return json.dumps(value, ensure_ascii=False)


def _small(value: dict[str, Any]) -> bool:
    return not any(isinstance(v, (dict, list)) for v in value.values())
