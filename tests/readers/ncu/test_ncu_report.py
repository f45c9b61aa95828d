"""Nsight Compute reports, against ncu's own CSV of the same report."""

from __future__ import annotations

import sys

import paths
import pytest

from layerline.analysis.readers import base
from layerline.analysis.readers.ncu import page
from layerline.analysis.readers.ncu import report as report_
from layerline.core.errors import InputError, ToolMissing
from layerline.core.tables import SCHEMAS

DATA = paths.DATA / "ncu"
REPORT = DATA / "two_kernels.ncu-rep"


def test_the_magic_number_tells():
    assert report_.sniff(base.read_head(REPORT))
    assert not report_.sniff(base.Head(REPORT, b"NVR", 3))


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(ToolMissing, match="pip install ncu-report") as e:
        report_.read(REPORT)
    assert e.value.exit_code == 3


def test_a_package_that_would_end_the_process_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "ncu_report", object())
    monkeypatch.setattr(report_.metadata, "version", lambda name: "2025.3.1")
    with pytest.raises(ToolMissing, match=r"2026\.2 or newer: 2025\.3 crashes") as e:
        report_.read(REPORT)
    assert e.value.exit_code == 3


@pytest.mark.parametrize("data", [b"NVR\x00", b"NVR\x00" + b"\x08\x00\x00\x00" * 9])
def test_a_damaged_report_is_one_line(tmp_path, data):
    pytest.importorskip("ncu_report")
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(data)
    with pytest.raises(InputError) as e:
        report_.read(path)
    assert "\n" not in e.value.line()


def test_every_value_is_that_of_ncus_own_csv():
    """GIVEN a report and `ncu --import ... --csv --page raw --print-units base` of it."""
    pytest.importorskip("ncu_report")
    report, printed = report_.read(REPORT), page.read(DATA / "two_kernels.raw.csv")
    assert report.main.schema == SCHEMAS["counters"]
    mine = {(r["launch"], r["metric"]): r for r in report.main.to_pylist()}
    for theirs in printed.main.to_pylist():
        row = mine[theirs["launch"], theirs["metric"]]
        assert (row["kernel"], row["layer"]) == (theirs["kernel"], theirs["layer"])
        assert (row["unit"], row["text"]) == (theirs["unit"], theirs["text"])
        if theirs["value"] is None:
            assert row["value"] is None
        else:  # the CSV is rounded to two decimals
            assert row["value"] == pytest.approx(theirs["value"], abs=0.0051, rel=1e-6)
    same = ("layer", "kernel", "context", "stream", "device", "compute_capability", "block", "grid")
    for a, b in zip(
        report.tables["launches"].to_pylist(), printed.tables["launches"].to_pylist(), strict=True
    ):
        assert [a[c] for c in (*same, "ranges", "start_end_ranges")] == [
            b[c] for c in (*same, "ranges", "start_end_ranges")
        ]
    assert report.tables["rules"].num_rows > 0


class Nvtx:
    """An NVTX state as ncu_report gives it: order is kept within a domain only."""

    def __init__(self, domains):
        self._domains = domains

    def domains(self):
        return range(len(self._domains))

    def domain_by_id(self, number):
        name, push_pop = self._domains[number]
        return Domain(name, push_pop)


class Domain:
    def __init__(self, name, push_pop):
        self._name, self._push_pop = name, push_pop

    def name(self):
        return self._name

    def push_pop_ranges(self):
        return tuple(self._push_pop)

    def start_end_ranges(self):
        return ()


def test_myelins_range_is_inside_tensorrts_whatever_the_order():
    for order in (1, -1):
        domains = [("myelin-exec", ["m/Gemm+r"]), ("TensorRT", ["enqueue", "{ForeignNode}"])]

        class Action:
            def nvtx_state(self, domains=domains[::order]):
                return Nvtx(domains)

        push_pop, _ = report_._nvtx(Action())
        assert report_._innermost(push_pop) == "m/Gemm+r"


def test_texts_that_a_damaged_report_lacks_are_unknown():
    """Found by fuzzing: NVIDIA's library gives None for the name of a kernel, range or domain."""

    class Domain:
        def name(self):
            return None

        def push_pop_ranges(self):
            return [None, "inner"]

        def start_end_ranges(self):
            return []

    class State:
        def domains(self):
            return [0, 1]

        def domain_by_id(self, number):
            return Domain() if number else None

    class Action:
        NameBase_DEMANGLED = 0

        def name(self, base):
            return None

        def nvtx_state(self):
            return State()

        def metric_by_name(self, name):
            return None

    launch = report_._launch(Action(), "a", 0)
    assert launch["kernel"] is None
    assert (launch["ranges"], launch["range_domains"]) == (["", "inner"], ["", ""])
