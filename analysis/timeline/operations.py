"""The operations of the chosen iteration as columns, with what is to be said of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from .columns import codes, combined, integers
from .tracks import NULL, About, Ints, Slices

# Columns of `ops` that many rows share, and what they are called in the timeline.
_SHARED = {
    "kind": "kind",
    "phase": "phase",
    "layer": "layer",
    "nodes": "nodes",
    "modules": "modules",
    "rule": "rule",
    "range": "range",
}


@dataclass(frozen=True)
class Extra:
    """What another source tells of operations: a code per row (-1: nothing) into `values`."""

    code: Ints
    values: Sequence[About]


@dataclass(frozen=True)
class Operations:
    """Rows of `ops` by start. ns; `time` is what the tables add up: the self time of operations
    that nest, else the duration."""

    table: pa.Table
    start: Ints
    end: Ints
    time: Ints
    on_device: bool
    about: Ints
    abouts: Sequence[About]
    first_arrow: int
    what: str
    note: str
    launched: Ints | None = None  # per row the arrow that comes from its launch, `NULL` for none
    own: Mapping[str, Ints] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def arrow_from_layer(self) -> Ints:
        """The number of the arrow that leads to each row from its layer."""
        return np.arange(self.first_arrow, self.first_arrow + len(self))

    def slices(self) -> Slices:
        """The rows as slices."""
        name, names = codes(self.table["name"])
        names = [n or "(no name)" for n in names]
        unnamed = len(names)
        return Slices(
            start=self.start,
            end=self.end,
            name=np.where(name < 0, unnamed, name),
            names=[*names, "(no name)"],
            about=self.about,
            abouts=self.abouts,
            own=self.own,
        )


def operations(
    table: pa.Table, *, on_device: bool, what: str, note: str = "", extras: Sequence[Extra] = ()
) -> Operations:
    """The rows of `table` (by start, none without a start or duration)."""
    start, duration = integers(table["start_ns"]), integers(table["duration_ns"])
    own_time = integers(table["self_ns"])
    coded = {column: codes(table[column])[0] for column in _SHARED}
    about, first = combined([*coded.values(), *(e.code for e in extras)])
    shared = table.select(list(_SHARED)).take(pa.array(first)).to_pylist()
    abouts = [_about(row, extras, int(at)) for row, at in zip(shared, first, strict=True)]
    own = {
        "duration_ns": duration,
        "self_ns": own_time,
        "capture_ns": start,
        "correlation": integers(table["correlation"]),
    }
    nests = not on_device
    return Operations(
        table=table,
        start=start,
        end=start + duration,
        time=np.where(own_time == NULL, duration, own_time) if nests else duration,
        on_device=on_device,
        about=about,
        abouts=abouts,
        first_arrow=0,
        what=what,
        note=note,
        own=own,
    )


def _about(row: Mapping[str, Any], extras: Sequence[Extra], at: int) -> About:
    found: dict[str, Any] = {}
    for column, name in _SHARED.items():
        value = row[column]
        if value is not None and value != []:
            found[name] = value
    # What has no module says so: unknown is told, not left out.
    found.setdefault("modules", "none" if row["modules"] == [] else "not known")
    found.setdefault("rule", "not known")
    for extra in extras:
        code = int(extra.code[at])
        if code >= 0:
            found.update(extra.values[code])
    return found
