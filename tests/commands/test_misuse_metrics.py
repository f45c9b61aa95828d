"""`layerline metrics` given the wrong files, twice the same, in the wrong order, or half of one."""

from __future__ import annotations

import gzip
import shutil
import struct
from pathlib import Path

import counter_pieces
import fraction
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from paths import DATA

from layerline.analysis.commands.metrics import metrics
from layerline.analysis.counters import pieces
from layerline.analysis.readers.ncu import report
from layerline.core.errors import InputError
from layerline.core.replay import pieces as pieces_
from layerline.core.tables import table, write_parquet

REPORT = DATA / "ncu" / "two_kernels.ncu-rep"
TINY = DATA / "ncu" / "h100_tiny.counters.parquet"
PAGE = DATA / "ncu" / "two_kernels.raw.csv"
TIME = "gpu__time_duration.sum"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(metrics, [str(a) for a in arguments])


def refused(*arguments: object) -> str:
    """What is said, by an error of the user's own."""
    result = run(*arguments)
    assert isinstance(result.exception, InputError) or result.exit_code == 2, result.exception
    return str(result.exception) if isinstance(result.exception, InputError) else result.output


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """GPT-2's counters: at the fraction, and of every launch."""
    for packed in (DATA / "h100_gpt2").glob("*ncu*"):
        target = tmp_path / packed.name.removesuffix(".gz")
        opened = gzip.open if packed.suffix == ".gz" else open
        with opened(packed, "rb") as source:
            target.write_bytes(source.read())
    return tmp_path / "fp16.tensorrt.ncu.csv", tmp_path / "fp16.tensorrt.ncu-every.ncu.csv"


def test_units_are_brought_together_before_they_are_compared(pair: tuple[Path, Path]) -> None:
    """The same numbers in another multiple of their unit differ by nothing more than before."""
    before = fraction.layers(fraction.of_captures(*pair))["apart"].loc[TIME]
    lines = pair[1].read_text().split("\n")
    units = lines[1].split('","')
    at = lines[0].split('","').index(TIME) - len(units)  # from the end: ranges look like cells
    assert units[at] == "us"
    for number, line in enumerate(lines[1:-1], 1):
        cells = line.split('","')
        cells[at] = "ms" if number == 1 else repr(float(cells[at].replace(",", "")) / 1000)
        lines[number] = '","'.join(cells)
    pair[1].write_text("\n".join(lines))
    after = fraction.layers(fraction.of_captures(*pair))["apart"].loc[TIME]
    assert len(after) == 172
    assert after.to_list() == pytest.approx(before.to_list())


@pytest.mark.parametrize("content", ["[]", "{}", "null", '{"launches": [5], "reports": {}}'])
def test_a_plan_that_is_none_is_named(pair: tuple[Path, Path], content: str) -> None:
    pair[0].with_name("fp16.tensorrt.ncu.plan.json").write_text(content)
    assert "fp16.tensorrt.ncu.plan.json: is no plan of launches" in refused("explain", pair[0])


def test_a_capture_at_the_fraction_says_so_beside_its_sums(pair: tuple[Path, Path]) -> None:
    told = run("attribute", pair[0], "-m", TIME).output
    assert "# 34 of 172 launches: the others were not replayed and are in no sum here" in told
    assert "were not replayed" not in run("attribute", pair[1], "-m", TIME).output


@pytest.mark.parametrize("command", ["attribute", "roofline", "overlay"])
def test_no_command_writes_over_what_it_reads(pair: tuple[Path, Path], command: str) -> None:
    source = pair[0].with_name("fp16.tensorrt.svg")
    shutil.copy(pair[0], source)
    before = source.read_bytes()
    given = {
        "attribute": [source, "-m", TIME],
        "roofline": [source],
        "overlay": [source, "-m", TIME, "-m", "dram__bytes.sum"],
    }[command]
    assert "is to be read and written" in refused(command, *given, "-o", source)
    assert source.read_bytes() == before


def test_a_metric_without_a_number_is_not_drawn(tmp_path: Path) -> None:
    rows = [
        {"source": "a", "kernel": "k", "launch": 0, "metric": m, "value": v, "text": t}
        for m, v, t in ((TIME, 1.0, None), ("device__name", None, "H100"))
    ]
    from layerline.core.tables import write_parquet

    write_parquet(tmp_path / "counters.parquet", table("counters", rows))
    for command in ("extract", "plot"):
        told = refused(
            command, tmp_path / "counters.parquet", "-m", "device__name", "-o", tmp_path / "out"
        )
        assert "a: has no number of device__name" in told
    assert not (tmp_path / "out").exists()


def test_a_metric_named_twice_is_one(tmp_path: Path) -> None:
    assert run("extract", TINY, "-m", TIME, "-m", f" {TIME}", "-o", tmp_path).exit_code == 0
    assert len(list(tmp_path.iterdir())) == 1
    told = refused("overlay", TINY, "-m", TIME, "-m", TIME, "-o", tmp_path / "a.svg")
    assert "at least two metrics" in told
    assert "a name is empty" in refused("explain", "-m", "")


@pytest.mark.parametrize("command", [["attribute", "-m", TIME], ["roofline"]])
def test_modules_that_nobody_told_are_no_empty_table(command: list[str], tmp_path: Path) -> None:
    page = tmp_path / "foreign.csv"
    page.write_text(PAGE.read_text().replace("layerline/module/", "somebody/"))
    assert "somebody/" in page.read_text()
    told = refused(*command, page, "--by", "module")
    assert "has no launch whose module is known; give --nodes" in told


def test_a_page_without_a_metric_of_the_roofline_is_no_empty_table(tmp_path: Path) -> None:
    """A details page with ncu's own names for its sections."""
    page = tmp_path / "details.csv"
    page.write_text(
        '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
        '"Section Name","Metric Name","Metric Unit","Metric Value"\n'
        '"0","1","a","b","k","1","7","GPU Speed Of Light","Elapsed Cycles","cycle","65,690"\n'
    )
    result = run("roofline", page)
    assert isinstance(result.exception, InputError)
    told = str(result.exception)
    assert "has none of the metrics of a roofline, not even gpu__time_duration.sum" in told
    assert "ncu --roofline" in told


def test_metrics_can_be_listed_and_errors_say_how() -> None:
    told = run("list", TINY).output.splitlines()
    assert f"{TIME}\tns\t84" in told and len(told) == 4
    assert "`layerline metrics list` shows all" in refused("overlay", TINY, "-o", "a.svg")
    assert "`layerline metrics list`" in refused("attribute", TINY, "-m", "no_such_metric")


def test_a_network_without_nodes_is_not_ignored(tmp_path: Path) -> None:
    told = refused("attribute", PAGE, "-m", TIME, "--network", tmp_path / "network.json")
    assert "give --nodes too" in told


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9, 0.99999])
def test_a_report_that_was_cut_short_is_refused(tmp_path: Path, kept: float) -> None:
    """NVIDIA's library reads what is left of it without a word."""
    data = REPORT.read_bytes()
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(InputError, match=r"is cut short: \d+ bytes"):
        report._results(path)


def test_a_whole_report_says_how_many_results_it_holds() -> None:
    assert report._results(REPORT) == 3
    pytest.importorskip("ncu_report")
    assert report.read(REPORT).facts["launches"] == 3


def test_nothing_is_said_of_a_report_that_is_built_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "new.ncu-rep"
    path.write_bytes(b"NVR\x00" + struct.pack("<I", 1 << 31) + b"something else")
    assert report._results(path) is None


def pieces_of(*units: str) -> tuple[pieces_.Manifest, dict[str, pa.Table]]:
    """Pieces of a launch each, which print a metric in these units."""
    manifest, tables = pieces_.Manifest("key", pieces_.Cut(1, None), None), {}
    for n, unit in enumerate(units):
        file = f"{n}.ncu-rep"
        row = {"source": file, "kernel": "k", "launch": 0, "metric": "m.sum", "unit": unit}
        tables[file] = table("counters", [{**row, "value": n + 2.0}])
        manifest.put(pieces_.Taken(pieces_.Piece(n, 1, 0), "done", "key", file, "", 1))
    return manifest, tables


def test_pieces_in_other_multiples_of_a_unit_are_put_together_in_its_base() -> None:
    rows = pieces.recombine(*pieces_of("Kbyte", "Mbyte"), "a").to_pylist()
    assert [(r["launch"], r["unit"], r["value"]) for r in rows] == [
        (0, "byte", 2000), (1, "byte", 3000000),
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"m\.sum in units that cannot be compared \(byte, ns\)"):
        pieces.recombine(*pieces_of("byte", "ns"), "a")


@pytest.mark.parametrize("command", ["extract", "plot"])
def test_metrics_that_would_share_a_file_are_refused_before_any_is_written(
    command: str, tmp_path: Path
) -> None:
    rows = [{"launch": 0, "kernel": "k", "unit": "byte", "metric": m, "value": 1.0}
            for m in ("a.sum", "a_sum", "b.sum")]  # fmt: skip
    write_parquet(tmp_path / "counters.parquet", table("counters", rows))
    said = refused(command, tmp_path / "counters.parquet", "-o", tmp_path / "out")
    assert "a.sum and a_sum would be one file there" in said
    assert not (tmp_path / "out").exists()


# --- pieces -------------------------------------------------------------------------------------


def test_one_piece_of_a_capture_says_that_it_is_one(tmp_path: Path) -> None:
    folder = tmp_path / "fp16.tensorrt.ncu-every.ncu.batches"
    folder.mkdir()
    piece = Path(shutil.copy(PAGE, folder / "launches-3.part-0.csv"))
    said = run("attribute", piece, "-m", TIME)
    assert said.exit_code == 0
    assert "# 3 launches: one piece of a capture; what the others hold is in no sum" in said.stdout
    assert "It is one piece of a capture" in run("list", piece).stderr
    (folder / "manifest.json").write_text("{}")
    for named in (folder, folder / "manifest.json"):
        assert "manifest.json: is no manifest of pieces" in refused("list", named)


def test_a_capture_in_pieces_is_one_capture(tmp_path: Path) -> None:
    folder = tmp_path / "fp32.tensorrt.ncu-every.ncu.batches"
    folder.mkdir()
    counter_pieces.pages(folder, 3)
    whole = [run("list", named).stdout for named in (folder, folder / "manifest.json")]
    assert whole[0] == whole[1]
    assert f"{TIME}\tns\t84" in whole[0]


def test_a_second_metric_is_not_silently_the_only_one() -> None:
    said = refused("attribute", PAGE, "-m", TIME, "-m", "sm__cycles_active.avg")
    assert f"one metric at a time: {TIME} or sm__cycles_active.avg" in said
    assert run("attribute", PAGE, "-m", TIME, "-m", TIME).exit_code == 0
    assert "a name is empty" in refused("attribute", PAGE, "-m", "")
