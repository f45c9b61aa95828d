"""Who an operator is charged to: one rule a test, on traces of a few events made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from events_by_hand import BACK, EVALUATE, MAIN, events_of, module, op, phase, span

from layerline.analysis.attribution.autograd import (
    ROWS,
    RULES,
    Credit,
    credit,
    forward_of,
    path_of,
)
from layerline.analysis.attribution.autograd import backward_nodes as nodes_of
from layerline.analysis.readers.torch.events import Events
from layerline.analysis.readers.torch.nesting import nest
from layerline.core.tables import PHASES


def charged(events: Events) -> dict[str, tuple[str, str, str]]:
    """By operator: whom it is charged to ("row: " and its name where that is no module), the
    phase, and the rule. Names are unique."""
    found = credit(events, nest(events))
    return {
        events.names[events.name[i]]: (
            _who(events, found, i),
            PHASES[found.phase[i]],
            RULES[found.rule[i]],
        )
        for i in range(len(events))
        if events.kind[i] == 2
    }


def _who(events: Events, found: Credit, i: int) -> str:
    name, row = int(found.module[i]), int(found.row[i])
    assert (name < 0) != (row < 0)
    return path_of(events.names[name]) if name >= 0 else f"row: {ROWS[row]}"


def forwards(events: Events) -> dict[str, str | None]:
    """By node: the forward operator that it is of."""
    nodes = nodes_of(events)
    found = forward_of(events, nodes)
    assert set(found[~nodes].tolist()) <= {-1}
    return {
        events.names[events.name[i]]: None if f < 0 else events.names[events.name[f]]
        for i, f in enumerate(found.tolist())
        if nodes[i]
    }


def test_forward_is_the_innermost_modules_and_backward_its_forwards() -> None:
    events = events_of(
        span("layerline/iteration/3", 0, 100),
        phase("forward", 0, 40),
        module("", 0, 30),
        op("root", 1, 4, 10),
        module("a", 5, 15),
        op("mm", 6, 14, 11),
        op("inner", 7, 9),
        op("outside", 31, 35),
        phase("backward", 50, 90),
        op(EVALUATE + "Mm", 51, 70, 11, of=1),
        op("MmBackward", 52, 69, 11, of=1),
        op("product", 53, 60),
        op(EVALUATE + "Root", 71, 80, 10, of=1),
        op("start", 82, 85),
        op("after", 95, 99),
    )
    assert charged(events) == {
        "root": ("", "forward", "range"),
        "mm": ("a", "forward", "range"),
        "inner": ("a", "forward", "range"),
        "outside": ("row: outside modules", "forward", "unresolved"),
        EVALUATE + "Mm": ("a", "backward", "sequence"),
        "MmBackward": ("a", "backward", "sequence"),
        "product": ("a", "backward", "sequence"),
        EVALUATE + "Root": ("", "backward", "sequence"),
        "start": ("row: backward start", "backward", "range"),
        "after": ("row: outside modules", "other", "unresolved"),
    }
    found = credit(events, nest(events))
    assert set(found.iteration.tolist()) == {3}
    assert {c.dtype for c in (found.module, found.forward, found.iteration)} == {np.dtype("int64")}
    of = [events.names[events.name[f]] if f >= 0 else None for f in found.forward.tolist()]
    assert of == [None] * 9 + ["mm", "mm", "mm", "root", None, None]


def test_each_phase_has_its_own_row() -> None:
    events = events_of(
        phase("loss", 0, 10), op("nll", 1, 5), phase("optimizer", 10, 20), op("adam", 11, 15),
        phase("data", 20, 30), op("copy", 21, 25), phase("inference", 30, 40), op("i", 31, 32),
    )  # fmt: skip
    assert charged(events) == {
        "nll": ("row: loss", "loss", "range"),
        "adam": ("row: optimizer", "optimizer", "range"),
        "copy": ("row: data", "data", "range"),
        "i": ("row: outside modules", "inference", "unresolved"),
    }


def test_a_row_stays_the_row_in_backward() -> None:
    events = events_of(
        phase("loss", 0, 10), op("nll", 1, 5, 4), phase("forward", 10, 20), op("free", 11, 12, 5),
        phase("backward", 20, 90), op("NllBackward", 21, 25, 4, of=1),
        op("FreeBackward", 26, 29, 5, of=1), op("Lost", 30, 35, 400, of=1),
        module("a", 40, 50), op("last", 41, 42),
    )  # fmt: skip
    found = charged(events)
    assert found["NllBackward"] == ("row: loss", "backward", "sequence")
    assert found["FreeBackward"] == ("row: outside modules", "backward", "unresolved")
    assert found["Lost"] == ("row: backward without forward", "backward", "unresolved")


def test_gradients_that_are_accumulated_or_meet_are_rows() -> None:
    """An addition that the engine makes stands right under it, beside the node."""
    accumulate = EVALUATE + "torch::autograd::AccumulateGrad"
    events = events_of(
        phase("forward", 0, 20), module("a", 0, 10), op("mm", 1, 5, 1),
        phase("backward", 20, 99),
        op(accumulate, 21, 30), op("torch::autograd::AccumulateGrad", 22, 29), op("detach", 23, 24),
        op(EVALUATE + "Mm", 31, 60, 1, of=1), op("MmBackward", 32, 40, 1, of=1),
        op("aten::add", 41, 50), op("of add", 42, 45), op("aten::add_", 51, 55), op("mul", 56, 57),
        op(EVALUATE + "Other", 61, 80, 1, of=1), op("Second", 62, 79, 1, of=1),
        op("aten::add ", 63, 64),
    )  # fmt: skip
    found = charged(events)

    def of_row(name: str) -> set[str]:
        return {k for k, v in found.items() if v == (f"row: {name}", "backward", "range")}

    accumulated = {accumulate, "torch::autograd::AccumulateGrad", "detach"}
    assert of_row("gradient accumulation") == accumulated
    assert of_row("gradient sums") == {"aten::add", "of add", "aten::add_"}
    assert found["mul"] == found["aten::add "] == ("a", "backward", "sequence")
    every = credit(events, nest(events))
    names = [events.names[n] for n in events.name.tolist()]
    assert every.forward[names.index("of add")] == every.forward[names.index("detach")] == -1


def test_what_stands_first_in_the_file_counts_as_the_others_do() -> None:
    """It has the index 0, and the first number is 0 too."""
    events = events_of(op("mm", 1, 5, 0), module("a", 0, 10), op("Node", 20, 30, 0, of=1))
    assert charged(events) == {
        "mm": ("a", "forward", "range"), "Node": ("a", "backward", "sequence"),
    }  # fmt: skip
    around, node = op(EVALUATE + "X", 20, 60, 3, of=1), op("X", 21, 40, 3, of=1)
    add, others = op("aten::add", 41, 50), (module("a", 0, 10), op("f", 1, 5, 3))
    for events in (events_of(around, node, add, *others), events_of(add, around, node, *others)):
        assert charged(events)["aten::add"][0] == "row: gradient sums"
    events = events_of(op("C", 21, 60, 1, of=1), module("a", 25, 40), op("again", 26, 30))
    assert charged(events)["again"] == ("a", "recompute", "range")


def test_an_addition_inside_a_node_is_the_nodes() -> None:
    events = events_of(
        module("a", 0, 10), op("mm", 1, 5, 1), op(EVALUATE + "Mm", 31, 60, 1, of=1),
        op("MmBackward", 32, 50, 1, of=1), op("aten::add", 41, 45),
    )  # fmt: skip
    assert charged(events)["aten::add"] == ("a", "backward", "sequence")


def test_a_module_inside_a_node_is_recomputed() -> None:
    events = events_of(
        phase("forward", 0, 20), module("a", 0, 10), op("first", 1, 5, 1),
        phase("backward", 20, 99), op("Checkpoint", 21, 60, 1, of=1),
        module("a", 25, 40), op("again", 26, 30, 2), op("Inner", 31, 35, 2, of=1),
        op("bare", 41, 45, 0), op("in bare", 42, 43), op("mixed", 50, 55),
    )  # fmt: skip
    found = charged(events)
    assert found["again"] == ("a", "recompute", "range")
    assert found["Checkpoint"] == found["mixed"] == ("a", "backward", "sequence")
    # Backward inside of what is recomputed: the innermost of the two decides.
    assert found["Inner"] == ("a", "backward", "sequence")
    for name in ("bare", "in bare"):
        assert found[name] == ("row: recomputation", "recompute", "range")


def test_what_lies_in_a_range_of_recomputation_is_recomputed() -> None:
    events = events_of(
        module("a", 0, 10), op("first", 1, 5, 1), phase("backward", 20, 99),
        op("Checkpoint", 21, 60, 1, of=1), phase("recompute", 25, 40), op("python", 26, 30),
        module("a", 31, 39), op("again", 32, 33),
    )  # fmt: skip
    found = charged(events)
    assert found["python"] == ("row: recomputation", "recompute", "range")
    assert found["again"] == ("a", "recompute", "range")


def test_a_compiled_graph_is_a_module_and_its_guards_a_row() -> None:
    lookup = "TorchDynamo Cache Lookup"
    events = events_of(
        phase("forward", 0, 50), op(lookup, 1, 3), op("Torch-Compiled Region: 0/1", 4, 20),
        op("fused", 5, 10), module("a", 21, 40), op(lookup + " again", 22, 25),
    )  # fmt: skip
    found = charged(events)
    assert found["fused"] == ("compiled graph 0/1", "forward", "range")
    assert found[lookup] == ("row: guards of compiled graphs", "forward", "range")
    assert found[lookup + " again"] == ("a", "forward", "range")
    events = events_of(phase("loss", 0, 50), op(lookup, 1, 3))
    assert charged(events)[lookup] == ("row: loss", "loss", "range")


def test_a_trace_without_phases_has_those_that_its_operators_tell() -> None:
    events = events_of(
        span("Optimizer.step#SGD.step", 0, 20), op("axpy", 1, 5, 3), op("numbered", 21, 30, 4),
        op("below", 22, 25), op("plain", 31, 35), op("Backward", 41, 50, 4, of=1), op("b", 42, 43),
        op("Optimizer.zero_grad#SGD", 51, 60), op("zero", 52, 53),
    )  # fmt: skip
    assert {k: v[1] for k, v in charged(events).items()} == {
        "axpy": "optimizer", "numbered": "forward", "below": "forward", "plain": "other",
        "Backward": "backward", "b": "backward", "Optimizer.zero_grad#SGD": "optimizer",
        "zero": "optimizer",
    }  # fmt: skip
    marked = events_of(phase("data", 70, 80), span("Optimizer.step", 0, 20), op("axpy", 1, 5, 3))
    assert charged(marked)["axpy"][1] == "other"


# --- the forward operator of a node --------------------------------------------------------------


def test_of_equal_numbers_the_last_before_the_node_is_its_forward() -> None:
    """A later step that counts anew is not: it starts after the node does."""
    events = events_of(
        op("one", 0, 5, 7), op("two", 10, 15, 7), op("Node", 20, 25, 7, of=1),
        op("three", 30, 35, 7), op("Later", 40, 45, 7, of=1),
    )  # fmt: skip
    assert forwards(events) == {"Node": "two", "Later": "three"}
    early = events_of(op("Node", 0, 5, 7, of=1), op("one", 10, 15, 7))
    assert forwards(early) == {"Node": None}
    together = events_of(op("one", 10, 15, 7), op("Node", 10, 15, 7, of=1, thread=BACK))
    assert forwards(together) == {"Node": "one"}


def test_of_equal_starts_the_inner_operator_is_the_forward() -> None:
    outer, inner = op("outer", 0, 9, 7, index=1), op("inner", 0, 9, 7, index=2)
    node = op("Node", 20, 25, 7, of=1)
    assert forwards(events_of(inner, outer, node)) == {"Node": "inner"}
    assert forwards(events_of(outer, inner, node)) == {"Node": "inner"}


@pytest.mark.parametrize(
    ("number", "found"), [(7, "op"), (8, "op"), (23, "op"), (24, None), (6, None)]
)
def test_a_number_that_no_operator_began_with_is_of_the_last_smaller_one(
    number: int, found: str | None
) -> None:
    """An in-place operator on a view makes several nodes; 16 apart they are no longer its."""
    node = op("Node", 20, 25, number, of=1)
    assert forwards(events_of(op("op", 0, 5, 7), node)) == {"Node": found}


def test_the_forward_thread_is_the_one_with_most_of_the_numbers() -> None:
    """The profiler's numbers of threads are its own; each process has its own threads."""
    events = events_of(
        op("first", 0, 1, 5, thread=MAIN), op("a5", 2, 3, 5, thread=3), op("a6", 4, 5, 6, thread=3),
        op("other", 2, 3, 5, thread=3, process=8), op("other6", 4, 5, 6, thread=3, process=8),
        op("N5", 20, 25, 5, of=1, thread=BACK), op("N6", 26, 29, 6, of=1, thread=BACK),
        op("M5", 30, 35, 5, of=2, thread=BACK), op("P5", 40, 45, 5, of=1, process=9),
        op("Q5", 46, 47, 5, of=1, process=8, thread=BACK),
    )  # fmt: skip
    assert forwards(events) == {
        "N5": "a5", "N6": "a6", "M5": "first", "P5": None, "Q5": "other",
    }  # fmt: skip
    # Of equal shares it is the thread of the earliest operator, wherever that stands in the file.
    late, soon = op("late", 4, 5, 5, thread=3), op("soon", 2, 3, 5, thread=4)
    assert forwards(events_of(late, soon, op("N", 9, 10, 5, of=1))) == {"N": "soon"}


def test_nodes_are_what_the_engine_evaluates_and_what_has_a_forward_thevents_of() -> None:
    events = events_of(
        op("forward", 0, 1, 0), op("node", 2, 3, 0, of=1), op("bare", 4, 5),
        op(EVALUATE + "x", 6, 7),
        span(EVALUATE + "range", 8, 9), span("numbered range", 8, 9),
    )  # fmt: skip
    names = [events.names[n] for n in events.name.tolist()]
    assert [n for n, is_node in zip(names, nodes_of(events), strict=True) if is_node] == [
        "node", EVALUATE + "x",
    ]  # fmt: skip
    assert forwards(events)["node"] == "forward"


def test_without_operators_of_either_kind_nothing_is_found() -> None:
    assert forwards(events_of(op("Node", 0, 5, 7, of=1))) == {"Node": None}
    assert forwards(events_of(op("forward", 0, 5, 7))) == {}
