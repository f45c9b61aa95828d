"""Imports run down only: between stages, and between the folders of analysis/."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

STAGES = ("core", "export", "engines", "workloads", "profile", "analysis")
# A folder of analysis/ imports from those before its own line, and from itself.
FLOORS = (
    {"readers", "model", "formatting"},
    {"attribution", "host", "rundir", "scrub"},
    {"costs", "counters"},
    {"checks", "memory", "parameters", "ranks", "roofline"},
    {"captures", "comparison", "metrics"},
    {"report", "timeline", "graph", "pipeline"},
    {"commands"},
)


def modules() -> dict[str, Path]:
    """Every module of the package by its full name; workers are scripts of their own."""
    return {
        ".".join(["layerline", *path.relative_to(ROOT).with_suffix("").parts]): path
        for stage in STAGES
        for path in (ROOT / stage).rglob("*.py")
        if path.parent.name != "workers"
    }


def imported(source: str, package: str, strings: bool = True) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a module of `package` imports: at its top or in a
    function, relatively, or by a name in a string (for import_module, or a command line's -m)."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif strings and isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = re.match(r"(layerline(\.\w+)+)\.?(:\w+)?$", node.value)
            names = [named[1]] if named else []
        for name in names:
            if name.split(".")[0] == "layerline":
                yield node.lineno, name


def imports_of(path: Path, strings: bool = True) -> Iterator[tuple[int, str]]:
    package = ".".join(["layerline", *path.parent.relative_to(ROOT).parts])
    return imported(path.read_text(), package, strings)


def test_stages_import_only_those_before_them() -> None:
    for at, stage in enumerate(STAGES):
        for path in (ROOT / stage).rglob("*.py"):
            if path == ROOT / "core/cli/command.py":
                continue  # its table of commands names every stage
            for line, name in imports_of(path):
                other = name.split(".")[1] if "." in name else stage
                if other in STAGES:
                    assert STAGES.index(other) <= at, f"{path}:{line} imports {name}"


def test_folders_of_analysis_import_only_those_below_them() -> None:
    floor = {folder: at for at, folders in enumerate(FLOORS) for folder in folders}
    seen = set()
    for path in (ROOT / "analysis").rglob("*.py"):
        own = path.relative_to(ROOT / "analysis").with_suffix("").parts[0]
        seen.add(own)
        for line, name in imports_of(path):
            parts = name.split(".")
            if parts[1:2] == ["analysis"] and len(parts) > 2 and parts[2] != own:
                assert floor[parts[2]] < floor[own], f"{path}:{line} imports {name}"
    assert seen == set(floor)


def test_a_tools_readers_import_no_other_tools() -> None:
    readers = ROOT / "analysis/readers"
    tools = {p.name for p in readers.iterdir() if p.is_dir() and p.name != "__pycache__"}
    for path in readers.rglob("*.py"):
        for line, name in imports_of(path):
            other = name.split(".")[3:4]
            if path.parent != readers and other and other[0] in tools:
                assert other[0] == path.parent.name, f"{path}:{line} imports {name}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    known = modules()
    graph = {
        name: {
            part
            for _, other in imports_of(path, strings=False)
            for part in (other, other.rpartition(".")[0])
            if part in known and part != name
        }
        for name, path in known.items()
    }
    list(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize(
    "source",
    [
        "from layerline.analysis import view",
        "from layerline import analysis",
        "import layerline.analysis.comparison.build",
        "def f():\n    from ..analysis.view import build",
        "def f():\n    from .. import analysis",
        "importlib.import_module('layerline.analysis.comparison.build')",
        "importlib.import_module(f'layerline.analysis.{part}')",
        "TABLE = {'view': 'layerline.analysis.comparison.build:build'}",
    ],
)
def test_an_import_is_seen_wherever_and_however_it_is_written(source: str) -> None:
    assert [n.split(".")[1] for _, n in imported(source, "layerline.profile")] == ["analysis"]


def loaded(names: list[str], without: tuple[str, ...]) -> None:
    code = (
        "import importlib, sys\n"
        f"for name in {without!r}: sys.modules[name] = None\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_analysis_needs_no_torch_onnx_or_tensorrt() -> None:
    names = [name for name in modules() if name.startswith("layerline.analysis.")]
    loaded(names, ("torch", "onnx", "onnxruntime", "tensorrt", "transformers"))


def test_readers_need_no_pandas_and_no_matplotlib_either() -> None:
    names = [name for name in modules() if name.startswith("layerline.analysis.readers.")]
    names = ["layerline.analysis.readers", *names]
    loaded(names, ("torch", "onnx", "pandas", "matplotlib", "onnxruntime", "tensorrt"))
