"""The table of layers' times in a log of trtexec, of every age."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerline.analysis.attribution import layer_info
from layerline.analysis.readers import registry
from layerline.core.errors import InputError

SINCE_8_6 = """\
=== Profile (100 iterations ) ===
   Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer
       1.00       0.0100       0.0098      25.0   [HostToDeviceCopy 0]
       3.00       0.0300       0.0000      75.0   conv 1 + relu
       4.00       0.0400       0.0400     100.0   Total

"""
SINCE_8_2 = """\
=== Profile (100 iterations ) ===
                  Layer   Time (ms)   Avg. Time (ms)   Median Time (ms)   Time %
   [HostToDeviceCopy 0]        1.00           0.0100             0.0098     25.0
          conv 1 + relu        3.00           0.0300             0.0000     75.0
                  Total        4.00           0.0400             0.0400    100.0

"""
SEVEN = """\
=== Profile (100 iterations ) ===
                  Layer   Time (ms)   Avg. Time (ms)   Time %
   [HostToDeviceCopy 0]        1.00             0.01     25.0
          conv 1 + relu        3.00             0.03     75.0
                  Total        4.00             0.04    100.0
"""
LISTED = "Layers:\nName: conv 1 + relu, LayerType: CaskConvolution, Inputs: [], Outputs: []\n\n"


def tagged(text: str, tag: str) -> str:
    return "".join(f"{tag}{line}\n" for line in text.splitlines())


def write(path: Path, text: str) -> Path:
    path.write_text(f"&&&& RUNNING TensorRT.trtexec # trtexec --dumpProfile\n{text}&&&& PASSED\n")
    return path


@pytest.mark.parametrize("tag", ["", "[I] ", "[05/08/2024-14:05:14] [I] "])
@pytest.mark.parametrize("table", [SINCE_8_6, SINCE_8_2, SEVEN])
def test_the_table_of_every_version_gives_the_times(tmp_path: Path, table: str, tag: str) -> None:
    artefact = registry.read(write(tmp_path / "l", tagged(table, tag)))
    medians = [None, None] if table is SEVEN else [9_800, None]  # 0.0000 of 0.03 is not known
    assert artefact.main.select(["layer", "calls", "total_ns", "median_ns"]).to_pylist() == [
        {"layer": name, "calls": 100, "total_ns": ns, "median_ns": median}
        for name, ns, median in zip(
            ["[HostToDeviceCopy 0]", "conv 1 + relu"], [1_000_000, 3_000_000], medians, strict=True
        )
    ]


def test_a_table_begins_far_into_a_verbose_log(tmp_path: Path) -> None:
    noise = "[05/08/2024-14:05:14] [V] [TRT] Tactic: 0x1 Time: 0.1\n" * 3_000
    table = tagged(SINCE_8_6, "[I] ")
    assert len(registry.read(write(tmp_path / "l", noise + table)).main) == 2
    both = write(tmp_path / "b", LISTED + noise + table)
    artefact = registry.read(both)
    assert (artefact.kind, len(artefact.main)) == ("trt-profile", 2)
    assert any("--layer-info" in note for note in artefact.notes)
    assert [row["kind"] for row in layer_info.load(both).rows] == ["CaskConvolution"]


def test_a_table_that_lost_lines_is_said(tmp_path: Path) -> None:
    cut, hole = SINCE_8_6.splitlines()[:-2], SINCE_8_6.splitlines()
    del hole[2]
    for lines, says in ((cut, "no Total"), (hole, "add up to 3.00 ms, its Total says 4.00 ms")):
        artefact = registry.read(write(tmp_path / "l", "\n".join([*lines, ""])))
        assert any(says in note for note in artefact.notes)
    whole = registry.read(write(tmp_path / "l", SINCE_8_6))
    assert not any("Total" in note for note in whole.notes)


def test_several_runs_in_one_log_are_numbered(tmp_path: Path) -> None:
    table = registry.read(write(tmp_path / "l", SINCE_8_6 + SINCE_8_2)).main
    assert table["engine"].to_pylist() == ["0", "0", "1", "1"]


def test_a_log_without_times_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trtexec log without a table.*--dumpProfile"):
        registry.read(write(tmp_path / "l", "[I] === Performance summary ===\n"))
