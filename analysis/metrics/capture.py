"""Captures for the metrics commands: counters, ranges, rules and the device of one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...core.errors import InputError
from ...core.own_ranges import PHASE
from ...core.tables import read_parquet
from ..counters import pieces, representatives, units
from ..readers import registry
from ..readers.base import Artefact
from ..readers.ncu.tables import AS_ONE, of_ranges
from ..roofline import devices
from ..roofline.devices import Device

_PIECE = "one piece of a capture; what the others hold is in no sum here"


@dataclass(frozen=True)
class Capture:
    """`phases`: phase by launch, of launches inside one; `rules`: those that ncu evaluated;
    `partly`: what the capture leaves out, where launches that are the same work were, or lacks;
    `notes`: sentences for the user about the file, its reader's and that launches are missing;
    `ranges`: whether its rows are ranges that were replayed as one, not kernels;
    `incomplete`: layers of which its plan has more launches than it holds."""

    name: str
    counters: pa.Table
    device: Device | None
    phases: dict[int, str] = field(default_factory=dict)
    rules: list[dict[str, Any]] = field(default_factory=list)
    partly: str | None = None
    notes: tuple[str, ...] = ()
    ranges: bool = False
    incomplete: frozenset[str] = frozenset()

    @property
    def rows(self) -> str:
        """What its rows are of, for people."""
        return "ranges" if self.ranges else "kernels"


def load(path: Path, asked: Iterable[str] = ()) -> Capture:
    """A report, ncu's CSV, a folder of pieces or its manifest, or the counters.parquet of a run
    with a single ncu capture.

    Metrics of one name are told apart by section; `asked` as in `units.by_section`.
    InputError for other kinds of files.
    """
    if path.suffix == ".parquet":
        counters = units.by_section(read_parquet(path, "counters"), asked)
        sources = counters["source"].unique().to_pylist()
        if len(sources) != 1:
            raise InputError(
                f"holds {len(sources)} captures ({', '.join(map(str, sources))})",
                file=path,
                fix="name one of these files instead",
            )
        return Capture(str(sources[0]), counters, devices.of_capture(counters))
    path = path.parent if path.name == pieces.MANIFEST else path
    artefact = pieces.read(path) if path.name.endswith(pieces.FOLDER) else _read(path)
    launches, rules = artefact.tables["launches"], artefact.tables.get("rules")
    loss = pieces.missing(artefact, path)
    ranges = of_ranges(launches)
    plan = representatives.plan_beside(path)
    planned = Counter(launch["layer"] for launch in plan["launches"]) if plan else Counter()
    held = Counter(launches["layer"].to_pylist())
    notes = [*artefact.notes, *([f"It {loss.what}; {loss.fix}."] if loss else [])]
    if _is_piece(path):
        notes.append(f"It is {_PIECE}.")
    return Capture(
        path.name,
        units.by_section(artefact.main, asked),
        devices.of_capture(artefact.main),
        _phases(launches),
        [] if rules is None else rules.to_pylist(),
        AS_ONE if ranges and loss is None else _partly(path, len(launches), loss, planned.total()),
        tuple(notes),
        ranges,
        frozenset(layer for layer, n in planned.items() if layer and n > held[layer]),
    )


def _read(path: Path) -> Artefact:
    reader = registry.identify(path)
    if not reader.KIND.startswith("ncu-"):
        raise InputError(
            f"is of kind {reader.KIND}, which has no counters",
            file=path,
            fix="name an ncu capture (.ncu-rep, or .csv of ncu --csv)",
        )
    return registry.read(path)


def _is_piece(path: Path) -> bool:
    return path.absolute().parent.name.endswith(pieces.FOLDER)


def _partly(path: Path, held: int, loss: InputError | None, planned: int) -> str | None:
    """What is to be known of a capture that lacks launches; `planned` are those of the plan that
    lies beside it."""
    if _is_piece(path):
        return f"{held} launches: {_PIECE}"
    if loss is not None:
        of = f" of {planned}" if planned > held else ""
        return f"{held}{of} launches: the file {loss.what}; what it lacks is in no sum here"
    if planned <= held:
        return None
    return (
        f"{held} of {planned} launches: the others were not replayed and are in no sum here; "
        "report/counters.csv counts those that are the same work as one of these"
    )


def _phases(launches: pa.Table) -> dict[int, str]:
    """By launch. A phase is a start/end range: it holds for the autograd engine's threads too."""
    phase_of = {}
    columns = ["launch", "ranges", "start_end_ranges"]
    for row in launches.select(columns).to_pylist():
        for name in (*(row["ranges"] or ()), *(row["start_end_ranges"] or ())):
            if name.startswith(PHASE):
                phase_of[row["launch"]] = name.removeprefix(PHASE)
    return phase_of
