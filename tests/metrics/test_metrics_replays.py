"""A capture at the fraction against one of every launch: shares, ratios, differences by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from layerline.analysis.counters import pieces
from layerline.analysis.metrics import replay_error, replay_error_text
from layerline.core.cli.command import cli
from layerline.core.errors import InputError
from layerline.core.files import write_json
from layerline.core.replay import plan as plan_
from layerline.core.replay.plan import Launch
from layerline.core.tables import table

GRID, BLOCK = (2, 1, 1), (128, 1, 1)


def launch(index: int, layer: str) -> Launch:
    return Launch(index, "gemm", "gemm", GRID, BLOCK, 32, 0, 0, layer, 5000)


# One product in each of four blocks, all the same work; the first and the last are replayed.
PLANNED = [launch(i, f"h_{i}_attn/Gemm") for i in range(4)]


def page(path: Path, layers: list[str], values: dict[str, list[float]]) -> None:
    """NVIDIA's raw page of launches in the order given."""
    rows = [
        {"source": path.name, "launch": n, "kernel": "gemm", "layer": layer, "metric": metric,
         "value": of[n]}
        for n, layer in enumerate(layers)
        for metric, of in values.items()
    ]  # fmt: skip
    launches: list[dict[str, Any]] = [
        dict.fromkeys(("process", "process_name", "context", "stream", "device",
                       "compute_capability", "start_end_ranges"))
        | {"launch": n, "kernel": "gemm", "block": "(128, 1, 1)", "grid": "(2, 1, 1)",
           "ranges": [layer], "range_domains": ["TensorRT"]}
        for n, layer in enumerate(layers)
    ]  # fmt: skip
    path.write_text(pieces.raw_page(table("counters", rows), launches))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Launches 0 and 3 of four at the fraction; a second capture of all four."""
    fraction = tmp_path / "fp16.tensorrt.ncu.csv"
    every = tmp_path / "fp16.tensorrt.ncu-every.ncu.csv"
    names = [x.layer or "" for x in PLANNED]
    page(fraction, [names[0], names[3]], {"a.sum": [100, 80], "b.pct": [50, 50], "z.sum": [0, 0]})
    page(every, names, {"a.sum": [100, 125, 100, 80], "b.pct": [50, 50, 50, 49], "z.sum": [0] * 4})
    plan = plan_.document(
        PLANNED, {"fp16.tensorrt.ncu-rep": {0: 0, 1: 3}}, [PLANNED[0], PLANNED[3]]
    )
    write_json(tmp_path / "fp16.tensorrt.ncu.plan.json", plan)
    meta = {"inputs": {"engine": "abc"}, "options": {}, "launches": 4}
    ours = {"replayed": 2, "seconds": [6.0], "profiled_seconds": [1.0]}
    theirs = {"replayed": 4, "seconds": [8.0], "profiled_seconds": [2.5]}
    write_json(tmp_path / "fp16.tensorrt.ncu.meta.json", {**meta, **ours})
    write_json(tmp_path / "fp16.tensorrt.ncu-every.ncu.meta.json", {**meta, **theirs})
    return fraction, every


def test_shares_ratios_and_differences_are_those_worked_out_by_hand(
    pair: tuple[Path, Path],
) -> None:
    found = replay_error.comparison(*replay_error.load(*pair))
    assert (found["replayed_share"], found["profiled_ratio"], found["whole_ratio"]) == (
        0.5,
        0.4,
        0.75,
    )
    assert found["zero_in_both"] == ["z.sum"]
    # a.sum: 100/100, 100/125 = 20 % off, 100/100, 80/80; b.pct: three equal, 50 for 49.
    a, b = found["metrics"]["a.sum"], found["metrics"]["b.pct"]
    assert (a["count"], a["median"], a["p90"]) == (4, 0.0, pytest.approx(0.2))
    assert (a["worst"]["layer"], a["worst"]["relative"]) == ("h_1_attn/Gemm", pytest.approx(0.2))
    assert b["worst"]["relative"] == pytest.approx(1 / 49)
    assert [x["layer"] for x in found["beyond"]] == ["h_1_attn/Gemm"]
    assert found["beyond_layers"] == ["h_1_attn/Gemm"]
    # What both replayed: launches 0 and 3, two metrics each.
    assert (found["noise"]["count"], found["given"]["count"]) == (4, 4)
    assert found["noise"]["worst"]["relative"] == pytest.approx(1 / 49)


def test_a_metric_that_only_the_whole_capture_has_at_zero_is_beyond_any_limit() -> None:
    def one(value: float) -> pa.Table:
        row = {"source": "x", "launch": 0, "kernel": "k", "layer": "l", "metric": "m"}
        return table("counters", [{**row, "value": value}])

    (found,), zero = replay_error.differences(one(3.0), one(0.0))
    assert (found.relative, zero) == (None, [])
    made = replay_error.comparison(
        replay_error.Side("a", one(3.0), {}), replay_error.Side("b", one(0.0), {})
    )
    assert made["beyond_layers"] == ["l"] and made["differences"]["median"] is None
    assert made["replayed_share"] == 1.0 and made["profiled_ratio"] is None


def test_captures_of_different_engines_are_not_compared(pair: tuple[Path, Path]) -> None:
    meta = pair[1].with_name("fp16.tensorrt.ncu-every.ncu.meta.json")
    write_json(meta, {**json.loads(meta.read_text()), "inputs": {"engine": "other"}})
    with pytest.raises(InputError, match=r"ncu-every\.ncu\.csv: is of other inputs than"):
        replay_error.load(*pair)


def test_the_capture_at_the_fraction_comes_first(pair: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="nothing was left out of it"):
        replay_error.load(pair[1], pair[0])


def test_the_command_prints_and_writes_all(pair: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    asked = ["metrics", "compare", *map(str, pair), "-o", str(out)]
    done = CliRunner().invoke(cli, asked, env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    assert "replayed: 50.0 % of the launches (2 of 4)" in done.output
    assert "time: 40.0 % from profiler start to stop, 75.0 % with the start" in done.output
    assert "1 of 4 layers have a metric beyond 10.0 %" in done.output
    assert "zero in both, so not in these numbers: z.sum" in done.output
    assert json.loads(out.read_text())["beyond_layers"] == ["h_1_attn/Gemm"]


def _compared(metrics: int) -> dict[str, Any]:
    """Metrics of one layer each, the n-th one n percent off, and one at zero in the other only."""

    def side(by: float, zero: float) -> pa.Table:
        rows = [
            {"source": "x", "launch": 0, "kernel": "k", "layer": "l" * 300, "metric": f"m{n:02}",
             "value": 100.0 + by * n}
            for n in range(1, metrics + 1)
        ]  # fmt: skip
        rows.append({**rows[0], "metric": "gone", "value": zero})
        return table("counters", rows)

    a, b = replay_error.Side("a", side(1, 3.0), {}), replay_error.Side("b", side(0, 0.0), {})
    return replay_error.comparison(a, b, 0.1)


def test_the_metrics_that_differ_most_are_printed_and_all_when_asked() -> None:
    found = _compared(30)
    few, every = (
        list(replay_error_text.text(found)),
        list(replay_error_text.text(found, every=True)),
    )
    assert max(map(len, few[7:])) <= replay_error_text.WIDTH
    head = next(i for i, line in enumerate(few) if line.startswith("  worst"))
    rows = few[head + 1 : head + 21]
    # First what only one capture has at zero, then 30 %, 29 %, ... 12 %.
    assert rows[0].split()[0] == "unknown" and " gone " in rows[0]
    assert [line.split()[-2] for line in rows[1:]] == [f"m{n}" for n in range(30, 11, -1)]
    assert few[head + 21] == (
        "… and 11 more rows of metrics that differ less: --all prints them, -o writes all"
    )
    assert "l" * 300 not in "".join(few)
    assert sum("l" * 300 in line for line in every) > 31 and not any("--all" in x for x in every)


def test_metrics_of_one_figure_are_one_row_and_a_layer_has_one_line() -> None:
    """a and b are 30 % off in both layers, c is 15 %."""

    def side(by: float) -> pa.Table:
        rows = [
            {"source": "x", "launch": n, "kernel": "k", "layer": layer, "metric": metric,
             "value": value + by}
            for n, layer in enumerate(("h.0", "h.1"))
            for metric, value in (("a", 100.0), ("b", 100.0), ("c", 200.0))
        ]  # fmt: skip
        return table("counters", rows)

    a, b = replay_error.Side("a", side(30), {}), replay_error.Side("b", side(0), {})
    found = replay_error.comparison(a, b, 0.1)
    said = list(replay_error_text.text(found))
    rows = [" ".join(line.split()) for line in said if line.lstrip()[:2] in ("30", "15")]
    assert [r for r in rows if " h." in r and "replayed" not in r] == [
        "30.0 % 30.0 % 30.0 % 2 a and 1 more h.0",
        "15.0 % 15.0 % 15.0 % 2 c h.0",
    ]
    assert [r.split(":")[0] for r in rows if "replayed" in r] == [
        "30.0 % a and 2 more of h.0",
        "30.0 % a and 2 more of h.1",
    ]
    whole = list(replay_error_text.text(found, every=True))
    assert sum("where every launch was replayed" in line for line in whole) == 6


def test_many_metrics_that_are_zero_in_both_are_counted() -> None:
    found = {**_compared(1), "zero_in_both": [f"z{n}" for n in range(40)]}
    (line,) = [x for x in replay_error_text.text(found) if x.startswith("zero in both")]
    assert line.endswith(": z0, z1, z2 and 37 more")
