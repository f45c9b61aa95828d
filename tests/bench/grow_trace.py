"""Grow a small profiler trace into a large one: the same steps, recorded for longer.

    python tests/bench/grow_trace.py OUT.json [--mib 500] [--source TRACE.json.gz]

Each copy of the events comes later than the one before, by the trace's span, and has
correlation, sequence and flow numbers of its own, as a longer recording would.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "data" / "h100_train_l2.trace.json.gz"
MIB = 1 << 20
COUNTED = ("correlation", "External id", "Sequence number", "Ev Idx")
GAP_US = 1000


def grow(target: Path, mib: int, source: Path = SOURCE) -> int:
    """Write `target` of at least `mib` MiB, or one copy; gives the number of events."""
    with gzip.open(source, "rt", encoding="utf-8") as f:
        return written(target, json.load(f), mib)


def written(
    target: Path,
    trace: dict[str, Any],
    mib: int,
    of_copy: Callable[[dict[str, Any], int], dict[str, Any]] = lambda event, _: event,
) -> int:
    """As `grow`, of a trace in memory; `of_copy` changes an event of the n-th copy."""
    once = [e for e in trace["traceEvents"] if "ts" not in e or e["ph"] == "M"]
    timed = [e for e in trace["traceEvents"] if "ts" in e and e["ph"] != "M"]
    last = max(e["ts"] + e.get("dur", 0) for e in timed)
    span = last - min(e["ts"] for e in timed) + GAP_US
    numbers = [int(v) for e in timed for v in _numbers(e)]
    step = max(numbers, default=0) + 1
    head = json.dumps({k: v for k, v in trace.items() if k != "traceEvents"})
    size, copies, separator = 0, 0, ""
    with target.open("w", encoding="utf-8") as out:
        out.write(head[:-1] + (", " if len(head) > 2 else "") + '"traceEvents": [\n')
        while not copies or size < mib * MIB:
            later = (of_copy(_later(e, copies * span, copies * step), copies) for e in timed)
            for event in [*([] if copies else once), *later]:
                size += out.write(separator + json.dumps(event))
                separator = ",\n"
            copies += 1
        out.write("\n]}\n")
    return len(once) + copies * len(timed)


def _numbers(event: dict[str, Any]) -> list[int]:
    found = [event.get("args", {}).get(k) for k in COUNTED] + [event.get("id")]
    return [v for v in found if isinstance(v, int)]


def _later(event: dict[str, Any], later: float, higher: int) -> dict[str, Any]:
    """The event moved in time, with its numbers raised; negative numbers mean none."""

    def raised(key: str, value: Any) -> Any:
        counted = key in COUNTED and isinstance(value, int) and value >= 0
        return value + higher if counted else value

    moved = {**event, "ts": round(event["ts"] + later, 3)}
    if isinstance(event.get("id"), int):
        moved["id"] = event["id"] + higher
    if "args" in event:
        moved["args"] = {k: raised(k, v) for k, v in event["args"].items()}
    return moved


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("target", type=Path)
    parser.add_argument("--mib", type=int, default=500)
    parser.add_argument("--source", type=Path, default=SOURCE)
    options = parser.parse_args()
    events = grow(options.target, options.mib, options.source)
    print(f"{options.target}: {options.target.stat().st_size >> 20} MiB, {events:,} events")


if __name__ == "__main__":
    main()
