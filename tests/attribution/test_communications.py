"""The communications of one rank: what each trace says of them, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from events_by_hand import BACK, Event, events_of, kernel, launch, module, op, phase, span

from layerline.analysis.attribution import communications, gloo
from layerline.analysis.attribution.communication import Found
from layerline.analysis.model.ranks import Group
from layerline.analysis.readers.torch.communication import Arguments
from layerline.analysis.readers.torch.events import Events
from layerline.analysis.readers.torch.nesting import nest, windows
from layerline.analysis.readers.torch.trace import launches

RECORD = "record_param_comms"
ALL = Group("0", "world", (0, 4, 8))


def told(event: Event, **args: Any) -> Event:
    """The event with arguments as NCCL writes them."""
    names = {
        "collective": "Collective name", "group": "Process Group Name",
        "about": "Process Group Description", "ranks": "Process Group Ranks",
        "size": "Group size", "into": "In msg nelems", "out": "Out msg nelems", "dtype": "dtype",
        "source": "Src Rank", "target": "Dst Rank", "number": "Seq", "dims": "Input Dims",
        "types": "Input type", "inputs": "Concrete Inputs",
    }  # fmt: skip
    return {**event, "args": event["args"] | {names[k]: v for k, v in args.items()}}


def found(events: Events, *groups: Group) -> list[Found]:
    nesting = nest(events)
    launch_of, _ = launches(events)
    records = communications.records_of(events, nesting, launch_of)
    mine = communications.is_communication(events, records)
    return communications.found(events, nesting, records, mine, list(groups))


def rows(events: Events, *every: Found) -> list[dict[str, Any]]:
    nesting = nest(events)
    phases, iterations = windows(events, nesting)
    modules = communications.modules(events, nesting)
    return communications.rows(list(every), events, modules, phases, iterations)


def named(events: Events, name: str) -> int:
    return [events.names[n] for n in events.name.tolist()].index(name)


# --- on a device ---------------------------------------------------------------------------------


def test_a_record_has_the_interval_of_all_that_it_launched() -> None:
    """The copies too; what stands on no kernel of it comes from the record."""
    record = told(
        op(RECORD, 10, 30), collective="allreduce", group="0", into=100, out=100, dtype="Float",
        number=7,
    )  # fmt: skip
    events = events_of(
        record, launch(12, 31), launch(14, 32), kernel("copy", 60, 61, 32, "gpu_memcpy"),
        kernel("ncclKernel", 40, 55, 31), op("mm", 31, 39), launch(32, 33),
        kernel("gemm", 70, 80, 33),
    )  # fmt: skip
    (one,) = found(events, ALL)
    assert one == Found(
        named(events, RECORD), "all-reduce",
        Arguments("allreduce", "0", elements_in=100, elements_out=100, dtype="Float"),
        40_000, 61_000, "record", 20, 7, ALL,
    )  # fmt: skip


def test_communications_stand_in_the_order_in_which_the_host_asked_for_them() -> None:
    """What nobody is known to have asked for stands where it ran."""
    events = events_of(
        kernel("ncclKernel_Broadcast", 20, 25, 90),
        told(op(RECORD, 10, 18), collective="allreduce"), launch(12, 31),
        kernel("k", 40, 50, 31), kernel("ncclKernel_AllGather", 5, 8, 91),
        kernel("ncclKernel_Reduce", 0, 2, 92),
    )  # fmt: skip
    assert [(f.operation, f.stream) for f in found(events)] == [
        ("reduce", 20), ("all-gather", 20), ("all-reduce", 20), ("broadcast", 20),
    ]  # fmt: skip


def test_what_a_record_says_itself_counts_before_its_kernels_and_ranges() -> None:
    record = told(op(RECORD, 10, 30), collective="allreduce", into=5, dtype="Half")
    inner = told(span("nccl:all_gather", 11, 29), dims=[[6]], types=["float"])
    other = told(kernel("ncclKernel", 40, 50, 31), collective="broadcast", into=9)
    (one,) = found(events_of(record, inner, launch(12, 31), other))
    assert one.operation == "all-reduce"
    assert one.arguments == Arguments("allreduce", elements_in=5, dtype="Half")


def test_what_a_record_lacks_its_kernels_have() -> None:
    args = {"collective": "_allgather_base", "group": "9", "about": "d", "ranks": "[1, 3]",
            "size": 2, "into": 5, "out": 10, "dtype": "Half", "number": 3}  # fmt: skip
    events = events_of(
        op(RECORD, 10, 30), launch(12, 31), told(kernel("ncclKernel", 40, 55, 31), **args)
    )
    (one,) = found(events)
    assert (one.operation, one.number, one.known_by) == ("all-gather", 3, "record")
    assert one.group == Group("9", "d", (1, 3)) and one.arguments.elements_in == 5


def test_a_kernel_without_a_record_is_known_by_its_arguments_else_by_its_name() -> None:
    events = events_of(
        kernel("ncclDevKernel_ReduceScatter_Sum", 10, 20, 31), kernel("gemm", 20, 25, 32),
        told(kernel("mine", 30, 35, 33), collective="send", target=2, number=4),
        kernel("ncclMystery", 40, 41, 34), kernel("ncclCopy", 50, 51, 35, "gpu_memcpy"),
    )  # fmt: skip
    assert [
        (f.event, f.operation, f.start, f.end, f.known_by, f.number) for f in found(events)
    ] == [
        (-1, "reduce-scatter", 10_000, 20_000, "name", -1),
        (-1, "send", 30_000, 35_000, "record", 4),
        (-1, "unknown", 40_000, 41_000, "name", -1),
    ]


def test_without_arguments_the_range_inside_says_what_it_is_and_its_shapes() -> None:
    inner = told(span("nccl:all_gather", 11, 29), dims=[[6], [2, 3]], types=["float", "float"])
    events = events_of(op(RECORD, 10, 30), inner, launch(12, 31), kernel("k", 40, 50, 31))
    (one,) = found(events)
    assert one.event == named(events, RECORD) and one.operation == "all-gather"
    assert (one.arguments.dims, one.arguments.types) == (([6], [2, 3]), ("float", "float"))
    # An old trace has the range alone.
    events = events_of(inner, launch(12, 31), kernel("k", 40, 50, 31))
    (one,) = found(events)
    assert (one.event, one.operation) == (0, "all-gather")


def test_sends_of_a_group_have_the_interval_of_the_record_that_ends_it() -> None:
    """The next one of their thread, which is none of its own; what launched something has its own.
    An end without any stays."""

    def point(name: str, at: float, thread: int = 1, **more: Any) -> Event:
        return told(op(RECORD, at, at + 2, thread=thread), collective=name, **more)

    events = events_of(
        point("send", 10, target=1, number=5), point("recv", 14, source=2),
        point("allreduce", 16), told(op(RECORD, 20, 30), collective="coalesced"), launch(22, 31),
        kernel("ncclDevKernel_SendRecv", 40, 50, 31), point("send", 35),
        told(op(RECORD, 60, 70), collective="coalesced"), launch(62, 32),
        kernel("ncclDevKernel_SendRecv", 80, 90, 32), op(RECORD, 17, 18), point("recv", 5),
        launch(6, 33), kernel("ncclDevKernel_Recv", 7, 9, 33), point("send", 15, BACK),
        told(op(RECORD, 95, 98), collective="coalesced"), launch(96, 34),
        kernel("ncclDevKernel_Broadcast", 97, 99, 34),
    )  # fmt: skip
    assert {(f.known_by, f.stream) for f in found(events)} == {("record", 20)}
    parts = [(f.operation, f.start, f.end, f.number) for f in found(events)]
    assert parts == [
        ("recv", 7000, 9000, -1), ("send", 40_000, 50_000, 5), ("recv", 40_000, 50_000, -1),
        ("send", 80_000, 90_000, -1), ("coalesced", 97_000, 99_000, -1),
    ]  # fmt: skip


def test_what_is_computed_while_the_work_of_a_group_is_held_is_no_communication() -> None:
    """Its range ends when its work is dropped: a send's after the next forward."""
    events = events_of(
        told(op(RECORD, 10, 12), collective="send", group="0", target=1),
        span("nccl:coalesced", 20, 70), launch(22, 31), launch(40, 32), launch(45, 33),
        kernel("ncclDevKernel_SendRecv", 30, 39, 31), kernel("gemm", 41, 60, 32),
        kernel("Memcpy DtoD", 60, 64, 33, "gpu_memcpy"),
    )  # fmt: skip
    (one,) = found(events, ALL)
    assert (one.operation, one.start, one.end, one.group) == ("send", 30_000, 39_000, ALL)
    nesting = nest(events)
    records = communications.records_of(events, nesting, launches(events)[0])
    mine = communications.is_communication(events, records)
    assert [events.names[n] for n in events.name[mine].tolist()] == ["ncclDevKernel_SendRecv"]


def test_calls_of_nccl_itself_are_of_the_group_that_pytorch_ends() -> None:
    """As in a report of nsys: PyTorch's records say nothing, NCCL's ranges inside them do. What was
    sent before, by itself, is not of the group, though its launch is not within NCCL's range."""
    events = events_of(
        op(RECORD, 1, 7), told(span("nccl:Send", 2, 3), collective="Send", group="0", target=2),
        launch(4, 30), kernel("ncclDevKernel_SendRecv", 6, 9, 30),
        op(RECORD, 8, 18), told(span("nccl:Send", 10, 12), collective="Send", group="0", target=2),
        op(RECORD, 20, 28), told(span("nccl:Recv", 21, 23), collective="Recv", group="0", source=2),
        span("nccl:coalesced", 30, 36), launch(32, 31),
        kernel("ncclDevKernel_SendRecv", 40, 50, 31),
    )  # fmt: skip
    assert [(f.operation, f.start, f.end, f.known_by) for f in found(events, ALL)] == [
        ("send", 6_000, 9_000, "record"),
        ("send", 40_000, 50_000, "record"), ("recv", 40_000, 50_000, "record"),
    ]  # fmt: skip


# --- what is known of one ------------------------------------------------------------------------


def test_a_row_says_when_where_and_of_which_module_it_is() -> None:
    events = events_of(
        span("layerline/iteration/3", 0, 100), phase("backward", 5, 90), module("h.0", 8, 50),
        span("inside", 9, 40), op(RECORD, 10, 30), op("free", 95, 99),
        span("FSDP::pre_forward (layers.1)", 110, 120), op("fsdp", 111, 112),
        span("FSDP::backward_prefetch for layers.2 [pg=1]", 130, 140),
        op("ahead", 131, 132), span("FSDP::root_pre_forward", 150, 160), op("root", 151, 152),
    )  # fmt: skip
    at = named(events, RECORD)
    arguments = Arguments(dtype="Float", elements_in=6, group_size=16)
    whole = Found(at, "all-reduce", arguments, 1, 2, "record", 20, 0, ALL, 77)
    (row, alone) = rows(events, whole, Found(-1, "barrier", arguments, None, None, "name"))
    assert row == {
        "group": ALL.key, "operation": "all-reduce", "phase": "backward", "module": "h.0",
        "dtype": "Float", "known_by": "record", "sequence": 0, "iteration": 3, "issued": 10_000,
        "start": 1, "end": 2, "bytes": 24, "peer": None, "group_size": 3, "stream": 20,
    }  # fmt: skip
    assert alone == {
        **dict.fromkeys(row), "operation": "barrier", "dtype": "Float", "known_by": "name",
        "group_size": 16,
    }  # fmt: skip
    modules = [
        rows(events, replace(whole, event=named(events, name)))[0]["module"]
        for name in ("free", "fsdp", "ahead", "root")
    ]
    assert modules == [None, "layers.1", "layers.2", None]
    unnumbered = replace(whole, stream=-1, group=Group("1", "", None), event=named(events, "fsdp"))
    (row,) = rows(events, unnumbered)
    assert (row["stream"], row["group_size"], row["phase"], row["iteration"]) == (
        77,
        16,
        None,
        None,
    )


def test_in_backward_a_communication_is_of_the_module_whose_forward_it_undoes() -> None:
    """Its node has the number of the forward operator; sums of a weight's gradient have none."""
    evaluate = "autograd::engine::evaluate_function: "
    events = events_of(
        module("h.0", 0, 20), op("Redistribute", 2, 18, 5), op("_c10d::gather", 4, 10),
        op(f"{evaluate}RedistributeBackward", 30, 60, 5, of=1, thread=BACK),
        op("RedistributeBackward", 31, 59, 5, of=1, thread=BACK),
        op("NestedRedistribute", 32, 58, 9, thread=BACK),
        op("_c10d::scatter", 40, 50, thread=BACK),
        op(f"{evaluate}torch::autograd::AccumulateGrad", 70, 90, thread=BACK),
        op("_c10d::reduce", 72, 80, thread=BACK),
        module("h.1", 100, 150, BACK), op("AgainBackward", 110, 140, 5, of=1, thread=BACK),
        op("_c10d::within", 112, 130, thread=BACK),
    )  # fmt: skip
    told_of, names = communications.modules(events, nest(events))
    of = [
        None if (code := told_of[named(events, f"_c10d::{name}")]) < 0 else names[code]
        for name in ("gather", "scatter", "reduce", "within")
    ]
    assert of == ["h.0", "h.0", None, "h.1"]


BYTES = [
    ("all-reduce", {"elements_in": 6, "elements_out": 9, "dtype": "Float"}, 24),
    ("reduce-scatter", {"elements_in": 6, "elements_out": 3, "dtype": "BFloat16"}, 6),
    ("recv", {"elements_in": 0, "elements_out": 3, "dtype": "Double"}, 24),
    ("send", {"elements_in": 3, "elements_out": 0, "dtype": "Double"}, 24),
    ("barrier", {"elements_in": 6, "dtype": "Float"}, None),
    ("all-reduce", {"elements_in": 6}, None),
    ("all-reduce", {"dtype": "Float"}, None),
    ("all-reduce", {"dims": ([], [4, 5], [2]), "types": ("", "float", "half")}, 80),
    ("all-gather", {"dims": ([8], [2]), "types": ("half", "half")}, 4),
    ("reduce-scatter", {"dims": ([2], [8]), "types": ("half",)}, 4),
    ("broadcast", {"dims": ([8], [2]), "types": ("strange", "double")}, 64),
    ("broadcast", {"dims": ([], []), "types": ("half",)}, None),
    ("all-reduce", {"elements_in": 6, "dims": ([9],), "dtype": "Int"}, 24),
]


@pytest.mark.parametrize(("operation", "known", "expected"), BYTES)
def test_bytes_are_those_of_the_rank(operation: str, known: dict[str, Any], expected: Any) -> None:
    (row,) = rows(events_of(op("a", 0, 1)), Found(0, operation, Arguments(**known), 0, 1, "record"))
    assert row["bytes"] == expected


PEERS = [
    ("send", {"target": 2, "source": 0}, ALL, 8),
    ("recv", {"target": 2, "source": 0}, ALL, 0),
    ("send", {"target": 3}, ALL, None),
    ("send", {"target": -1}, ALL, None),
    ("send", {"target": 3}, None, 3),
    ("send", {"target": 3}, Group("1", "", None), 3),
    ("send", {"inputs": ("", "0", "1")}, ALL, 4),
    ("send", {"inputs": ("", "0", "x")}, ALL, None),
    ("send", {"inputs": ("2", "1")}, ALL, None),
    ("all-reduce", {"target": 2}, ALL, None),
]


@pytest.mark.parametrize(("operation", "known", "group", "expected"), PEERS)
def test_a_peer_is_a_rank_of_the_group(
    operation: str, known: dict[str, Any], group: Group | None, expected: int | None
) -> None:
    one = Found(0, operation, Arguments(**known), 0, 1, "record", group=group)
    assert rows(events_of(op("a", 0, 1)), one)[0]["peer"] == expected


# --- gloo ----------------------------------------------------------------------------------------


def gloo_of(*events: Event, groups: tuple[Group, ...] = (ALL,)) -> list[tuple[Any, ...]]:
    every = events_of(*events)
    return [
        (
            every.names[every.name[f.event]], f.operation, f.start, f.end, f.known_by,
            f.arguments.group_size, f.group and f.group.name, f.thread,
        )
        for f in gloo.found(every, list(groups))
    ]  # fmt: skip


def test_the_kth_call_is_the_kth_range_that_it_makes() -> None:
    """Whatever the order of the file; gloo makes an all-reduce of a reduce-scatter."""
    first = told(op("c10d::reduce_scatter_", 0, 5), dims=[[2], [8]], types=["float", "float"])
    second = told(op("c10d::reduce_scatter_", 10, 15), dims=[[2], [6]], types=["float", "float"])
    assert gloo_of(
        second, first, span("gloo:all_reduce", 12, 20, 9), span("gloo:all_reduce", 2, 8, 9)
    ) == [
        ("c10d::reduce_scatter_", "reduce-scatter", 2000, 8000, "order", 4, "0", 9),
        ("c10d::reduce_scatter_", "reduce-scatter", 12_000, 20_000, "order", 3, "0", 9),
    ]


def test_with_fewer_calls_than_ranges_a_range_is_what_its_name_says() -> None:
    """Of another operation they are still told."""
    found = gloo_of(
        op("c10d::allreduce_", 0, 5), span("gloo:all_reduce", 2, 8, 9),
        span("gloo:all_reduce", 12, 20, 9), op("c10d::broadcast_", 30, 31),
        span("gloo:broadcast", 32, 33, 9), op("c10d::alltoall_", 40, 41),
        op("c10d::_allgather_base_", 50, 51), span("gloo:allgather", 52, 53, 9),
        groups=(ALL, Group("1", "", (0, 4))),
    )  # fmt: skip
    assert found == [
        ("gloo:all_reduce", "all-reduce", 2000, 8000, "record", None, None, 9),
        ("gloo:all_reduce", "all-reduce", 12_000, 20_000, "record", None, None, 9),
        ("c10d::broadcast_", "broadcast", 32_000, 33_000, "order", None, None, 9),
        ("c10d::_allgather_base_", "all-gather", 52_000, 53_000, "order", None, None, 9),
    ]


@pytest.mark.parametrize(
    ("dims", "size"), [([[8], [2]], 4), ([[2], [8]], 4), ([[8], [3]], None), ([[8]], None),
                       ([[8], [2], [1]], None), ([[8], [], [4]], 2), ([[0], [2]], None)],
)  # fmt: skip
def test_a_group_is_as_large_as_the_shapes_say(dims: list[Any], size: int | None) -> None:
    call = told(op("c10d::_allgather_base_", 0, 5), dims=dims)
    assert gloo_of(call, span("gloo:all_gather", 2, 8, 9))[0][5] == size
    other = told(op("c10d::allreduce_", 0, 5), dims=[[8], [2]])
    assert gloo_of(other, span("gloo:all_reduce", 2, 8, 9))[0][5] is None


def test_the_group_of_gloo_is_known_where_there_is_one() -> None:
    events = (op("c10d::allreduce_", 0, 5), span("gloo:all_reduce", 2, 8, 9))
    one, unknown = Group("self", "", (0,)), Group("u", "", None)
    assert gloo_of(*events, groups=(ALL,))[0][6] == "0"
    assert gloo_of(*events, groups=(one, ALL))[0][6] is None
    assert gloo_of(*events, groups=(ALL, unknown))[0][6] is None
    assert gloo_of(*events, groups=())[0][6] is None
    assert gloo_of(op("c10d::allreduce_", 0, 5)) == []


def test_no_rank_sends_by_gloo_to_itself() -> None:
    sent = (op("c10d::send", 0, 5), span("gloo:send", 2, 8, 9))
    one, unknown = Group("self", "", (0,)), Group("u", "", None)
    assert gloo_of(*sent, groups=(one, ALL))[0][6] == "0"
    assert gloo_of(*sent, groups=(one, unknown))[0][6] == "u"
    assert gloo_of(*sent, groups=(ALL, unknown))[0][6] is None


def test_what_gloo_was_given_is_told_with_the_types_of_its_range() -> None:
    call = told(op("c10d::allreduce_", 0, 5), dims=[[[2, 3]]], types=["TensorList"], inputs=["a"])
    ran = told(span("gloo:all_reduce", 2, 8, 9), dims=[[7]], types=["float"])
    (one,) = gloo.found(events_of(call, ran), [])
    assert one.arguments == Arguments(
        dims=([[2, 3]],), types=("float", "TensorList"), inputs=("a",), dtype="float"
    )
    (bare,) = gloo.found(events_of(ran), [])
    assert (bare.arguments.dims, bare.arguments.types) == (([7],), ("float",))
    assert np.isscalar(bare.event) and bare.event == 0
