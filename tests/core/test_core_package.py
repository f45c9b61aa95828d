"""The package's layout and the command line's manners."""

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from paths import ROOT

from layerline.core import nodes
from layerline.core.cli import doctor, progress
from layerline.core.cli.command import COMMANDS, cli
from layerline.core.errors import InputError

STAGES = ("core", "export", "engines", "workloads", "profile", "analysis")


def layerline(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "layerline.core.cli.command", *arguments],
        capture_output=True, text=True, timeout=120, check=False, **options,
    )  # fmt: skip


def test_the_standard_librarys_profile_is_not_shadowed_from_the_root():
    code = "import cProfile, profile; assert hasattr(profile, 'Profile'), profile"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)
    assert not (ROOT / "profile/__init__.py").exists()
    assert not (ROOT / "__init__.py").exists()


@pytest.mark.slow
def test_torch_dynamo_imports_from_the_root():
    pytest.importorskip("torch")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    code = "import cProfile, torch._dynamo"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)


def test_every_folder_with_python_files_is_listed_as_a_package():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {
        path.parent.relative_to(ROOT).as_posix()
        for stage in STAGES
        for path in (ROOT / stage).rglob("*.py")
    }
    assert folders <= set(listed["package-dir"].values())
    assert set(listed["packages"]) == set(listed["package-dir"])


def test_the_map_of_folders_names_every_folder_that_there_is():
    text = (ROOT / "docs/architecture.md").read_text()
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {f for f in listed["package-dir"].values() if f not in STAGES and "configs" not in f}
    assert set(re.findall(r"`([a-z]\w*/[\w/]+)/`", text)) >= folders


def test_no_folder_holds_more_than_twenty_modules():
    for stage in STAGES:
        for folder in [ROOT / stage, *filter(Path.is_dir, (ROOT / stage).rglob("*"))]:
            assert len(list(folder.glob("*.py"))) <= 20, folder
    assert {p.name for p in (ROOT / "analysis").glob("*.py")} == {"formatting.py", "pipeline.py"}


def test_help_lists_every_command_and_needs_no_heavy_library():
    done = layerline("--help")
    assert done.returncode == 0, done.stderr
    for name in COMMANDS:
        assert f"  {name}" in done.stdout
    code = (
        "import sys\nfrom layerline.core.cli import command\n"
        "for n in command.COMMANDS: command.cli.get_command(None, n)\n"
        "bad = {'torch', 'onnx', 'onnxruntime', 'transformers'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["--nonsense"], ["read"], ["report"], ["export", "--run"]]
)
def test_bad_usage_is_one_line_and_exit_code_2(arguments):
    done = layerline(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_quiet_works_after_a_command_as_before_it(tmp_path):
    init = ["init", str(tmp_path / "own.py")]
    for arguments in (["-q", *init], [*init, "-q"]):
        (tmp_path / "own.py").unlink(missing_ok=True)
        assert cli.main(arguments, standalone_mode=False) is None
        assert progress._quiet
        progress.set_quiet(False)


def test_doctor_fits_80_columns_and_ends_with_the_command_to_run(tmp_path):
    python = tmp_path / "python"
    found = {"tensorrt": "10.9.0", "tensorrt_rtx": None, "polygraphy": "0.49", "nvidia-ml-py": None}
    python.write_text(f"#!/bin/sh\necho '{json.dumps(found)}'\n")
    python.chmod(0o755)
    done = layerline("doctor", env={**os.environ, "TRT_PYTHON": str(python)})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(len(line) for line in lines if str(python) not in line) <= 80
    listed = {line[5:].split()[0]: line for line in lines if line.startswith(("yes ", "no "))}
    assert "10.9.0" in listed["tensorrt"] and listed["polygraphy"].startswith("yes")
    assert listed["nvidia-ml-py"].startswith("no")
    assert f"{python} -m pip install nvidia-ml-py" in " ".join(done.stdout.split())
    assert lines[-1].startswith("Run next: ") and not lines[-2]


@pytest.mark.parametrize(
    ("missing", "following"),
    [
        (set(), "make report"),
        ({"NVIDIA GPU", "tensorrt", "nsys", "onnxruntime-gpu"}, "make report MODEL=tiny"),
        ({"torch", "onnxruntime"}, "pip install torch"),
        ({"onnxruntime", "onnxruntime-gpu", "tensorrt"}, "pip install 'layerline[cpu]'"),
    ],
)
def test_doctor_says_what_to_run_next(missing, following):
    findings = [doctor.Finding(m, "", None, f"0.1 is too old; pip install {m}") for m in missing]
    assert doctor.able(missing, findings)[1] == following


def test_a_slow_step_is_a_line_in_a_pipe_and_inside_another_nothing(monkeypatch, capsys):
    monkeypatch.setattr(progress, "AFTER_S", 0.0)
    with progress.progress("reading [1]", 3) as doing, progress.progress("reading a part of it"):
        doing.done()
        time.sleep(0.05)
    assert capsys.readouterr().err == "reading [1] …\n"


def test_a_name_between_colons_is_written_as_it_is(capsys):
    """Kind: a function called as an emoji is."""
    progress.log("own.py:mask: this is your code")
    assert capsys.readouterr().err == "own.py:mask: this is your code\n"


def test_doctor_names_a_remedy_for_everything_missing():
    environment = {**os.environ, "NSYS": "/nowhere/nsys", "TRT_PYTHON": "/nowhere/python"}
    done = layerline("doctor", "--json", env=environment)
    assert done.returncode == 0, done.stderr
    findings = {f["what"]: f for f in json.loads(done.stdout)["findings"]}
    assert findings["nsys"]["found"] is None
    assert "NSYS=" in findings["nsys"]["fix"]
    assert "TRT_PYTHON=/nowhere/python" in findings["tensorrt"]["fix"]
    assert all(f["fix"] for f in findings.values() if f["found"] is None)


def test_nodes_json_of_another_version_or_shape_is_refused():
    good = {"name": "a/Add", "op": "Add", "module": "a", "inputs": ["x"], "outputs": ["y"]}
    graph = nodes.parse({"schema_version": 1, "nodes": [good]})
    assert graph.producer["y"].module == "a"
    assert graph.consumers["x"][0].name == "a/Add"
    for document, message in [
        ([], 'no "nodes" list'),
        ({"schema_version": 2, "nodes": []}, "schema version 2"),
        ({"schema_version": 1, "nodes": [good, good]}, "occurs twice"),
        (
            {"schema_version": 1, "nodes": [{**good, "inputs": [1]}]},
            r"nodes\[0\]\.inputs\[0\] is 1",
        ),
        ({"schema_version": 1, "nodes": [{"name": "a"}]}, r"nodes\[0\]"),
    ]:
        with pytest.raises(InputError, match=message):
            nodes.parse(document)


def test_modules_of_nodes_come_in_graph_order_and_once():
    def node(name, module):
        return nodes.Node(name, "Add", module, (), ())

    graph = nodes.NodeGraph((node("a", "m1"), node("b", None), node("c", "m0"), node("d", "m1")))
    assert graph.modules_of(["d", "c", "b", "a", "not there"]) == ("m1", "m0")
