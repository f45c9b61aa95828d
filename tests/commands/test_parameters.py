"""`layerline parameters`: from runs, tables and logs to an answer, a table, a chart and a page."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from parameter_runs import MODEL, index, log, table

from layerline.core.cli.command import main
from layerline.core.tables import read_parquet

COUNTS = [[40, 0, 20, 0, 20, 0], [40, 0, 18, 0, 20, 0]]


def run(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["parameters", *map(str, arguments)])
    out = capfd.readouterr()
    return int(ended.value.code or 0), out.out, out.err


def test_the_answer_comes_first_and_the_table_of_the_run_is_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for precision in ("bf16", "fp32"):
        table(tmp_path / f"captures/train.{precision}.parameters.parquet", COUNTS)
    code, out, _ = run(capfd, tmp_path)
    assert code == 0
    assert out.splitlines()[0] == "train.fp32.parameters.parquet:"
    assert out.splitlines()[1].startswith("2 of 5 trained parameters are cold")
    written = read_parquet(tmp_path / "tables/parameters.parquet", "parameters")
    assert len(written) == 2 * 2 * len(MODEL)


def test_every_output_is_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path / "a.parquet", COUNTS)
    outputs = [tmp_path / f"out{suffix}" for suffix in (".csv", ".svg", ".png", ".html")]
    for flag, output in zip(("-o", "--plot", "--plot", "--page"), outputs, strict=True):
        assert run(capfd, path, flag, output)[0] == 0
        assert output.stat().st_size > 100
    ranking = pd.read_csv(outputs[0])
    assert ranking["parameter"].tolist()[:2] == ["h.0.ln.weight", "h.1.ln.weight"]
    assert ranking["state"].tolist()[:2] == ["never touched"] * 2
    assert "layer norm weight" in outputs[1].read_text()


def test_the_page_holds_what_it_was_given_as_text(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    evil = [("<script>alert(1)</script>.0.weight", "Linear", (2, 2), {})]
    path, page = table(tmp_path / "a.parquet", [[4]], evil), tmp_path / "p.html"
    assert run(capfd, path, "--page", page)[0] == 0
    assert "<script" not in page.read_text()
    assert "&lt;script&gt;" in page.read_text()


def test_several_logs_are_seen_together(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    about = index(tmp_path / "parameters.index.json")
    logs = [log(tmp_path / f"parameter_changes{n}.log", COUNTS) for n in range(2)]
    code, out, _ = run(capfd, *logs, "--by", "parameter")
    assert (code, out.count("trained parameters are cold")) == (0, 2)
    assert "h.0.ln.weight" in out  # of the index that lies beside them
    about.unlink()
    code, out, _ = run(capfd, *logs)
    assert code == 0
    assert "no index of parameters" in out


def test_logs_of_different_models_are_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    index(tmp_path / "a.parameters.index.json")
    index(tmp_path / "b.parameters.index.json", MODEL[:4])
    one = log(tmp_path / "a.parameter_changes.log", COUNTS)
    other = log(tmp_path / "b.parameter_changes.log", [c[:4] for c in COUNTS])
    code, _, err = run(capfd, one, other)
    assert code == 2
    assert err.startswith(f"error: {other}: is not of the model of {one}: it has 4 parameters")
    assert "Traceback" not in err


def test_captures_of_one_name_are_told_apart_by_their_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runs, name = [tmp_path / "slow", tmp_path / "fast"], "train.fp32.parameters.parquet"
    for folder in runs:
        table(folder / "captures" / name, COUNTS)
    ranking = tmp_path / "ranking.csv"
    code, out, _ = run(capfd, *runs, runs[1] / "captures" / name, "-o", ranking)
    labels = [*(f"{folder}, {name}" for folder in runs), str(runs[1] / "captures" / name)]
    assert code == 0 and [line[:-1] for line in out.splitlines() if line.endswith(":")] == labels
    assert pd.read_csv(ranking)["source"].unique().tolist() == labels


def test_a_resumed_log_is_an_error_until_its_reader_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path / "a.log", COUNTS)
    path.write_text(path.read_text() * 2)
    code, _, err = run(capfd, path)
    assert (code, "--resumed" in err) == (2, True)
    assert run(capfd, path, "--resumed")[0] == 0


@pytest.mark.parametrize("name", ["a.txt", "a.json"])
def test_other_files_are_refused(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(json.dumps({"a": 1}))
    code, _, err = run(capfd, path)
    assert code == 2
    assert "holds no changes of parameters" in err


def test_a_run_without_such_captures_says_how_to_make_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "captures").mkdir()
    code, _, err = run(capfd, tmp_path)
    assert code == 2
    assert "--profile parameters" in err


def test_a_log_with_a_number_that_is_no_parameters_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.log"
    path.write_text("1700000000.5, 1: 0:3 99999999999:5\n")
    code, _, err = run(capfd, path)
    assert code == 2 and "names parameter 99,999,999,999 in 1 iterations" in err


def test_a_log_in_which_nothing_changes_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.log"
    path.write_text("1700000000.5, 1:\n1700000001.5, 2:\n")
    code, out, _ = run(capfd, path)
    assert code == 0 and "No parameter is named: none changed in 2 steps." in out
