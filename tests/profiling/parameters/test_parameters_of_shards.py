"""Shards of FSDP2 on two ranks: each counts its own, and together they are the model's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from layerline.analysis.captures import parameters as captured
from layerline.core.run import open_run
from layerline.core.tables import read_parquet

RANKS = 2


@pytest.mark.slow
def test_ranks_count_their_own_shards(tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()
    script = ROOT / "tests/support/ranks/sharded_training.py"
    ranks = [
        subprocess.Popen([sys.executable, "-P", str(script), str(captures), str(r), str(RANKS)])
        for r in range(RANKS)
    ]
    try:
        assert [process.wait(timeout=280) for process in ranks] == [0] * RANKS
    finally:
        for process in ranks:
            process.kill()
    by_copies = [json.loads((captures / f"{r}.json").read_text()) for r in range(RANKS)]
    for rank, copied in enumerate(by_copies):
        assert copied["same"]
        table = read_parquet(
            captures / f"train.fp32.rank000{rank}.parameters.parquet", "parameters"
        )
        assert set(table["sharded"].to_pylist()) == {True}
        assert set(table["rank"].to_pylist()) == {rank}
        changed = table["changed"].to_numpy().reshape(len(copied["counts"]), -1)
        assert changed.tolist() == copied["counts"]
        assert table["elements"].to_pylist()[: len(copied["sizes"])] == copied["sizes"]
    (whole,) = captured.of_run(open_run(tmp_path))
    assert [p.path for p in whole.parameters][:2] == ["0.weight", "0.bias"]
    for p in whole.parameters:
        size = 1
        for side in p.shape:
            size *= side
        assert p.elements == size
    first = [sum(c["counts"][0][i] for c in by_copies) for i in range(len(whole.parameters))]
    assert whole.figures["changed"][0].tolist() == first
