"""ONNX Runtime profiles of every age and state: runs, fences, nesting, cuts, damage."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerline.analysis.checks import raw_totals
from layerline.analysis.commands.layers import read_layers
from layerline.analysis.costs import layers
from layerline.analysis.readers import registry
from layerline.analysis.readers.onnxruntime import events as events_
from layerline.analysis.readers.onnxruntime import profile
from layerline.analysis.report.listing.layers import summary
from layerline.core.errors import InputError


def event(name: str, ts: int, dur: int, cat: str = "Node", tid: int = 7, **args: Any) -> Any:
    return {
        "cat": cat, "pid": 9, "tid": tid, "dur": dur, "ts": ts, "ph": "X", "name": name,
        "args": args,
    }  # fmt: skip


def node(name: str, ts: int, dur: int, tid: int = 7) -> Any:
    return event(
        f"{name}_kernel_time", ts, dur, tid=tid, op_name="MatMul", provider="CPUExecutionProvider"
    )


def run(ts: int, dur: int, tid: int = 7) -> Any:
    return event("model_run", ts, dur, "Session", tid)


START = event("session_initialization", 1, 5, "Session")


def write(path: Path, events: list[Any]) -> Path:
    """As ONNX Runtime lays it out: one event on each line."""
    path.write_text("[\n" + ",\n".join(json.dumps(e) for e in events) + "\n]\n")
    return path


def iterations(artefact: Any) -> dict[str, int | None]:
    ops = artefact.main
    return dict(zip(ops["name"].to_pylist(), ops["iteration"].to_pylist(), strict=True))


def test_rows_carry_times_in_nanoseconds_and_their_run(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p",
        [START, node("a", 100, 10), node("b", 110, 0), run(99, 15), node("c", 203, 4), run(200, 9)],
    )
    found = registry.read(path)
    assert found.kind == "onnxruntime-profile"
    assert iterations(found) == {"a": 0, "b": 0, "c": 1}
    first = found.main.slice(0, 1).to_pylist()[0]
    assert (first["kind"], first["phase"]) == ("node", "inference")
    assert (first["start_ns"], first["duration_ns"]) == (100_000, 10_000)
    assert (first["process"], first["source"]) == (9, "p")
    # below a microsecond is 0, and is no missing value
    assert found.main["duration_ns"].to_pylist() == [10_000, 0, 4_000]
    assert found.tables["latency"]["latency_ns"].to_pylist() == [15_000, 9_000]
    top = found.tables["operators"].to_pylist()[0]
    assert top == {
        "name": "a", "op": "MatMul", "provider": "CPUExecutionProvider", "calls": 1,
        "total_ns": 10_000,
    }  # fmt: skip


def test_warm_up_runs_have_no_iteration(tmp_path: Path) -> None:
    events = [e for i in range(4) for e in (node(f"n{i}", 100 * i, 5), run(100 * i, 9))]
    found = profile.read(write(tmp_path / "p", events), warmup=2)
    assert iterations(found) == {"n0": None, "n1": None, "n2": 0, "n3": 1}
    assert found.tables["latency"]["iteration"].to_pylist() == [0, 1]
    assert found.notes == []


def test_fences_of_old_releases_are_told_and_are_no_rows(tmp_path: Path) -> None:
    events = [
        event("a_fence_before", 1, 2, op_name="Conv"),
        event("a_kernel_time", 3, 4, op_name="Conv"),
        event("a_fence_after", 7, 1, op_name="Conv"),
        run(0, 20),
    ]
    found = registry.read(write(tmp_path / "p", events))
    assert found.main["name"].to_pylist() == ["a"]
    assert found.facts["fence_ns"] == 3_000
    assert found.tables["operators"]["provider"].to_pylist() == [None]
    assert any("fence" in n for n in found.notes)
    assert any("provider" in n for n in found.notes)


def test_cut_in_the_middle_of_an_event_keeps_the_rest(tmp_path: Path) -> None:
    whole = write(
        tmp_path / "p", [START, node("a", 1, 2), run(0, 9), node("b", 100, 2), node("c", 105, 2)]
    )
    text = whole.read_text()
    whole.write_text(text[: text.index('"c_kernel_time"') + 4])
    found = registry.read(whole)
    assert iterations(found) == {"a": 0, "b": None}
    assert found.facts["truncated"] is True
    assert any("cut in the middle" in n for n in found.notes)
    assert any("after the last whole run" in n for n in found.notes)


def test_list_that_is_not_closed_is_said(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text("[\n" + json.dumps(node("a", 1, 2)) + ",\n" + json.dumps(run(0, 9)) + ",\n")
    found = registry.read(path)
    assert iterations(found) == {"a": 0}
    assert found.facts["truncated"] is True


def test_recording_that_stopped_at_its_maximum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "MAX_EVENTS", 4)
    path = write(tmp_path / "p", [START, node("a", 1, 2), run(0, 9), node("b", 100, 2)])
    found = registry.read(path)
    assert iterations(found) == {"a": 0, "b": None}
    assert any("stops recording at 4" in n for n in found.notes)


def test_name_that_was_not_escaped_costs_one_event(tmp_path: Path) -> None:
    path = write(tmp_path / "p", [node("a", 1, 2), node("BAD", 3, 2), node("c", 5, 2), run(0, 9)])
    path.write_text(path.read_text().replace("BAD", 'say "x"'))
    found = registry.read(path)
    assert iterations(found) == {"a": 0, "c": 0}
    assert any(n.startswith("1 entries are not valid JSON") for n in found.notes)


@pytest.mark.parametrize("layout", ["pretty", "one line", "gzip", "bom"])
def test_any_layout(tmp_path: Path, layout: str) -> None:
    events = [START, node("a", 1, 2), run(0, 9)]
    text = json.dumps(events, indent=2 if layout == "pretty" else None)
    data = ("\ufeff" * (layout == "bom") + text).encode()
    path = tmp_path / "p"
    path.write_bytes(gzip.compress(data) if layout == "gzip" else data)
    assert iterations(registry.read(path)) == {"a": 0}


def test_subgraph_nodes_are_inside_the_node_that_runs_them(tmp_path: Path) -> None:
    events = [node("in1", 12, 3), node("in2", 16, 2), node("If", 10, 10), run(9, 15)]
    found = registry.read(write(tmp_path / "p", events))
    ops = found.main
    assert ops["duration_ns"].to_pylist() == [3_000, 2_000, 10_000]
    assert ops["self_ns"].to_pylist() == [3_000, 2_000, 5_000]
    assert any("nest" in n for n in found.notes)


def test_runs_at_the_same_time_are_told_apart_by_thread(tmp_path: Path) -> None:
    events = [
        node("a", 5, 2, tid=1), node("b", 5, 2, tid=2), node("lost", 5, 1, tid=3),
        run(0, 10, tid=1), run(2, 10, tid=2),
    ]  # fmt: skip
    found = registry.read(write(tmp_path / "p", events))
    assert iterations(found) == {"a": 0, "b": 1, "lost": None}
    assert any("could not be assigned" in n for n in found.notes)


def test_without_model_run_the_outer_executor_is_the_run(tmp_path: Path) -> None:
    name = "SequentialExecutor::Execute"
    events = [
        node("a", 1, 2), event(name, 3, 4, "Session"), event(name, 0, 9, "Session"),
        node("b", 21, 2), event(name, 20, 9, "Session"),
    ]  # fmt: skip
    found = registry.read(write(tmp_path / "p", events))
    assert iterations(found) == {"a": 0, "b": 1}


def test_gpu_kernels_are_kernels(tmp_path: Path) -> None:
    kernel = event("sgemm", 5, 3, "Kernel", stream="13")
    found = registry.read(write(tmp_path / "p", [node("a", 1, 2), kernel, run(0, 9)]))
    rows = found.main.to_pylist()
    assert [(r["kind"], r["name"], r["stream"]) for r in rows] == [
        ("node", "a", None),
        ("kernel", "sgemm", 13),
    ]


def kernel(name: str, ts: int, dur: int, parent: str | None = None) -> Any:
    """As MergeEvents of gpu_profiler_common.h writes it, behind the event that launched it."""
    named = {} if parent is None else {"parent_name": parent, "op_name": "MatMul"}
    found = event(name, ts, dur, "Kernel", -1, stream="7", grid_x="1", block_x="128", **named)
    return {**found, "pid": -1}


def test_layers_of_a_cuda_profile_are_its_nodes(tmp_path: Path) -> None:
    """Two runs: `mm` launches two kernels of 30 + 2 and 40 + 2 us, one of which begins when its run
    is over; `add` has none; one kernel names the run, and one nothing."""
    events = [
        run(100, 50), kernel("fill", 101, 5, "model_run"),
        node("mm", 105, 9), kernel("gemm", 108, 30, "mm_kernel_time"),
        kernel("split", 139, 2, "mm_kernel_time"), node("add", 120, 6),
        run(300, 50),
        node("mm", 305, 9), kernel("gemm", 308, 40, "mm_kernel_time"),
        kernel("split", 390, 2, "mm_kernel_time"), node("add", 320, 8), kernel("lost", 330, 1),
    ]  # fmt: skip
    path = write(tmp_path / "p.json", events)
    found, notes, times = read_layers(path, None, None)
    rows = {r["layer"]: r for r in found.to_pylist()}
    assert {
        n: (r["kind"], r["calls"], r["kernels"], r["total_ns"], r["median_ns"])
        for n, r in rows.items()
    } == {
        "mm": ("kernel", 2, 4, 74_000, 37_000),
        "add": ("node", 2, None, 14_000, 7_000),
        "fill": ("kernel", 1, 1, 5_000, 2_500),
        "lost": ("kernel", 1, 1, 1_000, 500),
    }
    assert any(n.startswith("2 of 6 kernels (6,000 ns in all) name no node") for n in notes)
    assert any(n.startswith("nodes with kernels took 18,000 ns in all on the host") for n in notes)
    # 37 and 43 us of kernels: the host's time of `add` is in neither
    assert times.iterations == 2
    assert times.total is not None
    assert times.total.median == 40_000
    said = list(summary(found.to_pylist(), times, resolved=False))
    assert said[0].endswith("(median of 2; 0.080 ms in all) in kernels")
    assert said[1].startswith(
        "1 layer has no kernels: the time is the host's, 0.007 ms per iteration (mean of 2"
    )


def test_node_with_kernels_in_warm_up_only_keeps_its_time_on_the_host(tmp_path: Path) -> None:
    events = [
        run(0, 40), node("once", 1, 9), kernel("init", 2, 3, "once_kernel_time"),
        run(100, 40), node("once", 101, 4), node("mm", 110, 5),
        kernel("gemm", 112, 6, "mm_kernel_time"),
        run(200, 40), node("once", 201, 4),
    ]  # fmt: skip
    found = profile.read(write(tmp_path / "p", events), warmup=1)
    rows = {r["layer"]: r for r in layers.of_artefact(found, None, None)[0].to_pylist()}
    assert {n: (r["kernels"], r["total_ns"]) for n, r in rows.items()} == {
        "once": (None, 8_000),
        "mm": (1, 6_000),
    }
    # the second iteration has no kernel: it counts
    times = layers.times(found)
    assert times.iterations == 2
    assert times.total is not None
    assert times.total.median == 3_000


def test_node_that_began_in_the_microsecond_of_another_is_told(tmp_path: Path) -> None:
    events = [run(0, 9), node("a", 1, 0), node("b", 1, 2), kernel("k", 2, 3, "b_kernel_time")]
    found = profile.read(write(tmp_path / "p", events))
    assert found.main["layer"].to_pylist() == [None, None, "b"]
    assert any(n.startswith("1 of 1 node executions with kernels began in") for n in found.notes)


def test_time_that_is_no_number_is_unknown(tmp_path: Path) -> None:
    bad = node("a", 1, 2)
    bad["dur"] = "soon"
    found = registry.read(write(tmp_path / "p", [bad, run(0, 9)]))
    assert found.main["duration_ns"].to_pylist() == [None]
    assert any("no duration" in n for n in found.notes)


@pytest.mark.parametrize("text", ["[]", "[1, 2]", "{}", '[{"cat": "Node"}]', "x"])
def test_other_files_are_not_taken(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p"
    path.write_text(text)
    with pytest.raises(InputError):
        registry.read(path)


@settings(deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.integers(0, 3)), max_size=8
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 3),
)
def test_every_execution_is_counted_once(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[tuple[str, int, int]]], warmup: int
) -> None:
    """Closure (i): the rows add up to the file, whatever the runs hold; nodes lie in their run."""
    events, clock, expected = [START], 10, []
    for i, nodes in enumerate(runs):
        began = clock
        for name, duration, gap in nodes:
            events.append(node(name, clock, duration))
            expected.append(i - warmup if i >= warmup else None)
            clock += duration + gap
        events.append(run(began, clock - began))
        clock += 20
    path = write(tmp_path_factory.mktemp("p") / "p", events)
    found = profile.read(path, warmup)
    assert sum(found.main["duration_ns"].to_pylist()) == raw_totals.onnxruntime(path)["node"]
    assert found.main["self_ns"].to_pylist() == found.main["duration_ns"].to_pylist()
    assert found.main["iteration"].to_pylist() == expected
    assert sum(found.tables["operators"]["calls"].to_pylist()) == len(expected)


@given(st.data())
def test_a_cut_anywhere_gives_a_prefix_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    events = [START, node("a", 1, 2), node("é\n", 3, 2), run(0, 9), node("c", 20, 2), run(19, 9)]
    path = write(tmp_path_factory.mktemp("p") / "p", events)
    text = path.read_bytes()
    path.write_bytes(text[: data.draw(st.integers(1, len(text)))])
    try:
        found = profile.read(path)
    except InputError as e:
        assert "\n" not in e.line()
        return
    assert ["a", "é\n", "c"][: found.main.num_rows] == found.main["name"].to_pylist()


@pytest.mark.parametrize(
    ("text", "limit", "says"),
    [
        (",{}" * 50, {"MOST_DAMAGE": 9}, "10 entries are no events"),
        (",\n1" * 50, {"MOST_DAMAGE": 9}, "10 entries are no events"),
        (',{"name":1}' * 50, {"MOST_EVENTS": 20}, "more than 20 events"),
        ("," + '{"a":' * 200_000, {}, "nested too deeply"),
        (",{" + '"a":[1,\n{},2,\n{},3,4,5 !' * 9, {"MAX_REPEATED": 5}, "are no events"),
        (',{"a":' + "9" * 5000 + "}", {}, "not usable JSON"),
    ],
)
def test_files_made_to_be_slow_are_refused_after_bounded_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, limit: dict[str, int], says: str
) -> None:
    for name, value in limit.items():
        where = next(m for m in (events_, profile) if hasattr(m, name))
        monkeypatch.setattr(where, name, value)
    path = tmp_path / "p"
    path.write_text('[{"cat":"Session","name":"model_run"}' + text + "]")
    with pytest.raises(InputError) as e:
        profile.read(path)
    assert says in e.value.line()
    assert "\n" not in e.value.line()


def test_a_line_that_is_no_event_of_its_own_is_read_by_the_slower_parser(tmp_path: Path) -> None:
    """Two events on a line, one over several, numbers that are no strict JSON: all are counted."""
    one, two, three = node("a", 1, 2), node("b", 4, 3), node("c", 8, 1)
    text = f"[\n{json.dumps(one)},{json.dumps(two)},\n{json.dumps(three, indent=1)},\n"
    loose = json.dumps(node("d", 10, 1)).replace('"args": {', '"args": {"x": NaN, ')
    path = tmp_path / "p"
    path.write_text(text + loose + ",\n" + json.dumps(run(0, 20)) + "\n]\n")
    found = profile.read(path)
    assert found.main["name"].to_pylist() == ["a", "b", "c", "d"]
    assert found.main["duration_ns"].to_pylist() == [2000, 3000, 1000, 1000]
    assert found.main["iteration"].to_pylist() == [0, 0, 0, 0]


def test_a_duration_that_is_missing_or_below_zero_is_unknown(tmp_path: Path) -> None:
    lacking = node("b", 4, 3)
    del lacking["dur"]
    events = [node("a", 1, -2), lacking, node("c", 8, 1), node("c", 9, -1), run(0, 20)]
    found = profile.read(write(tmp_path / "p", events))
    assert found.main["duration_ns"].to_pylist() == [None, None, 1000, None]
    sums = {r["name"]: r["total_ns"] for r in found.tables["operators"].to_pylist()}
    assert sums == {"a": None, "b": None, "c": None}
    assert any("3 node executions have no duration" in note for note in found.notes)


def test_nodes_without_a_name_are_called_after_their_operator(tmp_path: Path) -> None:
    """Older releases write the model's empty name."""
    events = [run(0, 20)]
    for i, op in enumerate(("Conv", "Relu", "Conv")):
        events.append({**node("", i, 2), "args": {"op_name": op}})
    found = profile.read(write(tmp_path / "p", [*events, node("", 9, 1)]))
    assert found.main["name"].to_pylist()[:3] == ["Conv", "Relu", "Conv"]
    assert any("no name" in note for note in found.notes)
