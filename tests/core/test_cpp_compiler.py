"""A compiler that puts its own C++ library into what it links: torch cannot load that."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from layerline.core import cpp_compiler
from layerline.core.cli.command import cli

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


@pytest.fixture
def static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a compiler without libstdc++.so does, as CXX."""
    path = tmp_path / "static-g++"
    path.write_text('#!/bin/sh\nexec g++ -static-libstdc++ "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return path


def test_a_compiler_with_the_shared_library_is_fit() -> None:
    assert cpp_compiler.unfit("g++") is None


def test_one_with_a_library_of_its_own_is_not(static: Path) -> None:
    assert cpp_compiler.compiler() == str(static)
    why = cpp_compiler.unfit(str(static))
    assert why == f"torch cannot load what {static} makes, which has its own C++ library in it"


def test_one_that_fails_is_left_to_say_so_itself(tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    assert cpp_compiler.unfit(str(path)) is None


def test_doctor_says_so(static: Path) -> None:
    done = CliRunner().invoke(cli, ["doctor"])
    said = " ".join(done.output.split())
    assert "which has its own C++ library in it; name another compiler with CXX=…" in said
