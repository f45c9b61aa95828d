"""What a gate judges of a run, by hand: `run_by_hand` with three processes of an engine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_by_hand import EAGER, ENGINE, write_run

from layerline.analysis.captures.samples import joined, of_run
from layerline.analysis.model.baseline import Baseline, Outputs, Quantity, SideSamples
from layerline.analysis.model.comparison import Cost
from layerline.analysis.pipeline import analyse
from layerline.core.files import write_json
from layerline.core.run import Run
from layerline.core.stats import Estimate

STEM = "fp16.onnxruntime"
STEPS = "eager/fp16/step"
# Medians 10, 30 and 20; of the first the interval is the whole range, 10 to 18.
LATENCY = {
    "latency_ns": [10, 10, 10, 10, 18, 18, *[30] * 6, *[20] * 6],
    "queued_ns": [5, 7],
    "processes": [{"n": 6, "queued_n": 1}, {"n": 6, "queued_n": 1}, {"n": 6, "queued_n": 0}],
    "facts": {"device_bytes": 4096, "context_bytes": 512},
}

NO_MARKS: dict[str, list[int]] = {"time_ns": [], "step": [], "phase": [], "module": []}


def step(number: int, **peaks: int) -> dict[str, int]:
    return {"number": number, "begin_mark": 0, "end_mark": 0, **peaks}


def baseline_of(path: Path) -> Baseline:
    run = Run(path)
    result = analyse(run)
    return of_run(run, result.captures, result.comparison)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples") / "run"
    write_run(folder)
    write_json(folder / f"captures/{STEM}.latency.json", LATENCY)
    files = ("engines/fp16.onnxruntime.engine", "engines/fp16.onnxruntime.onnx")
    hashed = {f: {"sha256": "0123456789abcdef" * 4} for f in files}
    manifest = {"schema_version": 1, "step": f"profile/{STEM}.latency", "inputs": hashed}
    write_json(folder / f"manifests/profile/{STEM}.latency.json", manifest)
    steps = [step(0, allocated_peak_bytes=70), step(1, allocated_peak_bytes=90), step(2)]
    counted = [step(0, counted_peak_bytes=40)]
    for precision, of in (("fp16", steps), ("fp32", counted), ("bf16", [step(0)])):
        document = {"marks": NO_MARKS, "steps": of}
        write_json(folder / f"captures/train.{precision}.memory.json", document)
    write_json(folder / f"captures/{STEM}.memory.json", {})  # no task's
    return folder


@pytest.fixture
def baseline(path: Path) -> Baseline:
    return baseline_of(path)


def test_an_engines_times_are_medians_by_process_and_those_of_its_profile(
    baseline: Baseline,
) -> None:
    """Two profiled runs of 300 + 100 + 500 and 310 + 110 + 520 us, of a, both, and b."""
    engine = baseline.sides[ENGINE]
    assert engine.quantities == [
        Quantity(what="latency", runs=[[10, 30, 20]], within=1.3),  # of 4, 0 and 0
        Quantity(what="queued", runs=[[5, 7]]),
        Quantity(what="operations", runs=[[920_000]]),
        Quantity(what="kind", name="a", runs=[[410_000]], shared=True),
        Quantity(what="kind", name="b", runs=[[615_000]], shared=True),
        Quantity(what="module", name="a", runs=[[410_000]], shared=True),
        Quantity(what="module", name="b", runs=[[615_000]], shared=True),
        Quantity(what="memory", name="device", runs=[[4096]]),
        Quantity(what="memory", name="context", runs=[[512]], exact=True),
    ]
    assert engine.builds == ["0123456789abcdef"]
    assert engine.coverage == [1.0] and engine.outputs is not None
    assert engine.outputs.cosine == 0.9995 and engine.outputs.ok is None
    assert engine.outputs.why.startswith("its error 0.032 is more than rounding makes")


def test_eager_has_no_build_and_what_is_no_modules_has_its_own_name(baseline: Baseline) -> None:
    eager = baseline.sides[EAGER]
    assert eager.quantities == [
        Quantity(what="latency", runs=[[2_900_000]], within=0),
        Quantity(what="operations", runs=[[2_400_000]]),
        Quantity(what="kind", name="a", runs=[[1_400_000]]),
        Quantity(what="kind", name="b", runs=[[1_000_000]]),
        Quantity(what="module", name="a", runs=[[1_400_000]]),
        Quantity(what="module", name="b", runs=[[1_000_000]]),
        Quantity(what="module", name="outside operators", runs=[[590_000]]),
    ]
    assert (eager.builds, eager.on_gpu, eager.outputs) == ([], False, None)
    assert eager.sm_mhz is None


def test_the_highest_peak_of_a_run_is_that_of_its_steps(baseline: Baseline) -> None:
    def peak(most: int) -> list[Quantity]:
        return [Quantity(what="memory", name="peak", runs=[[most]], exact=True)]

    assert baseline.sides[STEPS].quantities == peak(90)
    assert baseline.sides["eager/fp32/step"].quantities == peak(40)
    assert list(baseline.sides) == [ENGINE, EAGER, STEPS, "eager/fp32/step"]


def test_a_baseline_says_of_what_it_is(baseline: Baseline) -> None:
    assert (baseline.title, baseline.baseline_version) == ("tiny, 1×8", 1)
    assert baseline.made.startswith("20")
    assert (baseline.stale, baseline.lost) == ([], {})
    facts = baseline.facts
    assert {k: facts[k] for k in ("model", "class", "weights", "batch", "sequence")} == {
        "model": "tiny", "class": "Net", "weights": "random", "batch": 1, "sequence": 8,
    }  # fmt: skip
    assert None not in facts.values() and "overrides" not in facts


def test_what_cannot_be_read_is_lost_with_its_reason(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    trace, memory = "captures/eager.fp32.trace.json", "captures/train.fp16.memory.json"
    (tmp_path / "run" / trace).write_text("{")
    (tmp_path / "run" / memory).write_text("{}")
    found = baseline_of(tmp_path / "run")
    assert EAGER not in found.sides and STEPS not in found.sides
    assert found.lost.keys() == {trace, memory} and all(found.lost.values())
    assert "marks" in found.lost[memory]


def test_facts_are_what_may_have_changed_and_is_known(path: Path) -> None:
    run, made = Run(path), analyse(Run(path)).comparison
    digest = "0123456789abcdef"
    manifest = {
        "seed": 3,
        "model": {"model": "m", "revision": None, "overrides": {}, "batch": 2},
        "files": {
            "export/fp16.onnx": digest, "export/model.json": digest, "engines/fp16.onnx": digest,
            "export/fp32.onnx": None,
        },
        "facts": {"model": "arch", "gpu": "none", "devices": [], "driver": None},
    }  # fmt: skip
    found = of_run(run, (), replace(made, manifest=manifest))
    assert found.facts == {
        "model": "m", "architecture": "arch", "seed": 3,
        "exported": {"fp16": "0123456789ab"}, "gpu": "none",
    }  # fmt: skip
    assert of_run(run, (), replace(made, manifest={})).facts == {}


def test_a_side_without_its_capture_has_what_the_comparison_tells(path: Path) -> None:
    """Kinds and modules; a side of which nothing is known is none."""
    made = analyse(Run(path)).comparison
    engine, eager = made.sides
    sides = [replace(engine, coverage=None, rebuild_noise=0.25), replace(eager, phase="gone")]
    found = of_run(Run(path), (), replace(made, sides=sides)).sides
    assert list(found) == [ENGINE, STEPS, "eager/fp32/step"]
    assert [q.key for q in found[ENGINE].quantities] == [
        ("kind", "a"), ("kind", "b"), ("module", "a"), ("module", "b"),
    ]  # fmt: skip
    assert (found[ENGINE].coverage, found[ENGINE].build_noise) == ([], 0.25)
    assert (found[ENGINE].on_gpu, found[ENGINE].sm_mhz) == (None, None)
    right = replace(sides[1], outputs=Outputs(ok=True, why="same"), parity=None)
    found = of_run(Run(path), (), replace(made, sides=[right])).sides
    assert found["eager/fp32/gone"].quantities == []
    assert found["eager/fp32/gone"].outputs == Outputs(ok=True, why="same")


def test_modules_are_called_by_their_paths_and_other_rows_by_their_names(path: Path) -> None:
    """With the interval of six iterations; blocks are no modules, and the model is the whole."""
    made = analyse(Run(path)).comparison
    cost = Cost(Estimate(4, 3, 5, 6), Estimate(7, 5, 10, 6), None)
    row = made.modules[0]
    rows = [
        replace(row, kind=kind, path=path_, name=name, costs={ENGINE: cost})
        for kind, path_, name in (
            ("module", "", ""), ("module", "h.0.attn", "attn"), ("block", "h.0", "h.0"),
            ("row", "", "loss"),
        )
    ]  # fmt: skip
    unknown = Cost(Estimate(), Estimate(), None)
    rows.append(replace(rows[1], path="lost", costs={ENGINE: unknown}))
    rows.append(replace(rows[1], path="other", costs={EAGER: cost}))
    found = of_run(Run(path), (), replace(made, modules=rows, kinds=[])).sides[ENGINE]
    assert found.quantities == [
        Quantity(what="module", name="h.0.attn", runs=[[7]], within=2.5, shared=True),
        Quantity(what="module", name="loss", runs=[[7]], within=2.5, shared=True),
    ]


def test_six_iterations_have_an_interval(path: Path, tmp_path: Path) -> None:
    """An engine on a GPU, at 1.5 GHz, of which six runs were profiled: 900 to 905 us."""
    folder = tmp_path / "run"
    write_run(folder)
    document = {"latency_ns": [9, 8], "facts": {"gpu": {"sm_mhz": {"median": 1500}}}}
    write_json(folder / f"captures/{STEM}.latency.json", document)
    events = []
    for number in range(8):
        start = 10_000 * number
        args = {"op_name": "Gemm", "provider": "CPU"}
        both = {"ph": "X", "pid": 1, "tid": 1}
        run = {"cat": "Session", "name": "model_run", "ts": start, "dur": 1000, "args": {}}
        name = {"cat": "Node", "name": "a_kernel_time", "ts": start + 20, "args": args}
        events += [both | run, both | name | {"dur": 898 + number}]
    (folder / f"captures/{STEM}.profile.json").write_text(json.dumps(events))
    found = baseline_of(folder).sides[ENGINE]
    assert found.quantity("operations") == Quantity(
        what="operations", runs=[[902_500]], within=2500
    )
    assert found.quantity("latency") == quantity([8])  # of two samples, without an interval
    assert found.sm_mhz == 1500


def test_of_ranks_a_baseline_has_their_steps_and_facts(path: Path, tmp_path: Path) -> None:
    for rank, times in enumerate(([5, 7, 6], [8, 8, 9])):
        stem = tmp_path / f"captures/train.fp32.rank{rank:04d}"
        write_json(Path(f"{stem}.latency.json"), {"latency_ns": times})
        meta = {"workload": "gpt2", "model": "small", "device": "cpu", "ranks": 2}
        write_json(Path(f"{stem}.meta.json"), meta)
        document = {"marks": NO_MARKS, "steps": [step(0, counted_peak_bytes=40 + rank)]}
        write_json(Path(f"{stem}.memory.json"), document)
    found = of_run(Run(tmp_path))
    assert (found.baseline_version, found.title) == (1, "gpt2 small")
    assert (found.facts["ranks"], found.stale, found.lost) == (2, [], {})
    sides = {k: [q.runs for q in s.quantities] for k, s in found.sides.items()}
    assert sides == {
        "eager/fp32/step/rank0000": [[[6]], [[40]]],
        "eager/fp32/step/rank0001": [[[8]], [[41]]],
    }
    assert found.sides["eager/fp32/step/rank0000"].on_gpu is False
    # They are there beside what else was measured.
    made = replace(analyse(Run(path)).comparison, sides=[], manifest={})
    beside = of_run(Run(tmp_path), (), made)
    assert (beside.sides, beside.facts) == (found.sides, found.facts)
    assert beside.title == "tiny, 1×8"


def quantity(*runs: list[int], **more: Any) -> Quantity:
    return Quantity(what="latency", runs=list(runs), **more)


def side(*quantities: Quantity, **more: Any) -> SideSamples:
    return SideSamples(quantities=list(quantities), **more)


def run_of(sides: dict[str, SideSamples], **more: Any) -> Baseline:
    return Baseline(baseline_version=1, sides=sides, **more)


def test_runs_of_one_thing_are_put_together_by_quantity() -> None:
    peak = Quantity(what="memory", name="peak", runs=[[7]], exact=True)
    one = side(quantity([1, 2], within=2.0), coverage=[0.5], builds=["a"], build_noise=0.25)
    two = side(quantity([3], shared=True), peak, coverage=[0.75], builds=["b"], build_noise=0.5)
    third = side(quantity([4], within=4.0))
    found = joined([run_of({"x": s}) for s in (one, two, third)]).sides["x"]
    assert found.quantities == [
        quantity([1, 2], [3], [4], within=3.0, shared=True),
        peak,
    ]
    assert (found.coverage, found.builds, found.build_noise) == ([0.5, 0.75], ["a", "b"], 0.5)
    assert joined([run_of({"x": third})] * 2).sides["x"].build_noise is None
    without = joined([run_of({"x": side(quantity([1]))})] * 2).sides["x"].quantities
    assert without == [quantity([1], [1])]


def test_a_side_that_one_run_lacks_has_as_many_runs_less() -> None:
    a, b = side(quantity([1]), sm_mhz=1), side(quantity([2]))
    assert joined([run_of({"a": a}), run_of({"a": b})]).sides["a"].sm_mhz == 1
    found = joined([run_of({"a": a}, left_out=1, lost={"b": "gone"}), run_of({"a": a, "b": b}),
                    run_of({"b": b}, left_out=3, stale=["old"], lost={"a": "broken"})])  # fmt: skip
    assert list(found.sides) == ["a", "b"]
    assert found.sides["a"].quantities == [quantity([1], [1])]
    assert found.sides["b"].quantities == [quantity([2], [2])]
    assert (found.left_out, found.stale) == (3, ["old"])
    assert found.lost == {"b": "gone", "a": "broken"}
    only = run_of({"a": a}, facts={"x": 1})
    assert joined([only]) is only


def test_one_wrong_run_is_wrong_and_one_unknown_leaves_the_whole_unknown() -> None:
    right, wrong, unknown = (Outputs(ok=ok) for ok in (True, False, None))

    def of(*outputs: Outputs | None) -> Outputs | None:
        return joined([run_of({"x": side(outputs=o)}) for o in outputs]).sides["x"].outputs

    assert of(right, wrong, unknown) is wrong
    assert of(right, unknown) is unknown
    assert of(right, None) is None
    assert of(right, right) is right


def test_facts_that_differ_are_listed_with_each_of_their_values() -> None:
    first = {"gpu": "a", "driver": 1, "versions": {"torch": "2", "trt": "8"}, "mixed": {"x": 1}}
    second = {"gpu": "a", "driver": 2, "versions": {"torch": "3", "trt": "8"}, "mixed": 5}
    third = {"gpu": "a", "driver": 1, "versions": {"torch": "2"}, "mixed": 5}
    found = joined([run_of({}, facts=f) for f in (first, second, third)]).facts
    assert found == {
        "gpu": "a",
        "driver": [1, 2],
        "versions": {"torch": ["2", "3"], "trt": ["8", None]},
        "mixed": [{"x": 1}, 5],
    }
