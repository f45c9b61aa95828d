"""How far launches of the same work that were both measured are apart, and what that is of a row.

Two captures of equal work differ by the noise of replaying; where they differ by more, they were
not as equal. Of a kind of work the spread is (highest - lowest) / mean. Of a row of several
launches it is the sum of (highest - lowest) over those that have twins, over the sum of all:
so a copy of a few kilobytes, whose DRAM traffic is noise, does not speak for a whole module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..core.roofline_metrics import BYTES, DURATION, FP16, FP32, SASS, TENSOR
from .counters_rules import base_unit
from .report.view_counters import Spread

# What twins are compared by; other metrics say how a kernel ran, not how much it did.
METRICS = (DURATION, BYTES, *(m for groups in TENSOR.values() for g in groups for m in g),
           *(SASS.format(op) for op in (*FP32, *FP16)))  # fmt: skip


class Twins:
    """The measured launches of each kind of work of one capture's joined `counters`.

    `launches`: those of the plan, with `index` and `key` (the kind); none without a plan.
    """

    def __init__(self, counters: pa.Table, launches: Sequence[Mapping[str, Any]]) -> None:
        self._key = {x["index"]: x["key"] for x in launches}
        # By metric: the value of each launch, and of each kind with twins its width, mean, number.
        self._values: dict[str, dict[int, float]] = defaultdict(dict)
        self._kinds: dict[str, dict[int, tuple[float, float, int]]] = defaultdict(dict)
        rows = counters.filter(pc.is_in(counters["metric"], pa.array(METRICS)))
        measured: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
        columns = ("launch", "metric", "unit", "value", "representative_of")
        for r in rows.select(columns).to_pylist() if self._key else ():
            if r["value"] is None or r["launch"] not in self._key:
                continue
            value = r["value"] * base_unit(r["unit"])[0]
            self._values[r["metric"]][r["launch"]] = value
            if r["representative_of"] is None:
                measured[r["metric"], self._key[r["launch"]]][r["launch"]] = value
        for (metric, key), of in measured.items():
            if len(of) > 1:
                width = max(of.values()) - min(of.values())
                self._kinds[metric][key] = (width, sum(of.values()) / len(of), len(of))

    def of(self, launches: Iterable[int]) -> Spread | None:
        """The spread of a row that is these launches, of the metric where it is widest; null where
        none of them has a twin."""
        numbers = list(launches)
        metrics = (m for m in METRICS if m in self._kinds)
        found = [s for m in metrics if (s := self._of(m, numbers)) is not None]
        return max(found, key=lambda s: s["relative"] or 0, default=None)

    def widest(self) -> Spread | None:
        """The kind of work whose measured launches are furthest apart."""
        kinds = {k for of in self._kinds.values() for k in of}
        alone = {self._key[n]: n for of in self._values.values() for n in of}
        found = [s for k in sorted(kinds) if (s := self.of([alone[k]])) is not None]
        return max(found, key=lambda s: s["relative"] or 0, default=None)

    def _of(self, metric: str, launches: Sequence[int]) -> Spread | None:
        values, kinds = self._values[metric], self._kinds[metric]
        known = [n for n in launches if n in values]
        twins = [kinds[self._key[n]] for n in known if self._key[n] in kinds]
        if not twins:
            return None
        wide = sum(width for width, _, _ in twins)
        alone = sum(abs(values[n]) for n in known if self._key[n] not in kinds)
        total = alone + sum(abs(mean) for _, mean, _ in twins)
        relative = wide / total if total else 0.0 if not wide else None
        number = sum(kinds[k][2] for k in {self._key[n] for n in known} if k in kinds)
        return {"relative": relative, "metric": metric, "launches": number}
