"""A plan of launches that was edited: no counters are counted twice or are another's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from layerline.analysis.counters import representatives
from layerline.core.errors import InputError


def plan() -> dict[str, Any]:
    """Three launches of one kind, of which the first was replayed, and one of another."""
    kinds = [(0, 0), (0, 0), (0, 0), (1, 3)]
    launches = [
        {
            "index": i,
            "key": key,
            "representative": of,
            "kernel": f"k{key}",
            "function": f"k{key}",
            "grid": [1, 1, 1],
            "block": [1, 1, 1],
            "layer": f"l{i}",
            "place": None,
        }
        for i, (key, of) in enumerate(kinds)
    ]
    return {"schema_version": 1, "launches": launches, "reports": {"a.ncu-rep": {"0": 0, "1": 3}}}


def set_launch(number: int, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found["launches"][number].update(values)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (set_launch(2, index=1), "launch 1 is there twice"),
        (set_launch(2, representative=9), "launch 2 is no work of launch 9"),
        (set_launch(2, representative=3), "launch 2 is no work of launch 3, which represents it"),
        (set_launch(2, place=7), r"launches\[2\]\.place is 7, not text"),
        (lambda p: p["reports"]["a.ncu-rep"].update({"1": 9}), "holds launch 9, which is not in"),
        (lambda p: p["reports"]["a.ncu-rep"].update({"1": 0}), "two launches of a.ncu-rep are one"),
    ],
)
def test_a_plan_that_does_not_agree_with_itself_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    path = tmp_path / "fp16.tensorrt.ncu.plan.json"
    path.write_text(json.dumps(plan()))
    assert representatives.load(path) == plan()
    damaged = plan()
    change(damaged)
    path.write_text(json.dumps(damaged))
    with pytest.raises(InputError, match=rf"is no plan of launches \(.*{said}"):
        representatives.load(path)
