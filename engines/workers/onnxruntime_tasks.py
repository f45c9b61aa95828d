"""The tasks that are the same wherever ONNX Runtime runs: build, probe, profile, outputs.

Each takes a job and the place (`onnxruntime_session.Host`, or the GPU). A saved engine is loaded
with every optimisation off: it is what the optimiser made, and runs under the names it has.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerline.engines.workers import common
    from layerline.engines.workers import onnxruntime_session as sessions
    from layerline.engines.workers.common import Job
    from layerline.engines.workers.onnxruntime_session import Bound, Host
else:
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
    sessions.save(wanted["outputs"], bound.outputs())
    known = sessions.facts(place, session, job)
    return {"facts": {**known, "build_seconds": round(seconds, 4)}}


def probe(job: Job, place: Host) -> dict[str, Any]:
    """Run the engine once; each node's types and provider as ONNX Runtime records them."""
    options = sessions.profiled_options(place.ort, job)
    session = sessions.session(place, job, job["engine"], options)
    bound = Bound(place, session, job)
    path = Path(session.end_profiling())
    try:
        events = json.loads(path.read_text(encoding="utf-8"))
    finally:
        path.unlink()
    sessions.save(job["options"]["outputs"], bound.outputs())
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


def load(job: Job, place: Host) -> tuple[Any, Bound, float]:
    """The engine without a profiler: its session, bound, and the seconds of loading it."""
    started = time.perf_counter()
    options = sessions.session_options(place.ort, job, "disable")
    session = sessions.session(place, job, job["engine"], options)
    loaded = time.perf_counter() - started
    return session, Bound(place, session, job), round(loaded, 4)


def profile(job: Job, place: Host) -> dict[str, Any]:
    """ONNX Runtime's profile, moved to `raw` untouched.

    Its first `warmup_runs` model_run events are the binding run and the warm-up.
    """
    options = sessions.profiled_options(place.ort, job)
    session = sessions.session(place, job, job["engine"], options)
    bound = Bound(place, session, job)

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
    session, bound, _ = load(job, place)
    sessions.save(job["raw"], bound.outputs())
    return {"facts": sessions.facts(place, session, job)}
