"""An engine built twice: both are measured in the same loads, one after the other."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from layerline.core.files import read_json
from layerline.core.run import Run
from layerline.profile.engine import rebuild
from layerline.profile.engine.measure import Plan


class Builder:
    """A backend whose second engine is other bytes."""

    name = "tensorrt"

    def build(self, run: Run, precision: str, options: dict[str, Any]) -> None:
        assert options == {"level": 3, "timing_cache": None}
        self.engine(run, precision).write_bytes(b"second")

    def engine(self, run: Run, precision: str) -> Path:
        return run.path / f"{precision}.engine"


def test_loads_alternate_and_their_own_spread_is_no_difference_of_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    for folder in ("export", "captures"):
        run.file(folder).mkdir()
    built = tmp_path / "fp16.engine"
    built.write_bytes(b"first")
    of = SimpleNamespace(
        run=run,
        backend=Builder(),
        precision="fp16",
        engine=built,
        record={"options": {"level": 3, "timing_cache": "old"}},
        capture=lambda suffix: run.file("captures", f"fp16.tensorrt{suffix}"),
    )
    seen: list[bytes] = []
    # The first load of each engine is 20 slower than the others; the second engine is 2 faster.
    loads = iter([120, 118, 100, 98, 100, 98])

    def latency(of: Any, engine: Path, plan: Plan) -> list[int]:
        seen.append(engine.read_bytes())
        return [next(loads)] * 6

    monkeypatch.setattr(rebuild, "_latency", latency)
    plan = Plan(most=6, target=0.02, seconds=1.0, processes=3)
    facts = rebuild.rebuild(of, plan)  # type: ignore[arg-type]
    found = read_json(run.file("captures", "fp16.tensorrt.rebuild.json"))
    assert seen == [b"first", b"second"] * 3
    assert facts == {"relative_difference": 0.02, "equal_engines": False}
    assert found["latency_ns"] == [120] * 6 + [100] * 12
    assert found["rebuilt_latency_ns"] == [118] * 6 + [98] * 12
    assert [p["n"] for p in found["processes"]] == [6, 6, 6]
    assert (found["summary"]["median"], found["rebuilt_summary"]["median"]) == (100, 98)
    assert not run.file("rebuild").exists()
