"""A package of inductor: built, loaded by a process that has no model, profiled, and read."""

from __future__ import annotations

import itertools
import json
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from layerline.analysis.captures import engine as sides
from layerline.analysis.captures import files as captures
from layerline.analysis.rundir.problems import Problems
from layerline.core.errors import CheckFailed, InputError, ToolMissing
from layerline.core.run import Run, open_run
from layerline.engines import command, inductor_backend, inductor_build, launch
from layerline.engines.backend import BuildOptions, inputs_path, require, require_to_build
from layerline.engines.inductor_backend import InductorBackend
from layerline.engines.workers.common import WorkerError
from layerline.export import inference
from layerline.export.source import Request
from layerline.export.stage import Options, Stage
from layerline.profile.command import _going_on, profile
from layerline.profile.engine import measure

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(inference.unavailable("inductor") is not None, reason="no C++ compiler"),
]
OWN = """
import torch
from torch import nn


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.act, self.norm = nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)
        self.head = nn.Linear(64, 8)

    def forward(self, x):
        y = self.act(self.fc(x))
        return {"scores": self.head(self.norm(x + self.act(self.fc(y))))}


def build():
    torch.manual_seed(0)
    return Two(), {"x": torch.linspace(-1, 1, 32 * 64).reshape(32, 64)}
"""
PLAN = measure.Plan(warmup=2, least=6, most=6, seconds=20.0)


def exported(folder: Path) -> Run:
    """A run of the model above, without an ONNX file."""
    (folder / "own.py").write_text(OWN)
    run = open_run(folder / "run", create=True)
    Stage(run, Request(model=f"{folder}/own.py:build"), Options()).export([])
    return run


@dataclass(frozen=True)
class Built:
    run: Run
    subject: measure.Subject
    layers: list[dict[str, Any]]
    record: dict[str, Any]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("inductor")
    run, backend = exported(folder), InductorBackend()
    command.build(run, "fp32", backend, BuildOptions(threads=1))
    (folder / "own.py").unlink()  # nothing after this has the model
    subject = measure.subject(run, "fp32", backend)
    measure.outputs(subject)
    measure.latency(subject, PLAN)
    measure.profile(subject, PLAN)
    layers = json.loads(backend.layers(run, "fp32").read_text())["layers"]
    record = json.loads(backend.build_record(run, "fp32").read_text())
    return Built(run, subject, layers, record)


def test_the_package_computes_what_the_model_does_without_it(built: Built) -> None:
    scope: dict[str, Any] = {}
    exec(OWN, scope)
    model, inputs = scope["build"]()
    expected = model.eval()(**inputs)["scores"].detach().numpy()
    with np.load(built.subject.capture(".outputs.npz")) as found:
        assert found.files == ["scores"]
        np.testing.assert_allclose(found["scores"], expected, rtol=1e-4, atol=1e-5)


def test_the_record_says_how_it_was_built(built: Built) -> None:
    record = built.record
    assert (record["runs_on"], record["inputs"], record["outputs"]) in (
        ("cpu", ["x"], ["scores"]),
        ("cuda", ["x"], ["scores"]),
    )
    assert (record["graph_breaks"], record["recompiles"]) == ([], 0)
    assert record["build_seconds"] > 0
    assert record["options"]["optimization_level"] == "default"
    assert record["kernels"] == len(built.layers)


def test_both_calls_of_a_module_are_layers_in_order(built: Built) -> None:
    linear = [x for x in built.layers if any("linear" in n for n in x["nodes"])]
    assert [x["modules"] for x in linear] == [["fc"], ["fc"], ["head"]]
    assert len({x["name"] for x in built.layers}) == len(built.layers)
    assert {x["rule"] for x in built.layers} == {"provenance"}


def test_its_time_is_that_of_modules_and_adds_up(built: Built) -> None:
    problems = Problems()
    found = captures.of_engine(built.run, "fp32", "inductor", None, problems)
    captured = sides.engine(found)
    side, table = captured.sides[0].side, captured.sides[0].layers
    assert side.coverage is not None and side.coverage >= 0.995
    checks = {c.name: c for c in side.checks}
    assert checks["i"].ok is True
    assert checks["ii"].residual_ns is not None
    assert table is not None
    calls = dict(zip(table["layer"].to_pylist(), table["calls"].to_pylist(), strict=True))
    assert calls == {x["name"]: 6 for x in built.layers}
    shared = [x["modules"] for x in built.layers if "native_layer_norm" in x["name"]]
    assert shared and all({"", "norm"} <= set(m) for m in shared)  # the residual add is the root's


def test_latency_and_profile_are_of_different_packages_with_the_same_kernels(built: Built) -> None:
    options = built.subject.backend.job_options(built.run, "fp32")
    assert Path(options["profiled"]).exists()
    assert options["profiled"] != str(built.subject.engine)
    assert (
        "RAIIAtenRecordFunctionHandle record_"
        not in built.subject.engine.with_name("fp32.inductor.code.cpp").read_text()
    )


def test_a_package_that_cannot_be_loaded_leaves_nothing_behind(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch unpacks it first, and says then that no code is in it."""
    of, cut = built.subject, tmp_path / "cut.pt2"
    with zipfile.ZipFile(of.engine) as whole, zipfile.ZipFile(cut, "w") as part:
        for entry in whole.infolist():
            if not entry.filename.endswith(".so"):
                part.writestr(entry.filename, whole.read(entry))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    options = of.backend.job_options(of.run, "fp32")
    wanted = launch.job("load", cut, inputs_path(of.run), "fp32", threads=1, options=options)
    with pytest.raises(InputError, match="torch does not load it"):
        launch.call(of.backend.worker(), wanted)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("level", "words"),
    [("reduce-overhead", "CUDA graphs, and no GPU"), ("5", "no optimisation level '5'")],
)
def test_modes_that_are_not_there_are_refused(
    level: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inductor_backend, "gpu_models", list)
    with pytest.raises(InputError, match=words):
        InductorBackend().options(BuildOptions(level))


def test_a_compiler_is_needed_to_build_a_package_and_not_to_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    require(InductorBackend())
    with pytest.raises(ToolMissing, match=r"inductor: no C\+\+ compiler here"):
        require_to_build(InductorBackend())


def test_what_is_not_possible_here_is_recorded_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    run = exported(tmp_path)
    arguments = [str(run.path), "--backend", "inductor", "--precision", "fp32"]
    asked = CliRunner().invoke(command.engines, arguments)
    assert "no C++ compiler" in str(asked.exception)
    done = CliRunner().invoke(command.engines, [*arguments, "--if-possible"])
    assert done.exit_code == 0, done.output
    left = run.manifest("engines/fp32.inductor")
    skipped = left["facts"]["skipped"]
    assert skipped["why"] == "no C++ compiler here"
    assert "g++" in skipped["fix"]
    assert CliRunner().invoke(command.engines, [*arguments, "--if-possible"]).exit_code == 0
    assert run.manifest("engines/fp32.inductor") == left  # nothing is done a second time


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that chooses another kernel each time."""
    times = itertools.count()

    def packaged(_program: Any, package: Path, folder: Path, _mode: str, _ranges: bool) -> Path:
        n = next(times)
        folder.mkdir(parents=True)
        package.write_text(f"package {n}")
        code = folder / "output_code.cpp"
        code.write_text(f"// [Provenance debug handles] triton_{n}:1\n")
        return code

    monkeypatch.setattr(inductor_build, "packaged", packaged)


def wanted(folder: Path, mode: str) -> dict[str, str]:
    return {"mode": mode, "profiled": str(folder / "profiled.pt2"), "folder": str(folder / "trace")}


def test_where_kernels_are_chosen_anew_the_engine_is_what_is_profiled(
    restless: None, tmp_path: Path
) -> None:
    """Kind: max-autotune on a GPU, which fuses by times that differ between two compilations."""
    engine = tmp_path / "engine.pt2"
    made = inductor_build.compiled(None, wanted(tmp_path, "max-autotune"), engine)
    assert (made.ranged, made.kernels) == (True, ["triton_0:1"])
    assert engine.read_text() == (tmp_path / "profiled.pt2").read_text() == "package 0"
    assert "triton_0:1" in made.code.read_text()


def test_a_second_build_does_not_take_what_was_timed_for_the_first(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "of the user"))
    source = built.run.path.parent / "own.py"
    source.write_text(OWN)
    again = Run(tmp_path / "rebuild")
    again.path.mkdir()
    again.file("export").symlink_to(built.run.file("export"))
    backend, options = InductorBackend(), built.record["options"]
    backend.build(again, "fp32", {**options, "timing_cache": None})
    source.unlink()
    assert not [*(tmp_path / "of the user").rglob("*.cpp")]
    assert backend.engine(again, "fp32").exists()


def test_other_modes_have_to_compile_the_same_twice(restless: None, tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="first triton_0:1 in one and triton_1:1 in the other"):
        inductor_build.compiled(None, wanted(tmp_path, "default"), tmp_path / "engine.pt2")


def test_a_compiler_whose_packages_cannot_be_loaded_builds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "static-g++"
    compiler.write_text('#!/bin/sh\nexec g++ -static-libstdc++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    run = exported(tmp_path)
    arguments = [str(run.path), "--backend", "inductor", "--precision", "fp32"]
    asked = CliRunner().invoke(command.engines, arguments)
    assert f"torch cannot load what {compiler} makes" in str(asked.exception)
    assert not (run.path / "engines/fp32.inductor.pt2").exists()


FOREIGN = """
import torch
from torch import nn


@torch.library.custom_op("layerline_test::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@triple.register_fake
def _(x):
    return torch.empty_like(x)


class Net(nn.Module):
    def forward(self, x):
        return torch.ops.layerline_test.triple(x + 1)


def build():
    return Net(), {"x": torch.ones(4)}
"""


def test_a_model_with_an_operator_of_its_own_builds_no_engine(tmp_path: Path) -> None:
    """torch compiles it, and no process without the model's code can load what comes of it."""
    (tmp_path / "own.py").write_text(FOREIGN)
    run = open_run(tmp_path / "run", create=True)
    Stage(run, Request(model=f"{tmp_path}/own.py:build"), Options()).export([])
    with pytest.raises(InputError, match="the operator layerline_test::triple") as caught:
        command.build(run, "fp32", InductorBackend(), BuildOptions(threads=1))
    assert caught.value.fix == "write it with operators of torch"
    assert not list((run.path / "engines").glob("fp32.inductor*"))


def test_what_was_not_built_is_not_measured_and_no_error_where_it_need_not_be(
    tmp_path: Path,
) -> None:
    run = exported(tmp_path)
    arguments = [str(run.path), "--backend", "inductor", "--precision", "fp32", "--what", "engine"]
    refused = CliRunner().invoke(profile, arguments)
    assert isinstance(refused.exception, InputError)
    assert CliRunner().invoke(profile, [*arguments, "--if-possible"]).exit_code == 0
    with _going_on(True):
        raise CheckFailed("outputs are wrong")
    with pytest.raises(CheckFailed), _going_on(False):
        raise CheckFailed("outputs are wrong")
