"""`layerline read` answers what is slow: sums on a terminal and in a pipe."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import paths
import pytest
from click.testing import CliRunner
from rich.console import Console

from layerline.analysis.commands import read as read_
from layerline.analysis.report.listing import columns, grid
from layerline.core.stats import Estimate

CAPTURE = paths.DATA / "nsys" / "h100_tensorrt86_fp16.sqlite"
TRACE = paths.DATA / "h100_train_l2.trace.json.gz"
PAGE = paths.DATA / "ncu" / "known_flop.raw.csv"


def rows(*arguments: object) -> list[dict[str, str]]:
    """The first table that is printed into a pipe, as ``cut -s`` and a script see it."""
    out = CliRunner().invoke(read_.read, [str(a) for a in arguments], catch_exceptions=False).stdout
    lines = [line.split("\t") for line in out.splitlines() if "\t" in line]
    heads = [line for line in lines if line[0].strip() == "total ms"]
    first = lines[: lines.index(heads[1], 1)] if len(heads) > 1 else lines
    return [
        dict(zip(map(str.strip, first[0]), map(str.strip, line), strict=True)) for line in first[1:]
    ]


def test_kernels_of_a_capture_add_up_to_its_time() -> None:
    found = rows(CAPTURE, "--by", "kernel", "--top", "1000")
    # nvtxkernsum counts 1142457 ns in enqueues; 5 operations of 60460728 ns lie outside.
    assert round(sum(float(r["total ms"]) for r in found) * 1e6) <= 1142457 + 60460728
    assert [float(r["total ms"]) for r in found] == sorted(
        (float(r["total ms"]) for r in found), reverse=True
    )
    layers = {r["name"]: r for r in rows(CAPTURE, "--by", "layer", "--top", "1000")}
    assert layers["lm_head/MatMul_matrix_multiply"]["total ms"] == "0.255365"
    assert round(sum(float(r["total ms"]) for r in layers.values()) * 1e6) == 1142457


def test_a_trace_by_operator_and_sorted_by_calls() -> None:
    found = rows(TRACE, "--by", "operator", "--sort", "calls", "--top", "3")
    assert len(found) == 3
    counts = [int(r["calls"]) for r in found]
    assert counts == sorted(counts, reverse=True)
    by_name = rows(TRACE, "--sort", "name", "--top", "10000")
    assert [r["name"] for r in by_name] == sorted(r["name"] for r in by_name)


def test_durations_of_ncu_are_summed_by_kernel() -> None:
    found = rows(PAGE, "--by", "kernel")
    assert sum(int(r["calls"]) for r in found) == 7
    assert found[0]["total ms"] == "0.060224"


@pytest.mark.parametrize(
    ("file", "by", "fix"),
    [(TRACE, "layer", "engine"), (CAPTURE, "operator", "emit_nvtx"), (PAGE, "module", "--nodes")],
)
def test_what_a_file_does_not_tell_is_said_with_what_would(file: Path, by: str, fix: str) -> None:
    result = CliRunner().invoke(read_.read, [str(file), "--by", by], standalone_mode=False)
    assert result.return_value == 2
    assert f"does not tell the {by}" in result.stderr and fix in result.stderr


@pytest.mark.parametrize("option", [("--by", "name"), ("--top", "3"), ("--sort", "calls")])
def test_options_of_sums_are_not_ignored_where_rows_are_asked_for(
    option: tuple[str, str], tmp_path: Path
) -> None:
    for more in (["--rows", "3"], ["-o", str(tmp_path / "o.csv")]):
        result = CliRunner().invoke(read_.read, [str(PAGE), *option, *more])
        assert result.exit_code == 2 and f"{option[0]} is of no use" in result.output


def test_a_table_without_times_shows_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"Layers": ["a", "b"], "Bindings": ["x"]}))
    out = CliRunner().invoke(read_.read, [str(path)], catch_exceptions=False).stdout
    assert "layer" in out and "total ms" not in out


def printed(width: int, *columns: grid.Column) -> list[str]:
    console = Console(
        width=width, file=io.StringIO(), force_terminal=True, highlight=False, color_system=None
    )
    grid.show(console, columns)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def test_names_lose_what_they_have_in_common_before_what_tells_them_apart() -> None:
    long = "sm80_xmma_fprop_implicit_gemm_indexed_wt_format_region_tilesize"
    tiles = ("64x64", "128x128", "256x64")
    names = [f"{long}{tile}_nhwc_kernel_trt" for tile in tiles]
    lines = printed(40, grid.Column("n", ["1", "2", "3"]), grid.Column("name", names, False, True))
    assert max(map(len, lines)) <= 40 and len(set(lines)) == 4
    for tile, line in zip(tiles, lines[1:], strict=True):
        assert tile in line


def test_figures_are_whole_however_narrow_and_what_goes_is_said() -> None:
    total = grid.Column("total", ["1,234,567.890"])
    spare = grid.Column("calls", ["123,456"], spare=1)
    name = grid.Column("name", ["x" * 200], False, True)
    lines = printed(20, total, spare, name)
    assert "1,234,567.890" in lines[1] and "123,456" not in lines[1]
    assert lines[-1] == "left out for the width: calls"


def test_an_interval_without_a_median_is_none() -> None:
    assert columns.half_width(Estimate()) == "–"
    assert columns.half_width(Estimate(100, 90, 130)) == "±30.0 %"


def test_errors_of_files_do_not_keep_others_from_being_read(tmp_path: Path) -> None:
    arguments: list[Any] = [tmp_path / "none", PAGE, "--by", "kernel"]
    result = CliRunner().invoke(read_.read, [str(a) for a in arguments], standalone_mode=False)
    assert result.return_value == 2
    assert "0.060224" in result.stdout
