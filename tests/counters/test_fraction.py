"""How far counters at the fraction are off, by tests/gpu/fraction.py: differences by hand."""

from __future__ import annotations

import fraction
import pandas as pd
import pytest


def values(rows: list[tuple[int, str, str, float, float, bool]]) -> pd.DataFrame:
    columns = ["launch", "metric", "layer", "ours", "truth", "given"]
    return pd.DataFrame(rows, columns=columns).set_index(["launch", "metric"])


def test_differences_are_those_worked_out_by_hand() -> None:
    """Launches 0 and 3 of four equal layers were replayed; z is 0 on both sides."""
    truth = {"a.sum": [100, 125, 100, 80], "b.pct": [50, 50, 50, 49], "z.sum": [0] * 4}
    ours = {"a.sum": [100, 100, 100, 80], "b.pct": [50] * 4, "z.sum": [0] * 4}
    rows = [
        (n, metric, f"h.{n}", float(ours[metric][n]), float(of[n]), n in (1, 2))
        for metric, of in truth.items()
        for n in range(4)
    ]
    layers = fraction.layers(values(rows))
    assert set(layers.index.get_level_values("metric")) == {"a.sum", "b.pct"}
    assert layers.loc["a.sum", "apart"].to_dict() == {
        "h.0": 0, "h.1": pytest.approx(0.2), "h.2": 0, "h.3": 0,
    }  # fmt: skip
    assert layers.loc[("b.pct", "h.3"), "apart"] == pytest.approx(1 / 49)
    replayed, both, beyond, worst, *_ = fraction.lines(values(rows))
    assert replayed == "replayed: 2 of 4 launches (50.0%)"
    assert both.endswith("replayed in both: median 0.000%, p90 2.04%, worst 2.04%")
    assert beyond == "1 of 4 layers have a metric beyond 10%"
    assert worst.startswith("a.sum: 4 layers, median 0.000%, p90 20.00%, worst 20.00% (h.1); 2 ")
    assert worst.endswith("; all together 6.17%")


def test_a_metric_that_only_the_whole_capture_has_at_zero_is_beyond_any_limit() -> None:
    rows = values([(0, "m", "l", 3.0, 0.0, False)])
    assert fraction.layers(rows)["apart"].tolist() == [float("inf")]
    assert "1 of 1 layers have a metric beyond 10%" in fraction.lines(rows)
