"""Communications of one kind as one row."""

from __future__ import annotations

import pytest

from layerline.analysis.ranks.summary import kinds
from layerline.core import tables


@pytest.mark.parametrize(
    ("transfers", "told"),
    [
        # 65,536 bytes in 8 us are 8.192 GB/s; what took 1 us or 2 us is within the clocks' 5 us.
        ([(1_000, None), (2_000, None), (8_000, 8.192e9)], None),
        ([(1_000, None), (8_000, 8.192e9), (16_000, 4.096e9)], 8.192e9),
        ([(4_000, 16.384e9), (8_000, 8.192e9), (16_000, 4.096e9)], 8.192e9),
        # Without a partner no transfer is known.
        ([(None, None), (8_000, 8.192e9)], 8.192e9),
    ],
)
def test_the_bandwidth_of_a_kind_is_not_that_of_its_slow_transfers(
    transfers: list[tuple[int | None, float | None]], told: float | None
) -> None:
    n = len(transfers)
    table = tables.table(
        "collectives",
        {
            "rank": [0] * n, "operation": ["send"] * n, "bytes": [65_536] * n,
            "start_ns": [10_000 * k for k in range(n)], "duration_ns": [9_000] * n,
            "transfer_ns": [t for t, _ in transfers],
            "bus_bandwidth": [b for _, b in transfers],
        },
    )  # fmt: skip
    counted = table["rank"].is_valid().to_numpy(zero_copy_only=False)
    assert kinds(table, counted, {}, [], 1)["bus_bandwidth"].to_pylist() == [told]
