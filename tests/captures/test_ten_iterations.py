"""A capture of ten inferences, the default: the tiny engine's one inference, ten times over.

The copies lie 1 ms apart, and the kernels of copy k take k ns longer, so the median of each is the
first one's and 4.5 ns (numpy's rounding to even: 4 or 5).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from captured import engine_of
from click.testing import CliRunner
from h100_tiny import PRECISIONS, write_run

from layerline.core.cli.command import cli
from layerline.core.files import read_json, write_json
from layerline.core.run import Run
from layerline.profile.engine import trace

APART = 1_000_000
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.fixture
def ten(tmp_path: Path) -> Run:
    run = write_run(tmp_path / "run")
    for precision in PRECISIONS:
        path = run.file("captures", f"{precision}.tensorrt.sqlite")
        with sqlite3.connect(path) as database:
            repeat(database)
        database.close()
        meta = run.file("captures", f"{precision}.tensorrt.trace.meta.json")
        document = read_json(meta)
        (once,) = document["latency_ns"]
        write_json(meta, {**document, "latency_ns": [once + k for k in range(trace.ITERATIONS)]})
    return run


def repeat(database: sqlite3.Connection) -> None:
    """Nine copies of everything that took time."""
    tables = database.execute("select name from sqlite_master where type = 'table'").fetchall()
    for (table,) in tables:
        columns = [row[1] for row in database.execute(f'pragma table_info("{table}")')]
        if {"start", "end"} - {*columns}:
            continue
        (rows,) = database.execute(f'select max(rowid) from "{table}"').fetchone()
        for k in range(1, trace.ITERATIONS):
            changed = {
                "start": f"start + {k * APART}",
                "end": f'"end" + {k * APART + (k if table == KERNELS else 0)}',
                "correlationId": f"correlationId + {k * 100_000}",
            }
            values = ", ".join(changed.get(c, f'"{c}"') for c in columns)
            copied = f'select {values} from "{table}" where rowid <= {rows}'
            database.execute(f'insert into "{table}" {copied}')


def test_layers_have_a_median_and_an_interval_and_the_checks_hold(ten: Run, tmp_path: Path) -> None:
    once = engine_of(write_run(tmp_path / "once"), "fp16").sides[0]
    side = engine_of(ten, "fp16").sides[0]
    checks = {c.name: c.ok for c in side.side.checks}
    assert checks == {c.name: c.ok for c in once.side.checks} and checks["i"] is True
    assert side.side.traced.n == 10 and side.side.traced.low is not None
    rows = {r["layer"]: r for r in side.layers.to_pylist()}
    for row in once.layers.to_pylist():
        found = rows.pop(row["layer"])
        assert found["modules"] == row["modules"] and found["rule"] == row["rule"]
        assert found["calls"] == 10 * row["calls"]
        assert 4 <= found["median_ns"] - row["median_ns"] <= 5 * row["kernels"]
        assert row["median_ns"] <= found["ci_low_ns"] < found["median_ns"] < found["ci_high_ns"]
    assert not rows


def test_the_report_gives_intervals(ten: Run) -> None:
    done = CliRunner().invoke(cli, ["report", "--run", str(ten.path)])
    assert done.exit_code in (0, 1), done.output
    text = ten.file("report", "report.md").read_text()
    assert "no interval, n" not in text and "(438 µs, n 10)" in text
