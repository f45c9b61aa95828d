"""What the metrics of a capture mean and what their values suggest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from ..readers.ncu.tables import AS_ONE
from . import meanings
from .capture import Capture
from .series import Series, names, series

# ncu's rules link to sections and pages: @section:SchedulerStats:Scheduler Statistics@.
_LINK = re.compile(r"@(\w+):([^:@]*):([^@]*)@")


def of_names(metrics: Sequence[str]) -> Iterator[str]:
    """Lines about metrics alone, without values."""
    for metric in metrics:
        yield metric
        yield from _what(metric)


def of_capture(capture: Capture, metrics: Sequence[str] = ()) -> Iterator[str]:
    """Lines about metrics with their values in a capture, and the rules that ncu evaluated.

    Without `metrics`: those of the capture that the dictionary knows, the means of units only
    (`.avg`, `.sum`, or no rollup). InputError for a metric that the capture lacks.
    """
    if capture.ranges:
        yield AS_ONE
    chosen = metrics or [m for m in names(capture.counters) if _telling(m)]
    for one in series(capture.counters, chosen, capture.name):
        yield one.metric
        yield from _what(one.metric)
        yield from _values(one, capture.rows)
    left = len(names(capture.counters)) - len(chosen)
    if not metrics and left:
        yield f"{left} more metrics: name them with --metric"
    yield from _rules(capture)


def _telling(metric: str) -> bool:
    aside = metric.split(".")[1:2] in (["min"], ["max"])
    doubled = ".sum.pct" in metric or ".sum.per_cycle" in metric
    return not aside and not doubled and meanings.meaning(metric) is not None


def _what(metric: str) -> Iterator[str]:
    meaning = meanings.meaning(metric)
    if meaning is None:
        yield "  no explanation here; `ncu --query-metrics` has NVIDIA's one line"
    else:
        yield f"  {meaning.text} [{meaning.section}]"
    if spelling := meanings.spelled(metric):
        yield f"  this one: {spelling}"


def _values(one: Series, rows: str) -> Iterator[str]:
    known = np.isfinite(one.value)
    if not known.any():
        yield "  no value in this capture"
        return
    values = one.value[known]
    unit = f" {one.unit}" if one.unit else ""
    yield (
        f"  here: median {np.median(values):.4g}{unit}, {values.min():.4g} to "
        f"{values.max():.4g}, {len(values)} of {len(one.value)} {rows}"
    )
    judgements = Counter(meanings.judgement(one.metric, one.unit, float(v)) for v in values)
    for text, count in judgements.most_common():
        if text is not None:
            yield f"  {count} {rows}: {text}"


def _rules(capture: Capture) -> Iterator[str]:
    counted = Counter(
        (r["rule"], _LINK.sub(lambda m: m[2] if m[1] == "url" else m[3], r["text"]))
        for r in capture.rules
        if r["text"] and r["rule"]
    )
    if counted:
        yield "What ncu's rules said"
    for (rule, text), count in counted.most_common():
        yield f"  {rule} ({count} {capture.rows}): {text}"
