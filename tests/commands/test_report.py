"""`layerline report` on a run directory written by hand: every number worked out beforehand.

One engine with three nodes and two measured runs, one eager inference with two iterations.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_by_hand import onnxruntime_profile, outcome, write_run

from layerline.core.files import sha256, write_json
from layerline.core.tables import read_parquet


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "tiny"
    write_run(path)
    assert outcome("report", "--run", path) == 0
    return path


def summary(path: Path) -> Any:
    return json.loads((path / "report/summary.json").read_text())


def test_all_files_are_there(reported: Path) -> None:
    for name in ("index.html", "report.md", "summary.md", "layers.csv", "summary.json"):
        assert (reported / "report" / name).stat().st_size > 100, name
    for name in ("ops", "layers", "latency", "modules"):
        assert read_parquet(reported / "tables" / f"{name}.parquet", name).num_rows > 0


def test_engine_figures(reported: Path) -> None:
    figures = summary(reported)["engines"]["fp16.onnxruntime"]
    assert figures["latency_median_ns"] == 950_000
    assert figures["operation_ns"] == (900_000 + 940_000) // 2
    assert figures["coverage"] == 1.0 and figures["unresolved_ns"] == 0
    assert figures["precision_run"] == {"fp32": 1.0}
    assert figures["parity"]["max_abs"] == 0.5 and figures["parity"]["random_weights"] is True


def test_engine_checks(reported: Path) -> None:
    checks = summary(reported)["engines"]["fp16.onnxruntime"]["closure"]
    # The warm-up is in neither sum: (300 + 100 + 500 + 310 + 110 + 520) us.
    first = checks["i"]
    assert first["ok"] is True and first["terms"]["node in the raw capture"] == 1_840_000
    # Run 1: 1015 us, of which the operations span 940: 75 us are outside (of 100 us allowed);
    # run 0: 1010 - 900 = 110. The lower of two is the median that is shown.
    second = checks["ii"]
    assert (second["ok"], second["residual_ns"]) == (True, 75_000)
    assert second["terms"]["operations"] == second["terms"]["span"] == 940_000
    # Traced 1012.5 us against 950 us: 6.6 %.
    assert (checks["iii"]["ok"], checks["iii"]["residual_ns"]) == (True, 62_500)


def test_module_bounds_and_eager_times(reported: Path) -> None:
    modules = summary(reported)["modules"]
    engine = modules["engine/fp16.onnxruntime/inference"]
    assert (engine["a"]["own_ns"], engine["a"]["shared_ns"]) == (305_000, 105_000)
    assert (engine["b"]["own_ns"], engine["b"]["shared_ns"]) == (510_000, 105_000)
    assert (engine[""]["own_ns"], engine[""]["shared_ns"]) == (920_000, 0)
    eager = modules["eager/fp32/inference"]
    assert eager["a"]["own_ns"] == 1_400_000  # linear's self time and addmm's: counted once
    assert eager["b"]["own_ns"] == 1_000_000 and eager[""]["own_ns"] == 2_400_000


def test_eager_checks_and_time_outside_operators(reported: Path) -> None:
    checks = summary(reported)["eager"]["fp32.inference"]["closure"]
    assert checks["i"]["terms"]["op in the raw capture"] == 4_800_000
    assert checks["i"]["ok"] is True
    assert checks["ii"]["terms"] == {
        "operators": 2_400_000,
        "outside operators": 590_000,
        "inference": 2_990_000,
    }
    assert (checks["iii"]["ok"], checks["iii"]["residual_ns"]) == (True, 90_000)


def test_the_ratio_is_of_unprofiled_latencies(reported: Path) -> None:
    (ratio,) = summary(reported)["ratios"]
    assert ratio["ratio"] == pytest.approx(2_900 / 950)


def test_the_record_knows_every_file_and_what_was_skipped(reported: Path) -> None:
    record = json.loads((reported / "run.json").read_text())
    assert record["title"] == "tiny, 1×8" and record["versions"]["torch"] == "2"
    for name in ("report/index.html", "tables/ops.parquet"):
        assert record["files"][name] == sha256(reported / name)
    assert "training in fp16" in (reported / "report/report.md").read_text()


def test_again_it_is_up_to_date_and_loads_no_tables(reported: Path) -> None:
    before = (reported / "report/index.html").stat().st_mtime_ns
    code = (
        "import sys; from layerline.core.cli.command import main\n"
        f"try: main(['report', '--run', {str(reported)!r}])\n"
        "except SystemExit as e: assert not e.code, e.code\n"
        "assert not {'pandas', 'pyarrow', 'jinja2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True)
    assert (reported / "report/index.html").stat().st_mtime_ns == before


def test_the_summary_alone_is_printed_for_a_pull_request(
    reported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome("report", "--run", reported, "--summary") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "### tiny, 1×8" and len(lines) <= 25
    assert any(line.startswith("| **eager fp32**") for line in lines)
    assert lines == (reported / "report/summary.md").read_text().splitlines()


def test_a_changed_capture_makes_it_stale(reported: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(reported, run)
    latency = run / "captures/fp16.onnxruntime.latency.json"
    write_json(latency, {"latency_ns": [1_900_000] * 6})
    assert outcome("report", "--run", run) == 0
    assert summary(run)["engines"]["fp16.onnxruntime"]["latency_median_ns"] == 1_900_000


def test_an_engine_that_was_not_profiled_is_skipped_by_name(reported: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(reported, run)
    for path in (run / "captures").glob("fp16.*"):
        path.unlink()
    assert outcome("report", "--run", run) == 0
    assert summary(run)["engines"] == {}
    assert "the engine was built but not profiled" in (run / "report/report.md").read_text()


def test_a_profile_that_misses_runs_is_not_joined_to_latencies(
    reported: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(reported, run)
    path = run / "captures/fp16.onnxruntime.profile.json"
    path.write_text(json.dumps(onnxruntime_profile()[:-4]))
    assert outcome("report", "--run", run) == 0
    checks = summary(run)["engines"]["fp16.onnxruntime"]["closure"]
    assert checks["ii"]["ok"] is None and checks["iii"]["ok"] is None


def test_nothing_captured_says_what_to_do(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "run").mkdir()
    assert outcome("report", "--run", tmp_path / "run") == 2
    assert "layerline profile measures it" in capsys.readouterr().err
