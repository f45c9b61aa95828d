"""Ranges of torch.profiler to the kernels of inductor's code, on traces made here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nsys_build import Export, pid

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


# What both profilers see of an inference on a GPU, in ns: ranges (name, start, end), and launches
# (name of the call, its time, kind, name, start and end on the device).
RANGES = [
    ("aoti_torch_cuda_addmm_out", 1_000, 3_000),
    ("aten::addmm", 1_100, 2_900),
    ("kernels_.cpp_fused_tanh_0", 4_000, 5_000),
    ("aten::empty_strided", 5_100, 5_200),
    ("aoti_torch_cuda_addmm_out", 6_000, 8_000),
    ("kernels_.cpp_fused_tanh_0", 8_500, 9_000),
]
LAUNCHES = [
    ("cudaMemsetAsync", 1_200, "memset", "Memset (Device)", 20_000, 20_300),
    ("cudaLaunchKernelExC", 1_500, "kernel", "gemm", 40_000, 47_000),  # the later stream
    ("cuLaunchKernel", 4_500, "kernel", "cpp_fused_tanh_0", 21_000, 22_000),
    ("cudaLaunchKernel", 6_500, "kernel", "gemm", 30_000, 35_000),
    ("cuLaunchKernel", 8_600, "kernel", "cpp_fused_tanh_0", 36_000, 36_500),
    ("cudaLaunchKernel", 9_500, "kernel", "alien", 50_000, 50_100),  # in no call of the package
]


def as_trace(folder: Path) -> Path:
    events = [span("cpu_op", n, s / 1e3, (e - s) / 1e3) for n, s, e in RANGES]
    for i, (call, at, kind, name, start, end) in enumerate(LAUNCHES):
        cat = {"kernel": "kernel", "memset": "gpu_memset"}[kind]
        events.append(span("cuda_runtime", call, at / 1e3, 0.1, correlation=i + 1))
        events.append(
            span(cat, name, start / 1e3, (end - start) / 1e3, correlation=i + 1, stream=7, device=0)
        )
    return trace(folder, [iteration(0, 0, 10), *events])


def as_nsys(folder: Path, ranges: Sequence[tuple[str, int, int]] = RANGES) -> Path:
    """As nsys has it under ``emit_nvtx``: names with numbers, of two inferences."""
    made = Export()
    for number, begun in enumerate((0, 100_000)):
        made.range(f"layerline/iteration/{number}", begun, begun + 60_000)
        for i, (name, start, end) in enumerate(ranges):
            numbers = f", seq = 3, op_id = {i + 1}" if "aten" in name else f", op_id = {i + 1}"
            made.range(name + numbers, begun + start, begun + end)
        for i, (call, at, kind, name, start, end) in enumerate(LAUNCHES):
            one = 10 * number + i + 1
            if kind == "kernel":
                duration = end - start
                made.launch(begun + at, duration, name=name, call=call, correlation=one,
                            start=begun + start)  # fmt: skip
                continue
            made.call(begun + at, one, name=call)
            made.sets.append(
                {"start": begun + start, "end": begun + end, "deviceId": 0, "streamId": 7,
                 "correlationId": one, "globalPid": pid()}
            )  # fmt: skip
    made.launch(300_000, name="gemm")  # after the last inference
    return made.write(folder / "fp16.inductor.sqlite")


def told(table: Any) -> list[tuple[Any, ...]]:
    """What is to be the same in both, by start."""
    rows = sorted(table.to_pylist(), key=lambda r: r["start_ns"])
    return [(r["kind"], r["layer"], r["modules"], r["duration_ns"], r["phase"]) for r in rows]


def test_nsys_tells_the_places_that_a_trace_does_and_counts_what_a_call_calls_as_its_own(
    tmp_path: Path,
) -> None:
    table = inductor.of_nsys(as_nsys(tmp_path), LAYERS, "fp16")
    of_trace, on_device = inductor.operations(as_trace(tmp_path), LAYERS, "fp16")
    assert on_device
    first = [r for r in table.to_pylist() if r["iteration"] == 0]
    assert len(first) == len(LAUNCHES)
    # By start on the device, where the first product ran last.
    assert told(of_trace) == [
        ("memset", "aoti_torch_cpu_addmm_out:1", ["a"], 300, "inference"),
        ("kernel", "cpp_fused_tanh_0:2", ["t"], 1_000, "inference"),
        ("kernel", "aoti_torch_cpu_addmm_out:3", ["b"], 5_000, "inference"),
        ("kernel", "cpp_fused_tanh_0:4", None, 500, "inference"),
        ("kernel", "aoti_torch_cpu_addmm_out:1", ["a"], 7_000, "inference"),
        ("kernel", "alien", None, 100, "inference"),
    ]
    for number in (0, 1):
        chosen = [r["iteration"] == number for r in table.to_pylist()]
        assert told(table.filter(chosen)) == told(of_trace)
    assert set(table["precision"].to_pylist()) == {"fp16"}


def test_a_kernel_after_the_last_inference_is_in_none_and_kept(tmp_path: Path) -> None:
    path = as_nsys(tmp_path)
    table = inductor.of_nsys(path, LAYERS, "fp16")
    (last,) = [r for r in table.to_pylist() if r["iteration"] is None]
    assert (last["layer"], last["modules"], last["rule"]) == ("gemm", None, "unresolved")
    by_kind = {"kernel": 0, "memset": 0}
    for row in table.to_pylist():
        by_kind[row["kind"]] += row["duration_ns"]
    assert by_kind == raw_totals.nsys(path)


def test_a_capture_that_lost_ranges_has_no_places_of_its_name(tmp_path: Path) -> None:
    table = inductor.of_nsys(as_nsys(tmp_path, RANGES[2:]), LAYERS, "fp16")
    rows = [r for r in table.to_pylist() if r["iteration"] is not None]
    assert {r["layer"] for r in rows if r["name"] == "gemm"} == {"gemm"}
    assert {r["rule"] for r in rows if r["name"] == "gemm"} == {"unresolved"}
    assert [r["layer"] for r in rows if "tanh" in r["name"]] == [
        "cpp_fused_tanh_0:2", "cpp_fused_tanh_0:4"
    ] * 2  # fmt: skip


def test_ranges_of_other_domains_are_no_calls_of_the_package(tmp_path: Path) -> None:
    """CUB opens ranges of its own, in a domain of its own."""
    made = Export()
    made.range("layerline/iteration/0", 0, 1_000)
    made.range("cpp_fused_tanh_0", 5, 900, domain=4)
    for i, name in enumerate(["cpp_fused_tanh_0", "cpp_fused_tanh_0"]):
        at = 100 * i + 10
        made.range(f"kernels_.{name}, op_id = {i}", at, at + 50)
        made.launch(at + 20, name=name)
    table = inductor.of_nsys(made.write(tmp_path / "x.sqlite"), LAYERS, "fp16")
    assert table["layer"].to_pylist() == ["cpp_fused_tanh_0:2", "cpp_fused_tanh_0:4"]
