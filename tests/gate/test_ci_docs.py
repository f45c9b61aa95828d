"""The workflows of docs/ci.md: their steps are run, those of the GPU runner where there is one."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from paths import ROOT

from layerline.analysis.model import baseline
from layerline.core.cli.command import cli
from layerline.engines import backend as backends

TEXT = (ROOT / "docs/ci.md").read_text()


def steps(runner: str) -> dict[str, str]:
    """The scripts of a workflow by name, as the section of a runner has them."""
    section = re.split(r"^## ", TEXT, flags=re.M)
    (workflow,) = [s for s in section if s.startswith(f"A {runner} runner")]
    found = re.findall(r"- name: (\w+)\n +run: \|\n((?: {10,}.*\n)+)", workflow)
    return {name: textwrap.dedent(script) for name, script in found}


def test_both_workflows_have_their_steps() -> None:
    assert [*steps("CPU")] == [*steps("GPU")] == ["measure", "judge"]


@pytest.mark.parametrize("runner", ["CPU", "GPU"])
def test_every_command_of_a_workflow_is_one_of_ours(runner: str) -> None:
    for script in steps(runner).values():
        for line in script.splitlines():
            program, name, *arguments = shlex.split(line)
            assert program == "layerline"
            command = cli.get_command(None, name)  # type: ignore[arg-type]
            assert command is not None
            command.make_context(name, arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runner", "backend"),
    [("CPU", "onnxruntime"), pytest.param("GPU", "tensorrt", marks=pytest.mark.gpu)],
)
def test_the_steps_of_a_runner_do_what_they_say(tmp_path: Path, runner: str, backend: str) -> None:
    pytest.importorskip("torch")
    if (why := backends.load(backend).unavailable()) is not None:
        pytest.skip(f"{why.reason}; {why.remedy}")
    (limits,) = re.findall(r"```toml\n(.*?)```", TEXT, flags=re.S)
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci/limits.toml").write_text(limits)
    program = tmp_path / "bin/layerline"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m layerline.core.cli.command "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}

    def step(script: str) -> subprocess.CompletedProcess[str]:
        # As GitHub's runner starts it.
        return subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environment,
                              capture_output=True, text=True)  # fmt: skip

    script = steps(runner)
    measured = step(script["measure"])
    assert measured.returncode == 0, measured.stderr
    assert step("layerline gate --save ci/cost.json runs/new").returncode == 0
    assert (tmp_path / "ci/cost.json").stat().st_size <= baseline.MAX_BYTES
    # The same samples on both sides: never slower; how noisy this machine is decides between the
    # other two.
    judged = step(script["judge"])
    assert judged.returncode in (0, 4), judged.stderr
    assert judged.stdout.startswith("::notice title=layerline gate::")
    root = ET.parse(tmp_path / "cost.xml").getroot()
    assert root.get("failures") == "0"
    assert len((tmp_path / "cost.md").read_text().splitlines()) <= 25
