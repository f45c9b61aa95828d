"""Grid, block, registers and shared memory of a trace's kernels, and which events have none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from layerline.analysis.readers.torch.events import DRAWN, OP, Geometry, read_events


def kernel(correlation: int, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": correlation, "dur": 1,
        "args": {"correlation": correlation, **args},
    }  # fmt: skip


def told(path: Path) -> list[Geometry | None]:
    events = read_events(path)
    return [None if code < 0 else events.geometries[code] for code in events.geometry.tolist()]


SMALL = {"grid": [2, 1, 1], "block": [64, 1, 1], "registers per thread": 30, "shared memory": 48}
EVENTS = [
    kernel(1, **SMALL),
    kernel(2, grid=[3, 1, 1], block=[32, 1, 1]),
    kernel(3, **SMALL),
    kernel(4),
    kernel(5, grid=["three"], block=[1, 1, 1]),
    kernel(6, grid=[1, 1, 1]),
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 9},
]
WANTED = [
    Geometry((2, 1, 1), (64, 1, 1), 30, 48),
    Geometry((3, 1, 1), (32, 1, 1), None, None),
    Geometry((2, 1, 1), (64, 1, 1), 30, 48),
    None,
    None,
    None,
    None,
]


@pytest.mark.parametrize("strict", [True, False])
def test_geometry_comes_with_the_events(tmp_path: Path, strict: bool) -> None:
    """Also of a file that is no strict JSON: an event of the same list has a bare NaN."""
    text = json.dumps({"traceEvents": EVENTS})
    if not strict:
        text = text.replace('"ts": 0', '"ts": 0, "weight": NaN')
    path = tmp_path / "t.json"
    path.write_text(text)
    assert told(path) == WANTED


def test_what_is_drawn_keeps_its_columns_together(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [EVENTS[-1], *EVENTS[:-1]]}))
    drawn = read_events(path).only(DRAWN)
    assert OP not in drawn.kind
    assert drawn.correlation.tolist() == [1, 2, 3, 4, 5, 6]
    assert drawn.start.tolist() == [1000, 2000, 3000, 4000, 5000, 6000]
    assert [drawn.geometries[c] for c in drawn.geometry[:2]] == WANTED[:2]
