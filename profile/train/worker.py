"""The worker of `layerline train`: builds the training, and runs it under its plug-ins.

``python -m layerline.profile.train.worker JOB.json``, in a worker's protocol. The job::

    {"request": workloads.request.Request, "profile": ["torch", …], "folder": "RUN/captures",
     "steps": 30, "warmup": 3, "options": {"schedule": "0,1,6,1", …}}

Which rank of how many this is, the launcher's environment says (`core.ranks.identity`). Without
steps nothing is measured, and the plug-ins alone run.
"""

from __future__ import annotations

import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...core.capture_names import CaptureName
from ...core.ranks import identity as ranks_
from ...workloads.plugin import Unobserved
from ...workloads.request import Request
from ..eager.plugins import Context
from ..eager.worker import answer


def request_of(job: dict[str, Any]) -> Request:
    """What the job asks for, for this rank."""
    found = ranks_.identity(os.environ)
    if found is None:
        return Request(**job["request"])
    rank = {"rank": found.rank, "ranks": found.ranks or 1, "local": found.local or 0}
    return Request(**{**job["request"], **rank})


def context_of(request: Request, job: dict[str, Any]) -> Context:
    """What this rank's plug-ins are given."""
    name = CaptureName("train", request.precision)
    if request.ranks > 1:
        name = replace(name, rank=request.rank, host=ranks_.host())
    return Context(Path(job["folder"]), name, job["options"])


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Train as the job says; gives facts."""
    from ...workloads import failures

    request = request_of(job)
    with failures.explained(request):
        return _run(request, job)


def _run(request: Request, job: dict[str, Any]) -> dict[str, Any]:
    from ...workloads.failures import check
    from ..eager import plugins
    from ..eager.measure_training import measure, write_training
    from ..eager.setup import Repeats, facts, write_latency

    context, training = context_of(request, job), request.build()
    about = facts(training.model, training.device, request.precision, training=True)
    training.facts = {**about, **training.facts, "rank": request.rank, "ranks": request.ranks}
    made = plugins.make(job["profile"], context)
    if not job.get("watched", True):  # another rank is: this one goes the same way unobserved
        made = {name: Unobserved(plugin.own_steps) for name, plugin in made.items()}
    asked = int(job["steps"])
    warmup, steps = training.length(int(job["warmup"]) if asked else 0, asked)
    plan = Repeats(warmup, steps, steps, target=None, seconds=math.inf)
    measured = measure(training, plan, made, look=check)
    files = {k: context.path(s) for k, s in FILES.items()}
    said: dict[str, Any] = {}
    for plugin in (*training.watchers.values(), *made.values()):
        said |= plugin.facts()
    if not steps:
        return {**{k: v for k, v in training.facts.items() if k != "machine"}, **said}
    summary = write_latency(training.facts, measured.gpu, files["latency"], measured.latency)
    write_training(training, measured, files, said)
    breaks = said.get("graph_breaks", [])
    return {**summary, "losses": measured.losses, "graph_breaks": breaks}


FILES = {"trace": ".trace.json.gz", "latency": ".latency.json", "meta": ".meta.json"}

if __name__ == "__main__":
    sys.exit(answer(Path(sys.argv[1]), run))
