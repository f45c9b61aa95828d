"""The ONNX Runtime worker on the CPU: builds an engine, or loads one and runs it.

Tasks: build (optimise a model and save the optimised graph), probe (run a saved engine once and
say what ONNX Runtime records of each node), latency, profile, outputs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerline.engines.workers import common
    from layerline.engines.workers import onnxruntime_session as sessions
    from layerline.engines.workers import onnxruntime_tasks as tasks
    from layerline.engines.workers.common import Job
else:  # a plain script; its folder is not on the path where PYTHONSAFEPATH is set
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import common
    import onnxruntime_session as sessions
    import onnxruntime_tasks as tasks
    from common import Job


def _host() -> sessions.Host:
    return sessions.Host(sessions.load())


def latency(job: Job) -> dict[str, Any]:
    """Unprofiled latency by the host clock, inputs and outputs bound."""
    place = _host()
    session, bound, loaded = tasks.load(job, place)
    measured = common.repeat(bound.run, job)
    measured["facts"].update(sessions.facts(place, session, job), load_seconds=loaded)
    return measured


TASKS: dict[str, common.Task] = {
    "build": lambda job: tasks.build(job, _host()),
    "probe": lambda job: tasks.probe(job, _host()),
    "latency": latency,
    "profile": lambda job: tasks.profile(job, _host()),
    "outputs": lambda job: tasks.outputs(job, _host()),
}

if __name__ == "__main__":
    sys.exit(common.main(TASKS, sys.argv[1:]))
