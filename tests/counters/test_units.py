"""Units and the rules of aggregation."""

from __future__ import annotations

import pytest

from layerline.analysis.counters.units import base_unit, rule


@pytest.mark.parametrize(
    ("unit", "factor", "base"),
    [
        ("byte", 1, "byte"),
        ("Kbyte", 1e3, "byte"),
        ("Mbyte", 1e6, "byte"),
        ("us", 1e3, "ns"),
        ("usecond", 1e3, "ns"),
        ("Gbyte/s", 1e9, "byte/s"),
        ("Tbyte/second", 1e12, "byte/s"),
        ("byte/ns", 1e9, "byte/s"),
        ("cycle/nsecond", 1e9, "cycle/s"),
        ("cycle/us", 1e6, "cycle/s"),
        ("Ghz", 1e9, "Hz"),
        ("inst/cycle", 1, "inst/cycle"),
        ("Kbyte/block", 1e3, "byte/block"),
        ("%", 1, "%"),
        (None, 1, None),
        ("", 1, None),
        ("parsec", 1, "parsec"),
    ],
)
def test_units_become_base_units(unit, factor, base):
    found = base_unit(unit)
    assert found == (pytest.approx(factor), base)


@pytest.mark.parametrize(
    ("metric", "unit", "expected"),
    [
        ("gpu__time_duration.sum", "ns", "sum"),
        ("dram__bytes.sum", "byte", "sum"),
        ("sm__cycles_active.avg", "cycle", "sum"),
        ("sm__cycles_elapsed.max", "cycle", "sum"),
        ("sm__cycles_active.max", "cycle", None),
        ("sm__cycles_active.min", "cycle", None),
        ("dram__bytes.sum.per_second", "byte/s", "mean"),
        ("sm__inst_executed.avg.per_cycle_active", "inst/cycle", "mean"),
        ("sm__inst_executed.max.per_cycle_active", "inst/cycle", None),
        ("lts__t_sector_hit_rate.pct", "%", "mean"),
        ("smsp__thread_inst_executed_per_inst_executed.ratio", None, "mean"),
        ("sm__warps_active.avg.peak_sustained", "warp", "constant"),
        ("launch__grid_size", None, "constant"),
        ("device__attribute_multiprocessor_count", None, "constant"),
        ("invented", None, None),
    ],
)
def test_rules_by_kind(metric, unit, expected):
    assert rule(metric, unit) == expected
