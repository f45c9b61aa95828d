"""Whether a file of a run is of what its name says, and of this run: by what it says of itself and
by what the steps recorded of the files that they left.

A capture of another precision or of another model is whole and of the right form, and its numbers
would be believed. What neither its own words nor the records decide `incomplete.unlike` names.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...core.capture_names import ENGINES, TORCH_TASKS, CaptureName
from ...core.errors import InputError
from ...core.files import read_json, sha256
from ...core.run import Run, unchanged
from ..readers.nsys.schema import META

_AGAIN = "copy the file of this name again from where it was made, or measure again"

_OLD = "measure again, or copy captures and engines of one run"

_EXPORT = "copy export/ again from where the run was made, or export again"

_CAPTURED = ("captures", "engines")

# Fields that name another file of the same capture.
_FILES = ("source", "trace", "profile", "engine")

# Of an eager capture, by the name in model.json.
_SIZES = {"parameters": "parameters", "batch": "batch", "sequence": "seq"}

# What steps record of their result and the file holds too: of another measurement they differ.
_FIGURES = (
    "summary", "max_abs", "max_rel", "cosine", "top1", "relative_difference", "engine_bytes",
)  # fmt: skip

# Captures that are never alike by chance: there are times in them, or what they are of.
_MEASURED = (
    ".latency.json", ".meta.json", ".profile.json", ".trace.json", ".accuracy.json",
    ".rebuild.json", ".gz", ".sqlite", ".csv", ".ncu-rep",
)  # fmt: skip


class Foreign(InputError):
    """A file of another precision, task or backend than its name says, or of another run."""


@dataclass(frozen=True)
class Records:
    """The manifests of a run's steps, and by file each step that left it with what it recorded."""

    steps: Mapping[str, Mapping[str, Any]]
    left: Mapping[str, Sequence[tuple[Mapping[str, Any], dict[str, Any]]]]

    def hashes(self, name: str) -> set[str]:
        """The contents that steps left in a file."""
        return {str(e["sha256"]) for _, e in self.left.get(name, ()) if e.get("sha256")}

    def changed(self, run: Run, name: str) -> bool:
        """Whether steps left this file, and none as it is."""
        entries = [e for _, e in self.left.get(name, ())]
        return bool(entries) and not any(unchanged(run.file(name), e) for e in entries)

    @property
    def options(self) -> Mapping[str, Any]:
        """What the run was exported with."""
        return (self.steps.get("export/model") or {}).get("options") or {}


def check(path: Path, document: Mapping[str, Any]) -> None:
    """Foreign where what a JSON file says of itself is not what its name says, or not of the run
    that it lies in."""
    own = CaptureName.parse(path) if path.parent.name in _CAPTURED else None
    if own is not None:
        _check_name(own, path, document)
    if (run := _run_of(path)) is None:
        return
    if path.parent.name == "export":
        _check_export(run, path, document)
    else:
        _check_model(run, path, document)
        _check_records(run, path, document)


def check_export(path: Path) -> None:
    """The same of a JSON file of the export that others read; nothing for one that is not there or
    is broken."""
    if path.is_file() and (run := _run_of(path)) is not None:
        status = path.stat()
        _check_export(run, path, _document(path, status.st_mtime_ns, status.st_size))


def check_raw(path: Path) -> None:
    """The same of a file that a profiler wrote: by the records, and by the name that nsys
    exported it from. Nothing for one that is not there."""
    run = _run_of(path)
    if run is None or not path.is_file():
        return
    own, report = CaptureName.parse(path), _exported_from(path)
    other = None if report is None else CaptureName.parse(report)
    if own is not None and other is not None and own.side != other.side:
        what = f"was exported from {report}, and its name says {own.words()}"
        raise Foreign(what, file=path, fix=_AGAIN)
    _check_records(run, path, None)


def _difference(
    document: Mapping[str, Any], expected: Mapping[str, Any]
) -> tuple[str, Any, Any] | None:
    """The first field in which a document is not as expected, with both values; what either does
    not know is no difference."""
    for field, value in expected.items():
        own = document.get(field)
        if own is not None and value is not None and own != value:
            return field, own, value
    return None


def _says(field: str, value: Any) -> str:
    return f'says of itself "{field}": {_quoted(value)}, and '


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def _check_name(own: CaptureName, path: Path, document: Mapping[str, Any]) -> None:
    """Foreign where a field says that the file is of something else than its name says."""
    expected: dict[str, Any] = {"precision": own.precision, "backend": own.backend or "torch"}
    expected |= {f: own.task for f in ("task", "what") if document.get(f) in TORCH_TASKS}
    expected["training"] = None if own.task == "engine" else own.task == "train"
    for field in _FILES:
        name = document.get(field)
        other = CaptureName.parse(name) if isinstance(name, str) else None
        if other is not None and other.side != own.side:
            expected[field] = path.name
    if (differs := _difference(document, expected)) is not None:
        field, value, _ = differs
        raise Foreign(_says(field, value) + f"its name {own.words()}", file=path, fix=_AGAIN)


def _check_export(run: Run, path: Path, document: Mapping[str, Any]) -> None:
    """Foreign where a file of the export has another model than the run was exported with. One
    that is as a step left it, or that no step left, is believed."""
    records = records_of(run)
    if not records.changed(run, path.relative_to(run.path).as_posix()):
        return
    differs = None
    if path.name == "model.json":
        differs = _difference(document, _exported_with(records, document))
    elif path.name.endswith("nodes.json"):
        name = records.options.get("model")
        if isinstance(name, str) and ("/" in name or "\\" in name):
            name = None  # files have a path as it was given, and records have it resolved
        differs = _difference(document, {"model": _model(run).get("model") or name})
    if differs is not None:
        field, value, recorded = differs
        what = _says(field, value) + f"this run was exported with {_quoted(recorded)}"
        raise Foreign(what, file=path, fix=_EXPORT)


def _exported_with(records: Records, model: Mapping[str, Any]) -> Mapping[str, Any]:
    """What model.json has to say. The name of a model that is not a built-in one may be a path,
    which is recorded resolved."""
    builtin = ("model",) if model.get("source") == "builtin" else ()
    shapes = (k for k in ("batch", "seq") if model.get(k) is not None)  # not every model has them
    return {k: records.options.get(k) for k in (*builtin, *shapes, "seed")}


def _check_model(run: Run, path: Path, document: Mapping[str, Any]) -> None:
    """Foreign where a file says another model, batch or sequence than the run was exported with,
    or other inputs."""
    model, sizes = _model(run), _SIZES
    if path.name == "sweep.json":
        sizes = {"model": "model"}
    elif not CaptureName.parse(path) or not path.name.endswith((".meta.json", ".latency.json")):
        return
    differs = _difference(document, {k: model.get(of_model) for k, of_model in sizes.items()})
    if differs is not None:
        field, value, known = differs
        what = (
            f"the model of this run has {_quoted(known)} (export/model.json): it is of another run"
        )
        raise Foreign(_says(field, value) + what, file=path, fix=_AGAIN)
    took = document.get("inputs")
    took = took.get("inputs.npz") if isinstance(took, dict) else None
    given = records_of(run).hashes("export/inputs.npz")
    if isinstance(took, str) and given and took not in given:
        what = "was taken with other inputs than export/inputs.npz of this run"
        raise Foreign(what, file=path, fix=_AGAIN)


def _check_records(run: Run, path: Path, document: Mapping[str, Any] | None) -> None:
    """Foreign where the records of the run's steps prove it. A file that is as a step left it needs
    no other proof than that the step took this run's engine."""
    records, name = records_of(run), path.relative_to(run.path).as_posix()
    left = records.left.get(name, ())
    if any(unchanged(path, entry) for _, entry in left):
        if not any(_took_this_engine(records, step) for step, _ in left):
            what = "is of another engine than this run's (built again since, or of another run)"
            raise Foreign(what, file=path, fix=_OLD)
        return
    if (other := _copied_from(records, path, name)) is not None:
        raise Foreign(f"has the contents of {other}", file=path, fix=_AGAIN)
    if document is None:
        return
    for step, _ in left:
        facts = step.get("facts") or {}
        differs = _difference(document, {f: facts.get(f) for f in _FIGURES})
        if differs is not None:
            field, value, recorded = differs
            what = f"has {_figure(field, value)}, and the step that left it recorded "
            what += f"{_figure(field, recorded)}: it is of another measurement"
            raise Foreign(what, file=path, fix=_AGAIN)
    _check_context(records, path, document)


def _figure(field: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"a median of {value.get('median')} ns over {value.get('n')}"
    return f"{field} {value}"


def _check_context(records: Records, path: Path, document: Mapping[str, Any]) -> None:
    """Foreign where an engine of TensorRT needs other memory than the run's own: that is a
    property of the engine on its GPU."""
    own = CaptureName.parse(path)
    if own is None or own.backend is None:
        return
    outputs = records.steps.get(f"profile/{own.side}.outputs") or {}
    facts, recorded = _facts(document), _facts(outputs.get("facts") or {})
    if _card(facts) != _card(recorded):
        return
    expected = {"context_bytes": recorded.get("context_bytes")}
    if (differs := _difference(facts, expected)) is not None:
        _, value, needed = differs
        what = f"says of itself context_bytes {value}, and this run's engine has {needed}"
        raise Foreign(f"{what}: it is of another engine", file=path, fix=_AGAIN)


def _facts(document: Mapping[str, Any]) -> Mapping[str, Any]:
    facts = document.get("facts")
    return facts if isinstance(facts, dict) else {}


def _card(facts: Mapping[str, Any]) -> Any:
    device = facts.get("device")
    return device.get("name") if isinstance(device, dict) else None


def _copied_from(records: Records, path: Path, name: str) -> str | None:
    """The other file of the run whose recorded contents this one has."""
    size, digest = path.stat().st_size, None
    if not size or path.parent.name != "captures" or not name.endswith(_MEASURED):
        return None
    for other, left in records.left.items():
        if Path(other).suffix != path.suffix or _side(other) == _side(name):
            continue
        for _, entry in left:
            if entry.get("size") == size:
                digest = digest or sha256(path)
                if entry.get("sha256") == digest:
                    return other
    return None


def _side(name: str) -> str | None:
    own = CaptureName.parse(name)
    return None if own is None else own.side


def _took_this_engine(records: Records, step: Mapping[str, Any]) -> bool:
    """Whether what a step took of an engine is what the engine's own step left, and whether what it
    took of other steps, the engine's outputs, was taken of that one; true where nothing says."""
    for name, entry in _inputs(step):
        makers = [s for s, e in records.left.get(name, ()) if e.get("sha256") == entry["sha256"]]
        if makers and not any(_took_left(records, maker) for maker in makers):
            return False
    return _took_left(records, step)


def _took_left(records: Records, step: Mapping[str, Any]) -> bool:
    for name, entry in _inputs(step):
        if Path(name).suffix in ENGINES and name.startswith("engines/"):
            left = records.hashes(name)
            if left and entry["sha256"] not in left:
                return False
    return True


def _inputs(step: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What a step took, with what it recorded of each, where it knows the contents."""
    for name, entry in (step.get("inputs") or {}).items():
        if (entry or {}).get("sha256") is not None:
            yield name, entry


def _exported_from(path: Path) -> str | None:
    """The name of the report that nsys exported a SQLite file from; null where it does not say."""
    if path.suffix != ".sqlite":
        return None
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
            for table in tables.intersection(META):
                query = f"SELECT value FROM {table} WHERE name = 'EXPORT_PARAM_INPUT_FILE'"
                row = database.execute(query).fetchone()
                if row is not None and isinstance(row[0], str):
                    return row[0].replace("\\", "/").rpartition("/")[2]
    except sqlite3.Error:
        return None  # who reads the operations says what is wrong with the file
    return None


def _run_of(path: Path) -> Run | None:
    return Run(path.parent.parent) if path.parent.name in (*_CAPTURED, "export") else None


def _model(run: Run) -> Mapping[str, Any]:
    """The run's model.json; empty where there is none, or it is of another run."""
    path = run.file("export", "model.json")
    try:
        status = path.stat()
    except OSError:
        return {}
    model, records = _document(path, status.st_mtime_ns, status.st_size), records_of(run)
    foreign = records.changed(run, "export/model.json") and _difference(
        model, _exported_with(records, model)
    )
    return {} if foreign else model


@lru_cache(maxsize=4)
def _document(path: Path, changed: int, size: int) -> Mapping[str, Any]:
    try:
        document = read_json(path)
    except InputError:
        return {}  # who needs it says so
    return document if isinstance(document, dict) else {}


def records_of(run: Run) -> Records:
    """What the steps of a run recorded of themselves. InputError where a record cannot be read."""
    files = sorted(run.file("manifests").glob("*/*.json"))
    return _read(run, tuple((f, s.st_mtime_ns, s.st_size) for f in files if (s := f.stat())))


@lru_cache(maxsize=4)
def _read(run: Run, states: tuple[tuple[Path, int, int], ...]) -> Records:
    """By what the files were when they were read: there are many questions of one run."""
    steps = run.manifests() if states else {}
    left: dict[str, list[tuple[Mapping[str, Any], dict[str, Any]]]] = defaultdict(list)
    for step in steps.values():
        for name, entry in (step.get("outputs") or {}).items():
            left[name].append((step, entry or {}))
    return Records(steps, left)
