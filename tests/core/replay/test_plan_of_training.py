"""A step of GPT-2's training on an H100: what a quarter of its launches tells of all of them.

`data/ncu/h100_train_fp16.launches.json.gz`: the 1,105 launches of one step (fp16 autocast, 1×512,
PyTorch 2.11) as planned from an nsys capture, and what ncu counted of each itself, in a capture
of every launch (`instructions`, and `bytes` of DRAM). Columns; made by `docs/results/measure.sh`.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from statistics import median
from typing import Any

import paths
import pytest

from layerline.core.replay import plan as plan_
from layerline.core.replay.plan import Launch

FILE = paths.DATA / "ncu" / "h100_train_fp16.launches.json.gz"


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    columns = json.loads(gzip.decompress(FILE.read_bytes()))
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


@pytest.fixture(scope="module")
def launches(rows: list[dict[str, Any]]) -> list[Launch]:
    made = []
    for r in rows:
        own = {k: v for k, v in r.items() if k not in ("instructions", "bytes")}
        made.append(Launch(**{**own, "grid": tuple(r["grid"]), "block": tuple(r["block"])}))
    return made


def test_a_quarter_of_the_launches_is_every_kind_of_work(launches: list[Launch]) -> None:
    plan = plan_.plan(launches)
    assert len(launches) == 1105 and plan.share <= 0.25
    assert plan_.missing(launches, [x.index for x in plan.chosen]) == []


@pytest.mark.parametrize("metric", ["instructions", "bytes"])
def test_no_module_is_told_what_it_does_not_do(
    launches: list[Launch], rows: list[dict[str, Any]], metric: str
) -> None:
    chosen = plan_.plan(launches).chosen
    told = plan_.document(launches, {"r": {x.index: x.index for x in chosen}}, chosen)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for x in told["launches"]:
        phase = (x["layer"] or "").removeprefix("layerline/phase/")
        where = x["place"].rpartition("/")[2] or phase
        sums[where][0] += rows[x["representative"]][metric]
        sums[where][1] += rows[x["index"]][metric]
    apart = {k: abs(ours - true) / max(ours, true, 1) for k, (ours, true) in sums.items()}
    assert median(apart.values()) < 0.001
    # The optimizer's kernels take lists of tensors: one grid is not always as much.
    assert {k for k, v in apart.items() if v > 0.01} <= {"optimizer"}
    assert apart["optimizer"] < 0.02
    assert abs(sum(o for o, _ in sums.values()) / sum(t for _, t in sums.values()) - 1) < 0.01
