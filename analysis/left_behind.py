"""Whether the files of a run are those that its steps left: by the hashes in their manifests.

A file of another run, or of another precision, is whole and of the right form; nothing but its
contents tells it. Files that were scrubbed have other contents too, so this is said, not judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.run import Run, unchanged

# What analysis reads. Engines, models and raw reports need not be copied with a run.
_READ = (".json", ".gz", ".sqlite", ".csv")
_FOLDERS = ("export/", "engines/", "captures/")
# How many files a report and a line on stderr name.
_NAMED, _SAID = 3, 12


def told(
    run: Run, already: Sequence[Mapping[str, Any]] = ()
) -> tuple[list[dict[str, str]], list[str]]:
    """What reports list of files that are gone or have other contents, without those that
    `already` lists; and the names of the latter."""
    recorded: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for manifest in run.manifests().values():
        for name, entry in (manifest.get("outputs") or {}).items():
            if name.startswith(_FOLDERS) and name.endswith(_READ):
                recorded[name].append(entry or {})
    known = " ".join(f"{s.get('what')} {s.get('why')}" for s in already)
    found = []
    gone = [n for n in sorted(recorded) if not _there(run, n) and n not in known]
    if gone:
        why = f"{_names(gone)}: left by a step of this run, and not there"
        fix = "copy the whole run, or run those steps again"
        found.append({"what": "what lost files held", "why": why, "fix": fix})
    other = [
        name
        for name, entries in sorted(recorded.items())
        if name not in known
        and run.file(name).exists()
        and not any(unchanged(run.file(name), e) for e in entries)
    ]
    if other:
        why = (
            f"{_names(other)}: not as a step of this run left it; scrubbed or changed since, or "
            "of another run"
        )
        fix = "unless you changed it, copy it again, or run that step again"
        found.append({"what": "whether files are this run's own", "why": why, "fix": fix})
    return found, other


def line(names: Sequence[str]) -> str:
    """What commands say of files with other contents, in one line."""
    more = len(names) - _SAID
    listed = ", ".join(names[:_SAID]) + (f" and {more} more" if more > 0 else "")
    return (
        f"not as a step of this run left {'it' if len(names) == 1 else 'them'}, and whether of "
        f"this run is unknown: {listed}; unless you scrubbed or changed the run, copy again"
    )


def _there(run: Run, name: str) -> bool:
    """Also where it was unpacked."""
    return run.file(name).exists() or run.file(name.removesuffix(".gz")).exists()


def _names(paths: Sequence[str]) -> str:
    more = len(paths) - _NAMED
    return ", ".join(paths[:_NAMED]) + (f" and {more} more" if more > 0 else "")
