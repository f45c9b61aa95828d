"""The forms of the small JSON files of a run directory, by how their names end.

Only what is read is described; see `core.forms` for what null and absent mean. The stages that
write these files are the source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .files import read_json
from .forms import (
    Form,
    Misfit,
    amount,
    anything,
    check,
    count,
    each,
    entries,
    flag,
    misfit,
    named,
    number,
    share,
    text,
)

_STATE = {
    "cpu": text,
    "cpus": count,
    "cpus_usable": count,
    "governor": text,
    "mhz": amount,
    "load_1min": amount,
    "machine": text,
    "memory_bytes": count,
    "system": text,
    "kernel": text,
}
# {"before", "after"}, or one state.
MACHINE = entries({"before": entries(_STATE), "after": entries(_STATE), **_STATE})
_SAMPLED = entries({"median": amount})
_GPU = entries(
    {
        "samples": count,
        "sm_mhz": _SAMPLED,
        "memory_mhz": _SAMPLED,
        "power_mw": _SAMPLED,
        "celsius": _SAMPLED,
        "throttled": named(share),
    }
)
_DEVICE = entries(
    {
        "name": text,
        "cuda_driver": text,
        **dict.fromkeys(
            (
                "capability_major",
                "capability_minor",
                "multiprocessors",
                "clock_khz",
                "memory_clock_khz",
                "memory_bus_bits",
                "l2_bytes",
            ),
            count,
        ),
    }
)


def _pair(value: Any, where: str) -> None:
    each(count)(value, where)
    if len(value) != 2:
        raise misfit(where, value, "two readings")


_FACTS = entries(
    {
        "gpu": _GPU,
        "device": _DEVICE,
        "providers": each(text),
        "threads": count,
        "throughput_per_second": amount,
        "cuda_graph": flag,
        "queued": flag,
        "warmup_runs": count,
        "runs_before": count,
        "profiling_start_ns": count,
        "clock_readings": each(_pair),
    }
)
_PROCESS = entries({"n": count, "queued_n": count}, needed=("n",))
_MEASURED = entries(
    {
        **dict.fromkeys(("precision", "backend"), text),
        **dict.fromkeys(("parameters", "batch", "sequence"), count),
        "source": text,
        "profile": text,
        "command": each(text),
        "latency_ns": each(count),
        "queued_ns": each(count),
        "phases_ns": named(each(count)),
        "processes": each(_PROCESS),
        "summary": entries({"n": count}),
        "target": amount,
        "machine": MACHINE,
        "facts": _FACTS,
    }
)


def measured(value: Any, where: str) -> None:
    """A latency.json, or what lies beside a capture of an engine."""
    _MEASURED(value, where)
    samples = value.get("latency_ns")
    told = (value.get("summary") or {}).get("n")
    if samples is not None and told is not None and len(samples) != told:
        raise Misfit(f"latency_ns has {len(samples)} samples, its summary {told}")
    for name, size in (("latency_ns", "n"), ("queued_ns", "queued_n")):
        sizes = [p.get(size) for p in value.get("processes") or ()]
        taken = value.get(name) or ()
        if taken and sizes and (None in sizes or sum(sizes) != len(taken)):
            told = " + ".join("?" if n is None else str(n) for n in sizes)
            raise Misfit(f"{name} has {len(taken)} samples, its processes {told}")


EAGER = entries(
    {
        "precision": text,
        "task": text,
        "training": flag,
        "parameters": count,
        "trace": text,
        "source": text,
        "command": each(text),
        "device": text,
        "gpu": text,
        "device_name": text,
        "cuda_driver": text,
        "attention": text,
        "sm_mhz": amount,
        "batch": count,
        "sequence": count,
        "threads": count,
        "tf32": flag,
        "autocast": flag,
        "gradients": flag,
        "train_mode": flag,
        "dropout": each(number),
        "weights": each(text),
        "modules": named(text),
        "traced_phases_ns": named(each(count)),
        "machine": MACHINE,
    }
)
_NCU = entries({"clock_control": text, "inputs": named(text), "reports": each(text)})
_ACCURACY = entries(
    {
        "max_abs": amount,
        "max_rel": amount,
        "cosine": number,
        "top1": share,
        "reference": text,
        "random_weights": flag,
    }
)
_BUILD = entries(
    {
        "source": text,
        "providers": each(text),
        "on_cpu": named(text),
        "options": entries({"threads": count}),
    }
)
_NODE = {"name": text, "op": text, "module": text}
_LAYERS = entries(
    {
        "layers": each(
            entries(
                {
                    **_NODE,
                    "occurrence": count,
                    "nodes": each(text),
                    "modules": each(text),
                    **dict.fromkeys(("rule", "kind", "compute_precision", "tactic"), text),
                    **dict.fromkeys(("precision_in", "precision_out"), anything),
                },
                needed=("name",),
            )
        ),
        "nodes": each(entries({**_NODE, "status": text, "layer": text}, needed=("name",))),
    },
    needed=("layers",),
)
_MODEL = entries(
    {
        **dict.fromkeys(("model", "source", "revision", "class", "task", "weights"), text),
        "attention": text,
        "batch": count,
        "seq": count,
        "seed": count,
        "parameters": count,
        "config": named(anything),
        "overrides": named(anything),
        "modules": each(entries({"path": text, "class": text}, needed=("path",))),
    }
)
_SUMMARY = entries(dict.fromkeys(("n", "median", "low", "high", "p90", "p99"), count))
_SWEEP = entries(
    {
        "points": each(
            entries(
                {
                    **dict.fromkeys(("backend", "precision", "source", "clock", "ended_by"), text),
                    "summary": _SUMMARY,
                    "batch": count,
                    "sequence": count,
                    "throughput_per_second": amount,
                    "relative_width": amount,
                    "target": amount,
                    "memory": named(amount),
                },
                needed=("backend", "precision", "batch", "sequence"),
            )
        ),
        "skipped": each(named(text)),
    },
    needed=("points",),
)
_COST = entries(
    {"own_ns": amount, "own_low_ns": amount, "own_high_ns": amount, "shared_ns": amount}
)
_FIGURES = entries(
    {
        "key": text,
        "latency_median_ns": amount,
        "latency_low_ns": amount,
        "latency_high_ns": amount,
        "rebuild_noise": amount,
    },
    needed=("key",),
)
# report/summary.json, as far as two runs are compared by it.
SUMMARY = entries(
    {
        "engines": named(_FIGURES),
        "eager": named(_FIGURES),
        "modules": named(named(_COST)),
        "facts": named(anything),
    }
)
# captures/*.profile.json of TensorRT.
IPROFILER = entries(
    {"layers": each(text), "iterations": each(each(count))}, needed=("layers", "iterations")
)


def _skipped(value: Any, where: str) -> None:
    one = named(text)
    (each(one) if isinstance(value, list) else one)(value, where)


_FILES = named(entries({"sha256": text, "size": count, "mtime_ns": count}))
# manifests/STAGE/STEP.json.
MANIFEST = entries(
    {
        "step": text,
        "started": text,
        "seconds": amount,
        "command": each(text),
        "options": named(anything),
        "versions": named(text),
        "facts": entries({"skipped": _skipped, "machine": MACHINE}),
        "inputs": _FILES,
        "outputs": _FILES,
    }
)


def _onnxruntime_profile(value: Any, where: str) -> None:
    measured(value, where)
    if (value.get("facts") or {}).get("warmup_runs") is None:
        raise Misfit("facts.warmup_runs is missing: which runs were warm-up is not known")


def _trace(value: Any, where: str) -> None:
    measured(value, where)
    facts = value.get("facts") or {}
    if facts.get("clock_readings") and facts.get("runs_before") is None:
        raise Misfit("facts.runs_before is missing: which run is which is not known")


_MEASURE, _BUILD_AGAIN, _EXPORT = (
    "measure again (make profile)",
    "build the engine again (make engines)",
    "export the model again",
)
# The first that fits by how its name ends.
_BY_NAME: tuple[tuple[str, Form, str], ...] = (
    (".ncu.meta.json", _NCU, _MEASURE),
    (".onnxruntime.profile.meta.json", _onnxruntime_profile, _MEASURE),
    (".onnxruntime-cuda.profile.meta.json", _onnxruntime_profile, _MEASURE),
    (".trace.meta.json", _trace, _MEASURE),
    (".profile.meta.json", measured, _MEASURE),
    (".meta.json", EAGER, _MEASURE),
    (".latency.json", measured, _MEASURE),
    (".accuracy.json", _ACCURACY, _MEASURE),
    (".rebuild.json", entries({"relative_difference": amount}), _MEASURE),
    (".refused.json", entries({"why": text, "fix": text}), _MEASURE),
    (".build.json", _BUILD, _BUILD_AGAIN),
    (".layers.json", _LAYERS, _BUILD_AGAIN),
    ("sweep.json", _SWEEP, "sweep again"),
    ("model.json", _MODEL, _EXPORT),
)


def _numbers(value: Any, where: str) -> None:
    """Launches of a report by their number in it, which is a key and so text."""
    named(count)(value, where)
    for number_, index in value.items():
        if not number_.isdecimal() or index is None:
            raise misfit(f"{where}.{number_}", index, "a launch by its number")


# captures/*.ncu.plan.json.
PLAN = entries(
    {
        "launches": each(
            entries(
                {
                    **dict.fromkeys(("index", "key", "representative"), count),
                    **dict.fromkeys(("kernel", "function", "layer", "place"), text),
                    **dict.fromkeys(("grid", "block"), each(count)),
                    **dict.fromkeys(("registers", "static_shared", "dynamic_shared"), count),
                    "duration_ns": count,
                    "measured": flag,
                },
                needed=("index", "key", "kernel"),
            )
        ),
        "reports": named(_numbers),
        "chosen": each(count),
    },
    needed=("launches", "reports"),
)


def manifest(path: Path) -> dict[str, Any]:
    """A step's manifest. InputError where it is missing or of another form."""
    return _read(path, MANIFEST, "run its step again")


def read(path: Path) -> dict[str, Any]:
    """A JSON file of a run, of the form that its name asks for. InputError where it is missing,
    no object, or of another form."""
    form, fix = next(
        ((f, fix) for end, f, fix in _BY_NAME if path.name.endswith(end)),
        (entries({}), "make it again"),
    )
    return _read(path, form, fix)


def _read(path: Path, form: Form, fix: str) -> dict[str, Any]:
    found: dict[str, Any] = read_json(path)
    check(found, form, path, fix)
    return found
