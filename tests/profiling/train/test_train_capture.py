"""The eager captures as a user gets them: through the worker process, for a tiny GPT-2."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from layerline.analysis.attribution.eager import eager as eager_table  # noqa: E402
from layerline.core.capture_names import TORCH_TASKS  # noqa: E402
from layerline.core.errors import InputError, ToolMissing  # noqa: E402
from layerline.core.files import read_json, write_json  # noqa: E402
from layerline.core.run import Run, open_run  # noqa: E402
from layerline.engines.backend import Worker  # noqa: E402
from layerline.engines.launch import Serving  # noqa: E402
from layerline.export.models import ModelSpec, load_spec  # noqa: E402
from layerline.profile.eager import process, setup  # noqa: E402
from layerline.profile.eager.measure_training import labels_for, loss_kind, loss_of  # noqa: E402
from layerline.profile.eager.setup import Repeats, float_outputs, repeat  # noqa: E402
from layerline.workloads.training import IGNORED  # noqa: E402

OPTIONS: dict[str, Any] = {
    "device": "cpu",
    "threads": 1,
    "warmup": 1,
    "iterations": {"min": 6, "max": 8},
    "seconds": 5,
    "profiled": 2,
}


def spec(**config: Any) -> ModelSpec:
    """A GPT-2 of two layers."""
    return ModelSpec(
        model="tiny",
        source="builtin",
        location=None,
        revision=None,
        weights="random",
        task="causal-lm",
        model_class="GPT2LMHeadModel",
        config={
            "model_type": "gpt2",
            "n_layer": 2,
            "n_embd": 32,
            "n_head": 2,
            "n_positions": 32,
            "vocab_size": 100,
            "bos_token_id": 1,
            "eos_token_id": 1,
            **config,
        },
        overrides={},
        attn_implementation=None,
        seed=3,
        batch=2,
        seq=8,
    )


def new_run(path: Path) -> Run:
    run = open_run(path / "run", create=True)
    write_json(run.file("export", "model.json"), spec().as_dict())
    return run


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with both captures."""
    run = new_run(tmp_path_factory.mktemp("captures"))
    with Serving(process.WORKER) as worker:
        process.outputs(worker, run)
        for part in process.PARTS:
            for task in TORCH_TASKS:
                process.measure(worker, run, task, "fp32", part, OPTIONS)
    return run


@pytest.mark.slow
def test_the_captures_leave_what_they_say_and_nothing_else(captured: Run) -> None:
    expected = {
        path
        for task in ("eager", "train")
        for part in process.PARTS
        for path in process.files(captured, task, "fp32", part).values()
    }
    assert set(captured.file("captures").iterdir()) == {*expected, process.reference(captured)}
    assert len(expected) == 6


@pytest.mark.slow
def test_the_outputs_are_those_of_the_model(captured: Run) -> None:
    described = load_spec(captured.file("export", "model.json"))
    model = described.build()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(described.inputs()["input_ids"])).logits.numpy()
    found = np.load(captured.file("captures", "eager.fp32.outputs.npz"))
    assert found.files == ["logits"]
    assert found["logits"].dtype == np.float32
    np.testing.assert_allclose(found["logits"], logits, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_training_in_a_process_leaves_the_model_of_its_next_job_as_it_was(captured: Run) -> None:
    """Each job has a copy of the model that was built once."""
    before = np.load(process.reference(captured))["logits"]
    with Serving(process.WORKER) as worker:
        process.measure(worker, captured, "train", "fp32", "trace", OPTIONS)
        process.outputs(worker, captured)
    np.testing.assert_array_equal(np.load(process.reference(captured))["logits"], before)


@pytest.mark.slow
def test_latency_is_unprofiled_and_says_what_ended_it(captured: Run) -> None:
    for task in ("eager", "train"):
        found = read_json(captured.file("captures", f"{task}.fp32.latency.json"))
        n = len(found["latency_ns"])
        assert 6 <= n <= 8
        assert found["ended_by"] in ("interval", "iterations", "seconds")
        assert found["summary"]["n"] == n
        meta = read_json(captured.file("captures", f"{task}.fp32.meta.json"))
        for what in ("precision", "training", "parameters", "batch", "sequence"):
            assert found[what] == meta[what] is not None
        assert len(found["warmup_ns"]) == 1
    assert {k: len(v) for k, v in found["phases_ns"].items()} == dict.fromkeys(
        ("data", "forward", "loss", "backward", "optimizer"), n
    )
    for step, *parts in zip(found["latency_ns"], *found["phases_ns"].values(), strict=True):
        assert sum(parts) <= step


@pytest.mark.slow
def test_meta_says_what_bends_the_numbers(captured: Run) -> None:
    inference = read_json(captured.file("captures", "eager.fp32.meta.json"))
    training = read_json(captured.file("captures", "train.fp32.meta.json"))
    assert (inference["train_mode"], inference["dropout"]) == (False, [])
    assert (training["train_mode"], training["dropout"]) == (True, [0.1])
    assert (training["loss"], training["optimizer"]) == ("causal", "AdamW")
    assert (inference["threads"], inference["device"], inference["batch"]) == (1, "cpu", 2)
    assert inference["modules"]["transformer.h.0.attn"] == "GPT2Attention"
    assert inference["finite"] and training["finite"]
    # Ten steps with dropout need not lower the loss each time, but steps that are real change it.
    assert training["losses"][-1] != training["losses"][0]
    assert abs(training["losses"][-1] - training["losses"][0]) < 1


@pytest.mark.slow
def test_every_operator_of_inference_belongs_to_a_module(captured: Run) -> None:
    meta = read_json(captured.file("captures", "eager.fp32.meta.json"))
    found = eager_table(captured.file("captures", "eager.fp32.trace.json.gz"), meta)
    rows = found.main.to_pylist()
    assert {r["iteration"] for r in rows} == {0, 1}
    assert {r["precision"] for r in rows} == {"fp32"}
    inference = [r for r in rows if r["phase"] == "inference"]
    alone = [r for r in inference if r["modules"] is None]
    assert {r["layer"] for r in alone} == {"outside operators"}
    paths = {r["modules"][0] for r in inference if r["modules"] is not None}
    assert {"lm_head", "transformer.h.1.mlp.c_fc", "transformer.wte"} <= paths
    assert paths <= meta["modules"].keys()


@pytest.mark.slow
def test_every_operator_of_training_belongs_to_a_module_or_a_row(captured: Run) -> None:
    meta = read_json(captured.file("captures", "train.fp32.meta.json"))
    found = eager_table(captured.file("captures", "train.fp32.trace.json.gz"), meta)
    rows = found.main.to_pylist()
    assert "unresolved" not in {r["rule"] for r in rows}
    assert {r["phase"] for r in rows} == {"data", "forward", "loss", "backward", "optimizer"}
    by_phase = {
        phase: {r["modules"][0] for r in rows if r["phase"] == phase and r["modules"]}
        for phase in ("forward", "backward")
    }
    # Whatever computes with a gradient in forward pays in backward.
    for path in ("lm_head", "transformer.wte", "transformer.h.0.ln_1", "transformer.h.1.attn"):
        assert path in by_phase["forward"] & by_phase["backward"]
    # wte and lm_head share their weight: the two gradients meet in the engine, once per step.
    shapes = [r for r in rows if r["layer"] == "gradient sums" and r["modules"] is None]
    assert shapes
    steps = {p["iteration"] for p in found.facts["phases"]}
    assert steps == {0, 1}


@pytest.mark.parametrize(
    ("end", "how", "fix"),
    [
        ("raise RuntimeError('wrong shape')", "(exit status 1): RuntimeError: wrong shape", False),
        ("import os; os.kill(os.getpid(), 9)", "was killed, most likely for want of memory", True),
    ],
)
def test_a_worker_that_dies_is_one_line_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, how: str, fix: bool
) -> None:
    run = new_run(tmp_path)
    monkeypatch.setattr(process, "WORKER", Worker((sys.executable, "-c", end)))
    with pytest.raises(InputError) as caught:
        process.measure(Serving(process.WORKER), run, "eager", "fp32", "latency", {})
    assert how in caught.value.line()
    assert "\n" not in caught.value.line()
    assert ("use a smaller model" in caught.value.line()) == fix
    assert list(run.file("captures").iterdir()) == []


def test_fp16_and_tf32_are_refused_on_the_cpu_with_a_reason(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    for precision in ("fp16", "tf32"):
        assert process.why_not(precision, {"device": "cpu"})
        with pytest.raises(ToolMissing, match=precision):
            worker = Serving(process.WORKER)
            process.measure(worker, run, "train", precision, "latency", {"device": "cpu"})
    assert process.why_not("fp32", {"device": "cpu"}) is None


def test_errors_of_the_worker_keep_their_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tmp_path)

    refuses = (
        "import json, sys; error = {'exit_code': 2, 'what': 'bad', 'file': 'f', 'fix': 'do'}; "
        "path = open(sys.argv[1]).readline().strip(); result = json.load(open(path))['result']; "
        "json.dump({'protocol': 1, 'ok': False, 'error': error}, open(result, 'w'))"
    )
    monkeypatch.setattr(process, "WORKER", Worker((sys.executable, "-c", refuses)))
    with pytest.raises(InputError, match="f: bad; do"):
        process.measure(Serving(process.WORKER), run, "eager", "fp32", "latency", {})


def test_repeat_stops_when_the_interval_is_narrow_or_says_why_not() -> None:
    plan = Repeats(warmup=1, least=6, most=50, target=0.02, seconds=60)
    steady = repeat(lambda: 1000, plan)
    # The fewest alike may be a burst of load: there must be more of them, or time have passed.
    assert (steady["ended_by"], len(steady["latency_ns"])) == ("interval", 20)
    long = repeat(lambda: 1000, Repeats(0, 6, 50, 0.02, seconds=0))
    assert (long["ended_by"], len(long["latency_ns"])) == ("interval", 6)
    wild = iter([10, 1000, 10, 2000] * 100)
    noisy = repeat(lambda: next(wild), plan)
    assert (noisy["ended_by"], len(noisy["latency_ns"])) == ("iterations", 50)
    assert noisy["relative_width"] > plan.target
    slow = repeat(lambda: next(wild), Repeats(0, 6, 50, 0.02, seconds=-1))
    assert (slow["ended_by"], len(slow["latency_ns"])) == ("seconds", 6)


def test_warming_up_goes_on_until_clocks_have_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10_000, 100))  # each look at the clock, from the second step on, is 100 s
    monkeypatch.setattr(setup.time, "perf_counter", lambda: next(now))
    found = repeat(lambda: 7, Repeats(2, 6, 6, 0.02, seconds=1e9, settle=450))
    assert (len(found["warmup_ns"]), len(found["latency_ns"])) == (6, 6)
    job = {"warmup": 1, "iterations": {"min": 6, "max": 6}}
    told = Repeats.of(job, Repeats(2, 6, 6, 0.02, 1.0, settle=1.0))
    assert (told.warmup, told.settle) == (1, 0.0)  # who names a count gets that count


class BertForMaskedLM(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A name is all that the choice of a loss looks at."""


class SomethingElse(torch.nn.Module):  # type: ignore[misc,name-defined]
    """No language model."""


def test_the_loss_suits_the_model() -> None:
    ids = torch.arange(12).reshape(2, 6)
    output = {"logits": torch.randn(2, 6, 20, requires_grad=True)}
    assert loss_kind(BertForMaskedLM(), output, {"input_ids": ids}) == "masked"
    assert loss_kind(SomethingElse(), output, {"input_ids": ids}) == "mean"
    assert loss_kind(SomethingElse(), {"output": torch.ones(2)}, {}) == "mean"

    causal = labels_for("causal", ids, 0)
    assert causal.tolist() == [[1, 2, 3, 4, 5, IGNORED], [7, 8, 9, 10, 11, IGNORED]]
    expected = torch.nn.functional.cross_entropy(
        output["logits"][:, :-1].reshape(-1, 20), ids[:, 1:].reshape(-1)
    )
    assert torch.allclose(loss_of("causal", output, causal), expected)

    masked = labels_for("masked", ids, 0)
    chosen = masked != IGNORED
    assert 0 < chosen.sum() < ids.numel()
    assert torch.equal(masked[chosen], ids[chosen])
    assert torch.equal(masked, labels_for("masked", ids, 0))
    assert loss_of("mean", output, None) == output["logits"].mean()


def test_outputs_of_every_form_are_named() -> None:
    x = torch.ones(2)
    assert float_outputs(x) == {"output": x}
    assert list(float_outputs((x, "text", torch.ones(1)))) == ["output", "output_2"]
    assert list(float_outputs({"logits": x, "ids": torch.ones(1, dtype=torch.long)})) == ["logits"]


def test_latency_files_are_plain_json(tmp_path: Path) -> None:
    measured = repeat(lambda: 5, Repeats(0, 6, 6, 0.02, 1))
    write_json(tmp_path / "l.json", measured)
    assert json.loads((tmp_path / "l.json").read_text())["summary"]["median"] == 5
