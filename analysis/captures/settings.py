"""How each side was measured, from the small JSON files beside the captures.

What no file says is None; `analysis.comparison.comparability` shows it as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.documents import Build, Eager, Machine, MachineState, Measured, Model
from ...core.files import sha256_of
from ..formatting import percent
from ..model.comparison import Side
from ..model.side import SideFacts
from .captured import Captured
from .eager import DTYPES
from .files import INDUCTOR, EagerFiles, EngineFiles

# A precision with less of the time than this is left out of "computed in".
NOTED_SHARE = 0.01


def collect(
    captures: Sequence[Captured], manifests: Mapping[str, Mapping[str, Any]]
) -> list[SideFacts]:
    """The facts of every side; `manifests` by the names of steps."""
    rows = []
    for side, files in ((s.side, c.files) for c in captures for s in c.sides):
        step = manifests.get(_step(files), {})
        facts = engine(side, files) if isinstance(files, EngineFiles) else eager(side, files)
        facts["layerline"] = (step.get("versions") or {}).get("layerline")
        facts["inputs"] = _inputs_hash(step)
        facts["model"] = facts["inputs"] or _inputs_hash(manifests.get("export/model", {}))
        if isinstance(files, EagerFiles) and files.meta is not None:
            facts["model"] = facts["model"] or _trained(files.meta)
        rows.append(SideFacts(side.key, side.label, side.task, facts))
    return rows


def _step(files: EngineFiles | EagerFiles) -> str:
    if isinstance(files, EngineFiles):
        return f"profile/{files.name}.profile"
    return f"profile/{files.task}.{files.precision}"


def _inputs_hash(step: Mapping[str, Any]) -> str | None:
    """The tokens that the step was given: every export writes its own (null where it had none)."""
    for files in (step.get("inputs"), step.get("outputs")):
        entry = (files or {}).get("export/inputs.npz")
        if entry:
            return str(entry.get("sha256"))[:12]
    return None


def _trained(meta: Eager) -> str | None:
    """The model that a workload trained, wherever its files lie; None where it is of none."""
    if meta.workload is None or meta.trained is None:
        return None
    name = meta.trained.rpartition("/")[2]
    return sha256_of((name, meta.config, meta.overrides, meta.parameters))[:12]


def engine(side: Side, files: EngineFiles) -> dict[str, Any]:
    """Facts of an engine: an inference graph, so never in train mode and without dropout."""
    latency, build = files.latency or Measured(), files.build or Build()
    model, facts = files.model or Model(), latency.facts
    device = build.runs_on or _device(files.backend, facts.providers or build.providers)
    return {
        "precision": side.precision,
        "compute": _compute(side.precision_run),
        "tf32": _tf32(side, device),
        "device": device,
        "gpu": _gpu(device, facts.device.name),
        "threads": facts.threads or build.options.threads,
        "train_mode": False,
        "dropout": [],
        "gradients": False,
        "attention": model.attention,
        "autocast": False,
        "weights": _stored(side.precision),
        "batch": model.batch,
        "sequence": model.seq,
        "random_weights": model.random_weights,
        **machine(latency.machine),
        "driver": facts.device.cuda_driver if device != "cpu" else "none",
        "clocks": facts.gpu.sm_mhz.median if device != "cpu" else "none",
        "throttled": facts.gpu.throttled,
    }


_OF_EAGER = (
    "tf32", "threads", "train_mode", "dropout", "gradients", "attention", "autocast", "batch",
    "sequence",
)  # fmt: skip


def eager(side: Side, files: EagerFiles) -> dict[str, Any]:
    """Facts of an eager capture, as its meta file has them."""
    meta, latency = files.meta or Eager(), files.latency or Measured()
    weights = None if meta.weights is None else [DTYPES.get(w, w) for w in meta.weights]
    return {
        **{k: getattr(meta, k) for k in _OF_EAGER},
        "precision": side.precision,
        "compute": _compute(side.precision_run),
        "device": meta.device,
        "gpu": _gpu(meta.device, meta.gpu),
        "weights": None if weights is None else "+".join(weights),
        "random_weights": None if files.model is None else files.model.random_weights,
        **machine(meta.machine or latency.machine),
        "driver": meta.cuda_driver if meta.device != "cpu" else "none",
        "clocks": meta.sm_mhz if meta.device != "cpu" else "none",
    }


def machine(recorded: Machine | None) -> dict[str, Any]:
    """The machine when it was measured."""
    state = (recorded or Machine()).before or MachineState()
    return {
        "cpu": state.cpu,
        "cpus": state.cpus_usable,
        "governor": state.governor,
        "mhz": state.mhz,
        "load": state.load_1min,
        "machine": state.machine or _described(state),
    }


def _described(state: MachineState) -> str | None:
    """One machine in words, without its name: ``X, 16 CPUs, 128 GiB, Linux 6.8.0``."""
    cpus, memory = state.cpus, state.memory_bytes
    words = [
        state.cpu,
        None if cpus is None else f"{cpus} CPUs",
        None if memory is None else f"{memory / 2**30:.0f} GiB",
        " ".join(filter(None, (state.system, state.kernel))),
    ]
    return ", ".join(filter(None, words)) or None


def _tf32(side: Side, device: str | None) -> bool | None:
    """CPUs have none. Engines for a GPU are built without it in fp32 alone; half ones leave it to
    the layers that they keep in float."""
    if device == "cpu":
        return False
    known = side.backend.startswith("tensorrt") or side.backend in ("onnxruntime-cuda", INDUCTOR)
    return side.precision != "fp32" if known else None


def _device(backend: str, providers: Sequence[str] | None) -> str | None:
    if backend.startswith("tensorrt"):
        return "cuda"
    if providers is None:
        return None
    return "cpu" if list(providers) == ["CPUExecutionProvider"] else "cuda"


def _gpu(device: str | None, name: str | None) -> str | None:
    return "none" if device == "cpu" else name


def _compute(shares: Mapping[str, float]) -> str | None:
    kept = {p: s for p, s in shares.items() if s >= NOTED_SHARE and p != "unknown"}
    if not kept:
        return None
    if len(kept) == 1:
        return next(iter(kept))
    return ", ".join(f"{p} {percent(s)}" for p, s in kept.items())


def _stored(precision: str) -> str:
    return "fp32" if precision == "tf32" else precision
