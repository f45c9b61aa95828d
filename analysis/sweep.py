"""The batch sweep of a run: latency and throughput per batch, and which batch does the most.

Throughput is batch over the median latency, its interval that of the latency; where inferences
were also measured with a full queue, what that gives stands beside it. Pure but for `load`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import InputError
from ..core.run import Run
from ..core.sweep import remark
from .report.sweep import sentence
from .report.view import Estimate, Side, Sweep, SweepBest, SweepPoint
from .run_files import optional

SECOND_NS = 1_000_000_000


def load(run: Run, labels: Mapping[str, str]) -> Sweep | None:
    """The run's sweep; null where there is none. `labels`: how backends are written."""
    path = run.file("captures", "sweep.json")
    document = optional(path)
    if not document:
        return None
    try:
        return view(document, labels)
    except (KeyError, TypeError, AttributeError) as e:
        raise InputError(
            f"is no sweep of ours ({type(e).__name__}: {e})", file=path, fix="sweep again"
        ) from None


def beside(sweep: Sweep, sides: Sequence[Side], batch: Any, sequence: Any) -> list[str]:
    """Remarks on the points at the run's own `batch` and `sequence` whose latency is not that of
    the run's own side (`Side.latency`), by more than both intervals."""
    own = {f"{s['precision']}.{s['backend']}": s["latency"] for s in sides if s["side"] == "engine"}
    found = [
        remark(p["label"], p["batch"], p["latency"], own.get(p["key"]))
        for p in sweep["points"]
        if (p["batch"], p["sequence"]) == (batch, sequence)
    ]
    return [line for line in found if line]


def view(document: Mapping[str, Any], labels: Mapping[str, str]) -> Sweep:
    """The report's sweep from a sweep.json."""
    points = [_point(p, labels) for p in document["points"]]
    return {
        "points": points,
        "best": best(points),
        "skipped": [{k: s.get(k) for k in ("what", "why", "fix")} for s in document["skipped"]],
        "remarks": [],
    }


def _point(found: Mapping[str, Any], labels: Mapping[str, str]) -> SweepPoint:
    summary, batch, sequence = found["summary"] or {}, found["batch"], found["sequence"]
    latency: Estimate = {
        "median": summary.get("median"),
        "low": summary.get("low"),
        "high": summary.get("high"),
        "n": summary.get("n") or 0,
    }
    backend, precision = found["backend"], found["precision"]
    queue = found["throughput_per_second"]
    memory = found["memory"]
    where = next((k for k in ("device_bytes", "context_bytes") if memory.get(k) is not None), None)
    where = where or ("peak_host_bytes" if memory.get("peak_host_bytes") is not None else None)
    return {
        "key": f"{precision}.{backend}",
        "label": f"{labels.get(backend, backend)} {precision}",
        "precision": precision,
        "backend": backend,
        "batch": batch,
        "sequence": sequence,
        "source": found["source"],
        "latency": latency,
        "p90_ns": summary.get("p90"),
        "p99_ns": summary.get("p99"),
        "sequences_per_second": _rate(batch, latency["median"]),
        "tokens_per_second": _rate(batch * sequence, latency["median"]),
        "tokens_low": _rate(batch * sequence, latency["high"]),
        "tokens_high": _rate(batch * sequence, latency["low"]),
        "queue_tokens_per_second": None if queue is None else queue * batch * sequence,
        "clock": found["clock"],
        "ended_by": found["ended_by"],
        "target_met": _met(found["relative_width"], found["target"]),
        "memory_bytes": None if where is None else memory[where],
        "memory_of": where,
    }


def _rate(amount: int, ns: int | None) -> float | None:
    return amount * SECOND_NS / ns if ns else None


def _met(width: float | None, target: float | None) -> bool | None:
    return None if width is None or target is None else width <= target


def best(points: Sequence[SweepPoint]) -> list[SweepBest]:
    """For every engine the batch with the most tokens per second, and the batches whose interval
    reaches into its own: those are not distinguishable from it."""
    found: list[SweepBest] = []
    for key in dict.fromkeys(p["key"] for p in points):
        own = [p for p in points if p["key"] == key and p["tokens_per_second"] is not None]
        if not own:
            continue
        top = max(own, key=lambda p: (p["tokens_per_second"] or 0, -p["batch"]))
        found.append(
            {
                "key": key,
                "label": top["label"],
                "batch": top["batch"],
                "tokens_per_second": top["tokens_per_second"],
                "tokens_low": top["tokens_low"],
                "tokens_high": top["tokens_high"],
                "of": len(own),
                "alike": [p["batch"] for p in own if p is not top and not _below(p, top)],
                "last": top["batch"] == max(p["batch"] for p in own),
            }
        )
    return found


def _below(point: SweepPoint, top: SweepPoint) -> bool:
    """Whether a point is surely below the top: unknown intervals are not sure."""
    high, low = point["tokens_high"], top["tokens_low"]
    return high is not None and low is not None and high < low


def sweep_figures(sweep: Sweep) -> dict[str, Any]:
    """The sweep for summary.json."""
    return {
        "points": [
            {
                **{k: v for k, v in p.items() if k not in ("latency", "key", "label")},
                "latency_median_ns": p["latency"]["median"],
                "latency_low_ns": p["latency"]["low"],
                "latency_high_ns": p["latency"]["high"],
                "latency_samples": p["latency"]["n"],
            }
            for p in sweep["points"]
        ],
        "best": {b["key"]: {k: v for k, v in b.items() if k != "key"} for b in sweep["best"]},
        "skipped": sweep["skipped"],
        "remarks": sweep["remarks"],
    }


def headline(sweep: Sweep) -> list[dict[str, Any]]:
    """What the sweep says where nothing else was measured, in the view's form."""
    return [{"text": sentence(b), "tone": "neutral"} for b in sweep["best"]]
