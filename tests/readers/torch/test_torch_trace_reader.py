"""The reader of torch.profiler traces: every age of the format, and every way to be broken."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paths
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerline.analysis.readers.base import read_head
from layerline.analysis.readers.torch import chunks as chunks_
from layerline.analysis.readers.torch import trace as trace_
from layerline.analysis.readers.torch.chunks import Chunks
from layerline.core.errors import InputError
from layerline.core.tables import SCHEMAS

H100 = paths.DATA / "h100_train_l2.trace.json.gz"
Event = dict[str, Any]


def event(name: str, ts: Any, dur: Any, cat: str | None = "cpu_op", **more: Any) -> Event:
    """A complete event of process 7, thread 7."""
    found = {"ph": "X", "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": dur, **more}
    return found if cat is None else {**found, "cat": cat}


def launch(ts: Any, correlation: int, name: str = "cudaLaunchKernel", **more: Any) -> Event:
    """A runtime call of 2 us."""
    cat = more.pop("cat", "cuda_runtime")
    return event(name, ts, 2, cat, args={"correlation": correlation}, **more)


def kernel(ts: Any, correlation: int | None, name: str = "gemm", cat: str = "kernel") -> Event:
    """A kernel of 5 us on device 0, stream 20."""
    args = {"device": 0, "stream": 20}
    args |= {} if correlation is None else {"correlation": correlation}
    return event(name, ts, 5, cat, pid=0, tid=20, args=args)


@pytest.fixture
def trace(tmp_path: Path) -> Callable[..., Path]:
    """Write events as a trace; `head` are further top-level values."""

    def write(events: list[Event], **head: Any) -> Path:
        path = tmp_path / "t.json"
        path.write_text(json.dumps({"schemaVersion": 1, **head, "traceEvents": events}))
        return path

    return write


def rows(path: Path) -> list[dict[str, Any]]:
    return trace_.read(path).main.to_pylist()


def test_a_kernel_has_the_operator_and_the_innermost_range_that_launched_it(trace: Any) -> None:
    path = trace(
        [
            event("step", 0, 100, "user_annotation"),
            event("layerline/iteration/3", 1, 98, "user_annotation"),
            event("layerline/phase/forward", 2, 90, "user_annotation"),
            event("layerline/module/a", 3, 50, "user_annotation"),
            event("aten::linear", 4, 40),
            event("aten::mm", 5, 30),
            launch(6, 11),
            kernel(200, 11),
        ]
    )
    linear, mm, gemm = rows(path)
    assert (linear["self_ns"], mm["self_ns"]) == (10_000, 30_000)
    assert gemm["layer"] == "aten::mm"
    assert gemm["range"] == "layerline/module/a"
    assert gemm["range_path"] == [
        "step",
        "layerline/iteration/3",
        "layerline/phase/forward",
        "layerline/module/a",
    ]
    assert (gemm["start_ns"], gemm["duration_ns"], gemm["self_ns"]) == (200_000, 5_000, None)
    assert (gemm["device"], gemm["stream"], gemm["process"], gemm["correlation"]) == (0, 20, 7, 11)
    assert (gemm["iteration"], gemm["phase"], mm["iteration"]) == (3, "forward", 3)


@pytest.mark.parametrize(
    ("name", "cat"),
    [
        ("cuLaunchKernel", "cuda_driver"),
        ("cuLaunchKernelEx", "cuda_driver"),
        ("cudaGraphLaunch", "cuda_runtime"),
        ("hipLaunchKernel", "cuda_runtime"),
        ("hipExtModuleLaunchKernel", "hip_runtime"),
        ("cudaLaunchKernel", "Runtime"),
    ],
)
def test_every_kind_of_launch_is_followed(trace: Any, name: str, cat: str) -> None:
    path = trace([event("aten::mm", 0, 9), launch(1, 5, name, cat=cat), kernel(20, 5)])
    assert rows(path)[-1]["layer"] == "aten::mm"


def test_a_graph_launch_owns_all_its_kernels(trace: Any) -> None:
    path = trace([event("replay", 0, 9), launch(1, 5, "cudaGraphLaunch"), kernel(20, 5),
                  kernel(30, 5, "softmax")])  # fmt: skip
    assert [r["layer"] for r in rows(path)] == [None, "replay", "replay"]


def test_a_kernel_without_its_launch_is_kept_and_said(trace: Any) -> None:
    path = trace([event("aten::mm", 0, 9), kernel(20, 5), kernel(30, None)])
    found = trace_.read(path)
    for row in found.main.to_pylist()[1:]:
        assert row["duration_ns"] == 5_000
        assert (row["range"], row["range_path"], row["layer"], row["process"]) == (None,) * 4
    assert any("2 of 2 device operations have no launch" in note for note in found.notes)


def test_a_correlation_that_repeats_goes_to_the_last_launch_before_the_kernel(trace: Any) -> None:
    path = trace(
        [event("first", 0, 9), launch(1, 5), event("second", 100, 9), launch(101, 5),
         event("third", 200, 9), launch(201, 5), kernel(120, 5)]
    )  # fmt: skip
    assert rows(path)[-1]["layer"] == "second"


def test_events_out_of_order_are_the_same_trace(trace: Any) -> None:
    events = [event("outer", 0, 50), event("inner", 5, 20), launch(6, 1), kernel(90, 1)]
    ordered = sorted(rows(trace(events)), key=lambda r: r["name"])
    assert sorted(rows(trace(events[::-1])), key=lambda r: r["name"]) == ordered


def test_categories_of_2021_and_rows_without_one(trace: Any) -> None:
    path = trace(
        [
            event("aten::add", 0, 9, "Operator"),
            launch(1, 5, cat="Runtime"),
            kernel(20, 5, cat="Kernel"),
            kernel(30, 5, "Memcpy HtoD", "Memcpy"),
            kernel(40, 5, "Memset", "Memset"),
            event("aten::mul", 60, 9, None),
            event("relu", 70, 9, None, pid="CPU functions"),
        ]
    )
    assert [r["kind"] for r in rows(path)] == ["op", "kernel", "memcpy", "memset", "op", "op"]


def test_times_of_every_type_are_whole_nanoseconds(trace: Any) -> None:
    path = trace(
        [
            event("int", 1661203462598738, 19),
            event("float", 4965184332542.491, 0.217),
            event("text", "4970067693631.236", "0.001"),
        ]
    )
    found = {r["name"]: (r["start_ns"], r["duration_ns"]) for r in rows(path)}
    assert found == {
        "int": (1661203462598738000, 19000),
        "float": (4965184332542491, 217),
        "text": (4970067693631236, 1),
    }


@pytest.mark.parametrize("dur", [None, -3, "later", math.inf])
def test_a_duration_that_is_no_duration_is_unknown_and_not_zero(tmp_path: Path, dur: Any) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [event("a", 0, dur), event("b", 50, 4)]}))
    found = trace_.read(path)
    a, b = found.main.to_pylist()
    assert (a["duration_ns"], a["self_ns"]) == (None, None)
    assert (b["duration_ns"], b["self_ns"]) == (4000, 4000)
    assert any("no usable duration" in note for note in found.notes)


@pytest.mark.parametrize("time", [None, "later", 10**400])
def test_an_event_without_a_time_is_left_out_and_said(trace: Any, time: Any) -> None:
    found = trace_.read(trace([event("a", time, 3), event("b", 1, 3)]))
    assert found.main.num_rows == 1
    assert any("1 events without a usable time" in note for note in found.notes)


def test_what_is_no_row_is_said(trace: Any) -> None:
    path = trace(
        [event("a", 0, 3), event("Event Sync", 5, 2, "cuda_sync"), event("f.py(1): g", 0, 9,
         "python_function"), event("nn.Module: Linear_0", 0, 8, "python_function")]
    )  # fmt: skip
    found = trace_.read(path)
    assert found.main.num_rows == 1
    assert found.main.to_pylist()[0]["range_path"] == ["nn.Module: Linear_0"]
    assert any("1 cuda_sync" in note for note in found.notes)
    assert any("2 Python frames" in note for note in found.notes)


def test_rank_and_facts(trace: Any) -> None:
    path = trace(
        [event("a", 0, 3), kernel(5, None)],
        distributedInfo={"rank": 3, "world_size": 8},
        deviceProperties=[{"id": 0, "name": "NVIDIA H100"}],
        host_name="secret-host",
    )
    found = trace_.read(path)
    assert set(found.main["rank"].to_pylist()) == {3}
    assert found.facts["gpus"] == ["NVIDIA H100"]
    assert found.facts["totals"]["kernel"] == {"count": 1, "duration_ns": 5000}
    assert "secret-host" not in json.dumps(found.facts)
    assert found.main.schema.equals(SCHEMAS["ops"])


def test_a_plain_list_also_without_its_closing_bracket(tmp_path: Path) -> None:
    whole = json.dumps([event("a", 0, 3), event("b", 5, 3)])
    for number, text in enumerate((whole, whole[:-1], whole[:-1] + ",\n")):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        assert trace_.sniff(read_head(path))
        assert [r["name"] for r in rows(path)] == ["a", "b"]


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("compressed", [False, True])
def test_layout_and_compression_do_not_matter(
    tmp_path: Path, indent: int | None, compressed: bool
) -> None:
    events = [event("a", 0, 30), event("b", 5, 3)]
    text = json.dumps({"traceEvents": events, "traceName": "x", "displayTimeUnit": "ms"},
                      indent=indent)  # fmt: skip
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    found = trace_.read(path)
    assert found.main["self_ns"].to_pylist() == [27_000, 3_000]
    assert found.facts["displayTimeUnit"] == "ms"


def test_events_first_and_a_long_tail_that_looks_like_events(tmp_path: Path) -> None:
    tail = {"stackFrames": [{"name": "f"}, {"name": "g"}] * 50, "displayTimeUnit": "ms"}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [event("a", 0, 3)], **tail}))
    found = trace_.read(path)
    assert found.main.num_rows == 1
    assert found.facts["displayTimeUnit"] == "ms"


def test_the_name_of_the_list_elsewhere_is_not_taken_for_it(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        json.dumps(
            {
                "note": '"traceEvents": [',
                "inner": {"traceEvents": [{"ph": "X"}]},
                "traceEvents": [event("a", 0, 3)],
            }
        )
    )
    assert [r["name"] for r in rows(path)] == ["a"]


def test_bare_infinity_control_characters_and_single_backslashes_are_repaired(
    tmp_path: Path,
) -> None:
    text = json.dumps({"traceEvents": [event("NAME", 0, 3, args={"bandwidth": "BARE"})]})
    path = tmp_path / "t.json"
    path.write_text(text.replace("NAME", "C:\\src\\\tx").replace('"BARE"', "-inf"))
    found = trace_.read(path)
    assert found.main["name"].to_pylist() == ["C:\\src\\\tx"]
    assert any("not strict JSON" in note for note in found.notes)


def test_a_lone_surrogate_in_a_name_does_not_stop_the_table(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a\\ud800","ts":1,"dur":2}]}')
    assert rows(path)[0]["name"] == "a?"


EXECUTION_TRACE = '{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1, "name": "x"}]}'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (EXECUTION_TRACE, "execution trace (schema 1.1.1-chakra.0.0.4)"),
        ('{"schemaVersion": 1, "other": 2}', "without traceEvents"),
        ('{"schemaVersion": 1, "deviceProp', "cut short"),
        ('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur"', "cut short after 0"),
        ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1}', "cut short"),
        ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1}]', "cut short"),
        ('{"traceEvents": []}', "no operator"),
        ('{"traceEvents": [1, 2]}', "no list of events"),
        ('{"traceEvents": [{"ph": "M", "name": "process_name"}]}', "no operator"),
        ("[" * 100_000, "nested deeper"),
        ('{"traceEvents": [' + "[" * 100_000, "nested deeper"),
        (
            '{"traceEvents": [{"ph": "X", "args": ' + "[" * 100_000 + "]" * 100_000 + "}]}",
            "nested deeper",
        ),
        ("not json at all", "not a profiler trace"),
        ("\x00\x01\x02", "not a profiler trace"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        trace_.read(path)
    assert what in caught.value.line()
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.line()


def test_a_compressed_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(H100.read_bytes()[:60_000])
    with pytest.raises(InputError):
        trace_.read(path)


def test_sniff_takes_traces_and_execution_traces_and_nothing_else(tmp_path: Path) -> None:
    def sniffed(text: str) -> bool:
        path = tmp_path / "x"
        path.write_text(text)
        return trace_.sniff(read_head(path))

    assert sniffed(EXECUTION_TRACE)
    assert sniffed('{"schemaVersion": 1, "deviceProperties": [')
    assert trace_.sniff(read_head(H100))
    assert not sniffed('{"nodes": [], "schema_version": 1}')
    assert not sniffed('[{"name": "layer", "averageMs": 1}]')
    assert not sniffed("name,ts,ph\n")


def test_a_real_h100_trace_agrees_with_its_own_arrows(tmp_path: Path) -> None:
    """The profiler draws an arrow (ac2g) from each launch to its kernel: an independent truth."""
    raw = json.loads(gzip.decompress(H100.read_bytes()))["traceEvents"]
    arrows = {e["id"]: (e["tid"], e["ts"]) for e in raw if e["ph"] == "s" and e["cat"] == "ac2g"}
    calls = {
        e["args"]["correlation"]: (e["tid"], e["ts"])
        for e in raw
        if e.get("cat") in ("cuda_runtime", "cuda_driver")
    }
    operators = [e for e in raw if e.get("cat") == "cpu_op"]
    found = trace_.read(H100)
    device = [r for r in found.main.to_pylist() if r["kind"] != "op"]
    assert len(device) == 418 + 8 + 8
    kernels = [e for e in raw if e.get("cat") == "kernel"]
    total = sum(round(e["dur"] * 1000) for e in kernels)
    assert sum(r["duration_ns"] for r in device if r["kind"] == "kernel") == total
    for row in device:
        thread, ts = arrows[row["correlation"]]
        assert calls[row["correlation"]] == (thread, ts)
        around = [e for e in operators if e["tid"] == thread and e["ts"] <= ts < e["ts"] + e["dur"]]
        innermost = max(around, key=lambda e: (e["ts"], -e["dur"]), default=None)
        assert row["layer"] == (innermost and innermost["name"])


# Each example writes the same file anew.
PROPERTY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

NAMES = st.text(st.sampled_from('ab{}[],:"\\ \n\u00e9') | st.characters(codec="utf-8"), max_size=12)
ARGS = st.dictionaries(NAMES, st.integers() | st.lists(NAMES, max_size=2), max_size=2)


@settings(PROPERTY, max_examples=60)
@given(
    st.lists(st.tuples(NAMES, ARGS), max_size=8),
    st.sampled_from([None, 0, 3]),
    st.integers(1, 300),
    st.booleans(),
)
def test_chunks_of_any_size_hold_the_events_that_json_finds(
    tmp_path: Path, events: list[tuple[str, Any]], indent: int | None, size: int, listed: bool
) -> None:
    values = [
        {"ph": "X", "name": name, "args": args | {"list": [{"a": 1}, {"b": 2}]}, "ts": i}
        for i, (name, args) in enumerate(events)
    ]
    whole = values if listed else {"before": '},{"', "traceEvents": values, "after": [{}, {}]}
    path = tmp_path / "t.json"
    path.write_text(json.dumps(whole, indent=indent, ensure_ascii=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks_, "CHUNK", size)
        chunks = Chunks(path)
        found = [e for part in chunks for e in part]
    assert [(e.name, e.ts) for e in found] == [(v["name"], v["ts"]) for v in values]
    if not listed:
        assert chunks.head == {"before": '},{"', "after": [{}, {}]}


@settings(PROPERTY, max_examples=40)
@given(st.binary(max_size=200), st.integers(0, 4000))
def test_garbage_and_cut_files_end_in_one_error_or_a_table(
    tmp_path: Path, noise: bytes, cut: int
) -> None:
    text = json.dumps({"traceEvents": [event(f"op{i}", i, 2) for i in range(40)]}).encode()
    path = tmp_path / "t.json"
    path.write_bytes(text[:cut] + noise)
    try:
        found = trace_.read(path)
    except InputError as e:
        assert "\n" not in e.line()
    else:
        assert 0 < found.main.num_rows <= 40


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"traceEvents": [{"ph":"X","args":{"a":[' + "[]," * 40_000, "an event of more than"),
        ('{"traceEvents": [{"ph":"X","name":"' + "a" * 99_999, "an event of more than"),
        ('{"traceEvents": [{"ph":"X","args":{"a":[' + '"},{",' * 20_000, "an event of more than"),
        ('{"schemaVersion":1,"x":[' + "{}," * 40_000, "no traceEvents in the first"),
        ('{"schemaVersion":1,"x":"' + "a" * 99_999, "no traceEvents in the first"),
        ('{"traceEvents": [{"ph":"X"}], "x":[' + "[]," * 40_000, "follow the events"),
        ('{"schemaVersion":1,"x":' + '{"a":' * 40_000, "nested deeper"),
        ('{"traceEvents": [{}' + ",{}" * 40_000 + "]}", "its events are empty"),
        ("[" + '{"ph":"X","ts":[]},' * 5_000 + "{}]", "that are no strict JSON"),
    ],
)
def test_files_made_to_be_slow_are_refused_and_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    """Each byte is cut into tokens once, and nothing is read beyond the limits."""
    seen: list[int] = []

    class Counting:
        def finditer(self, data: bytes, at: int) -> Any:
            seen.append(len(data) - at)
            return TOKEN.finditer(data, at)

    TOKEN = chunks_._TOKEN  # noqa: N806
    monkeypatch.setattr(chunks_, "_TOKEN", Counting())
    for name in ("MOST_HEAD", "MOST_EVENT"):
        monkeypatch.setattr(chunks_, name, 16_384)
    monkeypatch.setattr(chunks_, "CHUNK", 1024)
    monkeypatch.setattr(chunks_, "MOST_LOOSE", 1000)
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InputError) as e:
        trace_.read(path)
    assert says in e.value.line()
    # A string that is not closed begins anew with each chunk: that is the square of 16.
    assert sum(seen) < (200_000 if "aaaa" in text else 40_000)


NOW = 1_712_195_495_519_689  # microseconds since 1970: a double has steps of 0.25 there


@pytest.mark.parametrize(
    "quoted", ["{}", '"{}"', '{}, "bad": inf'], ids=["number", "text", "no strict JSON"]
)
@pytest.mark.parametrize("decimals", ["{:03}", "{:03}00"])
def test_absolute_times_keep_every_nanosecond(tmp_path: Path, quoted: str, decimals: str) -> None:
    ns = [47, 127, 999, 1]
    texts = (quoted.format(f"{NOW}.{decimals.format(n)}") for n in ns)
    events = (
        f'{{"ph": "X", "cat": "cpu_op", "name": "a", "ts": {t}, "dur": 0.001}}' for t in texts
    )
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [' + ", ".join(events) + "]}")
    assert [r["start_ns"] for r in rows(path)] == [NOW * 1000 + n for n in ns]


def test_absolute_times_after_relative_ones_keep_every_nanosecond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk may begin with events of another clock."""
    monkeypatch.setattr(chunks_, "CHUNK", 100)
    times = ["0.5", *(f"{NOW}.{n:03}" for n in (7, 3, 5))]
    path = tmp_path / "t.json"
    events = (f'{{"ph": "X", "cat": "cpu_op", "name": "a", "ts": {t}, "dur": 1}}' for t in times)
    path.write_text("[" + ", ".join(events) + "]")
    assert [r["start_ns"] for r in rows(path)] == [500, *(NOW * 1000 + n for n in (7, 3, 5))]


def test_steps_that_are_written_as_operators_are_ranges(trace: Callable[..., Path]) -> None:
    """PyTorch 1.8 to 1.11."""
    path = trace(
        [
            event("ProfilerStep#3", 0, 100, "Operator"),
            event("aten::mm", 10, 20, "Operator"),
            launch(12, 5, cat="Runtime"),
            kernel(40, 5, cat="Kernel"),
        ]
    )
    assert [
        (r["name"], r["iteration"], r["layer"], r["range_path"], r["self_ns"]) for r in rows(path)
    ] == [
        ("aten::mm", 3, None, ["ProfilerStep#3"], 20_000),
        ("gemm", 3, "aten::mm", ["ProfilerStep#3"], None),
    ]
