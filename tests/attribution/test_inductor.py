"""Ranges of torch.profiler to the kernels of inductor's code, on traces made here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layerline.analysis.attribution import inductor
from layerline.analysis.checks import raw_totals

Event = dict[str, Any]
LAYERS = [
    {"name": "aoti_torch_cpu_addmm_out:1", "nodes": ["a/mm"], "modules": ["a"]},
    {"name": "cpp_fused_tanh_0:2", "nodes": ["t/tanh"], "modules": ["t"]},
    {"name": "aoti_torch_cpu_addmm_out:3", "nodes": ["b/mm"], "modules": ["b"]},
    {"name": "cpp_fused_tanh_0:4", "nodes": [], "modules": []},
]
for _layer in LAYERS:
    _layer["rule"] = "provenance" if _layer["modules"] else "unresolved"


def span(cat: str, name: str, ts: float, dur: float, **args: Any) -> Event:
    """A complete event; times in microseconds."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def iteration(number: int, at: float, length: float = 100) -> Event:
    return span("user_annotation", f"layerline/iteration/{number}", at, length)


def trace(folder: Path, events: Sequence[Event]) -> Path:
    path = folder / "fp32.inductor.profile.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    table, _ = inductor.operations(path, LAYERS, "fp32")
    found: list[dict[str, Any]] = table.to_pylist()
    return sorted(found, key=lambda r: r["start_ns"])


def run(at: float) -> list[Event]:
    """One inference on the CPU."""
    return [
        span("cpu_op", "aoti_torch_cpu_addmm_out", at + 10, 20),
        span("cpu_op", "aten::copy_", at + 12, 5),
        span("cpu_op", "graph_0_cpp_fused_tanh_0", at + 35, 5),
        span("cpu_op", "aoti_torch_cpu_addmm_out", at + 45, 30),
        span("cpu_op", "graph_0_cpp_fused_tanh_0", at + 80, 5),
    ]


def test_two_calls_of_one_kernel_are_told_apart_by_their_place(tmp_path: Path) -> None:
    path = trace(tmp_path, [*run(0), iteration(0, 0), *run(200), iteration(1, 200)])
    found = rows(path)
    assert [(r["iteration"], r["layer"], r["modules"], r["duration_ns"]) for r in found[:4]] == [
        (0, "aoti_torch_cpu_addmm_out:1", ["a"], 20_000),
        (0, "cpp_fused_tanh_0:2", ["t"], 5_000),
        (0, "aoti_torch_cpu_addmm_out:3", ["b"], 30_000),
        (0, "cpp_fused_tanh_0:4", None, 5_000),
    ]
    assert [r["rule"] for r in found[4:]] == ["provenance"] * 3 + ["unresolved"]


def test_what_a_kernel_calls_is_in_its_time_and_is_counted_once(tmp_path: Path) -> None:
    path = trace(tmp_path, [*run(0), iteration(0, 0)])
    found = rows(path)
    assert {r["kind"] for r in found} == {"node"}
    assert sum(r["self_ns"] for r in found) == 60_000 == raw_totals.torch_trace(path).sums["op"]


def test_an_iteration_with_a_call_too_few_or_too_many_has_no_places_of_that_name(
    tmp_path: Path,
) -> None:
    lost, doubled = run(0)[:3] + run(0)[4:], run(200) + run(200)[:1]
    doubled[-1]["ts"] += 85
    path = trace(tmp_path, [*lost, iteration(0, 0), *doubled, iteration(1, 200)])
    products = [r for r in rows(path) if r["name"].startswith("aoti")]
    assert len(products) == 4
    assert {(r["layer"], r["modules"] is None, r["rule"]) for r in products} == {
        ("aoti_torch_cpu_addmm_out", True, "unresolved")
    }
    others = [r["layer"] for r in rows(path) if "tanh" in r["name"]]
    assert others == ["cpp_fused_tanh_0:2", "cpp_fused_tanh_0:4"] * 2


def test_an_extern_call_is_known_by_its_operator_however_it_is_spelled(tmp_path: Path) -> None:
    spelled = {"aoti_torch_cpu_addmm_out": "extern_kernels.addmm"}
    layers = [
        {**x, "name": f"{spelled.get(name, name)}:{place}"}
        for x in LAYERS
        for name, _, place in [x["name"].rpartition(":")]
    ]
    path = trace(tmp_path, [*run(0), iteration(0, 0)])
    table, _ = inductor.operations(path, layers, "fp32")
    assert [m for m in table["modules"].to_pylist() if m] == [["a"], ["t"], ["b"]]


def test_warming_up_is_in_no_iteration_and_has_no_layer(tmp_path: Path) -> None:
    path = trace(tmp_path, [*run(0), span("user_annotation", "layerline/warmup", 0, 100)])
    assert {(r["iteration"], r["phase"], r["rule"]) for r in rows(path)} == {
        (None, None, "unresolved")
    }


def test_an_operator_that_is_no_layer_is_unresolved_and_kept(tmp_path: Path) -> None:
    stray = span("cpu_op", "aten::empty", 90, 4)
    found = rows(trace(tmp_path, [*run(0), stray, iteration(0, 0)]))
    assert (found[-1]["layer"], found[-1]["modules"]) == ("aten::empty", None)
    assert found[-1]["duration_ns"] == 4_000


def test_kernels_of_a_gpu_go_by_the_call_that_launched_them_in_whatever_order_they_ran(
    tmp_path: Path,
) -> None:
    events: list[Event] = [iteration(0, 0)]
    for k, (name, at) in enumerate(
        [("aoti_torch_cpu_addmm_out", 10), ("aoti_torch_cpu_addmm_out", 40)]
    ):
        events.append(span("cpu_op", name, at, 20))
        events.append(span("cpu_op", "aten::addmm", at + 1, 18))
        events.append(span("cuda_runtime", "cudaLaunchKernel", at + 5, 2, correlation=k + 1))
    # Two streams: what was launched last runs first.
    events.append(span("kernel", "gemm", 60, 7, correlation=2, stream=9, device=0))
    events.append(span("kernel", "gemm", 70, 9, correlation=1, stream=7, device=0))
    events.append(span("kernel", "alien", 80, 1, correlation=77, stream=7, device=0))
    events.append(span("cpu_op", "kernels_.cpp_fused_tanh_0", 62, 5))
    events.append(span("cpu_op", "kernels_.cpp_fused_tanh_0", 68, 5))
    events.append(span("cuda_driver", "cuLaunchKernel", 63, 2, correlation=3))
    events.append(span("kernel", "cpp_fused_tanh_0", 90, 2, correlation=3, stream=7, device=0))
    table, on_device = inductor.operations(trace(tmp_path, events), LAYERS, "fp16")
    found = sorted(table.to_pylist(), key=lambda r: r["start_ns"])
    assert on_device
    assert [(r["name"], r["modules"], r["duration_ns"]) for r in found] == [
        ("gemm", ["b"], 7_000),
        ("gemm", ["a"], 9_000),
        ("alien", None, 1_000),
        ("cpp_fused_tanh_0", ["t"], 2_000),
    ]
