"""The ONNX Runtime worker: builds an engine, or loads one and runs it.

Tasks: build (optimise a model and save the optimised graph), probe (run a saved engine once and
say what ONNX Runtime records of each node), latency, profile, outputs. A saved engine is loaded
with every optimisation off: it is what the optimiser made, and runs under the names it has.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from layerline.engines.workers import common
else:  # a plain script; its folder is not on the path where PYTHONSAFEPATH is set
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import common

LEVELS = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
EXTERNAL_FILE = "session.optimized_model_external_initializers_file_name"
EXTERNAL_SIZE = "session.optimized_model_external_initializers_min_size_in_bytes"


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as e:
        raise common.WorkerError(
            f"onnxruntime cannot be imported ({e})", 'pip install "layerline[cpu]"', 3
        ) from None
    return onnxruntime


def _options(ort: Any, job: common.Job, level: str) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[level])
    options.intra_op_num_threads = job["threads"]
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors; a saved graph that fits this machine only is meant
    return options


def _session(ort: Any, job: common.Job, path: str, options: Any) -> Any:
    errors = ort.capi.onnxruntime_pybind11_state
    refused = tuple(
        getattr(errors, name)
        for name in ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoSuchFile",
                     "NotImplemented", "RuntimeException", "EPFail")
        if hasattr(errors, name)
    )  # fmt: skip
    providers = job["options"].get("providers", ["CPUExecutionProvider"])
    missing = [p for p in providers if p not in ort.get_available_providers()]
    if missing:
        raise common.WorkerError(
            f"this onnxruntime has no {', '.join(missing)}", "install onnxruntime-gpu", 3
        )
    try:
        return ort.InferenceSession(path, options, providers=providers)
    except refused as e:
        raise common.WorkerError(
            f"{path}: ONNX Runtime refuses it ({' '.join(str(e).split())[:500]})",
            "export it again",
        ) from None


class _Bound:
    """A session with its inputs and outputs bound, so that a run copies nothing to Python."""

    def __init__(self, ort: Any, session: Any, job: common.Job) -> None:
        self.session = session
        with np.load(job["inputs"], allow_pickle=False) as arrays:
            given = {name: arrays[name] for name in arrays.files}
        wanted = [i.name for i in session.get_inputs()]
        absent = [name for name in wanted if name not in given]
        if absent:
            raise common.WorkerError(
                f"{job['inputs']}: has no input {', '.join(absent)}", "export it again"
            )
        self.binding = session.io_binding()
        for name in wanted:
            self.binding.bind_cpu_input(name, np.ascontiguousarray(given[name]))
        self.names = [o.name for o in session.get_outputs()]
        for name in self.names:
            self.binding.bind_output(name)
        errors = ort.capi.onnxruntime_pybind11_state
        try:
            session.run_with_iobinding(self.binding)
        except (errors.InvalidArgument, errors.Fail) as e:
            text = " ".join(str(e).split())[:500]
            raise common.WorkerError(f"{job['engine']}: does not run ({text})") from None
        # The outputs of that run are the buffers of all later ones.
        self.values = self.binding.get_outputs()
        self.binding.clear_binding_outputs()
        for name, value in zip(self.names, self.values, strict=True):
            self.binding.bind_ortvalue_output(name, value)

    def run(self) -> None:
        self.session.run_with_iobinding(self.binding)

    def outputs(self) -> dict[str, Any]:
        return {name: value.numpy() for name, value in zip(self.names, self.values, strict=True)}


def _facts(ort: Any, session: Any, job: common.Job) -> dict[str, Any]:
    return {
        "onnxruntime": ort.__version__,
        "build": ort.get_build_info(),
        "providers": session.get_providers(),
        "threads": job["threads"],
    }


def build(job: common.Job) -> dict[str, Any]:
    """Optimise options.source at options.level, save it as `engine`; outputs to options.outputs.

    options.external names the file beside the engine that takes the weights, or is null.
    """
    ort = _onnxruntime()
    wanted = job["options"]
    options = _options(ort, job, wanted["level"])
    options.optimized_model_filepath = job["engine"]
    if wanted.get("external"):
        options.add_session_config_entry(EXTERNAL_FILE, wanted["external"])
        options.add_session_config_entry(EXTERNAL_SIZE, "1024")
    started = time.perf_counter()
    session = _session(ort, job, wanted["source"], options)
    seconds = time.perf_counter() - started
    bound = _Bound(ort, session, job)
    _save(wanted["outputs"], bound.outputs())
    return {"facts": {**_facts(ort, session, job), "build_seconds": round(seconds, 4)}}


def probe(job: common.Job) -> dict[str, Any]:
    """Run the engine once; each node's types and provider as ONNX Runtime records them."""
    ort = _onnxruntime()
    session = _profiled(ort, job)
    bound = _Bound(ort, session, job)
    path = Path(session.end_profiling())
    try:
        events = json.loads(path.read_text(encoding="utf-8"))
    finally:
        path.unlink()
    _save(job["options"]["outputs"], bound.outputs())
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
    return {"nodes": nodes, "facts": _facts(ort, session, job)}


def _types(recorded: Any) -> list[str] | None:
    if not isinstance(recorded, list):
        return None
    return [next(iter(entry), "") for entry in recorded if isinstance(entry, dict)]


def _profiled(ort: Any, job: common.Job) -> Any:
    options = _options(ort, job, "disable")
    options.enable_profiling = True
    raw = Path(job["raw"])
    prefix = f".{os.getpid()}.partial.{raw.name.lstrip('.')}"
    options.profile_file_prefix = str(raw.with_name(prefix))
    return _session(ort, job, job["engine"], options)


def latency(job: common.Job) -> dict[str, Any]:
    """Unprofiled latency by the host clock, inputs and outputs bound."""
    ort = _onnxruntime()
    started = time.perf_counter()
    session = _session(ort, job, job["engine"], _options(ort, job, "disable"))
    loaded = time.perf_counter() - started
    measured = common.repeat(_Bound(ort, session, job).run, job)
    measured["facts"].update(_facts(ort, session, job), load_seconds=round(loaded, 4))
    return measured


def profile(job: common.Job) -> dict[str, Any]:
    """ONNX Runtime's profile, moved to `raw` untouched.

    Its first `warmup_runs` model_run events are the binding run and the warm-up.
    """
    ort = _onnxruntime()
    session = _profiled(ort, job)
    bound = _Bound(ort, session, job)
    measured = common.repeat(bound.run, job)
    Path(session.end_profiling()).replace(job["raw"])
    measured["facts"].update(
        _facts(ort, session, job),
        warmup_runs=1 + len(measured["warmup_ns"]),
        runs=1 + len(measured["warmup_ns"]) + len(measured["latency_ns"]),
    )
    return measured


def outputs(job: common.Job) -> dict[str, Any]:
    """The engine's outputs for the inputs, to `raw` as npz."""
    ort = _onnxruntime()
    session = _session(ort, job, job["engine"], _options(ort, job, "disable"))
    _save(job["raw"], _Bound(ort, session, job).outputs())
    return {"facts": _facts(ort, session, job)}


def _save(path: str, arrays: dict[str, Any]) -> None:
    with Path(path).open("wb") as f:
        np.savez(f, **arrays)


TASKS = {
    "build": build,
    "probe": probe,
    "latency": latency,
    "profile": profile,
    "outputs": outputs,
}

if __name__ == "__main__":
    sys.exit(common.main(TASKS, sys.argv[1:]))
