"""Details pages: labels of sections, how they add up over launches, pages without a number."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from layerline.analysis.commands.metrics import metrics
from layerline.analysis.counters.units import rule
from layerline.analysis.metrics import capture
from layerline.core.errors import InputError

SPEED = "GPU Speed Of Light Throughput"
MEMORY = "Memory Workload Analysis"
HEADER = [
    *("ID", "Process ID", "Process Name", "Kernel Name", "Section Name"),
    *("Metric Name", "Metric Unit", "Metric Value", "Rule Name", "Rule Type", "Rule Description"),
]
BOTH = [
    (0, SPEED, "Duration", "us", "1"),
    (0, SPEED, "Memory Throughput", "%", "20"),
    (0, MEMORY, "Memory Throughput", "Gbyte/s", "100"),
    (0, MEMORY, "L2 Latency", "cycle", "7"),
    (1, SPEED, "Duration", "us", "3"),
    (1, SPEED, "Memory Throughput", "%", "60"),
    (1, MEMORY, "Memory Throughput", "Gbyte/s", "500"),
    (1, MEMORY, "L2 Latency", "cycle", "7"),
]


def run(*arguments):
    return CliRunner().invoke(metrics, [str(a) for a in arguments], catch_exceptions=False)


def lines_of(fields):
    return "\n".join(",".join(f'"{f}"' for f in row) for row in fields) + "\n"


def page(path, rows):
    """A details page: (launch, section, label, unit, value) a row."""
    made = [[str(i), "7", "python", "k", *rest, "", "", ""] for i, *rest in rows]
    path.write_text(lines_of([HEADER, *made]))
    return path


def value(path, metric):
    """Of the one layer, everything outside ranges."""
    last = run("attribute", path, "-m", metric).output.splitlines()[-1]
    return last.split("\t")[0]


def test_one_label_of_two_dimensions_is_two_metrics(tmp_path):
    path = page(tmp_path / "a.csv", BOTH)
    assert run("list", path).output.splitlines() == [
        "Duration\tns\t2",
        "L2 Latency\tcycle\t2",
        "Memory Throughput (MemoryWorkloadAnalysis)\tbyte/s\t2",
        "Memory Throughput (SpeedOfLight)\t%\t2",
    ]
    out = tmp_path / "out"
    assert run("extract", path, "-o", out).exit_code == 0
    with np.load(out / "Memory_Throughput__MemoryWorkloadAnalysis_.npz") as found:
        assert found["value"].tolist() == [1e11, 5e11]
    with np.load(out / "Memory_Throughput__SpeedOfLight_.npz") as found:
        assert found["value"].tolist() == [20, 60]


def test_the_label_alone_is_refused_where_it_says_two_things(tmp_path):
    path = page(tmp_path / "a.csv", BOTH)
    said = r"Memory Throughput \(MemoryWorkloadAnalysis\), Memory Throughput \(SpeedOfLight\)"
    for command in (["attribute", path], ["extract", path, "-o", tmp_path / "o"]):
        with pytest.raises(InputError, match=said):
            run(*command, "-m", "Memory Throughput")


@pytest.mark.parametrize("section", ["GPU Speed Of Light", SPEED])
def test_a_name_with_its_section_holds_on_every_details_page(tmp_path, section):
    path = page(tmp_path / "a.csv", [(0, section, "Memory Throughput", "%", "20")])
    assert run("list", path).output == "Memory Throughput\t%\t1\n"
    assert value(path, "Memory Throughput") == "20"
    assert value(path, "Memory Throughput (SpeedOfLight)") == "20"
    with pytest.raises(InputError, match="has no metric"):
        value(path, "Memory Throughput (MemoryWorkloadAnalysis)")


def test_a_label_of_two_sections_in_like_units_is_one_metric(tmp_path):
    rows = [(0, SPEED, "Time", "us", "2"), (0, MEMORY, "Time", "ns", "2000")]
    found = capture.load(page(tmp_path / "a.csv", rows)).counters
    assert found["metric"].to_pylist() == ["Time", "Time"]


def test_two_dimensions_within_a_section_are_refused_by_file(tmp_path):
    rows = [(0, SPEED, "Odd", "us", "2"), (1, SPEED, "Odd", "byte", "2")]
    path = page(tmp_path / "odd.csv", rows)
    for command in (["list", path], ["extract", path, "-o", tmp_path / "o"]):
        with pytest.raises(InputError, match="cannot be compared") as e:
            run(*command)
        assert str(e.value.file) == "odd.csv"


def test_durations_add_up_and_throughputs_are_weighted_by_them(tmp_path):
    path = page(tmp_path / "a.csv", BOTH)
    assert value(path, "Duration") == "4000"
    assert value(path, "Memory Throughput (SpeedOfLight)") == "50"  # (20 x 1 + 60 x 3) / 4
    assert value(path, "Memory Throughput (MemoryWorkloadAnalysis)") == "400000000000"


def test_a_throughput_over_launches_that_are_not_timed_is_unknown(tmp_path):
    path = page(tmp_path / "a.csv", [row for row in BOTH if row[2] != "Duration"])
    assert value(path, "Memory Throughput (SpeedOfLight)") == "-"


def test_a_label_without_a_rule_is_the_value_of_one_launch_and_of_no_two(tmp_path):
    path = page(tmp_path / "a.csv", BOTH)
    assert value(path, "L2 Latency") == "-"  # equal in both, and yet it might add up
    one = page(tmp_path / "b.csv", [row for row in BOTH if row[0] == 0])
    assert value(one, "L2 Latency") == "7"


@pytest.mark.parametrize(
    ("label", "unit", "expected"),
    [
        ("Duration", "usecond", "sum"),
        ("Elapsed Cycles", "cycle", "sum"),
        ("Avg. Executed Instructions Per Scheduler", "inst", "sum"),
        ("DRAM Frequency", "cycle/nsecond", "mean"),
        ("SM Frequency", "Ghz", "mean"),
        ("L2 Hit Rate", "%", "mean"),
        ("L1/TEX Cache Throughput", "%", "mean"),
        ("Compute (SM) Throughput", "%", "mean"),
        ("Executed Ipc Active", "inst/cycle", "mean"),
        ("Eligible Warps Per Scheduler", "warp", "mean"),
        ("Dynamic Shared Memory Per Block", "Kbyte/block", "constant"),
        ("Registers Per Thread", "register/thread", "constant"),
        ("Theoretical Occupancy", "%", "constant"),
        ("Warp Cycles Per Issued Instruction", "cycle", None),
        ("Memory Throughput (MemoryWorkloadAnalysis)", "Gbyte/second", "mean"),
        ("Duration (SpeedOfLight)", "us", "sum"),
    ],
)
def test_labels_have_the_rules_of_their_metrics(label, unit, expected):
    assert rule(label, unit) == expected


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (["", "", "", "SOLBottleneck", "INF", "All is well."], "only what ncu's rules said"),
        (["Cluster Policy", "", "Spread", "", "", ""], "1 that are text"),
    ],
)
@pytest.mark.parametrize("command", ["list", "extract", "plot"])
def test_a_page_without_a_number_is_refused_with_what_it_holds(tmp_path, command, row, said):
    path = tmp_path / "none.csv"
    path.write_text(lines_of([HEADER, ["0", "7", "python", "k", "Launch Statistics", *row]]))
    out = [] if command == "list" else ["-o", tmp_path / "out"]
    with pytest.raises(InputError, match=said) as e:
        run(command, path, *out)
    assert str(e.value.file) == "none.csv" and not (tmp_path / "out").exists()


def test_of_attributes_of_the_device_alone_list_names_the_option(tmp_path):
    name = "device__attribute_clock_rate"
    path = page(tmp_path / "a.csv", [(0, "Device", name, "Khz", "9")])
    with pytest.raises(InputError, match="only attributes of the device"):
        run("list", path)
    assert run("list", path, "--static").output.startswith(name)
