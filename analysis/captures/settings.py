"""How each side was measured, from the small JSON files beside the captures.

What no file says is null; `analysis.comparison.comparability` shows it as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.run import Run
from ..checks.precision import precision_run
from ..formatting import percent
from ..model.side import SideData, SideFacts
from ..rundir.files import optional

# A precision with less of the time than this is left out of "computed in".
NOTED_SHARE = 0.01


def collect(run: Run, sides: Sequence[SideData]) -> list[SideFacts]:
    """The facts of every side."""
    model = optional(run.file("export", "model.json"))
    manifests = run.manifests()
    found = []
    for side in sides:
        step = manifests.get(_step(side), {})
        facts = engine(run, side, model) if side.side == "engine" else eager(run, side, model)
        if facts["cpu"] is None:
            facts |= machine((step.get("facts") or {}).get("machine"))
        facts["layerline"] = (step.get("versions") or {}).get("layerline")
        facts["inputs"] = _inputs_hash(step)
        facts["model"] = facts["inputs"] or _inputs_hash(manifests.get("export/model", {}))
        found.append(SideFacts(side.key, side.label, side.side, facts))
    return found


def _step(side: SideData) -> str:
    if side.side == "engine":
        return f"profile/{side.precision}.{side.backend}.profile"
    task = "eager" if side.phase == "inference" else "train"
    return f"profile/{task}.{side.precision}"


def _inputs_hash(step: Mapping[str, Any]) -> str | None:
    """The tokens that the step was given: every export writes its own (null where it had none)."""
    for files in (step.get("inputs"), step.get("outputs")):
        entry = (files or {}).get("export/inputs.npz")
        if entry:
            return str(entry.get("sha256"))[:12]
    return None


def engine(run: Run, side: SideData, model: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of an engine: an inference graph, so never in train mode and without dropout."""
    name = f"{side.precision}.{side.backend}"
    latency = optional(run.file("captures", f"{name}.latency.json"))
    build = optional(run.file("engines", f"{name}.build.json"))
    facts = latency.get("facts") or {}
    options = build.get("options") or {}
    device = _device(side.backend, facts.get("providers") or build.get("providers"))
    card, sampled = _object(facts.get("device")), _object(facts.get("gpu"))
    return {
        "precision": side.precision,
        "compute": _compute(side.precision_run or precision_run(side.layers)),
        "tf32": _tf32(side, device),
        "device": device,
        "gpu": _gpu(device, card.get("name")),
        "threads": facts.get("threads") or options.get("threads"),
        "train_mode": False,
        "dropout": [],
        "gradients": False,
        "attention": model.get("attention"),
        "autocast": False,
        "weights": _stored(side.precision),
        "batch": model.get("batch"),
        "sequence": model.get("seq"),
        "random_weights": _random(model),
        **machine(latency.get("machine")),
        "driver": card.get("cuda_driver") if device != "cpu" else "none",
        "clocks": _object(sampled.get("sm_mhz")).get("median") if device != "cpu" else "none",
        "throttled": sampled.get("throttled"),
    }


def eager(run: Run, side: SideData, model: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of an eager capture, as its meta file has them."""
    task = "eager" if side.phase == "inference" else "train"
    meta = optional(run.file("captures", f"{task}.{side.precision}.meta.json"))
    latency = optional(run.file("captures", f"{task}.{side.precision}.latency.json"))
    device = meta.get("device")
    names = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    weights = meta.get("weights")
    return {
        **{
            k: meta.get(k)
            for k in (
                "tf32",
                "threads",
                "train_mode",
                "dropout",
                "gradients",
                "attention",
                "autocast",
                "batch",
                "sequence",
            )
        },
        "precision": side.precision,
        "compute": _compute(side.precision_run or {}),
        "device": device,
        "gpu": _gpu(device, meta.get("gpu") or meta.get("device_name")),
        "weights": None if weights is None else "+".join(names.get(w, w) for w in weights),
        "random_weights": _random(model),
        **machine(meta.get("machine") or latency.get("machine")),
        "driver": meta.get("cuda_driver") if device != "cpu" else "none",
        "clocks": meta.get("sm_mhz") if device != "cpu" else "none",
    }


def machine(state: Mapping[str, Any] | None) -> dict[str, Any]:
    """The machine when it was measured; `state` is {"before", "after"} or one state."""
    before = (state or {}).get("before", state) or {}
    return {
        "cpu": before.get("cpu"),
        "cpus": before.get("cpus_usable"),
        "governor": before.get("governor"),
        "mhz": before.get("mhz"),
        "load": before.get("load_1min"),
        "machine": before.get("machine") or _described(before),
    }


def _described(state: Mapping[str, Any]) -> str | None:
    """One machine in words, without its name: ``X, 16 CPUs, 128 GiB, Linux 6.8.0``."""
    cpus, memory = state.get("cpus"), state.get("memory_bytes")
    words = [
        state.get("cpu"),
        None if cpus is None else f"{cpus} CPUs",
        None if memory is None else f"{memory / 2**30:.0f} GiB",
        " ".join(str(state[k]) for k in ("system", "kernel") if state.get(k)),
    ]
    return ", ".join(str(w) for w in words if w) or None


def _tf32(side: SideData, device: str | None) -> bool | None:
    """CPUs have none. Engines for a GPU are built without it in fp32 alone; half ones leave it to
    the layers that they keep in float."""
    if device == "cpu":
        return False
    known = side.backend.startswith("tensorrt") or side.backend == "onnxruntime-cuda"
    return side.precision != "fp32" if known else None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _device(backend: str, providers: Sequence[str] | None) -> str | None:
    if backend.startswith("tensorrt"):
        return "cuda"
    if providers is None:
        return None
    return "cpu" if list(providers) == ["CPUExecutionProvider"] else "cuda"


def _gpu(device: str | None, name: Any) -> str | None:
    if device == "cpu":
        return "none"
    return None if name is None else str(name)


def _compute(shares: Mapping[str, float]) -> str | None:
    kept = {p: s for p, s in shares.items() if s >= NOTED_SHARE and p != "unknown"}
    if not kept:
        return None
    if len(kept) == 1:
        return next(iter(kept))
    return ", ".join(f"{p} {percent(s)}" for p, s in kept.items())


def _stored(precision: str) -> str:
    return "fp32" if precision == "tf32" else precision


def _random(model: Mapping[str, Any]) -> bool | None:
    return None if "weights" not in model else model["weights"] == "random"
