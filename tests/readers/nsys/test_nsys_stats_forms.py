"""What `nsys stats` and `nsys profile --stats=true` print, in the forms of 2019 to 2026."""

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


def columns(heading: Any, *rows: Any, limit: int = 100, margin: str = " ") -> str:
    """The column form as the User Guide has it: text left, numbers right, clipped with `…`."""
    cells = [[clip(value, limit) for value in row] for row in (heading, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heading))]
    lines = [[h.center(w) for h, w in zip(cells[0], widths, strict=True)]]
    lines.append(["-" * w for w in widths])
    for row in cells[1:]:
        *numbers, name = [v.rjust(w) for v, w in zip(row, widths, strict=True)]
        lines.append([*numbers, name.strip().ljust(widths[-1])])
    return "".join(margin + "  ".join(line) + "\n" for line in lines)


def clip(value: str, limit: int) -> str:
    return value if len(value) <= limit else value[: limit - 1] + "…"


def boxes(heading: Any, *rows: Any) -> str:
    """The table form: as the column form, in boxes."""
    plain = columns(heading, *rows, margin="").splitlines()
    spans, at = [], 0
    for dashes in plain[1].split("  "):
        spans.append((at, at + len(dashes)))
        at += len(dashes) + 2
    rule = "+" + "".join("-" * (b - a + 2) + "+" for a, b in spans) + "\n"
    lines = ["|" + "".join(f" {line[a:b]} |" for a, b in spans) + "\n" for line in plain]
    return rule + lines[0] + rule + "".join(lines[2:]) + rule


def as_csv(heading: Any, *rows: Any) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
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


def test_the_column_form_gives_what_the_csv_gives(read: Any) -> None:
    report = PROCESSING.format("cuda_gpu_kern_sum")
    title = "\n ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n"
    people = read(report + title + columns(SUMMARY, GEMM, RELU) + "\n")
    machine = read(report + as_csv(SUMMARY, GEMM, RELU))
    assert people.tables["stats"].equals(machine.tables["stats"])
    assert people.tables["cuda_gpu_kern_sum"].equals(machine.tables["cuda_gpu_kern_sum"])
    assert people.notes == []
    assert rows(people)[0] | {"source": None} == {
        "source": None,
        "report": "cuda_gpu_kern_sum",
        "name": "void gemm<int, 2>(float *, float *)",
        "range": None,
        "calls": 2,
        "total_ns": 3_000_300,
        "average_ns": 1_500_150.0,
        "median_ns": 1_500_150.0,
        "min_ns": 100,
        "max_ns": 3_000_200,
        "stddev_ns": 70.7,
        "share": 0.75,
    }
    assert rows(people)[1]["name"] == "relu  of two  spaces"


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
def test_every_form_gives_the_same_sums(
    tmp_path_factory: pytest.TempPathFactory, kernels: list[tuple[int, int, str]]
) -> None:
    heading = ("Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Name")
    lines = [("1.0", f"{t:,}", f"{n:,}", f"{t / n:,.1f}", name) for t, n, name in kernels]
    path = tmp_path_factory.mktemp("forms") / "f"
    for form in (columns, boxes, as_csv):
        path.write_text(PROCESSING.format("cuda_gpu_kern_sum") + form(heading, *lines))
        found = [(r["total_ns"], r["calls"], r["name"]) for r in rows(registry.read(path))]
        assert found == kernels, form


def test_grids_of_2022_are_columns_of_text(read: Any) -> None:
    heading = ("Time (%)", "Total Time (ns)", "GridXYZ", "Name")
    text = columns(heading, ("100.0", "1,200", "   4    4    1", "gemm"))
    artefact = read(PROCESSING.format("gpukernsum") + text)
    assert artefact.tables["gpukernsum"]["GridXYZ"].to_pylist() == ["4    4    1"]
    assert rows(artefact)[0]["total_ns"] == 1200


def test_values_that_are_cut_short_are_counted(read: Any) -> None:
    long = (*RELU[:-1], "at::native::" + 100 * "x")
    artefact = read(PROCESSING.format("cuda_gpu_kern_sum") + columns(SUMMARY, GEMM, long))
    assert rows(artefact)[1]["name"] == "at::native::" + 87 * "x" + "…"
    assert artefact.notes == [
        "1 values are cut short by the column format; print it with `nsys stats --format csv`"
    ]


def test_a_number_that_is_cut_short_is_unknown(read: Any) -> None:
    heading = ("Time (%)", "Total Time (ns)", "Name")
    text = columns(heading, ("100.0", "1,234,567,890,123,456", "k"), limit=16)
    row = rows(read(PROCESSING.format("cuda_gpu_kern_sum") + text))[0]
    assert (row["name"], row["total_ns"], row["share"]) == ("k", None, 1.0)


def test_numbers_of_a_machine_that_writes_decimal_commas(read: Any) -> None:
    text = "Running [/opt/nsys/reports/gpukernsum.py c.sqlite]... \n\n"
    heading = ("Time(%)", "Total Time (ns)", "Instances", "Average", "Minimum", "Maximum", "Name")
    text += columns(
        heading,
        ("93,0", "12.373.190", "2", "6.186.595,0", "1.130", "12.372.060", "a"),
        ("7,0", "915", "1", "915,0", "915", "915", "b"),
    )
    # No value of this table tells: the others of the file do.
    sizes = ("Total", "Operations", "Average", "Operation")
    text += "\nRunning [/opt/nsys/reports/gpumemsizesum.py c.sqlite]... \n\n"
    text += columns(sizes, ("19,000", "5", "3,800", "[CUDA memcpy HtoD]"))
    artefact = read(text)
    assert artefact.tables["gpumemsizesum"]["Average"].to_pylist() == [3.8]
    first, second = rows(artefact)
    assert (first["total_ns"], first["min_ns"], first["max_ns"]) == (12_373_190, 1130, 12_372_060)
    assert (first["average_ns"], first["share"]) == (6_186_595.0, 0.93)
    assert (second["total_ns"], second["average_ns"]) == (915, 915.0)


def test_numbers_in_doubt_are_null_and_counted(read: Any) -> None:
    heading = ("Time (%)", "Total Time (ns)", "Avg (ns)", "Name")
    text = columns(heading, ("93,0", "1.130", "1.5", "a"))
    artefact = read(PROCESSING.format("cuda_gpu_kern_sum") + text)
    assert rows(artefact)[0]["total_ns"] is None
    assert any(n.startswith("1 different numbers can be read in two ways") for n in artefact.notes)


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


def test_old_titles_name_their_reports(read: Any) -> None:
    memory = ("Operations", "Average", "Minimum", "Maximum", "Operation")
    text = "Hello from the program\n\n\nCUDA Memory Operation Statistics (by time):\n\n"
    text += columns(("Time(%)", "Total Time (ns)", *memory), ("100.0", "90", "3", *"356", "HtoD"))
    text += "\n\n\nCUDA Memory Operation Statistics (by size in KiB):\n\n"
    text += columns(("Total", *memory), ("1,234.500", "3", "411.500", "0.004", "900.000", "HtoD"))
    text += "\n\n\nGenerating CUDA API Statistics...\nCUDA API Statistics (nanoseconds)\n\n"
    api = ("Time(%)", "Total Time", "Calls", "Average", "Name")
    text += columns(api, ("100.0", "70", "2", "35.0", "launch"), margin="")
    text += "Generating CUDA Kernel Statistics...\n\nCUDA Memory Operation Statistics (KiB)\n\n"
    text += columns(("Total", *memory), ("9.5", "1", "9.5", "9.5", "9.5", "DtoH"), margin="")
    artefact = read(text)
    by_time = "CUDA Memory Operation Statistics (by time)"
    by_size = "CUDA Memory Operation Statistics (by size in KiB)"
    by_size_2019 = "CUDA Memory Operation Statistics (KiB)"
    assert artefact.facts == {
        "reports": [by_time, by_size, "CUDA API Statistics", by_size_2019],
        "lines_of_other_output": 3,
    }
    assert [(r["report"], r["total_ns"], r["calls"]) for r in rows(artefact)] == [
        (by_time, 90, 3),
        ("CUDA API Statistics", 70, 2),
    ]
    assert artefact.tables[by_size]["Total"].to_pylist() == [1234.5]
    assert artefact.notes == []


def test_announcements_of_2020_and_2021(read: Any) -> None:
    text = "Using c.sqlite for SQL queries.\n"
    text += "Running [/opt/nsys/reports/nvtxsum.py c.sqlite]... SKIPPED: no NVTX data.\n\n"
    text += "Running [/opt/nsys/reports/cudaapisum.py c.sqlite]... \n\n"
    text += columns(("Time(%)", "Total Time (ns)", "Name"), ("100.0", "1,200", "cudaMalloc"))
    text += "\nExporting [/opt/nsys/reports/gputrace.py c.sqlite] to console... \n\n"
    trace = ("Start(sec)", "Duration(nsec)", "Thru(MB/s)", "Device", "Name")
    text += columns(trace, ("0.355442", "5,120", "1.195", "A100 (0)", "[CUDA memcpy DtoH]"))
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
    text += "[3/4] Executing 'cuda_gpu_kern_sum' stats report\n\n" + columns(SUMMARY, GEMM)
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
    artefact = read(table + columns(SUMMARY, odd, RELU))
    assert [r["name"] for r in rows(artefact)] == ["step", RELU[-1]]
    assert any("1 lines have another number of fields" in n for n in artefact.notes)
    assert artefact.facts["lines_of_other_output"] == 1


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
