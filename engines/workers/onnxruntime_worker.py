"""The ONNX Runtime worker on the CPU, and the tasks that the CUDA provider's worker shares.

Tasks: ready (import the library), build (optimise a model and save the optimised graph), probe (run
a saved engine once and say what ONNX Runtime records of each node), latency, profile, outputs. Each
shared one takes a job and the place (`onnxruntime_session.Host`, or the GPU).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# A plain script; its folder is not on the path where PYTHONSAFEPATH is set.
sys.path.insert(0, str(Path(__file__).resolve().parent))
import common
import onnxruntime_session as sessions
from common import Job
from onnxruntime_session import Bound, Host

EXTERNAL_FILE = "session.optimized_model_external_initializers_file_name"
EXTERNAL_SIZE = "session.optimized_model_external_initializers_min_size_in_bytes"


def build(job: Job, place: Host) -> dict[str, Any]:
    """Optimise options.source at options.level, save it as `engine`; outputs to options.outputs.

    options.external names the file beside the engine that takes the weights, or is null.
    """
    wanted = job["options"]
    options = sessions.session_options(place.ort, job, wanted["level"])
    options.optimized_model_filepath = job["engine"]
    if wanted.get("external"):
        options.add_session_config_entry(EXTERNAL_FILE, wanted["external"])
        options.add_session_config_entry(EXTERNAL_SIZE, "1024")
    started = time.perf_counter()
    session = sessions.session(place, job, wanted["source"], options)
    seconds = time.perf_counter() - started
    bound = Bound(place, session, job)
    common.save(wanted["outputs"], bound.outputs())
    facts = sessions.facts(place, session, job)
    return {"facts": {**facts, "build_seconds": round(seconds, 4)}}


def probe(job: Job, place: Host) -> dict[str, Any]:
    """Run the engine once; each node's types and provider as ONNX Runtime records them."""
    session, bound, _ = sessions.engine(place, job, profiled=True)
    path = Path(session.end_profiling())
    try:
        events = json.loads(path.read_text(encoding="utf-8"))
    finally:
        path.unlink()
    common.save(job["options"]["outputs"], bound.outputs())
    nodes = {}
    for event in events:
        name, arguments = event.get("name", ""), event.get("args", {})
        if event.get("cat") == "Node" and name.endswith("_kernel_time"):
            nodes[name[: -len("_kernel_time")]] = {
                "op": arguments.get("op_name"),
                "provider": arguments.get("provider"),
                "inputs": _types(arguments.get("input_type_shape")),
                "outputs": _types(arguments.get("output_type_shape")),
            }
    return {"nodes": nodes, "facts": sessions.facts(place, session, job)}


def _types(recorded: Any) -> list[str] | None:
    if not isinstance(recorded, list):
        return None
    return [next(iter(entry), "") for entry in recorded if isinstance(entry, dict)]


def profile(job: Job, place: Host) -> dict[str, Any]:
    """ONNX Runtime's profile, moved to `raw` untouched.

    Its first `warmup_runs` model_run events are the binding run and the warm-up.
    """
    session, bound, _ = sessions.engine(place, job, profiled=True)

    def run() -> None:
        bound.run()
        place.wait()

    measured = common.repeat(run, job)
    Path(session.end_profiling()).replace(job["raw"])
    before = 1 + len(measured["warmup_ns"])
    measured["facts"].update(
        sessions.facts(place, session, job),
        warmup_runs=before,
        runs=before + len(measured["latency_ns"]),
    )
    return measured


def outputs(job: Job, place: Host) -> dict[str, Any]:
    """The engine's outputs for the inputs, to `raw` as npz."""
    session, bound, _ = sessions.engine(place, job)
    common.save(job["raw"], bound.outputs())
    return {"facts": sessions.facts(place, session, job)}


def tasks_at(place: Callable[[], Host]) -> dict[str, common.Task]:
    """The tasks that are the same at every place."""
    return {
        "build": lambda job: build(job, place()),
        "probe": lambda job: probe(job, place()),
        "profile": lambda job: profile(job, place()),
        "outputs": lambda job: outputs(job, place()),
    }


def latency(job: Job) -> dict[str, Any]:
    """Unprofiled latency by the host clock, inputs and outputs bound."""
    place = Host(sessions.load())
    session, bound, loaded = sessions.engine(place, job)
    measured = common.repeat(bound.run, job)
    measured["facts"].update(sessions.facts(place, session, job), load_seconds=loaded)
    return measured


def ready(_job: Job) -> dict[str, Any]:
    """The library is imported."""
    return {"facts": {"onnxruntime": sessions.load().__version__}}


TASKS = {**tasks_at(lambda: Host(sessions.load())), "ready": ready, "latency": latency}

if __name__ == "__main__":
    sys.exit(common.main(TASKS, sys.argv[1:]))
