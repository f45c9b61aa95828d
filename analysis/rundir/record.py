"""run.json: how everything in a run directory came to be, from the manifests of its steps.

``{"schema_version", "title", "model", "shapes", "seed", "steps": [...], "versions", "machine",
"facts", "files": {path: sha256}}``. `facts` is what must agree before two runs are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core import machine
from ...core.documents import Eager, Model, OfMachine
from ...core.files import sha256, sha256_of
from ...core.run import SCHEMA_VERSION, Run
from ..model.side import SideFacts
from .files import document
from .problems import Problems

_MODEL = (
    "model", "source", "location", "revision", "class", "task", "weights", "parameters",
    "attention", "overrides",
)  # fmt: skip
_NAMES = dict(zip(Model.__struct_encode_fields__, Model.__struct_fields__, strict=True))


def title(model: Model | None, trained: Iterable[Eager], run: Run) -> str:
    """``gpt2, 1×128``, ``resnet, batch 1``: of the export, else of what was trained; the
    directory's name where neither says it."""
    if model is not None:
        return _titled(model.model, model.batch, model.seq)
    names = dict.fromkeys(_titled(m.trained, m.batch, m.sequence) for m in trained if m.model)
    return " and ".join(names) or run.path.resolve().name


def _titled(name: str | None, batch: int | None, seq: int | None) -> str:
    name = str(name)
    code = name.rpartition(":")[0].endswith(".py")
    if code or name.startswith(("/", "./", "../")):  # of the user's: where it lies is no name
        name = name.rstrip("/").rpartition("/")[2]
    both = None not in (batch, seq)
    known = [(label, n) for label, n in (("batch", batch), ("seq", seq)) if n is not None]
    shapes = [f"{n}" if both else f"{label} {n}" for label, n in known]
    return ", ".join(filter(None, (name, "×".join(shapes))))


def assemble(
    run: Run, title: str, exported: Model | None, sides: Sequence[SideFacts], problems: Problems
) -> dict[str, Any]:
    """The record, without the hashes of what is still to be written (see `add_files`)."""
    model = _as_written(exported)
    steps = []
    files: dict[str, Any] = {}
    installed: dict[str, str] = {}
    for name, manifest in run.manifests().items():
        if "step" not in manifest or name.startswith("analysis/"):
            continue
        steps.append(
            {
                k: manifest.get(k)
                for k in ("step", "command", "started", "seconds", "options", "facts")
            }
        )
        installed |= manifest.get("versions") or {}
        files |= {p: f.get("sha256") for p, f in (manifest.get("outputs") or {}).items()}
    steps.sort(key=lambda s: (s["started"] or "", s["step"]))
    known = facts(model, sides, installed)
    trained = [(s["options"] or {}).get("request") or {} for s in steps]
    return {
        "schema_version": SCHEMA_VERSION,
        "title": title,
        "model": {k: model.get(k) for k in _MODEL} if model else None,
        "shapes": {"batch": known["batch"], "sequence": known["sequence"]},
        "seed": model.get("seed") if model else _common(t.get("seed") for t in trained),
        "steps": steps,
        "versions": installed,
        "machine": _machine(run, problems),
        "facts": known,
        "files": dict(sorted(files.items())),
    }


def _as_written(model: Model | None) -> dict[str, Any]:
    """model.json by its own names."""
    return {} if model is None else {k: getattr(model, f) for k, f in _NAMES.items()}


def _machine(run: Run, problems: Problems) -> dict[str, Any]:
    """The machine before the first measurement and after the last; None where none recorded it."""
    states = []
    for path in sorted(run.file("captures").glob("*.json")):
        if path.name.endswith((".latency.json", ".meta.json")):
            recorded = document(path, OfMachine, problems).get("machine")
            if recorded is not None:
                states.append((path.stat().st_mtime_ns, recorded))
    states.sort(key=lambda s: s[0])
    if not states:
        return {"before": None, "after": None, "report": machine.state()}
    first, last = states[0][1], states[-1][1]
    return {
        "before": first.get("before"),
        "after": last.get("after"),
        "report": machine.state(),
    }


def facts(
    model: Mapping[str, Any], sides: Sequence[SideFacts], installed: Mapping[str, str]
) -> dict[str, Any]:
    """What must or should agree before two runs are compared; see `analysis.comparison.runs`."""
    described = {k: model.get(k) for k in ("class", "config", "weights", "parameters", "seed")}
    # What was trained and never exported has its model and shapes in its captures alone.
    batch, sequence = (
        _common(s.facts.get(name) for s in sides) if model.get(of) is None else model[of]
        for name, of in (("batch", "batch"), ("sequence", "seq"))
    )
    return {
        "model": sha256_of(described)[:16]
        if model
        else _common(s.facts.get("model") for s in sides),
        "batch": batch,
        "sequence": sequence,
        "cpu": _common(s.facts.get("cpu") for s in sides),
        "cpus_usable": _common(s.facts.get("cpus") for s in sides),
        "gpu": _common(s.facts.get("gpu") for s in sides),
        "threads": _common(s.facts.get("threads") for s in sides),
        "governor": _common(s.facts.get("governor") for s in sides),
        "driver": _common(s.facts.get("driver") for s in sides),
        "versions": dict(installed),
    }


def _common(values: Iterable[Any]) -> Any:
    """The one value, a sorted list of several, None where no side knows."""
    known = sorted({v for v in values if v is not None}, key=str)
    return known[0] if len(known) == 1 else known or None


def add_files(record: dict[str, Any], run: Run, paths: Sequence[Path]) -> None:
    """Add the SHA-256 of files that were just written."""
    for path in paths:
        record["files"][path.relative_to(run.path).as_posix()] = sha256(path)
