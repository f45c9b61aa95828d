"""`nsys stats --format csv` output."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerline.analysis.readers import registry
from layerline.core.errors import InputError

SECTION = "Processing [/tmp/c.sqlite] with [/opt/nsys/reports/{}.py]... \n"
KERNELS = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    '75.0,300,2,150.0,150.0,100,200,70.7,"void k<int, 2>(float*)"\n'
    "25.0,100,1,100.0,100.0,100,100,0.0,b\n"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "stats.csv"


def test_several_reports_in_one_file(file: Path) -> None:
    trace = "Start (ns),Duration (ns),CorrId,Name\n5,10,1,k\n"
    text = "Generating SQLite file c.sqlite from c.nsys-rep\n"
    text += SECTION.format("cuda_gpu_kern_sum") + KERNELS + "\n"
    text += SECTION.format("cuda_gpu_trace") + trace
    file.write_text(text)
    artefact = registry.read(file)
    assert artefact.kind == "nsys-stats"
    assert artefact.facts["reports"] == ["cuda_gpu_kern_sum", "cuda_gpu_trace"]
    rows = artefact.main.to_pylist()
    assert [r["name"] for r in rows] == ["void k<int, 2>(float*)", "b"]
    assert rows[0] | {"source": None} == {
        "source": None,
        "report": "cuda_gpu_kern_sum",
        "name": "void k<int, 2>(float*)",
        "range": None,
        "calls": 2,
        "total_ns": 300,
        "average_ns": 150.0,
        "median_ns": 150.0,
        "min_ns": 100,
        "max_ns": 200,
        "stddev_ns": 70.7,
        "share": 0.75,
    }
    assert artefact.tables["cuda_gpu_trace"].to_pylist() == [
        {"Start (ns)": 5, "Duration (ns)": 10, "CorrId": 1, "Name": "k"}
    ]


def test_skipped_reports_are_named(file: Path) -> None:
    text = SECTION.format("nvtx_sum") + "SKIPPED: c.sqlite does not contain NVTX data.\n\n"
    file.write_text(text + SECTION.format("cuda_gpu_kern_sum") + KERNELS)
    artefact = registry.read(file)
    assert artefact.notes == ["nsys had no data for nvtx_sum"]
    assert artefact.main.num_rows == 2


def test_a_file_of_skipped_reports_only_is_refused(file: Path) -> None:
    file.write_text(SECTION.format("nvtx_sum") + "SKIPPED: c.sqlite does not contain NVTX data.\n")
    with pytest.raises(InputError, match="no report with data"):
        registry.read(file)


def test_other_units_become_nanoseconds(file: Path) -> None:
    text = "Time (%),Total Time (ms),Instances,Avg (us),Name\n100.0,1.5,3,500.25,k\n"
    file.write_text(text)
    row = registry.read(file).main.to_pylist()[0]
    assert (row["total_ns"], row["average_ns"], row["calls"]) == (1_500_000, 500_250.0, 3)
    assert row["median_ns"] is None


def test_kernels_by_range_keep_both_names(file: Path) -> None:
    heading = "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Kernel Name"
    text = SECTION.format("nvtx_kern_sum") + f"{heading}\nTensorRT:a,PushPop,1,1,7,14,70,5.0,k\n"
    file.write_text(text)
    row = registry.read(file).main.to_pylist()[0]
    assert (row["range"], row["name"], row["calls"]) == ("TensorRT:a", "k", 14)


def test_lines_that_do_not_fit_the_heading_are_counted(file: Path) -> None:
    file.write_text(SECTION.format("cuda_gpu_kern_sum") + KERNELS + "1,2\n")
    artefact = registry.read(file)
    assert artefact.main.num_rows == 2
    assert any("1 lines have another number of fields" in n for n in artefact.notes)


def test_a_report_that_occurs_twice_is_kept_twice(file: Path) -> None:
    file.write_text(2 * (SECTION.format("cuda_gpu_kern_sum") + KERNELS + "\n"))
    artefact = registry.read(file)
    assert artefact.facts["reports"] == ["cuda_gpu_kern_sum", "cuda_gpu_kern_sum+"]
    assert artefact.main.num_rows == 4
