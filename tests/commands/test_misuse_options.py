"""Options that name nothing, or that nothing has a use for, are refused in one line."""

from __future__ import annotations

from pathlib import Path

import click
import paths
import pytest
from cli_commands import commands
from click.testing import CliRunner

from layerline.core.cli.command import cli
from layerline.core.cli.options import FilePath
from layerline.core.errors import InputError
from layerline.core.run import open_run

PATHS = [
    (words, command, parameter)
    for words, command in commands()
    for parameter in command.params
    if isinstance(parameter.type, click.Path)
]


def test_paths_are_found_in_the_commands_that_take_them() -> None:
    found = {" ".join([*words, parameter.name or ""]) for words, _, parameter in PATHS}
    assert {"metrics extract output", "report run_path", "engines timing_cache"} <= found


@pytest.mark.parametrize(
    ("words", "command", "parameter"), PATHS, ids=[f"{' '.join(w)} {p.name}" for w, _, p in PATHS]
)
def test_an_empty_path_is_refused_wherever_a_path_is_taken(
    words: tuple[str, ...],
    command: click.Command,
    parameter: click.Parameter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(parameter.type, FilePath), "a path that may be empty"
    monkeypatch.chdir(tmp_path)
    arguments, options = [], []
    for other in command.params:
        value = "" if other is parameter else "somewhere"
        if isinstance(other, click.Argument):
            arguments.append(value)
        elif other is parameter:
            options += [other.opts[0], value]
    result = CliRunner().invoke(cli, [*words, *options, *arguments])
    assert result.exit_code == 2
    said = result.output.splitlines()[-1]
    assert said.startswith("Error: Invalid value for ") and "the path is empty" in said
    assert list(tmp_path.iterdir()) == []


def told(*arguments: object) -> str:
    """The error of a command line that is refused."""
    result = CliRunner().invoke(cli, [str(a) for a in arguments])
    if isinstance(result.exception, InputError):
        return str(result.exception)
    assert result.exit_code == 2, result.output
    return result.output.splitlines()[-1]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return open_run(tmp_path / "run", create=True).path


@pytest.mark.parametrize(
    ("backend", "given", "named"),
    [
        ("onnxruntime", ["--workspace-mib", "5"], "--workspace-mib"),
        ("onnxruntime", ["--compute-capability", "89"], "--compute-capability"),
        ("onnxruntime-cuda", ["--timing-cache", "x"], "--timing-cache"),
        ("tensorrt", ["--compute-capability", "89"], "--compute-capability"),
        ("tensorrt", ["--threads", "2"], "--threads"),
        ("tensorrt-rtx", ["--threads", "2"], "--threads"),
    ],
)
def test_an_option_that_a_backend_does_not_have_is_refused(
    backend: str, given: list[str], named: str, run: Path
) -> None:
    (run / "export").mkdir()
    (run / "export" / "fp32.onnx").write_bytes(b"")
    for more in ([], ["--dry-run"]):
        command = ["engines", "--run", run, "--backend", backend, "--precision", "fp32"]
        assert f"{backend} has no {named}" in told(*command, *given, *more)


@pytest.mark.parametrize("given", ["xx", "8", "8.9.0", "sm_89", "٨٩"])
def test_a_compute_capability_is_a_number(given: str, run: Path) -> None:
    said = told("engines", "--run", run, "--compute-capability", given)
    assert "is no compute capability" in said


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("engines --engine x --precision fp16 --backend tensorrt --workspace-mib 5",
         "--workspace-mib"),
        ("engines --engine x --precision fp16 --optimization-level 3", "--optimization-level"),
        ("profile --what eager --processes 3", "--processes"),
        ("profile --what eager,train,ncu --trace-iterations 3", "--trace-iterations"),
        ("profile --what engine --backend onnxruntime --trace-iterations 3", "--trace-iterations"),
        ("profile --what ncu --seconds 3", "--seconds"),
        ("profile --what ncu --target 0.02", "--target"),
        ("ncu --query --every", "--every"),
        ("ncu --query --dry-run", "--dry-run"),
        ("ncu --query --metrics a", "--metrics"),
        ("ncu --of eager --backend onnxruntime", "--backend"),
        ("ncu --passes 2", "--passes"),
    ],
)  # fmt: skip
def test_an_option_of_what_is_not_done_is_refused(command: str, option: str, run: Path) -> None:
    words = command.split()
    at = 2 if words[:2] == ["profile", "ncu"] else 1
    said = told(*words[:at], "--run", run, *words[at:])
    assert said.startswith(f"Error: {option} ")
    assert {p.name for p in run.iterdir()} <= {"manifests"}


def test_an_unknown_backend_is_refused_where_no_engine_is_measured(run: Path) -> None:
    assert "no backend 'none'" in told("profile", "--run", run, "--what", "eager",
                                       "--backend", "none", "--dry-run")  # fmt: skip


def test_defaults_and_what_is_of_use_are_not_refused(run: Path) -> None:
    for command in ("eager", "eager --iterations 5 --seconds 2 --target 0.1"):
        words = ["profile", "--run", run, "--dry-run", "--what", *command.split()]
        result = CliRunner().invoke(cli, [str(w) for w in words])
        assert result.exit_code == 0, result.output


NSYS = paths.DATA / "nsys" / "h100_tensorrt86_fp16.sqlite"


def test_layers_refuses_what_it_would_ignore(tmp_path: Path) -> None:
    assert "--network is of no use without --nodes" in told("layers", NSYS, "--network", NSYS)
    assert "--precision is of no use without -o" in told("layers", NSYS, "--precision", "fp16")
    out = tmp_path / "x.csv"
    assert "'int8' is not one of" in told("layers", NSYS, "--precision", "int8", "-o", out)
    listed = tmp_path / "profile.json"
    listed.write_text(
        '[{"count": 5}, {"name": "a", "timeMs": 1, "averageMs": 0.2, "percentage": 100}]'
    )
    assert "it has no ranges to be iterations" in told("layers", listed, "--iteration", "step*")
