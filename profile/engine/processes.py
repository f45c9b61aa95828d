"""One measurement in several processes: what an interval within one process cannot know.

A process loads the engine once: its memory lies where it lies, and the clocks have come to rest
somewhere. Two processes that measure the same engine differ by more than the interval of either
(up to 2.4 % on Hopper GPUs, where the intervals were 0.1 to 0.3 %). So each engine on a GPU is
loaded several times, and its interval is that of all loads' mean (`core.series.of_processes`).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.stats import summarise

SERIES = ("latency_ns", "warmup_ns", "host_ns", "queued_ns")


def combine(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The answers of the same measurement as one, in their order.

    Series are joined; one that a process lacks is left out, because it would stand for the others
    alone. `processes`: each one's summary of its latencies, why it ended, its GPU. Facts are those
    of the first, with what all of them say of the GPU, the throughput (median) and how it ended
    (by the target only where all did).
    """
    first = answers[0]
    if len(answers) == 1:
        return dict(first)
    facts = [a.get("facts") or {} for a in answers]
    joined = {
        name: [ns for a in answers for ns in a[name]]
        for name in SERIES
        if all(a.get(name) for a in answers)
    }
    ended = [f.get("ended_by") for f in facts]
    merged = {
        "throughput_per_second": _middle([f.get("throughput_per_second") for f in facts]),
        "gpu": _gpu([f.get("gpu") for f in facts]),
        "gate_opened_by_itself": sum(f.get("gate_opened_by_itself") or 0 for f in facts),
    }
    combined = {
        **facts[0],
        **{name: value for name, value in merged.items() if name in facts[0]},
        "ended_by": next((e for e in ended if e != "target"), "target"),
        "target_met": all(f.get("target_met") for f in facts),
        "queued": "queued_ns" in joined,
    }
    rest = {name: value for name, value in first.items() if name not in SERIES}
    return {**rest, **joined, "facts": combined, "processes": _each(answers, facts)}


def _each(answers: Sequence[Mapping[str, Any]], facts: Sequence[Mapping[str, Any]]) -> list[Any]:
    each = []
    for answer, fact in zip(answers, facts, strict=True):
        stat = summarise(answer["latency_ns"])
        each.append(
            {
                **(stat.as_dict() if stat else {"n": 0}),
                "queued_n": len(answer.get("queued_ns") or ()),
                "ended_by": fact.get("ended_by"),
                "gpu": fact.get("gpu"),
            }
        )
    return each


def _middle(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.median_high(known) if known else None


def _gpu(seen: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """What the samplers of all processes saw: the median of medians, extremes over all, reasons
    of slowing down by their share of all samples. What one did not see is left out; where one saw
    nothing, its answer stands for all."""
    known = [s or {} for s in seen]
    blind = next((s for s in known if not s.get("samples")), None)
    if blind is not None:
        return dict(blind) or None
    samples = sum(s["samples"] for s in known)
    summary: dict[str, Any] = {"samples": samples}
    for name in known[0]:
        of_all = [s[name] for s in known if isinstance(s.get(name), Mapping)]
        if len(of_all) < len(known):
            continue
        if name == "throttled":
            reasons = sorted({why for shares in of_all for why in shares})
            summary[name] = {
                why: sum(s["throttled"].get(why, 0.0) * s["samples"] for s in known) / samples
                for why in reasons
            }
        else:
            summary[name] = {
                "median": statistics.median(v["median"] for v in of_all),
                "min": min(v["min"] for v in of_all),
                "max": max(v["max"] for v in of_all),
            }
    return summary
