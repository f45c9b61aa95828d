"""Seconds of each step of `layerline profile`, of one run or of several beside each other.

    python tests/gpu/profile_steps.py RUN [RUN …]

From the manifests alone. A step's row has its seconds in each run, of a capture under nsys the
seconds of the capture itself; medians of latencies stand beside them, so that a faster stage that
measures something else shows. `from first to last` is the wall time between the start of the first
step and the end of the last; what no step accounts for is starting, waiting and writing. Steps that
run beside others (exports) count once in it. Standard library only.
"""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from typing import Any


def steps(run: Path) -> dict[str, dict[str, Any]]:
    """The profile stage's manifests by step, in the order of their start."""
    found = [json.loads(p.read_text()) for p in (run / "manifests/profile").glob("*.json")]
    return {m["step"]: m for m in sorted(found, key=lambda m: (m["started"], m["step"]))}


def seconds(step: dict[str, Any]) -> str:
    """As a cell."""
    facts = step.get("facts") or {}
    if "skipped" in facts:
        return "skipped"
    text = f"{step['seconds']:.1f}"
    capture = facts.get("capture_seconds")
    text = text if capture is None else f"{text} + {capture:.1f} captured"
    median = (facts.get("summary") or {}).get("median")
    return text if median is None else f"{text} ({median / 1000:.1f} µs)"


def wall(found: dict[str, dict[str, Any]]) -> float:
    """Seconds from the first start to the last end."""
    begun = [datetime.datetime.fromisoformat(m["started"]).timestamp() for m in found.values()]
    ended = [b + m["seconds"] for b, m in zip(begun, found.values(), strict=True)]
    return max(ended) - min(begun) if begun else 0.0


def main(runs: list[Path]) -> None:
    """Print the table as Markdown."""
    tables = [steps(run) for run in runs]
    rows = [["step", *(run.name for run in runs)], ["---", *("---:" for _ in runs)]]
    for name in dict.fromkeys(name for table in tables for name in table):
        cells = [seconds(table[name]) if name in table else "" for table in tables]
        rows.append([name.removeprefix("profile/"), *cells])
    sums = [sum(m["seconds"] for m in table.values()) for table in tables]
    rows.append(["sum of the steps", *(f"{s:.1f}" for s in sums)])
    rows.append(["from first to last", *(f"{wall(t):.0f}" for t in tables)])
    sys.stdout.writelines(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    main([Path(a) for a in sys.argv[1:]])
