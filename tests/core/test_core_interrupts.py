"""Ended while it loads: no traceback, and what shells expect of a process that a signal ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

# Sends itself a signal when the module named is looked for: that is in the middle of its import.
ENDED = """
import os, signal, sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == sys.argv[2]:
            os.kill(os.getpid(), int(sys.argv[1]))
sys.meta_path.insert(0, Finder)
from layerline.core.cli.command import main
main(["layers", "--help"])
"""


def run(number: int, module: str, before: str = "") -> subprocess.CompletedProcess[str]:
    found = os.pathsep.join(os.path.realpath(p) for p in sys.path if p)
    command = [sys.executable, "-c", before + ENDED, str(int(number)), module]
    environment = {**os.environ, "PYTHONPATH": found}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "module", ["click", "rich", "layerline.analysis.commands.layers", "pyarrow"]
)
def test_a_signal_during_an_import_ends_without_a_traceback(
    number: signal.Signals, module: str
) -> None:
    done = run(number, module)
    assert (done.returncode, done.stdout, done.stderr) == (-number, "", "")


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    ignore = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    done = run(signal.SIGINT, "click", ignore)
    assert done.returncode == 0 and "Usage: layerline layers" in done.stdout
