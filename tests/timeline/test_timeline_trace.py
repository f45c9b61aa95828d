"""The timeline of a run: closure with the tables, nesting, arrows, counters; read by other code.

The files are read with Perfetto's own protobuf schema (the `perfetto` package), and by its trace
processor where that program is at hand.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h100_tiny
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from captured import captures_of
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import DATA

from layerline.analysis.captures import inventory
from layerline.analysis.commands.timeline import timeline
from layerline.analysis.costs.iterations import sums
from layerline.analysis.counters import launches
from layerline.analysis.timeline import captures, counters, tracks, wire, writer
from layerline.analysis.timeline.iteration import choose
from layerline.core import nodes, tables
from layerline.core.cli.command import cli
from layerline.core.errors import InputError
from layerline.core.resolve import parse_network
from layerline.core.run import Run


@dataclass
class Drawn:
    """A slice as a reader of the file sees it. `above`: the slices that it lies on."""

    track: str
    name: str
    start: int
    end: int
    args: dict[str, Any]
    opens: list[int]
    closes: list[int]
    above: list[str] = field(default_factory=list)


@dataclass
class Read:
    slices: list[Drawn]
    counters: dict[str, list[tuple[int, float]]]
    descriptions: dict[str, str]
    instants: dict[str, dict[str, Any]]

    def on(self, group: str, track: str) -> list[Drawn]:
        return [s for s in self.slices if s.track.startswith(f"{group}/{track}")]


def read(data: bytes) -> Read:
    """Read a trace with Perfetto's schema: sort by time (stable), intern, nest per track."""
    pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    parsed = pb2.Trace()
    parsed.ParseFromString(data)
    parsed.DiscardUnknownFields()
    assert parsed.ByteSize() == len(data)  # every field is one that the schema knows
    interned: dict[str, dict[int, str]] = defaultdict(dict)
    tracks: dict[int, Any] = {}
    events = []
    for packet in parsed.packet:
        for kind in ("event_names", "debug_annotation_names", "debug_annotation_string_values"):
            for e in getattr(packet.interned_data, kind):
                assert e.iid not in interned[kind]
                interned[kind][e.iid] = e.str.decode() if hasattr(e, "str") else e.name
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            # Names and tracks are known before they are used.
            assert packet.track_event.track_uuid in tracks
            assert packet.trusted_packet_sequence_id == 1 and packet.sequence_flags == 2
            events.append((packet.timestamp, packet.track_event))
    events.sort(key=lambda e: e[0])

    def path(uuid: int) -> str:
        of = tracks[uuid]
        return f"{path(of.parent_uuid)}/{of.name}" if of.parent_uuid else of.name

    def value(a: Any) -> Any:
        if a.array_values:
            return [value(v) for v in a.array_values]
        if a.string_value_iid:
            return interned["debug_annotation_string_values"][a.string_value_iid]
        return getattr(a, a.WhichOneof("value"))

    def args(event: Any) -> dict[str, Any]:
        names = interned["debug_annotation_names"]
        return {names[a.name_iid]: value(a) for a in event.debug_annotations}

    found = Read([], defaultdict(list), {path(u): t.description for u, t in tracks.items()}, {})
    stacks: dict[int, list[Drawn]] = defaultdict(list)
    for time, event in events:
        stack, where = stacks[event.track_uuid], path(event.track_uuid)
        if event.type == 1:
            name = interned["event_names"][event.name_iid]
            lists = list(event.flow_ids), list(event.terminating_flow_ids)
            stack.append(Drawn(where, name, time, -1, args(event), *lists))
            stack[-1].above = [s.name for s in stack[:-1]]
        elif event.type == 2:
            stack[-1].end = time
            found.slices.append(stack.pop())
        elif event.type == 3:
            found.instants[where] = args(event)
        else:
            found.counters[where].append((time, event.double_counter_value))
    assert not any(stacks.values())
    return found


def written(groups: Any) -> Read:
    stream = io.BytesIO()
    writer.to_stream(stream, groups, max((g.before() for g in groups), default=0))
    return read(stream.getvalue())


@pytest.fixture
def h100(h100: Run) -> Run:
    """Two engines under nsys and three eager captures, all of an H100."""
    for path in (DATA / "h100_eager").iterdir():
        shutil.copy(path, h100.file("captures", path.name))
    return h100


@pytest.fixture
def seen(h100: Run) -> tuple[Any, Read]:
    found = captures_of(h100)
    return found, written(captures.of_run(h100, found, None))


def test_every_capture_adds_up_to_its_table(seen: Any) -> None:
    found, drawn = seen
    assert len(found) == 5
    for capture in found:
        label = capture.sides[-1].side.label
        ops = capture.ops.filter(pc.equal(capture.ops["iteration"], 0))
        ops = ops.filter(pc.is_valid(ops["start_ns"]))
        mine = drawn.on(label, "kernels") + drawn.on(label, "host operators")
        total: Counter[str] = Counter()
        for s in mine:
            total[s.args["kind"]] += s.end - s.start
            assert s.end - s.start == s.args["duration_ns"]
        expected: Counter[str] = Counter()
        for kind, ns in zip(ops["kind"].to_pylist(), ops["duration_ns"].to_pylist(), strict=True):
            expected[kind] += ns or 0
        assert total == expected


def test_sides_are_aligned_at_their_first_operation_on_the_device(seen: Any) -> None:
    found, drawn = seen
    labels = [c.sides[-1].side.label for c in found]
    firsts = {min(s.start for s in drawn.on(label, "kernels")) for label in labels}
    assert len(firsts) == 1
    assert min(s.start for s in drawn.slices) == 0  # the longest preparation begins the trace


def test_modules_nest_by_the_module_tree_and_span_their_kernels(seen: Any) -> None:
    _, drawn = seen
    spans = drawn.on("TensorRT fp32", "modules")
    kernels = drawn.on("TensorRT fp32", "kernels")
    assert len({s.name for s in spans}) == len(spans)
    for span in spans:
        path = "" if span.name == "(model)" else span.name
        mine = [
            k
            for k in kernels
            if isinstance(k.args["modules"], list)
            and any(path in ("", m) or m.startswith(f"{path}.") for m in k.args["modules"])
        ]
        assert span.start == min(k.start for k in mine) and span.end == max(k.end for k in mine)
        assert span.args["operations"] == len(mine)
        times = span.args["own_ns"] + span.args["shared_ns"]
        assert times == sum(k.end - k.start for k in mine)
        assert "not a duration" in span.args["is"]
        for above in span.above:
            assert above == "(model)" or span.name.startswith(f"{above}.")


def test_arrows_lead_from_launch_and_layer_to_each_kernel(seen: Any) -> None:
    _, drawn = seen
    label = "TensorRT fp16"
    kernels = drawn.on(label, "kernels")
    from_layer = {f: s for s in drawn.on(label, "layers") for f in s.opens}
    from_call = {f: s for s in drawn.on(label, "host CUDA calls") for f in s.opens}
    assert len(kernels) == 28
    for kernel in kernels:
        layer, call = kernel.closes
        assert from_layer[layer].name == kernel.args["layer"]
        assert from_layer[layer].start <= kernel.start and kernel.end <= from_layer[layer].end
        assert from_call[call].args["correlation"] == kernel.args["correlation"]
        assert from_call[call].start < kernel.start
    opened = Counter(f for s in drawn.slices for f in s.opens)
    closed = Counter(f for s in drawn.slices for f in s.closes)
    assert opened == closed and set(opened.values()) == {1}


def test_grid_and_block_are_those_of_the_capture(h100: Run, seen: Any) -> None:
    import sqlite3

    _, drawn = seen
    for kernel in drawn.on("TensorRT fp32", "kernels"):
        with sqlite3.connect(h100.file("captures", "fp32.tensorrt.sqlite")) as database:
            row = database.execute(
                "SELECT gridX, gridY, gridZ, blockX, blockY, blockZ, start, end FROM "
                "CUPTI_ACTIVITY_KIND_KERNEL WHERE correlationId = ?",
                (kernel.args["correlation"],),
            ).fetchone()
        database.close()
        assert kernel.args["grid"] == "x".join(map(str, row[:3]))
        assert kernel.args["block"] == "x".join(map(str, row[3:6]))
        assert (kernel.args["capture_ns"], kernel.end - kernel.start) == (row[6], row[7] - row[6])
    path = DATA / "h100_eager" / "eager.fp32.trace.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    sizes = {
        e["args"]["correlation"]: e["args"].get("grid")
        for e in events
        if e.get("cat") == "kernel" and "grid" in e["args"]
    }
    shown = [k for k in drawn.on("eager fp32", "kernels") if k.args["kind"] == "kernel"]
    for kernel in shown:
        grid = sizes.get(kernel.args["correlation"])
        assert kernel.args.get("grid") == (None if grid is None else "x".join(map(str, grid)))


def counted(run: Run) -> pa.Table:
    """The H100's ComputeWorkloadAnalysis of the fp32 engine: tensor pipe use, no FLOP, no bytes."""
    table = tables.read_parquet(DATA / "ncu" / "h100_tiny.counters.parquet", "counters")
    of = h100_tiny.document()
    joined = launches.join(
        table, nodes.parse(of["nodes"]), parse_network(of["fp32"]["network"]), "fp32"
    )
    at = joined.column_names.index("source")
    return joined.set_column(at, "source", pa.array(["fp32.tensorrt.ncu.csv"] * len(joined)))


def test_counters_are_drawn_over_the_kernels_that_they_belong_to(h100: Run) -> None:
    found = captures_of(h100)
    table = counted(h100)
    drawn = written(captures.of_run(h100, found, table))
    kernels = sorted(drawn.on("TensorRT fp32", "kernels"), key=lambda k: k.start)
    metric = "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active"
    rows = table.filter(pc.equal(table["metric"], metric)).sort_by("launch").to_pylist()
    # 28 kernels three times over, in the same order; but the counters are of another build, with
    # TF32 products: a kernel that this engine does not run tells nothing of the one that it does.
    same = {
        i for i, k in enumerate(kernels) if "sgemm" not in k.name and "f32f32_f32" not in k.name
    }
    assert len(kernels) == 28 and 0 < len(same) < 28
    for i, (kernel, row) in enumerate(zip(kernels, rows[:28], strict=True)):
        assert kernel.args.get("ncu.tensor_pipe_pct") == (row["value"] if i in same else None)
        assert ("ncu.measured" in kernel.args) == (i in same)
    lacking = {s.start for s in drawn.on("TensorRT fp32", "counters (ncu)/not measured")}
    kernels = [kernels[i] for i in sorted(same)]
    assert lacking.isdisjoint(k.start for k in kernels) and len(lacking) == 28 - len(same)
    assert all("never used" in k.args["ncu.how"] for k in kernels)
    assert not any(k.args["ncu.representative"] for k in kernels)
    (track,) = [t for t in drawn.counters if t.startswith("TensorRT fp32")]
    assert track.endswith("tensor pipe, % of peak while active")
    steps = dict(drawn.counters[track])
    for kernel in kernels:
        assert steps[kernel.start] == kernel.args["ncu.tensor_pipe_pct"]
    assert drawn.counters[track][-1] == (kernels[-1].end, 0.0)
    assert not any("FLOP" in t for t in drawn.counters)  # it measured none: none is drawn


def test_the_tensor_pipe_is_the_mean_of_the_sms_not_the_busiest_one() -> None:
    pipe = "sm__pipe_tensor_cycles_active.{}.pct_of_peak_sustained_active"
    numbers = {pipe.format("avg"): 71.0, pipe.format("max"): 103.1, pipe.format("sum"): 71.0}
    assert counters._about({**numbers, "of": None})[counters.TENSOR] == 71.0


def test_flop_and_bytes_are_over_this_captures_time_and_stand_ins_are_named() -> None:
    def row(launch: int, metric: str, value: float, of: int | None) -> dict[str, Any]:
        return {
            "source": "x", "launch": launch, "layer": "L", "kernel": "k", "metric": metric,
            "unit": "Kbyte" if "bytes" in metric else "ns", "value": value,
            "representative_of": of,
        }  # fmt: skip

    numbers = [row(0, "dram__bytes.sum", 4.0, None), row(0, "gpu__time_duration.sum", 9e9, None),
               row(1, "dram__bytes.sum", 6.0, 0),
               {**row(2, "gpu__time_duration.sum", 1.0, None), "layer": "elsewhere"}]  # fmt: skip
    operations = tables.table(
        "ops", [op(0, 0, 100, layer="L"), op(0, 100, 50, layer="L"), op(0, 200, 50, layer="M")]
    )
    source = captures.Source("s", "S", operations, True, counters=tables.table("counters", numbers))
    drawn = written([captures.group(source)])
    # 4000 bytes in 100 ns and 6000 in 50 ns, whatever ncu's own time was; then unknown.
    assert dict(drawn.counters)["S/counters (ncu)/DRAM bytes/s"] == [
        (0, 4e10), (100, 1.2e11), (150, 0.0)
    ]  # fmt: skip
    first, second, third = sorted(drawn.on("S", "kernels"), key=lambda k: k.start)
    assert first.args["ncu.measured"] == "itself"
    assert second.args["ncu.representative"] and "launch 0" in second.args["ncu.measured"]
    assert "ncu.measured" not in third.args
    (lacking,) = drawn.on("S", "counters (ncu)/not measured")
    assert (lacking.start, lacking.end) == (third.start, third.end)
    assert "2 of 3 kernels" in drawn.descriptions["S/counters (ncu)"]


def op(iteration: int | None, start: int | None, ns: int | None, **more: Any) -> dict[str, Any]:
    return {"source": "x", "kind": "kernel", "name": "k", "phase": "inference", "device": 0,
            "stream": 7, "iteration": iteration, "start_ns": start, "duration_ns": ns,
            **more}  # fmt: skip


def test_what_has_no_start_is_counted_and_named() -> None:
    rows = [
        op(0, 5, 10),
        op(0, None, 7, name="lost"),
        op(0, 3, None, name="endless"),
        op(None, 0, 1),
    ]
    group = captures.group(captures.Source("s", "S", tables.table("ops", rows), True))
    told = "\n".join(captures.lines(group))
    assert (
        "2 operations without a start or a duration, 7 ns: not drawn: lost (1), endless (1)" in told
    )
    assert "1 operation in no iteration" in told
    (drawn,) = written([group]).on("S", "kernels")
    assert drawn.args["duration_ns"] == 10


def test_the_median_iteration_is_shown_unless_another_is_asked_for() -> None:
    rows = [op(i, 1000 * i, ns) for i, ns in enumerate((30, 10, 20, 90))]
    table = tables.table("ops", rows)
    assert choose(table).number == 2  # of 10, 20, 30, 90 the lower middle
    assert choose(table, 3).number == 3
    assert not len(choose(table, 9).drawn)


def test_operators_that_nest_are_told_by_their_self_time() -> None:
    """linear 100 ns holds addmm 70 ns, which holds copy 20 ns: 100 ns in all, not 190."""
    rows = [
        op(0, start, ns, self_ns=own, kind="op", name=name, device=None, stream=None)
        for start, ns, own, name in (
            (0, 100, 30, "linear"),
            (10, 70, 50, "addmm"),
            (20, 20, 20, "copy"),
        )
    ]
    table = tables.table("ops", [*rows, op(0, None, 9, self_ns=4, kind="op", name="lost")])
    group = captures.group(captures.Source("s", "S", table, False))
    assert captures.lines(group)[0] == "S: iteration 0 of 1: 3 ops (100 ns self time)"
    assert group.facts["drawn_ns"] == 100 and group.facts["op_inclusive_ns"] == 190
    told = group.facts["drawn_ns"] + group.facts["not_drawn_ns"]
    assert told == sums(table).total().sum() == 104
    drawn = written([group]).on("S", "operators")
    assert {s.name: s.above for s in drawn} == {
        "linear": [], "addmm": ["linear"], "copy": ["linear", "addmm"]
    }  # fmt: skip


def test_kernels_that_overlap_are_side_by_side_not_one_in_the_other() -> None:
    rows = [op(0, 0, 100), op(0, 10, 20), op(0, 100, 5)]
    drawn = written([captures.group(captures.Source("s", "S", tables.table("ops", rows), True))])
    assert [s.above for s in drawn.on("S", "kernels")] == [[], [], []]


def test_a_layer_that_another_interrupts_is_drawn_in_parts() -> None:
    rows = [op(0, t, 10, layer=name) for t, name in ((0, "A"), (10, "B"), (20, "A"), (30, "A"))]
    drawn = written([captures.group(captures.Source("s", "S", tables.table("ops", rows), True))])
    parts = sorted(drawn.on("S", "layers"), key=lambda s: s.start)
    assert [(s.name, s.start, s.end) for s in parts] == [("A", 0, 10), ("B", 10, 20), ("A", 20, 40)]
    assert [(s.args.get("part"), s.args.get("parts")) for s in parts] == [
        (1, 2), (None, None), (2, 2)
    ]  # fmt: skip


moments = st.integers(0, 60)
rows_ = st.lists(
    st.builds(
        lambda start, ns, stream, layer, module, kind: op(
            0, start, ns, stream=stream, layer=layer, kind=kind,
            modules=None if module is None else [module],
        ),
        st.one_of(st.none(), moments), st.one_of(st.none(), moments), st.integers(0, 1),
        st.sampled_from([None, "A", "B"]), st.sampled_from([None, "", "a", "a.b", "a.c"]),
        st.sampled_from(["kernel", "memcpy", "op"]),
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(rows_)
def test_drawn_and_not_drawn_are_all_there_is(rows: list[dict[str, Any]]) -> None:
    group = captures.group(captures.Source("s", "S", tables.table("ops", rows), True))
    drawn = written([group])
    device = any(r["kind"] != "op" for r in rows)
    names = ("kernels", "host operators") if device else ("operators",)
    slices = [s for n in names for s in drawn.on("S", n)]
    has_measured = bool(slices) or not group.tracks
    assert has_measured
    if group.tracks:
        total = sum(s.end - s.start for s in slices) + group.facts["not_drawn_ns"]
        assert total == sum(r["duration_ns"] or 0 for r in rows)
        assert len(slices) + group.facts["not_drawn"] == len(rows)


spans_ = st.lists(st.tuples(moments, st.integers(0, 20)), max_size=40)


@given(spans_, st.sampled_from([tracks.apart, tracks.nested]))
def test_each_slice_is_on_one_lane_and_lanes_nest(spans: list[tuple[int, int]], how: Any) -> None:
    start = np.asarray([s for s, _ in spans], np.int64)
    end = start + np.asarray([n for _, n in spans], np.int64)
    found = tracks.lanes(start, end, how)
    assert sorted(i for lane in found for i in lane.tolist()) == list(range(len(spans)))
    for lane in found:
        for n, a in enumerate(lane.tolist()):
            for b in lane.tolist()[n + 1 :]:
                after = end[a] <= start[b]
                inside = start[a] <= start[b] and end[b] <= end[a]
                assert after or (inside and how is tracks.nested)


@given(st.integers(0, 2**64 - 1))
def test_varints_are_read_as_what_they_were(value: int) -> None:
    found = 0
    for n, byte in enumerate(wire.varint(value)):
        found |= (byte & 127) << 7 * n
    assert found == value


def test_the_command_writes_a_file_and_says_what_is_in_it(h100: Run, tmp_path: Path) -> None:
    out = tmp_path / "t.pftrace.gz"
    arguments = ["timeline", str(h100.path), "-o", str(out), "--precision", "fp16"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0 and str(out) in result.output
    assert "TensorRT fp16: iteration 0 of 1: 28 kernels" in result.stderr
    first = out.read_bytes()
    groups = {s.track.split("/")[0] for s in read(gzip.decompress(first)).slices}
    assert groups == {"TensorRT fp16", "eager fp16 training step"}
    CliRunner().invoke(cli, arguments)
    assert out.read_bytes() == first  # the same captures are the same file


def test_a_precision_that_was_not_captured_is_told(h100: Run) -> None:
    result = CliRunner().invoke(cli, ["timeline", str(h100.path), "--precision", "bf16"])
    assert result.exit_code != 0 and "no capture in bf16" in str(result.exception)


def test_an_iteration_that_a_side_lacks_is_refused_and_nothing_overwritten(
    h100: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sides have different numbers of iterations: here one of an engine, three of another."""
    found = captures_of(h100)
    more = [op(i, 10 * i, 5) for i in (0, 1, 3)]
    found[0] = replace(found[0], ops=tables.table("ops", more))
    monkeypatch.setattr(inventory, "read", lambda *_: found)
    path = h100.file("report", "timeline.perfetto-trace")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"the report's")
    for wanted in ("3", "99"):
        with pytest.raises(InputError) as caught:
            timeline.main([str(h100.path), "--iteration", wanted], standalone_mode=False)
        assert caught.value.exit_code == 2
        line = caught.value.line()
        assert f"there is no iteration {wanted} of " in line
        first, second = (c.sides[-1].side.label for c in found[:2])
        assert f"{first} 0 to 1, 3, {second} 0, " in line
        assert path.read_bytes() == b"the report's"
    timeline.main([str(h100.path), "--iteration", "0"], standalone_mode=False)
    assert path.read_bytes() != b"the report's"


def test_the_report_has_the_timeline_and_a_link_to_it(h100: Run) -> None:
    result = CliRunner().invoke(cli, ["report", "--run", str(h100.path)])
    assert "report/index.html" in result.output
    path = h100.file("report", "timeline.perfetto-trace")
    assert read(path.read_bytes()).on("eager fp32", "kernels")
    page = h100.file("report", "index.html").read_text()
    assert '<a href="timeline.perfetto-trace" download>' in page
    record = json.loads(h100.file("run.json").read_text())
    assert "report/timeline.perfetto-trace" in json.dumps(record)


def shell() -> str | None:
    return os.environ.get("TRACE_PROCESSOR") or shutil.which("trace_processor_shell")


@pytest.fixture
def processor(h100: Run, tmp_path: Path) -> Iterator[Any]:
    if importlib.util.find_spec("perfetto") is None:
        pytest.skip("needs the perfetto package")
    if shell() is None:
        pytest.skip("no trace_processor_shell on PATH and TRACE_PROCESSOR is not set")
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    path = tmp_path / "t.pftrace"
    found = captures_of(h100)
    writer.write(path, captures.of_run(h100, found, counted(h100)))
    config = TraceProcessorConfig(bin_path=shell())
    with TraceProcessor(trace=str(path), config=config) as opened:
        yield opened


def test_the_trace_processor_finds_no_fault_and_the_same_times(processor: Any, seen: Any) -> None:
    faults = processor.query(
        "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
    )
    assert [(r.name, r.value) for r in faults] == []
    found, _ = seen
    rows = processor.query(
        "select p.name as side, sum(s.dur) as ns from slice s join process_track t on "
        "s.track_id = t.id join process p using (upid) where t.name glob 'kernels,*' group by side"
    )
    times = {r.side: r.ns for r in rows}
    for capture in found:
        ops = capture.ops.filter(
            pc.is_in(capture.ops["kind"], pa.array(("kernel", "memcpy", "memset")))
        )
        assert times[capture.sides[-1].side.label] == pc.sum(ops["duration_ns"]).as_py()


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_timeline_is_not_written_under_the_name_of_json(h100: Run, name: str) -> None:
    output = h100.path / name
    done = CliRunner().invoke(cli, ["timeline", str(h100.path), "-o", str(output)])
    assert isinstance(done.exception, InputError)
    assert "protobuf format, not as JSON" in str(done.exception)
    assert not output.exists()
