"""Captures of several TensorRT engines: whose iteration an enqueue is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from nsys_build import Export

from layerline.analysis.commands.layers import layers as command
from layerline.analysis.costs import layers
from layerline.analysis.readers.nsys import sqlite
from layerline.core.nodes import parse
from layerline.core.stats import Stat

TRT = 1
ENQUEUE = "ExecutionContext::enqueue"


def export_of(*processes: int) -> Export:
    export = Export()
    for process in processes or (1000,):
        export.domain(TRT, "TensorRT", process)
    return export


def enqueue(export: Export, at: int, *, process: int = 1000, **durations: int) -> None:
    """1000 ns: a layer with a kernel for each of `durations`."""
    export.range(ENQUEUE, at, at + 1000, domain=TRT, process=process)
    for i, (name, duration) in enumerate(durations.items()):
        begin = at + 100 + 100 * i
        export.range(name.rstrip("_"), begin, begin + 50, domain=TRT, process=process)
        export.launch(begin + 10, duration, process=process)


def encoder_decoder() -> Export:
    """Five times an encoder (9000 ns) and three runs of a decoder (1000, 1100, 1300 ns)."""
    export = export_of()
    for i in range(5):
        at = 100_000 * i
        enqueue(export, at, enc_conv=9000)
        for j, duration in enumerate((1000, 1100, 1300)):
            enqueue(export, at + 2000 * (j + 1), dec_mm=duration)
    return export


Read = Callable[..., tuple[dict[str, dict[str, Any]], list[str], list[Stat | None]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def of(export: Export, *more: Any, **options: Any) -> Any:
        graph = more[0] if more else None
        with sqlite.source(export.write(tmp_path / "c.sqlite")) as source:
            table, notes, times = layers.of_nsys(source, graph, None, **options)
        return {r["layer"]: r for r in table.to_pylist()}, notes, times.engines or (times.total,)

    return of


def test_iterations_of_a_layer_are_the_enqueues_of_its_own_engine(read: Read) -> None:
    rows, notes, totals = read(encoder_decoder())
    encoder, decoder = rows["enc_conv"], rows["dec_mm"]
    assert (encoder["calls"], encoder["median_ns"], encoder["total_ns"]) == (5, 9000, 45_000)
    assert (decoder["calls"], decoder["median_ns"], decoder["total_ns"]) == (15, 1100, 17_000)
    # The 95 % interval of a median of 15 is [x(4), x(12)], of 5 samples there is none.
    assert (decoder["ci_low_ns"], decoder["ci_high_ns"]) == (1000, 1300)
    assert (encoder["ci_low_ns"], encoder["ci_high_ns"]) == (None, None)
    assert [(t.n, t.median) for t in totals if t] == [(5, 9000), (15, 1100)]
    assert any(
        "2 engines" in n
        and "engine 1 (enc_conv; process 1000) 5 enqueues" in n
        and "engine 2 (dec_mm; process 1000) 15 enqueues" in n
        for n in notes
    )
    assert [encoder["engine"], decoder["engine"]] == ["tensorrt #1", "tensorrt #2"]


def test_what_is_printed_closes_per_engine(tmp_path: Path) -> None:
    path = encoder_decoder().write(tmp_path / "c.sqlite")
    said = CliRunner().invoke(command, [str(path)])
    assert said.exit_code == 0
    assert "0.062 ms in all" in said.output  # 45 000 + 17 000 ns
    assert "engine 1 0.009 ms (median of 5)" in said.output
    assert "engine 2 0.001 ms (median of 15, 95 % interval 0.001 … 0.001)" in said.output
    assert "per iteration" not in said.output


def test_the_same_layers_in_two_processes_are_two_engines(read: Read) -> None:
    export = export_of(1000, 2000)
    for i in range(3):
        enqueue(export, 10_000 * i, gemm=500, conv=1000)
        enqueue(export, 10_000 * i + 10, process=2000, gemm=700, conv=3000)
    rows, _, totals = read(export)
    assert {k: (r["calls"], r["median_ns"]) for k, r in rows.items()} == {
        "gemm (engine 1)": (3, 500),
        "conv (engine 1)": (3, 1000),
        "gemm (engine 2)": (3, 700),
        "conv (engine 2)": (3, 3000),
    }
    assert [(t.n, t.median) for t in totals if t] == [(3, 1500), (3, 3700)]


def test_a_name_that_two_engines_share_is_a_layer_of_each(read: Read) -> None:
    export = export_of()
    for i in range(2):
        enqueue(export, 10_000 * i, a=5, Reformat=1, Reformat_=2)
        enqueue(export, 10_000 * i + 2000, b=7, Reformat=4)
    rows, _, _ = read(export)
    assert {k: r["median_ns"] for k, r in rows.items()} == {
        "a": 5,
        "Reformat #1 (engine 1)": 1,
        "Reformat #2 (engine 1)": 2,
        "b": 7,
        "Reformat (engine 2)": 4,
    }


def test_an_enqueue_that_the_capture_cut_is_of_its_engine(read: Read) -> None:
    export = export_of()
    enqueue(export, 0, b=6)  # the capture began after `a`
    for i in range(1, 4):
        enqueue(export, 10_000 * i, a=5, b=6)
    rows, notes, totals = read(export)
    assert {k: (r["calls"], r["median_ns"]) for k, r in rows.items()} == {"a": (3, 5), "b": (4, 6)}
    assert {r["engine"] for r in rows.values()} == {"tensorrt"}
    assert [t.n for t in totals if t] == [4]
    assert not any("engines" in n for n in notes)


def test_launches_of_a_graph_are_of_the_engine_that_it_was_captured_from(read: Read) -> None:
    export = export_of()
    thread = export.ranges[0]["globalTid"]
    for at, layer, node in ((1000, "conv", 70), (3000, "mm", 71)):
        export.range(ENQUEUE, at, at + 1000, domain=TRT)
        export.range(layer, at + 100, at + 200, domain=TRT)
        export.nodes.append(
            {
                "start": at + 110,
                "end": None,
                "globalTid": thread,
                "graphNodeId": node,
                "originalGraphNodeId": None,
            }
        )
    for i, (node, duration) in enumerate([(70, 40), (71, 6), (71, 6), (71, 6)] * 2):
        export.call(10_000 + 100 * i, 500 + i, name="cudaGraphLaunch_v10000")
        start = 20_000 + 100 * i
        export.kernel(start, start + duration, 500 + i, graphNodeId=node)
    rows, _, totals = read(export)
    assert (rows["conv"]["calls"], rows["conv"]["median_ns"]) == (2, 40)
    assert (rows["mm"]["calls"], rows["mm"]["median_ns"]) == (6, 6)
    assert [t.n for t in totals if t] == [2, 6]


def test_an_unknown_time_in_one_engine_leaves_the_others_known(read: Read) -> None:
    export = encoder_decoder()
    export.call(115, 900)
    export.kernel(50, None, 900)
    rows, _, totals = read(export)
    assert rows["enc_conv"]["median_ns"] is None
    assert rows["dec_mm"]["median_ns"] == 1100
    assert totals[0] is None and totals[1] is not None


def test_an_unknown_time_outside_every_iteration_leaves_all_engines_known(read: Read) -> None:
    export = encoder_decoder()
    export.call(90_000, 900)
    export.kernel(50, None, 900)
    _, _, totals = read(export)
    assert [(t.n, t.median) for t in totals if t] == [(5, 9000), (15, 1100)]


def test_ranges_that_the_user_names_are_the_iterations_of_all_engines(read: Read) -> None:
    export = export_of()
    for i in range(3):
        export.range(f"step {i}", 10_000 * i, 10_000 * i + 9000)
        enqueue(export, 10_000 * i + 10, a=5)
        enqueue(export, 10_000 * i + 2000, b=7)
    rows, _, totals = read(export, iteration="step *")
    assert {k: (r["calls"], r["median_ns"]) for k, r in rows.items()} == {"a": (3, 5), "b": (3, 7)}
    assert [(t.n, t.median) for t in totals if t] == [(3, 12)]


def test_a_node_of_the_model_may_be_in_two_engines(read: Read) -> None:
    node = {"name": "h.0/Gemm", "op": "Gemm", "module": "h.0", "inputs": ["x"], "outputs": ["y"]}
    export = export_of(1000, 2000)
    enqueue(export, 0, **{"h_0/Gemm": 5})
    enqueue(export, 10, process=2000, **{"h_0/Gemm": 6})
    rows, _, _ = read(export, parse({"schema_version": 1, "nodes": [node]}))
    assert [r["modules"] for r in rows.values()] == [["h.0"], ["h.0"]]


def test_the_time_outside_every_iteration_is_said(read: Read) -> None:
    export = export_of()
    enqueue(export, 1000, a=5)
    export.launch(5000, 1200)
    export.launch(6000, 34)
    export.call(7000, 901)
    export.kernel(50, None, 901)
    _, notes, _ = read(export)
    assert (
        "3 GPU operations lie outside every iteration and are in no layer "
        "(1,234 ns, and 1 of unknown time)"
    ) in notes
