"""What is printed to a terminal that lacks a character, and of paths that lead nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROFILE = [{"count": 2}, {"name": "a", "timeMs": 1.0, "averageMs": 0.5, "medianMs": 0.5}]


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "layerline.core.cli.command", *map(os.fspath, arguments)],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_a_terminal_without_a_micro_sign_gets_the_letter_u(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(PROFILE))
    done = run("layers", path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and b"median us" in done.stdout and b"Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["read", "layers", "nodes", "compare", "scrub"])
def test_a_name_that_is_not_utf8_ends_in_one_line(tmp_path: Path, command: str) -> None:
    path = os.fsencode(tmp_path) + b"/bad\xff.json"
    Path(os.fsdecode(path)).write_text(json.dumps(PROFILE))
    arguments = [os.fsdecode(path)] * (2 if command == "compare" else 1)
    done = run(command, *arguments)
    assert b"Traceback" not in done.stderr and b"UnicodeEncodeError" not in done.stderr
    assert done.returncode == 0 or b"error: " in done.stderr


@pytest.mark.parametrize("command", ["read", "layers", "nodes", "scrub", "timeline"])
def test_a_link_that_leads_to_itself_ends_in_one_line(tmp_path: Path, command: str) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    done = run(command, loop)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
    assert b"is a link that leads back to itself" in done.stderr
