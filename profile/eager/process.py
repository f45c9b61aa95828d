"""The eager model in inference or training: the worker that measures it, and what that leaves.

Leaves ``captures/{task}.{precision}.trace.json.gz`` (torch.profiler, with module ranges),
``.latency.json`` and ``.meta.json``; of inference also ``.outputs.npz`` (``{"logits": (batch,
sequence, vocabulary) float32}``, the reference that engines are compared with). `task` is
``eager`` or ``train``. This side loads no torch.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ...core.capture_names import CaptureName, Task
from ...core.cli.progress import progress
from ...core.errors import CheckFailed, ToolMissing, one_line
from ...core.files import read_json, write_json
from ...core.run import Run
from ...engines.launch import ERRORS

WORKER = (sys.executable, "-P", "-m", "layerline.profile.eager.worker")
# What a message calls the tasks, before the precision.
LABELS = {"eager": "eager", "train": "training in"}
PARTS = {
    "trace": ".trace.json.gz",
    "latency": ".latency.json",
    "meta": ".meta.json",
    "outputs": ".outputs.npz",
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
    """The files that `capture` leaves, by part; training leaves no outputs."""
    return {
        part: CaptureName(task, precision, suffix=suffix).path(run.file("captures"))
        for part, suffix in PARTS.items()
        if task == "eager" or part != "outputs"
    }


def capture(run: Run, task: Task, precision: str, options: dict[str, Any]) -> dict[str, Any]:
    """Measure and profile the model of ``export/model.json``; gives facts for the manifest.

    `options` (all optional): device, threads, seed, warmup, iterations {min, max}, target, seconds,
    profiled; of training also learning_rate. The caller holds the machine's lock. ToolMissing
    where it cannot run (`why_not` says so beforehand), LayerlineError where the worker failed: a
    crash (not enough memory, a fault of a library) is an error with the end of what the worker
    printed, and leaves no file behind.
    """
    reason = why_not(precision, options)
    if reason:
        raise ToolMissing(
            f"{LABELS[task]} {precision} is not run on this machine: {reason}",
            fix="use fp32 or a GPU",
        )
    if importlib.util.find_spec("torch") is None:
        raise ToolMissing("PyTorch is not installed", fix="pip install 'layerline[model]'")
    run.file("captures").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="layerline-") as folder:
        job = {
            "protocol": 1,
            "task": task,
            "precision": precision,
            "model": str(run.file("export", "model.json")),
            "options": options,
            "files": {k: str(v) for k, v in files(run, task, precision).items()},
            "result": str(Path(folder, "result.json")),
        }
        write_json(Path(folder, "job.json"), job)
        printed = Path(folder, "printed.txt")
        with printed.open("wb") as output, progress(f"{task} {precision}"):
            done = subprocess.run(
                [*WORKER, f"{folder}/job.json"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "KINETO_LOG_LEVEL": "4"},
                check=False,
            )
        result = Path(folder, "result.json")
        if done.returncode or not result.exists():
            lines = printed.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            how = f"signal {-done.returncode}" if done.returncode < 0 else f"{done.returncode}"
            raise CheckFailed(
                f"the {task} worker for {precision} ended with {how}: {one_line(lines[-1])[:300]}",
                file=run.file("export", "model.json"),
                fix="a smaller model, batch or sequence needs less memory"
                if done.returncode == -9
                else None,
            )
        answer: dict[str, Any] = read_json(result)
    if not answer["ok"]:
        error = answer["error"]
        raise ERRORS.get(error["exit_code"], CheckFailed)(
            error["what"], file=error["file"], fix=error["fix"]
        )
    facts: dict[str, Any] = answer["facts"]
    return facts
