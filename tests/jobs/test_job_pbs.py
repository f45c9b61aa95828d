"""A PBS job from qsub to what its ranks leave. There is no PBS here: `qsub` checks the directives
as PBS Professional's reference guide has them and runs the script with what PBS sets; `mpiexec`
starts the ranks, as that of Cray PALS, with PMI_RANK and PALS_LOCAL_RANKID."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from layerline.core.capture_names import CaptureName

LAYERLINE = [sys.executable, "-P", "-m", "layerline.core.cli.command"]
PROGRAM = ROOT / "tests/support/ranks/rank_program.py"
QSUB = f"""#!{sys.executable}
import os, pathlib, re, subprocess, sys
KNOWN = {{"-N": r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{{0,229}}", "-l": r"(select=\\d+(:\\w+=\\w+)*|"
          r"place=(scatter|pack|free)(:excl)?|walltime=(\\d+:)?\\d+:\\d+|filesystems=\\w+(:\\w+)*)",
          "-q": r"\\w+", "-A": r"\\w+", "-k": r"[doe]+", "-j": r"oe|eo|n", "-o": r"/\\S+",
          "-e": r"/\\S+"}}
script = pathlib.Path(sys.argv[1])
given = {{}}
for line in script.read_text().splitlines():
    if line.startswith("#PBS "):
        option, value = line.split(maxsplit=2)[1:]
        if not re.fullmatch(KNOWN[option], value):
            sys.exit(f"qsub: illegal {{option}} {{value}}")
        given.setdefault(option, []).append(value)
    elif line and not line.startswith("#"):
        break
if len(given["-N"]) != 1 or not any(v.startswith("select=") for v in given["-l"]):
    sys.exit("qsub: no job")
nodes = int(re.search(r"select=(\\d+)", " ".join(given["-l"]))[1])
hosts = script.with_suffix(".nodes")
hosts.write_text("".join(f"127.0.0.{{n + 1}}\\n" for n in range(nodes) for _ in range(2)))
out = pathlib.Path(given["-o"][0])
with (out / "job.OU" if out.is_dir() else out).open("w") as f:
    environment = {{**os.environ, "PBS_NODEFILE": str(hosts), "PBS_JOBID": "77.polaris"}}
    subprocess.run(["bash", str(script)], env=environment, stdout=f, stderr=f, cwd="/")
print("77.polaris")
"""
MPIEXEC = f"""#!{sys.executable}
import os, subprocess, sys
given, options, environment = sys.argv[1:], {{}}, {{}}
while given and given[0].startswith("-"):
    option = given.pop(0)
    if option in ("-l", "--line-buffer") or "=" in option:
        options[option.partition("=")[0]] = option.partition("=")[2]
    elif option == "--env":
        name, _, value = given.pop(0).partition("=")
        environment[name] = value
    else:
        options[option] = given.pop(0)
ranks, each = int(options["-n"]), int(options["--ppn"])
print("bound", options.get("--cpu-bind"), flush=True)
started = []
for rank in range(ranks):
    own = {{"PMI_RANK": rank, "PMI_SIZE": ranks, "PALS_LOCAL_RANKID": rank % each,
           "PMI_LOCAL_SIZE": each, "PALS_NODEID": rank // each, "PALS_APID": "apid"}}
    own = {{name: str(value) for name, value in own.items()}}
    started.append(subprocess.Popen(given, env={{**os.environ, **environment, **own}}))
sys.exit(max(process.wait() for process in started))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("qsub", QSUB), ("mpiexec", MPIEXEC)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def submit(environment: dict[str, str], folder: Path, *arguments: object) -> str:
    """Submit and run a job; gives what it printed."""
    command = [*LAYERLINE, "job", "pbs", "--submit", "--out", str(folder / "out")]
    command += [str(a) for a in arguments]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.stdout == "77.polaris\n", done.stderr
    return (folder / "out").read_text()


@pytest.mark.slow
def test_ranks_of_mpiexec_train_and_leave_a_trace_of_each_chosen_one(environment, tmp_path):
    printed = submit(
        environment, tmp_path, "--nodes", 2, "--per-node", 1, "--chunk", "ncpus=2:system=polaris",
        "--walltime", "00:30:00", "--filesystems", "home:eagle", "--account", "me", "--queue",
        "debug", "--cpu-bind", "verbose,list:0:1", "--run", "runs/x", "train", "--profile",
        "torch", "--ranks", "first-per-node:1", "--", sys.executable, "-P", PROGRAM, "well",
    )  # fmt: skip
    assert "bound verbose,list:0:1" in printed
    assert "rank 1 of 2 is done" in printed
    captures = [CaptureName.parse(p) for p in (tmp_path / "runs/x/captures").iterdir()]
    assert [(c.rank, c.suffix) for c in captures if c] == [(0, ".trace.json.gz")]


@pytest.mark.slow
def test_a_rank_of_mpiexec_that_dies_is_named(environment, tmp_path):
    printed = submit(
        environment, tmp_path, "--per-node", 2, "--no-report", "train", "--profile", "torch", "--",
        sys.executable, "-P", PROGRAM, "killed",
    )  # fmt: skip
    assert re.search(r"error: .*rank 1 of 2 \(host \S+, process \d+\) was killed", printed)


def test_the_statistics_of_nsys_are_printed_at_the_end_of_those_that_are_new(environment, tmp_path):
    stub = tmp_path / "bin" / "nsys"
    stub.write_text('#!/bin/bash\n[ "$1" = stats ] && echo "kernel sums of ${!#}"\nexit 0\n')
    stub.chmod(0o755)
    captures = tmp_path / "runs/x/captures"
    captures.mkdir(parents=True)
    (captures / "train.fp32.rank0000@old.nsys-rep").touch()
    os.utime(captures / "train.fp32.rank0000@old.nsys-rep", (1, 1))
    leaves = f"sleep 0.1; touch '{captures}/train.fp32.rank0000@new.nsys-rep'"
    printed = submit(
        environment, tmp_path, "--run", "runs/x", "--no-report", "train", "--", "bash", "-c", leaves
    )
    assert "kernel sums of runs/x/captures/train.fp32.rank0000@new.nsys-rep" in printed
    assert "@old" not in printed
