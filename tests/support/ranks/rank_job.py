"""Jobs of several ranks on the CPU: a script of this file under torchrun, and what it found.

As a script, one rank of a job: `torchrun rank_job.py CASES.json RESULTS.json`. A case is
{"name", "workload", "options", "steps"}; the result, of rank 0, is {name: {"losses", "norms",
"ranges", "phases", ...}}.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paths import ROOT

from layerline.workloads.plugin import Plugin

WORDS = [*"abcdefghijklmnopqrst"]


def text(path: Path, words: int = 30_000) -> Path:
    """A text with something to learn: after each word only two can follow."""
    at, out = 0, []
    for number in range(words):
        out.append(WORDS[at])
        at = (2 * at + (number * number // 7) % 2) % len(WORDS)
    path.write_text("\n".join(" ".join(out[i : i + 20]) for i in range(0, words, 20)))
    return path


def start(ranks: int, *command: str | Path, **how: Any) -> subprocess.Popen[str]:
    """torchrun with `ranks` ranks of `command`, which is a script, or -m and a module."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
    environment["PYTHONPATH"] = str(ROOT / "tests/support")
    torchrun = "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"
    return subprocess.Popen(
        [sys.executable, *torchrun, *map(str, command)],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **how,
    )


def results(ranks: int, cases: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    """What a job of so many ranks finds in `cases`."""
    asked, found = folder / f"cases{ranks}.json", folder / f"results{ranks}.json"
    asked.write_text(json.dumps(cases))
    job = start(ranks, __file__, asked, found)
    _, errors = job.communicate(timeout=300)
    assert job.returncode == 0, errors
    answer: dict[str, Any] = json.loads(found.read_text())
    return answer


class Phases(Plugin):
    """Notes the phases as they begin."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.seen.append(name)
        yield


def _case(case: dict[str, Any], rank: int, ranks: int) -> dict[str, Any]:
    import torch

    from layerline.workloads.loop import train
    from layerline.workloads.request import Request

    settings = {name: str(value) for name, value in case["options"].items()}
    training: Any = Request(
        case["workload"], "", settings=settings, device="cpu", rank=rank, ranks=ranks
    ).build()
    if case["workload"] == "sequence-parallel":
        return _exchange(training)
    phases = Phases()
    steps = list(train(training, case["steps"] - 1))
    profile = torch.profiler.profile() if case["ranges"] else contextlib.nullcontext()
    with profile:
        steps += train(training, case["steps"], [phases], first=len(steps))
    ranges: list[list[str] | None] = [None] * ranks
    if case["ranges"]:
        events = sorted(profile.events(), key=lambda e: e.time_range.start)
        mine = [e.name for e in events if e.name.startswith("PP:") and e.name[4] in "FB"]
        torch.distributed.all_gather_object(ranges, mine)
    return {
        "losses": [float(s.loss) for s in steps],
        "norms": [float(s.gradient_norm) for s in steps if s.gradient_norm is not None],
        "ranges": ranges,
        "phases": phases.seen,
        "parameters": [name for name, _ in training.model.named_parameters()],
    }


def _exchange(training: Any) -> dict[str, Any]:
    """The output of all ranks together, and what an iteration's parts are said to take."""
    import torch

    from layerline.workloads.loop import train

    x = next(training.batches)["x"]
    with torch.no_grad():
        out = training.model(x, lambda: None)
    parts: list[Any] = [None] * training.ranks
    torch.distributed.all_gather_object(parts, out.tolist())
    list(train(training, sum(training.length(0, 3))))
    return {
        "output": [row for part in parts for row in part],
        "timing": training.timing().as_dict(),
    }


def _main(asked: Path, found: Path) -> None:
    import torch.distributed as dist

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    answer = {case["name"]: _case(case, rank, ranks) for case in json.loads(asked.read_text())}
    if rank == 0:
        found.write_text(json.dumps(answer))
    dist.destroy_process_group()


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]))
