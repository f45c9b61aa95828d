"""The manifest in short: what was measured, on what, by which versions, and each file's hash.

Everything else (every step with its options and facts, whole hashes) is in the run's run.json,
beside report/.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import formatting

PREFIX = 12  # digits of a hash
FACTS_SHOWN = 60
# In rows of their own, or in those of `machine` already.
_APART = ("steps", "files", "facts", "versions", "machine", "schema_version", "title")
_MACHINE = ("cpu", "cpus_usable", "cpus", "governor", "memory_bytes", "kernel", "system")
_FACTS = ("gpu", "driver", "threads")


def short(record: Mapping[str, Any]) -> dict[str, Any]:
    """Rows (name, value) of `facts` and `files`, the `commands`; `left`: how many facts were left
    out, `total`: how many the long form has."""
    whole = formatting.clean(record)
    facts = formatting.flatten({k: v for k, v in whole.items() if k not in _APART})
    facts += _rows("machine", _machine(whole))
    files = whole.get("files")
    return {
        "facts": [*facts[:FACTS_SHOWN], *_rows("versions", whole.get("versions"))],
        "left": max(0, len(facts) - FACTS_SHOWN),
        "commands": _commands(whole.get("steps")),
        "files": [
            (path, str(digest)[:PREFIX] if digest else "unknown")
            for path, digest in (files.items() if isinstance(files, Mapping) else ())
        ],
        "total": len(formatting.flatten(whole)),
    }


def _rows(path: str, values: Any) -> list[tuple[str, str]]:
    return formatting.flatten(values, path) if values else []


def _machine(whole: Mapping[str, Any]) -> dict[str, Any]:
    """The machine before the first measurement, its load after the last, and the GPU."""
    machine, facts = (_mapping(whole.get(name)) for name in ("machine", "facts"))
    before, after = (_mapping(machine.get(when)) for when in ("before", "after"))
    found: dict[str, Any] = {k: before[k] for k in _MACHINE if k in before}
    if before:
        found["load_1min"] = before.get("load_1min")
    if after:
        found["load_1min_after"] = after.get("load_1min")
    return found | {k: facts[k] for k in _FACTS if facts.get(k) is not None}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _commands(steps: Any) -> list[str]:
    """Each command once, in the order in which they ran."""
    commands = [_mapping(step).get("command") for step in steps or ()]
    return list(dict.fromkeys(" ".join(map(str, c)) for c in commands if isinstance(c, list)))
