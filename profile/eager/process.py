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
from pathlib import Path
from typing import Any

from ...core.capture_names import CaptureName, Task
from ...core.cli.progress import progress
from ...core.errors import ToolMissing
from ...core.run import Run
from ...engines import launch
from ...engines.backend import Worker

WORKER = Worker(
    (sys.executable, "-P", "-m", "layerline.profile.eager.worker"), {"KINETO_LOG_LEVEL": "4"}
)
# What a message calls the tasks, before the precision.
LABELS = {"eager": "eager", "train": "training in"}
PARTS = {
    "trace": ".trace.json.gz",
    "latency": ".latency.json",
    "meta": ".meta.json",
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


def files(run: Run, task: Task, precision: str) -> dict[str, Path]:
    """The files that `capture` leaves, by part."""
    return {
        part: CaptureName(task, precision, suffix=suffix).path(run.file("captures"))
        for part, suffix in PARTS.items()
    }


def reference(run: Run) -> Path:
    """The outputs of the eager model in fp32."""
    return CaptureName("eager", "fp32", suffix=".outputs.npz").path(run.file("captures"))


def outputs(run: Run) -> dict[str, Any]:
    """Write `reference`; gives facts for the manifest. Errors as of `capture`."""
    return _call(run, "outputs", "fp32", {}, {"outputs": reference(run)})


def capture(run: Run, task: Task, precision: str, options: dict[str, Any]) -> dict[str, Any]:
    """Measure and profile the model of ``export/model.json``; gives facts for the manifest.

    `options` (all optional): device, threads, seed, warmup, iterations {min, max}, target, seconds,
    profiled; of training also learning_rate. The caller holds the machine's lock. ToolMissing
    where it cannot run (`why_not` says so beforehand), LayerlineError where the worker failed
    (`launch.call`), which leaves no file behind.
    """
    reason = why_not(precision, options)
    if reason:
        raise ToolMissing(
            f"{LABELS[task]} {precision} is not run on this machine: {reason}",
            fix="use fp32 or a GPU",
        )
    return _call(run, task, precision, options, files(run, task, precision))


def module_outputs(run: Run, values: Path, index: Path) -> dict[str, Any]:
    """What each module of the eager model in fp32 is given and gives (`module_outputs.run`)."""
    return _call(run, "modules", "fp32", {}, {"values": values, "index": index})


def _call(
    run: Run, task: str, precision: str, options: dict[str, Any], left: dict[str, Path]
) -> dict[str, Any]:
    if importlib.util.find_spec("torch") is None:
        raise ToolMissing("PyTorch is not installed", fix="pip install 'layerline[model]'")
    run.file("captures").mkdir(parents=True, exist_ok=True)
    job = {
        "task": task,
        "precision": precision,
        "model": str(run.file("export", "model.json")),
        "options": options,
        "files": {k: str(v) for k, v in left.items()},
    }
    with progress(f"{task} {precision}"):
        facts: dict[str, Any] = launch.call(WORKER, job)["facts"]
    return facts
