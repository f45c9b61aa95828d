"""How a report writes times, shares, ratios and names."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.analysis import formatting
from layerline.analysis.model.comparison import Cost
from layerline.analysis.report import cells
from layerline.core.stats import Estimate


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (7, "7 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (12_345, "12.3 µs"),
        (123_456, "123 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (1_125_000, "1.13 ms"),  # half goes up, in Python as in JavaScript
        (1_234_567_890, "1.23 s"),
        (98_765_432_100, "98.8 s"),
        (1_234_567_890_123, "1230 s"),
        (-1_500, "−1.50 µs"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_a_time_has_three_significant_digits_and_unknown_is_no_zero(ns: Any, text: str) -> None:
    assert formatting.time(ns) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1_234, "1,234"),
        (1.234, "1.23"),
        (999.4, "999"),
        (999.5, "1,000"),
        (1_200.0, "1,200"),
        (-123_456.7, "−123,457"),
        (0.000_012, "1.2e−05"),
        (2e12, "2e+12"),
        (None, "–"),
    ],
)
def test_a_number_of_thousands_has_no_exponent(value: Any, text: str) -> None:
    assert formatting.number(value) == text


@given(st.integers(1_000, 10**13))
def test_a_time_is_the_decimal_rounding_of_its_nanoseconds(ns: int) -> None:
    value, unit = formatting.time(ns).split(" ")
    scale = {"µs": 3, "ms": 6, "s": 9}[unit]
    step = Decimal(10) ** (len(str(ns)) - 3)
    expected = (Decimal(ns) / step).quantize(Decimal(1), ROUND_HALF_UP) * step
    assert Decimal(value).scaleb(scale) == expected
    if ns < 999_500_000_000:
        assert len(value.replace(".", "")) == 3


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1_200_000, 1_850_000, "1.20 – 1.85 ms"),
        (850_000, 1_850_000, "850 µs – 1.85 ms"),
        (0, 1_850_000, "0 – 1.85 ms"),
        (1_200_000, 1_200_400, "1.20 ms"),
        (None, 5_000, "5.00 µs"),
        (None, None, "–"),
    ],
)
def test_a_range_names_its_unit_once(low: Any, high: Any, text: str) -> None:
    assert formatting.time_range(low, high) == text


def _cost(own: Any, shared: Any) -> Any:
    return Cost(Estimate(own), Estimate(None if shared is None else own + shared), None)


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (_cost(1_200_000, 0), "1.20 ms"),
        (_cost(1_200_000, 650_000), "1.20 – 1.85 ms"),
        (_cost(0, 650_000), "0 – 650 µs"),
        (_cost(1_200_000, None), "≥ 1.20 ms"),
        (_cost(None, None), "–"),
        (None, "–"),
    ],
)
def test_a_cost_is_a_range_when_layers_are_shared(cost: Any, text: str) -> None:
    assert cells.cost(cost) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.1234, "12.3 %"),
        (1.0, "100 %"),
        (0.99987, "99.9 %"),  # not 100 %: something is missing
        (0.0004, "0.04 %"),
        (0.00001, "<0.01 %"),
        (6.297, "630 %"),
        (32.018, "3,202 %"),
        (0.0, "0 %"),
        (-0.21, "−21.0 %"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_a_share_never_rounds_to_all_or_nothing(share: Any, text: str) -> None:
    assert formatting.percent(share) == text


def test_ratios_keep_three_digits() -> None:
    values = [1.6, 0.994, 12.34, 123.4, None]
    assert [formatting.ratio(v) for v in values] == ["1.60×", "0.99×", "12.3×", "123×", "–"]


def test_what_reorders_or_breaks_a_line_is_shown_as_its_escape() -> None:
    assert (
        formatting.visible("a\u202eb\nc\x1b[0m\u2028\ud800")
        == "a\\u202eb\\nc\\x1b[0m\\u2028\\ud800"
    )
    assert formatting.visible("transformer.h.0/é 日本") == "transformer.h.0/é 日本"


def test_a_long_name_keeps_both_ends() -> None:
    text = formatting.short("a" * 5_000 + "b" * 5_000, 160)
    assert len(text) == 160
    assert text.startswith("aaa") and "…" in text and text.endswith("bbb")


def test_the_manifest_is_flat_lines() -> None:
    value = {"a": {"b": 1, "c": [1, 2], "d": None}, "e": [{"f": True}], "g": [], "h": {}}
    assert formatting.flatten(value) == [
        ("a.b", "1"),
        ("a.c", "1 2"),
        ("a.d", "unknown"),
        ("e[0].f", "yes"),
        ("g", "none"),
        ("h", "none"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("outputs differ", "Outputs differ"),
        ("torch.compile fp32 runs", "torch.compile fp32 runs"),
        ("", ""),
    ],
)
def test_a_sentence_begins_with_a_capital_but_for_a_name(text: str, said: str) -> None:
    assert formatting.opening(text) == said
