"""Whether a file of an ncu capture has all the launches that were captured.

Two things tell: rows that its reader could not read (`readers.ncu.page`), and the `ncu.meta.json`
that lies beside it, where the copy broke off between two rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from . import ncu_spread
from .readers.base import Artefact
from .readers.ncu import page
from .run_files import optional

AGAIN = "copy it again, or capture again"


def captured(meta: Mapping[str, Any]) -> int | None:
    """The launches that all reports of a capture hold, by its meta file; null where that does not
    say."""
    # Of pieces, `replayed` counts a launch once for each part of the metrics.
    of = meta.get("launches") if "pieces" in meta else meta.get("replayed") or meta.get("planned")
    return of if isinstance(of, int) and not isinstance(of, bool) else None


def captured_in(capture: Path) -> int | None:
    """As `captured`, for one report or its page; null where the capture has several reports."""
    stem = ncu_spread.stem(capture)
    if stem is None:
        return None
    meta = optional(capture.with_name(f"{stem}.ncu.meta.json"))
    several = "pieces" not in meta and len(meta.get("reports") or ()) > 1
    return None if several else captured(meta)


def missing(read: Artefact, capture: Path) -> InputError | None:
    """What is to be said of a capture that lacks launches; null where nothing tells that it does.

    Errors of a meta file that cannot be read are as `run_files.optional` has them.
    """
    held, told = len(read.tables["launches"]), captured_in(capture)
    if read.facts.get(page.CUT_SHORT):
        after = f" after {held} of {told} launches" if told is not None and told > held else ""
        return InputError(f"is cut short{after}", file=capture, fix=AGAIN)
    if left := read.facts.get(page.LEFT_OUT):
        rows = "a row" if left == 1 else f"{left} rows"
        return InputError(f"has {rows} that cannot be read", file=capture, fix=AGAIN)
    if told is None or held >= told:
        return None
    return fewer(capture, held, told)


def fewer(capture: Path, held: int, told: int) -> InputError:
    """The error of a capture with fewer launches than when it was taken, or with more."""
    return InputError(
        f"holds {held} launches, and {told} were captured",
        file=capture,
        fix=f"is it whole? {AGAIN[0].upper()}{AGAIN[1:]}",
    )
