"""What must hold of a training that `layerline train` measured: "holds" or "FAILS", a line each.

    python tests/gpu/training_holds.py RUN

Reads captures/train.*.latency.json, report/summary.json, and report/memory.json where there is one.
Exit status 1 where one fails. Standard library only.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHARE_OF_STEP = 0.99
# Of checks i, ii and of nsys against torch.profiler.
RESIDUALS = {"i": 0.0, "ii": 0.01, "sources": 0.02}


def of_latency(found: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    """Phases and what lies outside them are the step to the nanosecond; phases nearly all of it."""
    steps, phases, outside = found["latency_ns"], found["phases_ns"], found["outside_ns"]
    parts = [*phases.values(), *outside.values()]
    whole = all(sum(p[i] for p in parts) == step for i, step in enumerate(steps))
    yield whole, f"phases and what is outside them are each of {len(steps)} steps to the nanosecond"
    shares = sorted(sum(p[i] for p in phases.values()) / step for i, step in enumerate(steps))
    median = statistics.median(shares)
    yield (
        median >= SHARE_OF_STEP,
        f"phases are {median:.2%} of a step (least {shares[0]:.2%}, most {shares[-1]:.2%}); "
        f"step {statistics.median(steps) / 1e6:.3f} ms ({min(steps) / 1e6:.3f} to "
        f"{max(steps) / 1e6:.3f})",
    )


def of_report(summary: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    """The closure checks of the step, and the share of it that has a module or a named row."""
    for name, side in summary["eager"].items():
        if not name.endswith(".step"):
            continue
        yield side["coverage"] == 1, f"{name}: coverage {side['coverage']:.4%}"
        for check, limit in RESIDUALS.items():
            if (of := side["closure"].get(check)) is None or of["ok"] is None:
                continue
            share = abs(of["residual_share"])
            terms = ", ".join(f"{k} {v:,}" for k, v in of["terms"].items())
            yield share <= limit, f"{name}: check {check} leaves {share:.3%} ({terms})"


def of_memory(peak: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    """The peak is its categories and rounding to the byte, and what torch itself counts."""
    parts = {**peak["categories"], "rounding": peak["rounding_bytes"]}
    allocated = peak["allocated_bytes"]
    told = ", ".join(f"{k} {v:,}" for k, v in parts.items())
    yield sum(parts.values()) == allocated, f"the peak of {allocated:,} B is {told}"
    if peak["reserved_bytes"] is not None:
        left = peak["reserved_bytes"] - allocated
        yield (
            peak["fragmentation_bytes"] == left,
            f"fragmentation {left:,} B is the rest of reserved",
        )
    for check in peak["checks"]:
        said = f"{check['name']}: {check['ours']:,} B; {check['source']}: {check['theirs']:,} B"
        yield check["ok"] and check["ours"] == check["theirs"], said


def noted(run: Path) -> Iterator[str]:
    """Figures that are no claim: how parameters were counted, and remedies that were tried."""
    for path in sorted(run.glob("captures/train.*.parameters.index.json")):
        yield f"parameters: {json.loads(path.read_text())['how']}"
    if (path := run / "report/memory.json").exists():
        for of in json.loads(path.read_text())["remedies"]:
            if (tried := of["tried"]) is not None:
                key = "peak_bytes" if of["of"] == "allocated" else "reserved_bytes"
                yield f"{of['what']}: estimated {of['after']:,} B, tried {tried[key]:,} B"


def main(run: Path) -> int:
    said: list[tuple[bool, str]] = []
    for path in sorted(run.glob("captures/train.*.latency.json")):
        said += of_latency(json.loads(path.read_text()))
    said += of_report(json.loads((run / "report/summary.json").read_text()))
    if (path := run / "report/memory.json").exists():
        said += of_memory(json.loads(path.read_text()))
    sys.stdout.writelines(f"{'holds' if ok else 'FAILS'}: {text}\n" for ok, text in said)
    sys.stdout.writelines(f"  {text}\n" for text in noted(run))
    return 0 if said and all(ok for ok, _ in said) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
