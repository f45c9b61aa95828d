"""The eager model in inference or training: the worker that measures it, and what that leaves.

Leaves ``captures/{task}.{precision}.trace.json.gz`` (torch.profiler, with module ranges),
``.latency.json`` and ``.meta.json``. `task` is ``eager`` or ``train``. `outputs` leaves
``captures/eager.fp32.outputs.npz`` alone (``{"logits": (batch, sequence, vocabulary) float32}``),
the reference that engines are compared with: one forward, so that a wrong engine is known before
anything is measured. This side loads no torch.
"""

from __future__ import annotations

import importlib.util
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

from ...core.capture_names import CaptureName, Task
from ...core.cli.progress import progress
from ...core.errors import ToolMissing
from ...core.run import Run
from ...engines.backend import Worker
from ...engines.launch import Serving

WORKER = Worker(
    (sys.executable, "-P", "-m", "layerline.profile.eager.worker"), {"KINETO_LOG_LEVEL": "4"}
)
# What a message calls the tasks, before the precision.
LABELS = {"eager": "eager", "train": "training in"}
Part = Literal["latency", "trace"]
# What each part leaves: two steps, so that either is measured again alone.
PARTS: dict[Part, dict[str, str]] = {
    "latency": {"latency": ".latency.json"},
    "trace": {"trace": ".trace.json.gz", "meta": ".meta.json"},
}


def cuda_usable() -> bool:
    """Whether an NVIDIA driver is loaded; torch is not needed to know."""
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()


def why_not(precision: str, options: dict[str, Any]) -> str | None:
    """Why this precision is not captured on this machine; None where it is."""
    if options.get("device") == "cpu" or not cuda_usable():
        if precision == "fp16":
            return "PyTorch's CPU kernels for fp16 are about fifty times slower than for fp32"
        if precision == "tf32":
            return "TF32 is a mode of NVIDIA GPUs"
    return None


def files(run: Run, task: Task, precision: str, part: Part) -> dict[str, Path]:
    """The files that a part leaves, by what they are."""
    return {
        name: CaptureName(task, precision, suffix=suffix).path(run.file("captures"))
        for name, suffix in PARTS[part].items()
    }


def reference(run: Run) -> Path:
    """The outputs of the eager model in fp32."""
    return CaptureName("eager", "fp32", suffix=".outputs.npz").path(run.file("captures"))


def outputs(worker: Serving, run: Run) -> dict[str, Any]:
    """Write `reference`; gives facts for the manifest. Errors as of `measure`."""
    return _call(worker, run, "outputs", "fp32", {"outputs": reference(run)})


def measure(
    worker: Serving, run: Run, task: Task, precision: str, part: Part, options: dict[str, Any]
) -> dict[str, Any]:
    """Measure or profile the model of ``export/model.json``; gives facts for the manifest.

    `worker` is of `WORKER`; one that has profiled is given no latency to measure: what torch's
    profiler leaves in a process may slow launches down. `options` (all optional): device, threads,
    seed, warmup, iterations {min, max}, target, seconds, profiled; of training also learning_rate.
    The caller holds the machine's lock. ToolMissing where it cannot run (`why_not` says so
    beforehand), LayerlineError where the worker failed (`launch.call`): no file is left then.
    """
    reason = why_not(precision, options)
    if reason:
        raise ToolMissing(
            f"{LABELS[task]} {precision} is not run on this machine: {reason}",
            fix="use fp32 or a GPU",
        )
    left = files(run, task, precision, part)
    return _call(worker, run, task, precision, left, part=part, options=options)


def ready(run: Run) -> dict[str, Any]:
    """The job of a worker that has nothing to do yet."""
    return {"task": "ready", "model": str(run.file("export", "model.json"))}


def installed() -> bool:
    """Whether PyTorch is; it is not imported."""
    return importlib.util.find_spec("torch") is not None


def module_outputs(
    run: Run, values: Path, index: Path, worker: Serving | None = None
) -> dict[str, Any]:
    """What each module of the eager model in fp32 is given and gives (`module_outputs.run`).
    Without a `worker` one starts and ends for it."""
    with Serving(WORKER) if worker is None else nullcontext(worker) as given:
        return _call(given, run, "modules", "fp32", {"values": values, "index": index})


def _call(
    worker: Serving, run: Run, task: str, precision: str, left: dict[str, Path], **more: Any
) -> dict[str, Any]:
    if not installed():
        raise ToolMissing("PyTorch is not installed", fix="pip install 'layerline[model]'")
    run.file("captures").mkdir(parents=True, exist_ok=True)
    job = {
        "task": task,
        "precision": precision,
        "model": str(run.file("export", "model.json")),
        "options": {},
        "files": {k: str(v) for k, v in left.items()},
        **more,
    }
    with progress(f"{task} {precision} {more.get('part', '')}"):
        facts: dict[str, Any] = worker.call(job)["facts"]
    return facts
