"""What must hold of a training that `layerline train` measured: "holds" or "FAILS", a line each.

    python tests/gpu/training_holds.py RUN [SAME]

Reads captures/train.*.latency.json, report/summary.json, and report/memory.json where there is one.
SAME: another run of the same training, whose losses must be the same numbers.
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


def of_memory(peak: dict[str, Any], elements: int) -> Iterator[tuple[bool, str]]:
    """The peak is its categories and rounding to the byte, and what torch itself counts; weights in
    float32, so many `elements`, and AdamW's two moments of each are what the model says."""
    parts = {**peak["categories"], "rounding": peak["rounding_bytes"]}
    allocated = peak["allocated_bytes"]
    told = ", ".join(f"{k} {v:,}" for k, v in parts.items())
    yield sum(parts.values()) == allocated, f"the peak of {allocated:,} B is {told}"
    held, state = (peak["categories"].get(k, 0) for k in ("parameters", "optimizer state"))
    yield held == 4 * elements, f"parameters of {elements:,} elements are {held:,} B"
    # A count of steps for each tensor may lie beside the moments.
    yield 0 <= state - 8 * elements <= 0.001 * state, f"their moments are {state:,} B"
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


def losses(run: Path) -> list[float]:
    """Of all steps of a run."""
    (path,) = run.glob("captures/train.*[0-9].meta.json")
    found: list[float] = json.loads(path.read_text())["losses"]
    return found


def main(run: Path, same: Path | None = None) -> int:
    if same is not None:
        a, b = losses(run), losses(same)
        said = [(a == b, f"{len(a)} losses, {a[0]:.6f} to {a[-1]:.6f}, are the same again")]
        return tell(said)
    said, elements = [], 0
    for path in sorted(run.glob("captures/train.*.latency.json")):
        found = json.loads(path.read_text())
        elements = found["parameters"]
        said += of_latency(found)
    said += of_report(json.loads((run / "report/summary.json").read_text()))
    if (path := run / "report/memory.json").exists():
        said += of_memory(json.loads(path.read_text()), elements)
    code = tell(said)
    sys.stdout.writelines(f"  {text}\n" for text in noted(run))
    return code


def tell(said: list[tuple[bool, str]]) -> int:
    """Print each; 1 where one fails, or nothing was looked at."""
    sys.stdout.writelines(f"{'holds' if ok else 'FAILS'}: {text}\n" for ok, text in said)
    return 0 if said and all(ok for ok, _ in said) else 1


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
