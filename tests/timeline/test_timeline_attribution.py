"""The whole way, file to rows, against a slow oracle over random captures."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from nsys_build import Export

from layerline.analysis.readers.nsys import sqlite

small = st.integers(0, 60)
ranges = st.lists(
    st.fixed_dictionaries(
        {
            "start": small,
            "end": st.one_of(st.none(), small),
            "thread": st.integers(1, 2),
            "process": st.integers(1, 2),
            "kind": st.sampled_from([59, 60]),
            "end_thread": st.one_of(st.none(), st.integers(1, 2)),
        }
    ),
    max_size=10,
)
launches = st.lists(
    st.fixed_dictionaries(
        {
            "at": small,
            "thread": st.integers(1, 3),
            "process": st.integers(1, 2),
            "duration": st.integers(0, 9),
            "seen": st.booleans(),
        }
    ),
    max_size=15,
)


def expected(around: list[dict[str, Any]], launch: dict[str, Any]) -> list[str] | None:
    if not launch["seen"]:
        return None
    held = []
    for i, r in enumerate(around):
        threads = {r["thread"]}
        if r["kind"] == 60 and r["end_thread"] is not None:
            threads.add(r["end_thread"])
        end = 10**9 if r["end"] is None else r["end"]
        if (
            r["process"] == launch["process"]
            and launch["thread"] in threads
            and r["start"] <= launch["at"] < end
        ):
            held.append(((r["start"], -end, r["kind"] != 60, i), f"r{i}"))
    return [name for _, name in sorted(held)] or None


@settings(max_examples=60, deadline=None)
@given(ranges, launches)
def test_rows_are_those_of_the_oracle_and_totals_are_conserved(
    around: list[dict[str, Any]], launched: list[dict[str, Any]]
) -> None:
    export = Export()
    for i, r in enumerate(around):
        export.range(f"r{i}", **r)
    for i, launch in enumerate(launched):
        name, process, start = f"k{i}", launch["process"], 1000 + i
        # The n-th launch of either process has the same id.
        correlation = 1 + sum(x["process"] == process for x in launched[:i])
        if launch["seen"]:
            export.call(launch["at"], correlation, thread=launch["thread"], process=process)
        export.kernel(start, start + launch["duration"], correlation, name=name, process=process)
    with tempfile.TemporaryDirectory() as folder:
        artefact = sqlite.read(export.write(Path(folder) / "c.sqlite"))
    found = artefact.main.to_pylist()
    assert [r["range_path"] for r in found] == [expected(around, x) for x in launched]
    by_range: Counter[str | None] = Counter()
    for row in found:
        by_range[row["range"]] += row["duration_ns"]
    assert sum(by_range.values()) == sum(x["duration"] for x in launched)
    missing = sum(not x["seen"] for x in launched)
    said = [n for n in artefact.notes if "no launch in the capture" in n]
    assert bool(said) == bool(missing)
    if missing:
        assert said[0].startswith(f"{missing} of {len(launched)} kernel")
