"""Eager captures under nsys: PyTorch's NVTX ranges to modules, and the two tools side by side."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import paths
import pytest
from captured import eager_of
from nsys_build import Export, pid

from layerline.analysis.attribution import eager_nsys
from layerline.analysis.attribution.eager import eager
from layerline.analysis.checks import tracer_agreement
from layerline.analysis.commands.layers import read_layers
from layerline.analysis.rundir.problems import Problems
from layerline.core import tables
from layerline.core.errors import InputError
from layerline.core.run import Run

DATA = paths.DATA / "h100_eager"
MODULE = "layerline/module/"
EVALUATE = "autograd::engine::evaluate_function: "


def as_nsys(trace: Path, path: Path) -> Path:
    """What nsys would have written for a profiler trace: PyTorch's names with their numbers."""
    made = Export()
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    for e in [e for e in events if e["ph"] == "X"]:
        start = round(e["ts"] * 1000)
        end = start + round(e["dur"] * 1000)
        args = e["args"]
        if e["cat"] == "cpu_op":
            number = args.get("Sequence number", -1)
            engine = e["name"].startswith(EVALUATE)  # numbered by the profiler, not in NVTX
            text = e["name"] + (f", seq = {number}" if number >= 0 and not engine else "")
            made.range(f"{text}, op_id = {args['External id']}", start, end, thread=e["tid"])
        elif e["cat"] == "user_annotation":
            made.range(e["name"], start, end, thread=e["tid"])
        elif e["cat"] in ("cuda_runtime", "cuda_driver"):
            made.call(start, args["correlation"], thread=e["tid"], name=e["name"])
        elif e["cat"] == "kernel":
            made.kernel(start, end, args["correlation"], name=e["name"])
        else:
            rows = made.copies if e["cat"] == "gpu_memcpy" else made.sets
            row = {
                "start": start,
                "end": end,
                "deviceId": 0,
                "streamId": 7,
                "correlationId": args["correlation"],
                "globalPid": pid(),
            }
            rows.append(row | ({"copyKind": 8} if e["cat"] == "gpu_memcpy" else {}))
    return made.write(path)


@pytest.mark.parametrize("name", ["eager.fp32", "train.fp32", "train.fp16"])
def test_the_same_work_told_by_nsys_goes_to_the_same_modules(tmp_path: Path, name: str) -> None:
    trace = DATA / f"{name}.trace.json.gz"
    ours = eager(trace, {}).main
    theirs = eager_nsys.read(as_nsys(trace, tmp_path / "a.sqlite"), {}).main
    kept = ("phase", "iteration", "modules", "layer", "rule", "duration_ns", "device", "stream")

    def by_launch(ops: Any) -> dict[int, dict[str, Any]]:
        rows = [r for r in ops.to_pylist() if r["kind"] != "op"]
        found = {r["correlation"]: {k: r[k] for k in kept} for r in rows}
        assert len(found) == len(rows)
        return found

    expected = by_launch(ours)
    assert by_launch(theirs) == expected
    assert len(expected) > 50
    check = tracer_agreement.agreement(ours, theirs)
    assert (check.ok, check.residual_ns) == (True, 0)


def test_names_and_numbers_of_pytorchs_ranges() -> None:
    assert eager_nsys.split("aten::mm, seq = 12, op_id = 34") == ("aten::mm", 12)
    assert eager_nsys.split("aten::mm, op_id = 34") == ("aten::mm", -1)
    assert eager_nsys.split("aten::mm") == ("aten::mm", -1)
    assert eager_nsys.split("a, b, seq = 0, op_id = 3, sizes = [[2, 2], []]") == ("a, b", 0)
    node = f"{EVALUATE}torch::autograd::AccumulateGrad"
    assert eager_nsys.split(f"{node}, op_id = 9") == (node, -1)


def small() -> Export:
    """One step: fc's product and its backward on thread 2, a gradient that is accumulated."""
    made = Export()
    made.range("layerline/iteration/0", 0, 1000)
    made.range("layerline/phase/forward", 10, 200)
    made.range(MODULE, 20, 190)
    made.range(f"{MODULE}fc", 30, 180)
    made.range("aten::mm, seq = 5, op_id = 1", 40, 100)
    made.launch(50, 10, name="forward")
    made.range("layerline/phase/backward", 300, 900)
    made.range(f"{EVALUATE}MmBackward0, op_id = 2", 310, 400, thread=2)
    made.range("MmBackward0, seq = 5, op_id = 3", 320, 390, thread=2)
    made.range("aten::mm, op_id = 4", 330, 380, thread=2)
    made.launch(340, 20, name="backward", thread=2)
    node = "torch::autograd::AccumulateGrad"
    made.range(f"{EVALUATE}{node}, op_id = 5", 410, 500, thread=2)
    made.range(f"{node}, op_id = 6", 420, 490, thread=2)
    made.launch(430, 30, name="accumulate", thread=2)
    made.launch(950, 40, name="between phases")
    return made


def test_backward_on_its_own_thread_goes_to_its_forwards_module(tmp_path: Path) -> None:
    ops = eager_nsys.read(small().write(tmp_path / "a.sqlite"), {"precision": "fp32"}).main
    rows = {r["name"]: r for r in ops.to_pylist() if r["kind"] == "kernel"}

    def told(name: str) -> tuple[Any, ...]:
        return tuple(rows[name][k] for k in ("phase", "iteration", "modules", "layer", "rule"))

    assert told("forward") == ("forward", 0, ["fc"], "aten::mm", "range")
    assert told("backward") == ("backward", 0, ["fc"], "aten::mm", "sequence")
    assert told("accumulate") == ("backward", 0, None, "gradient accumulation", "range")
    assert told("between phases") == ("other", 0, None, "outside modules", "unresolved")
    assert {r["precision"] for r in rows.values()} == {"fp32"}


def test_forward_that_runs_again_in_backward_is_recomputation(tmp_path: Path) -> None:
    """Its operators have numbers of their own, also one that is by chance the node's."""
    made = small()
    made.range(f"{EVALUATE}CheckpointBackward, seq = 4, op_id = 7", 510, 700, thread=2)
    made.range("CheckpointBackward, seq = 4, op_id = 8", 520, 690, thread=2)
    made.range(f"{MODULE}fc", 530, 680, thread=2)
    made.range("aten::mm, seq = 4, op_id = 9", 540, 600, thread=2)
    made.launch(550, 50, name="again", thread=2)
    ops = eager_nsys.read(made.write(tmp_path / "a.sqlite"), {}).main
    row = next(r for r in ops.to_pylist() if r["name"] == "again")
    assert (row["phase"], row["modules"]) == ("recompute", ["fc"])


def test_an_operation_without_a_launch_is_kept_and_unresolved(tmp_path: Path) -> None:
    made = small()
    made.kernel(600, 650, 99, name="lost")
    ops = eager_nsys.read(made.write(tmp_path / "a.sqlite"), {}).main
    row = next(r for r in ops.to_pylist() if r["name"] == "lost")
    assert (row["modules"], row["rule"], row["duration_ns"]) == (None, "unresolved", 50)


def test_launches_of_unforeseen_names_are_found(tmp_path: Path) -> None:
    made = small()
    made.range("layerline/phase/loss", 210, 290)
    made.launch(220, 10, name="odd", call="cuFancyThing")
    ops = eager_nsys.read(made.write(tmp_path / "a.sqlite"), {}).main
    row = next(r for r in ops.to_pylist() if r["name"] == "odd")
    assert (row["phase"], row["layer"]) == ("loss", "loss")


def test_ranges_of_libraries_in_other_domains_are_no_operators(tmp_path: Path) -> None:
    made = small()
    made.domain(3, "CUBLAS")
    made.range("cublasSgemm", 45, 60, domain=3)
    ops = eager_nsys.read(made.write(tmp_path / "a.sqlite"), {}).main
    assert {r["layer"] for r in ops.to_pylist() if r["name"] == "forward"} == {"aten::mm"}


def test_every_side_on_a_gpu_says_whether_nsys_tells_the_same(tmp_path: Path) -> None:
    run = Run(tmp_path)
    captures = tmp_path / "captures"
    captures.mkdir()
    trace = captures / "train.fp32.trace.json.gz"
    trace.write_bytes((DATA / trace.name).read_bytes())

    def checks(problems: Problems) -> list[list[Any]]:
        sides = eager_of(run, "train", "fp32", problems).sides
        assert [s.side.phase for s in sides] == ["forward", "backward", "step"]
        return [[c for c in s.side.checks if c.name == "sources"] for s in sides]

    assert checks(Problems()) == [[], [], []]
    as_nsys(trace, captures / "train.fp32.sqlite")
    assert [[c.ok for c in found] for found in checks(Problems())] == [[True]] * 3
    (captures / "train.fp32.sqlite").write_bytes(b"SQLite format 3\x00 and no more")
    broken = Problems()
    for (check,) in checks(broken):
        assert check.ok is None
        assert "train.fp32.sqlite" in check.text
    assert [s["file"] for s in broken.listed(run)] == ["captures/train.fp32.sqlite"]


def kernels(*rows: tuple[str, int, int]) -> Any:
    return tables.table(
        "ops",
        [
            {"kind": "kernel", "modules": [m], "iteration": i, "duration_ns": ns, "start_ns": 0}
            for m, i, ns in rows
        ],
    )


def test_two_sources_agree_within_two_percent() -> None:
    """Medians over iterations: 1000 against 1019 and 1021."""
    ours = kernels(("a", 0, 900), ("a", 1, 1000), ("a", 2, 5000))
    close = tracer_agreement.agreement(ours, kernels(("a", 0, 1019)))
    assert (close.ok, close.residual_ns) == (True, 19)
    far = tracer_agreement.agreement(ours, kernels(("a", 0, 1021)))
    assert (far.ok, far.residual_ns) == (False, 21)
    assert "1.02 µs" in far.text


def test_the_module_that_the_sources_differ_on_is_named() -> None:
    ours = kernels(("a", 0, 600), ("b", 0, 400))
    check = tracer_agreement.agreement(ours, kernels(("a", 0, 400), ("b", 0, 600)))
    assert check.ok  # the same kernel time,
    assert check.terms[-1][1] == 200
    assert "for b, by 200 ns" in check.text  # but not in the same place


def test_a_source_without_kernels_is_not_checked() -> None:
    check = tracer_agreement.agreement(kernels(("a", 0, 1)), kernels())
    assert check.ok is None
    assert "nsys" in check.text


def test_a_database_that_is_no_export_is_refused(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "a.sqlite"
    database = sqlite3.connect(path)
    database.execute("create table t (x)")
    database.commit()
    database.close()
    with pytest.raises(InputError, match="no export of nsys"):
        eager_nsys.read(path, {})


def test_layers_of_an_eager_capture_are_its_modules(tmp_path: Path) -> None:
    made = Export()
    for step in (0, 1000):
        made.range(f"layerline/iteration/{step // 1000}", step, step + 900)
        made.range(f"{MODULE}fc", step + 10, step + 500)
        made.range(f"aten::mm, op_id = {step + 7}", step + 20, step + 100)
        made.launch(step + 30, 10)
    found = layers_of(made.write(tmp_path / "own.sqlite"))
    assert [(r["layer"], r["calls"], r["total_ns"]) for r in found] == [("fc", 2, 20)]


def test_layers_of_anybodys_eager_capture_are_operators_without_call_numbers(
    tmp_path: Path,
) -> None:
    made = Export()
    for at in (0, 1000):
        made.range(f"aten::mm, seq = {at}, op_id = {at + 7}, sizes = [[2, 2], []]", at, at + 100)
        made.launch(at + 30, 10)
    found = layers_of(made.write(tmp_path / "other.sqlite"))
    assert {r["layer"] for r in found} == {"aten::mm #1", "aten::mm #2"}


def layers_of(path: Path) -> list[dict[str, Any]]:
    return list(read_layers(path, None, None)[0].to_pylist())
