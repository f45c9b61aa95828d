"""The rows and the phases of an eager capture: figures worked out by hand, in ns."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from events_by_hand import BACK, Event, events_of, kernel, launch, module, op, phase, span

from layerline.analysis.attribution.eager import KIND, eager, launched, of_events
from layerline.analysis.readers.base import Artefact
from layerline.analysis.readers.torch.trace import launches

OUTSIDE = "outside operators"


def read(*events: Event, **meta: Any) -> Artefact:
    return of_events(events_of(*events), meta)


def rows(found: Artefact, *columns: str) -> dict[str, tuple[Any, ...]]:
    """The columns by name; every name is there once."""
    table = found.main.to_pylist()
    assert len({r["name"] for r in table}) == len(table)
    return {r["name"]: tuple(r[c] for c in columns) for r in table}


def phases(found: Artefact, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(p[c] for c in columns) for p in found.facts["phases"]]


def test_a_row_says_whom_it_is_charged_to_and_when() -> None:
    found = read(
        span("layerline/iteration/4", 0, 100), module("a", 0, 10), op("aten::mm", 1, 9),
        launch(2, 31), op("aten::empty", 4, 6), op("free", 20, 25), launch(21, 32),
        kernel("gemm", 12, 17, 31), kernel("copy", 30, 32, 32, "gpu_memcpy"),
        kernel("lost", 40, 43, 99), precision="bf16",
    )  # fmt: skip
    assert found.kind == KIND and set(found.main["precision"].to_pylist()) == {"bf16"}
    columns = ("kind", "phase", "iteration", "modules", "layer", "rule", "self_ns", "duration_ns")
    assert rows(found, *columns) == {
        "aten::mm": ("op", "other", 4, ["a"], None, "range", 6000, 8000),
        "aten::empty": ("op", "other", 4, ["a"], None, "range", 2000, 2000),
        "free": ("op", "other", 4, None, "outside modules", "unresolved", 5000, 5000),
        "gemm": ("kernel", "other", 4, ["a"], "aten::mm", "range", None, 5000),
        "copy": ("memcpy", "other", 4, None, "outside modules", "unresolved", None, 2000),
        "lost": ("kernel", "other", None, None, "launch not traced", "unresolved", None, 3000),
    }
    assert found.facts["launched_ns"] == {31: 2000, 32: 21000}
    assert found.facts["steps"] == [{"iteration": 4, "start_ns": 0, "duration_ns": 100_000}]
    assert found.facts["phases"] == []


def test_a_module_that_the_file_names_first_is_one_too() -> None:
    """Its name has the code 0. What a phase launched is of it; what nobody launched of none."""
    found = read(
        module("a", 0, 10), op("mm", 1, 9), launch(2, 31), kernel("gemm", 12, 17, 31),
        kernel("lost", 40, 43, 99), phase("loss", 20, 30), op("nll", 21, 29), launch(22, 32),
        kernel("sum", 33, 34, 32),
    )  # fmt: skip
    kept = {k: v for k, v in rows(found, "modules", "layer", "phase").items() if k != OUTSIDE}
    assert kept == {
        "mm": (["a"], None, "other"), "gemm": (["a"], "mm", "other"),
        "lost": (None, "launch not traced", "other"), "nll": (None, "loss", "loss"),
        "sum": (None, "loss", "loss"),
    }  # fmt: skip


def test_a_file_is_read_as_its_events_are(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [op("mm", 0, 2)]}))
    (row,) = eager(path, {"precision": "fp16"}).main.to_pylist()
    assert (row["source"], row["precision"], row["self_ns"]) == ("a.json", "fp16", 2000)


def test_without_a_precision_a_row_has_none() -> None:
    assert read(op("a", 0, 1)).main["precision"].to_pylist() == [None]


def test_a_phase_is_divided_into_operators_and_what_is_outside() -> None:
    """Operators of any thread of its process fill it, each moment once; of another process none."""
    found = read(
        span("layerline/iteration/2", 0, 200), phase("forward", 10, 60), op("early", 0, 15),
        op("a", 20, 30), op("b", 25, 40, thread=BACK), op("late", 55, 70),
        op("other", 10, 60, process=8), phase("backward", 100, 150), phase("optimizer", 160, 170),
    )  # fmt: skip
    columns = ("iteration", "phase", "start_ns", "duration_ns", "operators_ns", "outside_ns")
    assert phases(found, *columns, "pieces") == [
        (2, "forward", 10_000, 50_000, 30_000, 20_000, [(10_000, 60_000)]),
        (2, "backward", 100_000, 50_000, 0, 50_000, [(100_000, 150_000)]),
        (2, "optimizer", 160_000, 10_000, 0, 10_000, [(160_000, 170_000)]),
    ]
    assert [r for r in found.main.to_pylist() if r["name"] == OUTSIDE] == [
        {
            **dict.fromkeys(found.main.column_names),
            "source": "t.json", "phase": name, "iteration": 2, "kind": "op", "name": OUTSIDE,
            "start_ns": start, "self_ns": ns, "range": f"layerline/phase/{name}",
            "range_path": [f"layerline/phase/{name}"], "layer": OUTSIDE, "rule": "range",
        }
        for name, start, ns in (
            ("forward", 10_000, 20_000), ("backward", 100_000, 50_000),
            ("optimizer", 160_000, 10_000),
        )
    ]  # fmt: skip


def test_phases_stand_in_the_order_of_time_whatever_the_files() -> None:
    found = read(phase("loss", 50, 60), phase("forward", 10, 20), phase("nonsense", 0, 5))
    assert phases(found, "phase", "iteration") == [("forward", None), ("loss", None)]


def test_what_a_phase_has_inside_another_is_that_ones_alone() -> None:
    """Two recomputations in backward leave it three pieces, one that ends with it two."""
    columns = ("phase", "duration_ns", "operators_ns", "outside_ns", "pieces")
    found = read(
        phase("backward", 0, 100), phase("recompute", 10, 30), phase("recompute", 50, 60),
        op("a", 5, 12), op("b", 55, 70),
    )  # fmt: skip
    assert phases(found, *columns) == [
        ("backward", 70_000, 15_000, 55_000, [(0, 10_000), (30_000, 50_000), (60_000, 100_000)]),
        ("recompute", 20_000, 2_000, 18_000, [(10_000, 30_000)]),
        ("recompute", 10_000, 5_000, 5_000, [(50_000, 60_000)]),
    ]
    found = read(phase("backward", 0, 100), phase("recompute", 40, 100), phase("data", 100, 110))
    assert phases(found, "phase", "pieces") == [
        ("backward", [(0, 40_000)]),
        ("recompute", [(40_000, 100_000)]),
        ("data", [(100_000, 110_000)]),
    ]
    nested = read(phase("backward", 0, 100), phase("recompute", 20, 80), phase("data", 30, 40))
    assert phases(nested, "phase", "pieces") == [
        ("backward", [(0, 20_000), (80_000, 100_000)]),
        ("recompute", [(20_000, 30_000), (40_000, 80_000)]),
        ("data", [(30_000, 40_000)]),
    ]


def test_phases_nest_by_their_times_in_any_order_of_the_file() -> None:
    """Of equal starts the longer one is around the other."""
    found = read(phase("recompute", 10, 30), phase("backward", 0, 100), op("a", 5, 12))
    assert phases(found, "phase", "pieces") == [
        ("backward", [(0, 10_000), (30_000, 100_000)]), ("recompute", [(10_000, 30_000)]),
    ]  # fmt: skip
    found = read(phase("recompute", 0, 30), phase("backward", 0, 100))
    assert sorted(phases(found, "phase", "duration_ns")) == [
        ("backward", 70_000), ("recompute", 30_000),
    ]  # fmt: skip


def test_phases_of_another_process_take_nothing_of_one() -> None:
    found = read(phase("backward", 0, 100), phase("recompute", 20, 80, process=8))
    assert phases(found, "duration_ns") == [(100_000,), (60_000,)]


def test_a_phase_of_no_length_or_filled_by_another_still_has_a_piece() -> None:
    found = read(phase("backward", 0, 100), phase("recompute", 0, 100), phase("data", 200, 200))
    assert phases(found, "phase", "duration_ns", "pieces") == [
        ("backward", 0, [(0, 0)]),
        ("recompute", 100_000, [(0, 100_000)]),
        ("data", 0, [(200_000, 200_000)]),
    ]


def test_the_time_before_the_first_launch_is_that_of_the_phase_and_its_process() -> None:
    """A call that launched nothing is none; neither is one before the phase, or after it."""
    found = read(
        launch(5, 31), kernel("k1", 6, 8, 31), phase("forward", 10, 50), launch(12, 77),
        launch(13, 34, process=8), kernel("k4", 14, 15, 34), launch(20, 33), launch(17, 32),
        kernel("k2", 30, 31, 32), kernel("k3", 32, 33, 33), phase("loss", 51, 60),
        phase("data", 70, 80), launch(80, 35), kernel("k5", 81, 82, 35), phase("optimizer", 90, 95),
        launch(90, 36), kernel("k6", 99, 100, 36),
    )  # fmt: skip
    assert phases(found, "phase", "before_launch_ns") == [
        ("forward", 7_000), ("loss", None), ("data", None), ("optimizer", 0),
    ]  # fmt: skip


def test_when_each_operation_was_launched_by_its_correlation() -> None:
    events = events_of(
        launch(5, 31), launch(7, 77), kernel("k", 6, 8, 31),
        kernel("set", 9, 10, 31, "gpu_memset"), kernel("lost", 20, 21, 99),
    )  # fmt: skip
    assert launched(events, launches(events)[0]) == {31: 5000}


def test_steps_are_the_ranges_of_iterations_in_order() -> None:
    found = read(
        span("layerline/iteration/1", 50, 70), span("layerline/iteration/0", 10, 20),
        span("layerline/iteration/x", 0, 5), op("layerline/iteration/7", 0, 5),
    )  # fmt: skip
    assert found.facts["steps"] == [
        {"iteration": 0, "start_ns": 10_000, "duration_ns": 10_000},
        {"iteration": 1, "start_ns": 50_000, "duration_ns": 20_000},
    ]


def test_what_a_checkpoint_takes_beside_its_operators_is_recomputation() -> None:
    """Of the node's 40 us the range of recomputation is 20, of which its own operators take 6."""
    found = read(
        span("layerline/iteration/0", 0, 100), phase("backward", 0, 90),
        op("Checkpoint", 10, 50), phase("recompute", 15, 35), op("a", 16, 20), op("b", 21, 23),
        op("after", 40, 45),
    )  # fmt: skip
    table = found.main.to_pylist()
    assert [(r["name"], r["self_ns"]) for r in table if r["name"] in ("a", "b", "after")] == [
        ("a", 4000), ("b", 2000), ("after", 5000),
    ]  # fmt: skip
    node, made = (r for r in table if r["name"] == "Checkpoint")
    # 40 less the operators inside (4, 2, 5) less what is recomputation.
    assert node["self_ns"] == 29_000 - 14_000
    assert made == {
        **dict.fromkeys(found.main.column_names),
        "source": "t.json", "phase": "recompute", "iteration": 0, "kind": "op",
        "name": "Checkpoint", "start_ns": 15_000, "self_ns": 14_000, "layer": "recomputation",
        "rule": "range",
    }  # fmt: skip
    # The file's order does not count.
    node, inner, python = op("C", 10, 50), op("a", 16, 20), phase("recompute", 15, 35)
    for order in itertools.permutations((node, inner, python)):
        table = [r for r in read(*order).main.to_pylist() if r["name"] != OUTSIDE]
        assert sorted((r["name"], r["phase"], r["self_ns"]) for r in table) == [
            ("C", "other", 20_000), ("C", "recompute", 16_000), ("a", "recompute", 4000),
        ]  # fmt: skip
    # Its own operators fill it: nothing is left, and there is a row of that.
    filled = read(op("C", 10, 50), phase("recompute", 15, 35), op("a", 15, 35)).main.to_pylist()
    assert [r["self_ns"] for r in filled if r["layer"] == "recomputation"] == [0]
    # In no operator it is no operator's time: nothing is taken apart.
    bare = read(phase("recompute", 15, 35), op("a", 16, 20))
    assert rows(bare, "self_ns") == {"a": (4000,), OUTSIDE: (16_000,)}


def test_what_cannot_be_told_is_said() -> None:
    none = "no module ranges: operators cannot be given to modules"
    numbers = "no sequence numbers: backward operators cannot be given to modules"
    assert read(op("a", 0, 1)).notes == [none]
    assert read(module("a", 0, 1), op("a", 0, 1)).notes == []
    back = phase("backward", 5, 9)
    assert read(module("a", 0, 1), back, op("N", 6, 7)).notes == [numbers]
    assert read(module("a", 0, 1), back, op("N", 6, 7, 3)).notes == [numbers]
    assert read(module("a", 0, 1), back, op("N", 6, 7, 3, of=1)).notes == []
    assert read(module("a", 0, 1), back, op("N", 6, 7, 0, of=1)).notes == []
    lost = read(module("a", 0, 1), op("a", 0, 1), kernel("k", 0, 1, 5)).notes
    assert len(lost) == 1 and "1 of 1 device operations have no launch" in lost[0]
