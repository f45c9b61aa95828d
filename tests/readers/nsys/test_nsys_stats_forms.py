"""What `nsys stats --format csv` prints, in the forms of 2020 to 2026; other forms are refused."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerline.analysis.readers import registry
from layerline.analysis.readers.base import Artefact, Head
from layerline.analysis.readers.nsys.stats import sniff
from layerline.core.errors import InputError

PROCESSING = "Processing [c.sqlite] with [/opt/nsys/reports/{}.py]... \n"
SUMMARY = ("Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Med (ns)", "Min (ns)")
SUMMARY += ("Max (ns)", "StdDev (ns)", "Name")
GEMM = ("75.0", "3,000,300", "2", "1,500,150.0", "1,500,150.0", "100", "3,000,200", "70.7")
GEMM += ("void gemm<int, 2>(float *, float *)",)
RELU = ("25.0", "1,000,100", "1", "1,000,100.0", "1,000,100.0", "1,000,100", "1,000,100", "0.0")
RELU += ("relu  of two  spaces",)


def as_csv(heading: Any, *rows: Any, delimiter: str = ",") -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", delimiter=delimiter)
    writer.writerow(heading)
    writer.writerows([[v.replace(",", "") for v in row[:-1]] + [row[-1]] for row in rows])
    return out.getvalue()


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(text: str, name: str = "stats.txt") -> Artefact:
        path = tmp_path / name
        path.write_text(text)
        artefact = registry.read(path)
        assert artefact.kind == "nsys-stats"
        return artefact

    return read


def rows(artefact: Artefact) -> list[dict[str, Any]]:
    return artefact.main.to_pylist()


def test_2020_headings_without_a_space_or_a_unit(read: Any) -> None:
    text = (
        "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\n60.0,30,2,15.0,10,20,k\n"
    )
    row = rows(read(text))[0]
    assert (row["share"], row["total_ns"], row["calls"], row["name"]) == (0.6, 30, 2, "k")
    assert (row["average_ns"], row["min_ns"], row["max_ns"]) == (15.0, 10, 20)


def test_a_column_without_a_unit_has_that_of_the_total(read: Any) -> None:
    row = rows(read("Time(%),Total Time(us),Instances,Average,Name\n60.0,30,2,15.5,k\n"))[0]
    assert (row["total_ns"], row["average_ns"], row["calls"]) == (30_000, 15_500.0, 2)


def test_announcements_of_2020_and_2021(read: Any) -> None:
    text = "Using c.sqlite for SQL queries.\n"
    text += "Running [/opt/nsys/reports/nvtxsum.py c.sqlite]... SKIPPED: no NVTX data.\n\n"
    text += "Running [/opt/nsys/reports/cudaapisum.py c.sqlite]... \n\n"
    text += as_csv(("Time(%)", "Total Time (ns)", "Name"), ("100.0", "1200", "cudaMalloc"))
    text += "\nExporting [/opt/nsys/reports/gputrace.py c.sqlite] to console... \n\n"
    trace = ("Start(sec)", "Duration(nsec)", "Thru(MB/s)", "Device", "Name")
    text += as_csv(trace, ("0.355442", "5120", "1.195", "A100 (0)", "[CUDA memcpy DtoH]"))
    artefact = read(text)
    assert artefact.facts["reports"] == ["cudaapisum", "gputrace"]
    assert artefact.notes == ["nsys had no data for nvtxsum"]
    assert artefact.tables["gputrace"].to_pylist() == [
        {
            "Start(sec)": 0.355442,
            "Duration(nsec)": 5120,
            "Thru(MB/s)": 1.195,
            "Device": "A100 (0)",
            "Name": "[CUDA memcpy DtoH]",
        }
    ]


def test_a_log_with_the_programs_own_tables(read: Any) -> None:
    own = "-----  --------\n Name  CPU time\n-----  --------\nmm     1.5ms\n-----  --------\n"
    text = f"Collecting data...\n{own}Generating '/tmp/nsys-report.qdstrm'\n"
    text += "[1/4] [========================100%] c.nsys-rep\n"
    text += "[2/4] Executing 'nvtx_sum' stats report\n"
    text += "SKIPPED: c.sqlite does not contain NV Tools Extension (NVTX) data.\n"
    text += "[3/4] Executing 'cuda_gpu_kern_sum' stats report\n\n" + as_csv(SUMMARY, GEMM)
    text += "\nGenerated:\n    /home/c.nsys-rep\n    /home/c.sqlite\n"
    artefact = read(text)
    assert artefact.facts == {"reports": ["cuda_gpu_kern_sum"], "lines_of_other_output": 11}
    assert [r["name"] for r in rows(artefact)] == [GEMM[-1]]
    assert artefact.notes == ["nsys had no data for nvtx_sum"]


def test_a_title_before_csv_is_no_row(read: Any) -> None:
    text = " ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n" + as_csv(SUMMARY, GEMM)
    text += "\n ** CUDA API Summary (cuda_api_sum):\n\n" + as_csv(SUMMARY, RELU)
    artefact = read(text)
    assert artefact.facts == {"reports": ["cuda_gpu_kern_sum", "cuda_api_sum"]}
    assert [r["report"] for r in rows(artefact)] == ["cuda_gpu_kern_sum", "cuda_api_sum"]


def test_notices_before_a_table_are_no_headings(read: Any) -> None:
    text = "NOTICE: Existing SQLite export found: c.sqlite\n"
    text += "        It is assumed file was previously exported from: a, b.nsys-rep\n\n"
    text += PROCESSING.format("mine") + "WARNING: this, that\nGroup,Cost\nattn,5\n"
    artefact = read(text)
    assert artefact.tables["mine"].to_pylist() == [{"Group": "attn", "Cost": 5}]
    assert artefact.facts["lines_of_other_output"] == 3


COLUMNS = """\
 Time (%)  Total Time (ns)  Instances           Name
 --------  ---------------  ---------  -----------------------
     75.0        3,000,300          2  void gemm<int, 2>(float)
     25.0        1,000,100          1  relu
"""
BOXES = """\
+----------+-----------------+-----------+--------------------------+
| Time (%) | Total Time (ns) | Instances |           Name           |
+----------+-----------------+-----------+--------------------------+
|     75.0 |       3,000,300 |         2 | void gemm<int, 2>(float) |
+----------+-----------------+-----------+--------------------------+
"""
OF_2019 = """\
Generating CUDA Kernel Statistics...
CUDA Kernel Statistics (nanoseconds)

Time(%)      Total Time   Instances         Average  Name
-------  --------------  ----------  --------------  ----------------------
   75.0         3000300           2       1500150.0  void gemm<int, 2>(float)
"""


@pytest.mark.parametrize("printed", [COLUMNS, BOXES, OF_2019, COLUMNS.replace("\n ", "\n")])
@pytest.mark.parametrize("report", [PROCESSING.format("cuda_gpu_kern_sum"), ""])
def test_tables_for_people_are_refused_with_the_fix(read: Any, report: str, printed: str) -> None:
    fix = r"holds no table in CSV or TSV \(of \w+\); print it with `nsys stats --format csv`"
    with pytest.raises(InputError, match=fix):
        read(report + "\n" + printed)
    artefact = read(report + printed + "\n" + PROCESSING.format("x") + as_csv(SUMMARY, GEMM))
    assert artefact.facts["reports"] == ["x"]
    assert [r["name"] for r in rows(artefact)] == [GEMM[-1]]
    name = "cuda_gpu_kern_sum" if report else "report"
    assert f"no table can be read of {name}; print it with `nsys stats --format csv`" in (
        artefact.notes
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**15),
            st.integers(1, 10**6),
            st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=99),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_csv_and_tsv_give_the_same_sums(
    tmp_path_factory: pytest.TempPathFactory, kernels: list[tuple[int, int, str]]
) -> None:
    heading = ("Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Name")
    lines = [("1.0", str(t), str(n), f"{t / n:.1f}", name) for t, n, name in kernels]
    path = tmp_path_factory.mktemp("forms") / "f"
    for delimiter in (",", "\t"):
        text = as_csv(heading, *lines, delimiter=delimiter)
        path.write_text(PROCESSING.format("cuda_gpu_kern_sum") + text)
        found = [(r["total_ns"], r["calls"], r["name"]) for r in rows(registry.read(path))]
        assert found == kernels


JSON = '[\n  {"Time (%)": 100.0, "Total Time (ns)": 5, "Name": "k"}\n]\n'


@pytest.mark.parametrize(
    "printed",
    [
        JSON,
        JSON.replace("\n", ""),
        "<table>\n<tr><td>Time (%), Total</td></tr>\n</table>\n",
        "100.0,5,1,5.0,5.0,5,5,0.0,k\n50.0,5,1,5.0,5.0,5,5,0.0,k\n",  # csv:nohdr
        "    100.0  1,200  k\n",  # column:nohdr
        "Name\nk\n",
    ],
)
def test_what_cannot_be_read_is_named_with_the_fix(read: Any, printed: str) -> None:
    unread = PROCESSING.format("cuda_api_sum") + printed + "\n"
    with pytest.raises(InputError, match=r"of cuda_api_sum.*nsys stats --format csv"):
        read(unread)
    artefact = read(unread + PROCESSING.format("cuda_gpu_kern_sum") + as_csv(SUMMARY, GEMM))
    assert artefact.facts["reports"] == ["cuda_gpu_kern_sum"]
    assert artefact.notes == [
        "no table can be read of cuda_api_sum; print it with `nsys stats --format csv`"
    ]


def test_a_json_file_is_refused_with_the_fix(read: Any) -> None:
    with pytest.raises(InputError, match=r"is a report of nsys as JSON; .*--format csv"):
        read(JSON)


@pytest.mark.parametrize(
    "heading",
    [
        "Time (%),Total Time (ns),Instances,Name",
        '"Time(%)","Total Time (ns)","Instances","Name"',
        "Time (%)\tTotal Time (ns)\tInstances\tName",
        "Start (ns),Duration (ns),CorrId,Name",
        "Start (ns),End (ns),Duration (ns),Event",
        "NVTX Range,Style,PID,Kernel Name",
        "Range,Style,Total Proj Time (ns),Proj Avg (ns)",
        "Name,Projected Start (ns),Projected Duration (ns),PID",
        "Total (MB),Count,Avg (MB),Operation",
        "Total,Operations,Average,Operation",
        "Total Message Volume,Instances,Avg,Name",
        "PID,TID,DevId,Kernel Name",
        "API Start (ns),API Dur (ns),PID,Kernel Name",
        "Virtual Address,HtoD Migration Size (MB),DtoH Migration Size (MB),Source",
    ],
)
def test_files_of_one_report_are_known_by_their_headings(read: Any, heading: str) -> None:
    separator = "\t" if "\t" in heading else ","
    artefact = read(heading + "\n" + separator.join("1234") + "\n")
    assert artefact.tables["report"].num_rows == 1


def test_a_trace_alone_says_that_it_has_no_sums(read: Any) -> None:
    trace = "Start (ns),Duration (ns),CorrId,Name\n5,10,1,k\n"
    artefact = read(PROCESSING.format("cuda_gpu_trace") + trace)
    assert artefact.main.num_rows == 0
    assert artefact.notes == [
        "no sums over time in cuda_gpu_trace: stats is empty; --table NAME shows its rows"
    ]


def test_a_report_of_headings_alone_is_named(read: Any) -> None:
    text = PROCESSING.format("cuda_api_sum") + as_csv(SUMMARY)
    artefact = read(text + PROCESSING.format("cuda_gpu_kern_sum") + as_csv(SUMMARY, GEMM))
    assert artefact.notes == ["no rows in cuda_api_sum"]


def test_files_put_one_after_the_other_are_two_reports(read: Any) -> None:
    artefact = read(as_csv(SUMMARY, GEMM) + as_csv(SUMMARY, RELU))
    assert artefact.facts["reports"] == ["report", "report+"]
    assert [r["name"] for r in rows(artefact)] == [GEMM[-1], RELU[-1]]


def test_a_line_break_in_a_name(read: Any) -> None:
    odd = (*GEMM[:-1], "step\n1\n\nand more")
    table = PROCESSING.format("nvtx_sum")
    assert [r["name"] for r in rows(read(table + as_csv(SUMMARY, odd, RELU)))] == [
        odd[-1],
        RELU[-1],
    ]


def test_large_timestamps_are_exact(read: Any) -> None:
    start = 1_750_000_000_123_456_789
    trace = f"Start (ns),Duration (ns),Name\n{start},10,k\n"
    assert read(trace).tables["report"]["Start (ns)"].to_pylist() == [start]


def test_names_that_are_numbers_stay_text(read: Any) -> None:
    artefact = read("Time (%),Total Time (ns),Range\n100.0,10,007\n")
    assert artefact.tables["report"]["Range"].to_pylist() == ["007"]


@pytest.mark.parametrize(
    "text", [" \n" * 30_000, " " * 60_000, "** " * 20_000, "Processing [" * 5000]
)
def test_recognition_is_quick_on_odd_text(text: str) -> None:
    assert not sniff(Head(Path("x"), text.encode()))


SKIPPED = "SKIPPED: c.sqlite does not contain NV Tools Extension (NVTX) data.\n"


@pytest.mark.parametrize("before", [True, False])
def test_a_report_is_not_called_skipped_for_another_ones_error(read: Any, before: bool) -> None:
    """nsys says so among its errors, which may come before or behind what it prints."""
    kernels = PROCESSING.format("cuda_gpu_kern_sum")
    table = as_csv(SUMMARY, GEMM) + "\n"
    text = kernels + SKIPPED + table if before else kernels + table + SKIPPED
    artefact = read(text)
    assert artefact.facts["reports"] == ["cuda_gpu_kern_sum"]
    assert not any("no data for" in note for note in artefact.notes)
    assert any("left out reports: c.sqlite does not contain" in note for note in artefact.notes)
    assert len(artefact.main) == 1


def test_a_row_with_a_hole_in_it_is_left_out_and_said(read: Any) -> None:
    text = as_csv(SUMMARY, GEMM, RELU)
    row = next(line for line in text.splitlines() if line.startswith("75"))
    artefact = read(text.replace(row, row[:9] + "\0" * 20 + row[14:]))
    assert artefact.main["name"].to_pylist() == [RELU[-1]]
    assert any("1 lines have another number of fields" in note for note in artefact.notes)
