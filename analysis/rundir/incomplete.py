"""What a run lacks of what its steps left, and what it holds otherwise, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.capture_names import CaptureName
from ...core.errors import InputError, one_line
from ...core.files import is_text, listing
from ...core.run import Run
from ..formatting import first
from ..model.comparison import IN_PART
from .provenance import records_of

# What analysis reads. Engines, models and raw reports need not be copied with a run.
_READ = (".json", ".gz", ".sqlite", ".csv")

_FOLDERS = ("export/", "engines/", "captures/")

# How many files a report and a line on stderr name.
_NAMED, _SAID = 3, 12


def unlike(
    run: Run, already: Sequence[Mapping[str, Any]] = ()
) -> tuple[list[dict[str, str]], list[str]]:
    """What reports list of files that are gone or have other contents, without those that
    `already` lists; and the names of the latter."""
    listed = " ".join(f"{s.get('what')} {s.get('why')}" for s in already)
    records, rows = records_of(run), []
    names = [
        name
        for name in sorted(records.left)
        if name.startswith(_FOLDERS) and name.endswith(_READ) and name not in listed
    ]
    if gone := [n for n in names if not _there(run, n)]:
        what = (
            "1 file that its steps left is"
            if len(gone) == 1
            else (f"{len(gone)} files that its steps left are")
        )
        why = f"{what} not there ({first(gone, _NAMED)}): the run was copied in part"
        fix = "copy the whole run, or run those steps again"
        rows.append({"what": IN_PART, "why": why, "fix": fix, "file": gone[0]})
    odd = [p for f in _FOLDERS for p in listing(run.file(f.rstrip("/"))) if not is_text(p)]
    if odd:
        named = first([one_line(f"{p.parent.name}/{p.name}") for p in odd], _NAMED)
        names_are = "its name is" if len(odd) == 1 else "their names are"
        why = f"{named}: left out, {names_are} not UTF-8"
        rows.append({"what": "files of odd names", "why": why, "fix": "rename and report again"})
    other = [n for n in names if run.file(n).exists() and records.changed(run, n)]
    if other:
        why = (
            f"{first(other, _NAMED)}: not as a step of this run left it; scrubbed or changed "
            "since, or of another run"
        )
        fix = "unless you changed it, copy it again, or run that step again"
        rows.append({"what": "whether files are this run's own", "why": why, "fix": fix})
    return rows, other


_SAYING = ("captures/*.latency.json", "captures/*.meta.json", "engines/*.layers.json")


def nothing(run: Run) -> InputError:
    """The error for a run of which no capture can be used: it was copied in part, its captures lack
    what says what they are of, or there is none."""
    for row in unlike(run)[0]:
        if row["what"] == IN_PART:
            return InputError(row["why"], file=run.path, fix=row["fix"])
    held = listing(run.file("captures"))
    trained = [n for p in held if (n := CaptureName.parse(p)) is not None and n.task == "train"]
    of = {"ranks" if n.rank is not None else n.kind for n in trained}
    profiled = of & {"trace", "nsys"}
    commands = [c for c in ("ranks", "memory", "parameters", "graph") if c in of]
    if commands and not profiled:
        what = f"holds a training for {' and '.join(f'`layerline {c}`' for c in commands)} alone"
        fix = " or ".join(f"layerline {c} {run.path}" for c in commands)
        return InputError(what, file=run.path, fix=fix)
    if trained and not profiled:
        what = "holds a training whose steps were timed and not profiled"
        return InputError(what, file=run.path, fix="layerline train … --profile torch adds it")
    if held:
        gone = [p for p in _SAYING if not next(run.path.glob(p), None)]
        what = (
            f"nothing says what the {len(held)} files in captures/ are of"
            f"{f' (no {first(gone, _NAMED)})' if gone else ''}: the run was copied in part"
        )
        return InputError(what, file=run.path, fix="copy the whole run")
    fix = "layerline profile measures it"
    return InputError("nothing was captured", file=run.path, fix=fix)


def line(names: Sequence[str]) -> str:
    """What commands say of files with other contents, in one line."""
    return (
        f"not as a step of this run left {'it' if len(names) == 1 else 'them'}, and whether of "
        f"this run is unknown: {first(names, _SAID)}; unless you scrubbed or changed the run, "
        "copy again"
    )


def _there(run: Run, name: str) -> bool:
    """Also where it was unpacked."""
    return run.file(name).exists() or run.file(name.removesuffix(".gz")).exists()
