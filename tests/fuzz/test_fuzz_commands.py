"""A small part of `fuzz_commands`: damaged inputs over all commands that read files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("fuzz_commands.py")
FIRST, INPUTS = 1_000_000, 200  # none of those of the long run


@pytest.mark.slow
def test_no_damaged_input_ends_in_a_traceback_a_hang_or_more_than_2_gb() -> None:
    run = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), "--first", str(FIRST), "--inputs", str(INPUTS)],
        capture_output=True,
        text=True,
    )
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert (run.returncode, found) == (0, []), run.stderr


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (KeyError("a"), "traceback: "),
        (MemoryError(), "memory: "),
        (SystemExit(9), "exit code 9"),
        (SystemExit(2), "exit code 2 without a word"),
    ],
)
def test_what_is_wrong_is_found(
    fails: BaseException, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import fuzz_commands

    from layerline.core.cli import command

    def fail(*_: object, **__: object) -> None:
        raise fails

    assert fuzz_commands.attempt(["read", "/nowhere/at/all"]) is None
    monkeypatch.setattr(command.cli, "main", fail)
    assert (fuzz_commands.attempt(["read", "a"]) or "").startswith(told)
