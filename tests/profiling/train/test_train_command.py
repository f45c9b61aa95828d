"""`layerline train` as a user runs it: through the command and its worker, on the CPU."""

from __future__ import annotations

import gzip
import itertools
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from layerline.analysis.attribution.eager import eager, of_events  # noqa: E402
from layerline.analysis.commands.report import report  # noqa: E402
from layerline.analysis.readers.torch.events import read_events  # noqa: E402
from layerline.core import documents  # noqa: E402
from layerline.core.errors import InputError  # noqa: E402
from layerline.core.files import read_json, write_json  # noqa: E402
from layerline.core.run import Run, Step, open_run  # noqa: E402
from layerline.profile.eager import latency, worker  # noqa: E402
from layerline.profile.eager.plugins import Schedule  # noqa: E402
from layerline.profile.eager.torch_profile import TorchProfile  # noqa: E402
from layerline.profile.train import command as command_  # noqa: E402
from layerline.profile.train.command import train as command  # noqa: E402
from layerline.profile.train.process import Plan, outputs  # noqa: E402
from layerline.workloads.loop import train  # noqa: E402
from layerline.workloads.request import Request  # noqa: E402

SMALL = ["--model", "tiny", "--batch", "2", "--seq", "16", "--device", "cpu"]


def invoke(*arguments: str | Path) -> Any:
    return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of checkpointed training with two micro-batches a step, and its report."""
    path = tmp_path_factory.mktemp("train") / "run"
    more = ["--checkpoint", "--accumulate", "2", "--steps", "6", "--schedule", "1,1,2,2"]
    tensorboard = ["--tensorboard", path.parent / "board"]
    result = invoke("gpt2", "--run", path, *SMALL, *more, *tensorboard)
    assert result.exit_code == 0, result.exception
    assert CliRunner().invoke(report, ["--run", str(path)]).exit_code == 0
    return path


def ops(run: Path) -> Any:
    captures = run / "captures"
    meta = read_json(captures / "train.fp32.meta.json")
    return eager(captures / "train.fp32.trace.json.gz", meta)


@pytest.mark.slow
def test_a_page_is_made_of_training_alone(run: Path) -> None:
    page = (run / "report" / "index.html").read_text()
    assert "transformer.h.1.mlp" in page
    summary = read_json(run / "report" / "summary.json")
    assert "optimizer" in json.dumps(summary["eager"])
    assert not summary.get("unusable")
    record = read_json(run / "run.json")
    assert record["shapes"] == {"batch": 2, "sequence": 16} and record["seed"] == 0


@pytest.mark.slow
def test_latency_has_a_number_of_each_phase_for_each_step(run: Path) -> None:
    found = read_json(run / "captures" / "train.fp32.latency.json")
    assert len(found["latency_ns"]) == 6
    phases = ("data", "forward", "loss", "backward", "recompute", "optimizer")
    assert set(found["phases_ns"]) == set(phases)
    assert {len(ns) for ns in found["phases_ns"].values()} == {6}
    for at, step in enumerate(found["latency_ns"]):
        parts = [*found["phases_ns"].values(), *found["outside_ns"].values()]
        assert sum(ns[at] for ns in parts) == step


@pytest.mark.slow
def test_recomputation_is_a_phase_inside_backward_and_counts_once(run: Path) -> None:
    found = ops(run)
    rows = found.main.to_pylist()
    assert "unresolved" not in {r["rule"] for r in rows}
    for number in range(2):
        marked = [p for p in found.facts["phases"] if p["iteration"] == number]
        names = [p["phase"] for p in marked]
        assert names.count("recompute") == 4  # two blocks, two micro-batches
        assert names.count("forward") == names.count("backward") == 2
        for phase in set(names):
            wall = sum(p["duration_ns"] for p in marked if p["phase"] == phase)
            mine = [r for r in rows if (r["iteration"], r["phase"]) == (number, phase)]
            assert sum(r["self_ns"] for r in mine) == pytest.approx(wall, rel=1e-3, abs=2000)
        [step] = [s for s in found.facts["steps"] if s["iteration"] == number]
        assert sum(p["duration_ns"] for p in marked) <= step["duration_ns"]
    again = {r["modules"][0] for r in rows if r["phase"] == "recompute" and r["modules"]}
    assert {"transformer.h.0.ln_1", "transformer.h.1.mlp.c_fc"} <= again


@pytest.mark.slow
def test_operators_have_shapes_and_flop(run: Path) -> None:
    found = read_json(run / "captures" / "train.fp32.operators.json")["operators"]
    # c_fc of both blocks, two micro-batches, forward and recomputation: (2·16) × 64 × 256
    products = [o for o in found if o["shapes"][:3] == [[256], [32, 64], [64, 256]]]
    assert sum(o["calls"] for o in products if o["name"] == "aten::addmm") == 8
    [row] = [o for o in products if o["name"] == "aten::addmm"]
    assert row["flop"] == 8 * 2 * 32 * 64 * 256
    assert any(o["cpu_bytes"] for o in found)


@pytest.mark.slow
def test_tensorboard_gets_each_cycle(run: Path) -> None:
    traces = sorted((run.parent / "board").iterdir())
    assert [t.name for t in traces] == [f"train.fp32.{n}.pt.trace.json.gz" for n in (1, 2)]
    for trace in traces:
        events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
        names = {e.get("name") for e in events}
        assert {"layerline/iteration/0", "layerline/iteration/1"} <= names
        assert "layerline/iteration/2" not in names


@pytest.mark.slow
def test_what_is_valid_is_not_trained_again(run: Path) -> None:
    trace = run / "captures" / "train.fp32.trace.json.gz"
    made = trace.stat().st_mtime_ns
    more = ["--checkpoint", "--accumulate", "2", "--steps", "6", "--schedule", "1,1,2,2"]
    invoke("gpt2", "--run", run, *SMALL, *more, "--tensorboard", run.parent / "board")
    assert trace.stat().st_mtime_ns == made


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_a_compiled_model_is_trained_and_shown_by_module(tmp_path: Path) -> None:
    path = tmp_path / "run"
    more = ["--compile", "--steps", "6", "--schedule", "0,1,2", "--profile", "torch"]
    result = invoke("gpt2", "--run", path, *SMALL, *more, "--set", "n_layer=1")
    assert result.exit_code == 0, result.exception
    assert CliRunner().invoke(report, ["--run", str(path)]).exit_code == 0
    summary = read_json(path / "report" / "summary.json")
    assert summary["title"] == "gpt2 tiny, 2×16"
    assert summary["headline"][0].startswith("A step of gpt2 tiny (compiled fp32)")
    step = summary["eager"]["fp32.step"]
    assert step["coverage"] == 1 and step["unresolved_ns"] == 0
    meta = documents.read(path / "captures" / "train.fp32.meta.json", documents.Eager)
    assert [g.phase for g in meta.compiled_graphs] == ["forward", "backward"]
    events = read_events(path / "captures" / "train.fp32.trace.json.gz")
    rows = of_events(events, {}, graphs=meta.compiled_graphs).main.to_pylist()
    for phase in ("forward", "backward"):
        charged = {m for r in rows if r["phase"] == phase for m in r["modules"] or ()}
        assert {"transformer.h.0.mlp.c_fc", "transformer.h.0.ln_1", "lm_head"} <= charged
        assert not any(m.startswith("compiled graph ") for m in charged)
    # Every kernel of each graph runs once in each step, under its own name.
    ran = Counter(r["layer"] for r in rows if r["rule"] == "provenance" and r["iteration"] == 1)
    assert set(ran) == {k.name for g in meta.compiled_graphs for k in g.kernels}
    named = {r["layer"] for r in rows if not r["modules"]}
    assert {"guards of compiled graphs", "around compiled kernels", "loss", "optimizer"} <= named


RECURRENT = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.lstm, self.down = nn.Linear(8, 16), nn.LSTM(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.down(self.lstm(self.up(x))[0])


def build():
    torch.manual_seed(0)
    return Net(), torch.ones(3, 8), lambda y: y.square().mean()
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_modules_that_python_runs_beside_compiled_graphs_have_their_own_time(
    tmp_path: Path,
) -> None:
    """Kind: an LSTM, where torch.compile goes back to Python."""
    (tmp_path / "own.py").write_text(RECURRENT)
    more = ["--compile", "--steps", "6", "--schedule", "0,1,2", "--profile", "torch"]
    result = invoke(f"{tmp_path}/own.py:build", "--run", tmp_path / "run", *more)
    assert result.exit_code == 0, result.exception
    captures = tmp_path / "run" / "captures"
    meta = documents.read(captures / "train.fp32.meta.json", documents.Eager)
    assert meta.recompiles == []
    assert any("LSTM" in b.why or "step_unsupported" in b.why for b in meta.graph_breaks)
    events = read_events(captures / "train.fp32.trace.json.gz")
    assert not any("dynamo_timed" in name for name in events.names)  # nothing compiles in a step
    rows = of_events(events, {}, graphs=meta.compiled_graphs).main.to_pylist()
    assert not [r["name"] for r in rows if r["layer"] == "outside modules"]
    recurrent = [r for r in rows if "mkldnn_rnn_layer" in r["name"] or r["name"] == "aten::lstm"]
    assert {r["phase"] for r in recurrent} == {"forward", "backward"}
    assert {tuple(r["modules"] or ()) for r in recurrent} == {("lstm",)}
    charged = {m for r in rows for m in r["modules"] or ()}
    assert {"up", "lstm", "down"} <= charged


@pytest.mark.slow
def test_a_loss_that_is_no_number_ends_with_two_and_names_the_module(tmp_path: Path) -> None:
    result = invoke("gpt2", "--run", tmp_path / "run", *SMALL, "--learning-rate", "1e9")
    assert isinstance(result.exception, InputError)
    assert "the loss of step 1 is nan: transformer." in result.exception.line()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpt3"], "unknown workload gpt3"),
        (["gpt2", "--profile", "magic"], "nothing to profile is called magic"),
        (["gpt2", "--schedule", "1,2"], "'1,2' is no schedule"),
        (["gpt2", "--schedule", "0,0,3"], "no warm-up"),
        (["gpt2", "--precision", "fp8"], "unknown precision fp8"),
        (["gpt2", "--text", "{folder}"], "no file here is .txt"),
        (["gpt2", "--tokenizer", "{folder}"], "there is no tokenizer.json"),
        (["sequence-parallel"], "sequence-parallel has no model"),
    ],
)
def test_misuse_is_told_before_anything_runs(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    given = [a.format(folder=tmp_path / "empty") for a in arguments]
    result = invoke(*given, "--run", tmp_path / "run", *SMALL)
    assert isinstance(result.exception, InputError)
    assert message in result.exception.line()


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:one", "mps", ""])
def test_a_device_of_another_name_is_told_before_anything_runs(tmp_path: Path, device: str) -> None:
    result = invoke("gpt2", "--run", tmp_path / "run", *SMALL, "--device", device)
    assert result.exit_code == 2 and f"'--device': {device} is not cpu, cuda" in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    write_json(job, {"result": str(tmp_path / "result.json")})

    def run(_job: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / "job.json" / "board").mkdir(parents=True)
        return {}

    assert worker.answer(job, run) == 0
    said = read_json(tmp_path / "result.json")["error"]
    assert (said["exit_code"], said["what"]) == (2, "Not a directory")
    assert said["file"] == str(job / "board")


@pytest.mark.parametrize("watched", ["waits", "operators"])
def test_a_training_without_a_trace_has_no_report_and_says_why(
    tmp_path: Path, watched: str
) -> None:
    folder = tmp_path / "run"
    for name in ("latency", "meta", watched):
        write_json(folder / f"captures/train.fp32.{name}.json", {"schema_version": 1})
    told = CliRunner().invoke(report, ["--run", str(folder)]).exception
    assert isinstance(told, InputError)
    assert "timed and not profiled; layerline train … --profile torch" in told.line()


def test_only_commands_that_show_what_was_recorded_are_named(tmp_path: Path) -> None:
    path = tmp_path / "run"
    done = invoke("gpt2", "--run", path, *SMALL, "--steps", "2", "--profile", "memory")
    assert done.stderr.rstrip().endswith(f"next: layerline memory {path}")
    told = CliRunner().invoke(report, ["--run", str(path)]).exception
    assert isinstance(told, InputError)
    assert "holds a training for `layerline memory` alone" in told.line()


def test_a_schedule_says_which_steps_are_captured() -> None:
    schedule = Schedule.parse("2,1,3,2")
    assert schedule.steps == 12
    places = [schedule.place(n) for n in range(12)]
    assert places == [-3, -2, -1, 0, 1, 2] * 2


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings that write the names of their files and nothing else."""

    def capture(run: Run, asked: Request, plan: Plan) -> dict[str, Any]:
        for path in outputs(run, asked.precision, plan.profile):
            path.parent.mkdir(exist_ok=True)
            path.write_text(path.name)
        return {"losses": [1.0, 0.5]}

    monkeypatch.setattr(command_, "capture", capture)


@pytest.mark.usefixtures("stub")
def test_what_watched_an_earlier_training_does_not_stay_beside_a_later_one(tmp_path: Path) -> None:
    run, waits = tmp_path / "run", tmp_path / "run" / "captures" / "train.fp32.waits.json"
    assert invoke("gpt2", "--run", run, *SMALL, "--profile", "torch,waits").exit_code == 0
    table = run / "tables" / "memory.parquet"  # as `layerline memory` makes it of a capture
    table.parent.mkdir()
    table.touch()
    assert invoke("gpt2", "--run", run, *SMALL, "--profile", "torch").exit_code == 0
    tried = run / "tried" / "batch"
    assert invoke("gpt2", "--run", tried, *SMALL).exit_code == 0
    latency = tried / "captures" / "train.fp32.latency.json"
    assert waits.exists() and table.exists() and latency.exists()  # of the same training
    assert invoke("gpt2", "--run", run, *SMALL, "--seed", "1", "--profile", "torch").exit_code == 0
    assert not waits.exists() and not table.exists() and not latency.exists()
    assert (run / "captures" / "train.fp32.meta.json").exists()


@pytest.mark.usefixtures("stub")
def test_training_of_the_profile_stage_is_not_replaced_unasked(tmp_path: Path) -> None:
    """Both commands give their files the same names."""
    run = open_run(tmp_path / "run", create=True)
    mine = [run.file("captures", f"train.fp32.{s}") for s in ("latency.json", "sqlite")]
    for path, part in zip(mine, (".latency", ".nsys.export"), strict=True):
        with Step(run, f"profile/train.fp32{part}", {}, [], [path]).recording():
            path.parent.mkdir(exist_ok=True)
            path.write_text("of the run's model")
    refused = invoke("gpt2", "--run", run.path, *SMALL)
    assert isinstance(refused.exception, InputError)
    assert "captures/train.fp32.* are those of `layerline profile" in refused.exception.line()
    assert all(path.read_text() == "of the run's model" for path in mine)
    assert invoke("gpt2", "--run", run.path, *SMALL, "--force").exit_code == 0
    assert mine[0].read_text() == mine[0].name and not mine[1].exists()


def request(cache: Path) -> Request:
    return Request("gpt2", str(cache), model="tiny", batch=1, seq=8, device="cpu", threads=1)


def test_a_profile_that_is_cut_short_leaves_no_trace_and_no_hook(tmp_path: Path) -> None:
    training = request(tmp_path).build()
    plugin = TorchProfile(tmp_path / "captures" / "t.trace.json.gz", Schedule())
    list(train(training, 3, [plugin]))
    assert not (tmp_path / "captures").exists()
    assert not any(m._forward_hooks for m in training.model.modules())


def test_a_phase_inside_another_is_taken_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(step=10)
    monkeypatch.setattr(latency.time, "perf_counter_ns", lambda: next(ticks))
    clock = latency.Latency()
    clock.open(_Idle())  # type: ignore[arg-type]
    with clock.step(0), clock.phase("backward"), clock.phase("recompute"):
        pass
    with clock.step(1), clock.phase("forward"):
        pass
    # Each border is 10 after the one before it: recompute 20 to 30, in backward 10 to 40.
    assert clock.phases_ns == {"recompute": [10, 0], "backward": [20, 0], "forward": [0, 10]}
    with clock.step(2):
        for name in ("backward", "forward"):
            with clock.phase(name):
                pass
    assert clock.steps_ns == [50, 30, 50]
    assert clock.outside_ns == {"between": [0, 0, 10], "around": [20, 20, 20]}


class _Idle:
    device = torch.device("cpu")

    def synchronize(self) -> None:
        """Nothing runs."""
