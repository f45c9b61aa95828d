"""The manifest in short: what was measured, on what, by which versions, and each file's hash.

Everything else (every step with its options and facts, whole hashes) is in `LONG`, which the
report names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from .. import formatting
from ..model.comparison import Comparison

LONG = "run.json"  # in the run directory, beside report/
PREFIX = 12
FACTS_SHOWN = 60
# Shown by tables of their own, or told by them already.
_APART = ("steps", "files", "facts", "versions", "machine", "schema_version", "title")
_MACHINE = ("cpu", "cpus_usable", "cpus", "governor", "memory_bytes", "kernel", "system")
_FACTS = ("gpu", "driver", "threads")


class Short(TypedDict):
    """(name, value) lines; `left`: facts that were left out of the first list."""

    facts: list[tuple[str, str]]
    left: int
    versions: list[tuple[str, str]]
    commands: list[str]
    files: list[tuple[str, str]]
    total: int  # facts in the long form


def short(view: Comparison) -> Short:
    """The short form; lists are empty where the manifest lacks them."""
    whole = formatting.clean(view.manifest)
    rest = {k: v for k, v in whole.items() if k not in _APART}
    facts = [*formatting.flatten(rest), *_machine(whole)] if rest or whole.get("machine") else []
    versions = whole.get("versions")
    return {
        "facts": facts[:FACTS_SHOWN],
        "left": max(0, len(facts) - FACTS_SHOWN),
        "versions": formatting.flatten(versions) if versions else [],
        "commands": _commands(whole.get("steps")),
        "files": _files(whole.get("files")),
        "total": len(formatting.flatten(whole)),
    }


def _machine(whole: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The machine before the first measurement, its load after the last, and the GPU."""
    state = whole.get("machine")
    if not isinstance(state, Mapping):
        return []
    before, after = state.get("before", state), state.get("after")
    found: dict[str, Any] = {}
    if isinstance(before, Mapping):
        found |= {k: before[k] for k in _MACHINE if k in before}
        found["load_1min"] = before.get("load_1min")
    if isinstance(after, Mapping):
        found["load_1min_after"] = after.get("load_1min")
    facts = whole.get("facts")
    if isinstance(facts, Mapping):
        found |= {k: facts[k] for k in _FACTS if facts.get(k) is not None}
    return formatting.flatten(found, "machine") if found else []


def _commands(steps: Any) -> list[str]:
    """Each command once, in the order in which they ran."""
    found = []
    for step in steps if isinstance(steps, list) else ():
        command = step.get("command") if isinstance(step, Mapping) else None
        if isinstance(command, list):
            found.append(" ".join(str(word) for word in command))
    return list(dict.fromkeys(found))


def _files(files: Any) -> list[tuple[str, str]]:
    """Path and the beginning of its SHA-256."""
    found = []
    for path, entry in files.items() if isinstance(files, Mapping) else ():
        digest = entry.get("sha256") if isinstance(entry, Mapping) else entry
        found.append((str(path), str(digest)[:PREFIX] if digest else "unknown"))
    return found
