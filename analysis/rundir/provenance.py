"""Whether a file of a run is of what its name says, and of this run: by what it says of itself and
by what the steps recorded of the files that they left.

A capture of another precision or of another model is whole and of the right form, and its numbers
would be believed. What neither its own words nor the records decide is left to `left_behind`.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...core.capture_names import CaptureName
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
    "summary",
    "max_abs",
    "max_rel",
    "cosine",
    "top1",
    "relative_difference",
    "engine_bytes",
)

# Captures that are never alike by chance: there are times in them, or what they are of.
_MEASURED = (
    ".latency.json",
    ".meta.json",
    ".profile.json",
    ".trace.json",
    ".accuracy.json",
    ".rebuild.json",
    ".gz",
    ".sqlite",
    ".csv",
    ".ncu-rep",
)


class Foreign(InputError):
    """A file of another precision, task or backend than its name says, or of another run."""


def check(path: Path, document: Mapping[str, Any]) -> None:
    """Foreign where what a JSON file says of itself is not what its name says, or not of the run
    that it lies in."""
    own = CaptureName.parse(path) if path.parent.name in _CAPTURED else None
    if own is not None:
        for field, said, is_so in _words(own, document):
            if not is_so:
                what = f'says of itself "{field}": {_quoted(said)}, and its name {own.words()}'
                raise Foreign(what, file=path, fix=_AGAIN)
    run = _run_of(path)
    if run is None:
        return
    if path.parent.name == "export":
        _of_this_export(run, path, document)
        return
    _of_this_model(run, path, document)
    _recorded(run, path, document)


def check_export(path: Path) -> None:
    """The same of a JSON file of the export that others read; nothing for one that is not there or
    is broken."""
    if path.is_file() and (run := _run_of(path)) is not None and _changed(run, path):
        status = path.stat()
        check(path, _document(path, status.st_mtime_ns, status.st_size))


def check_raw(path: Path) -> None:
    """The same of a file that a profiler wrote: by the records, and by the name that nsys
    exported it from. Nothing for one that is not there."""
    run = _run_of(path)
    if run is None or not path.is_file():
        return
    own, exported = CaptureName.parse(path), _exported_from(path)
    other = None if exported is None else CaptureName.parse(exported)
    if own is not None and other is not None and own.side != other.side:
        what = f"was exported from {exported}, and its name says {own.words()}"
        raise Foreign(what, file=path, fix=_AGAIN)
    _recorded(run, path, None)


def _words(own: CaptureName, document: Mapping[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Each field that says what the file is of, and whether that is what its name says."""
    for field, expected in (("precision", own.precision), ("backend", own.backend)):
        said = document.get(field)
        if isinstance(said, str):
            yield field, said, said == expected
    for field in ("task", "what"):
        said = document.get(field)
        if said in ("eager", "train"):
            yield field, said, said == own.task
    training = document.get("training")
    if isinstance(training, bool) and own.task != "engine":
        yield "training", training, training == (own.task == "train")
    for field in _FILES:
        said = document.get(field)
        other = CaptureName.parse(said) if isinstance(said, str) else None
        if other is not None:
            yield field, said, other.side == own.side


def _of_this_export(run: Run, path: Path, document: Mapping[str, Any]) -> None:
    """Foreign where a file of the export has another model than the run was exported with."""
    differs = None
    if path.name == "model.json":
        differs = _other_export(run, path, document)
    elif path.name.endswith("nodes.json") and _changed(run, path):
        said, known = document.get("model"), _model(run).get("model") or _exported(run)
        if said is not None and known is not None and said != known:
            differs = ("model", said, known)
    if differs is not None:
        field, said, known = differs
        what = f'says of itself "{field}": {_quoted(said)}, and this run was exported with '
        raise Foreign(what + _quoted(known), file=path, fix=_EXPORT)


def _other_export(run: Run, path: Path, document: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first option of the export that model.json contradicts: its name, what the file says and
    what was recorded. Null where there is none, or nothing was recorded."""
    options = (_manifests(run).get("export/model") or {}).get("options") or {}
    if not options or not _changed(run, path):
        return None
    # The name of another model than a built-in one may be a path, and is recorded resolved.
    builtin = document.get("source") == "builtin"
    for field in (*(("model",) if builtin else ()), "batch", "seq", "seed"):
        said, known = document.get(field), options.get(field)
        if said is not None and known is not None and said != known:
            return field, said, known
    return None


def _exported(run: Run) -> str | None:
    """The model that the run was exported with; null for a path, which files have as it was
    given, and records resolved."""
    name = ((_manifests(run).get("export/model") or {}).get("options") or {}).get("model")
    return name if isinstance(name, str) and "/" not in name and "\\" not in name else None


def _changed(run: Run, path: Path) -> bool:
    """Whether steps recorded this file, and none with its contents."""
    name = path.relative_to(run.path).as_posix()
    entries = [e for m in _manifests(run).values() if (e := (m.get("outputs") or {}).get(name))]
    return bool(entries) and not any(unchanged(path, e) for e in entries)


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def _of_this_model(run: Run, path: Path, document: Mapping[str, Any]) -> None:
    """Foreign where a file says another model, batch or sequence than the run was exported with."""
    model = _model(run)
    if path.name == "sweep.json":
        pairs = {"model": "model"}
    elif CaptureName.parse(path) and path.name.endswith((".meta.json", ".latency.json")):
        pairs = _SIZES
    else:
        return
    for field, of_model in pairs.items():
        said, known = document.get(field), model.get(of_model)
        if said is not None and known is not None and said != known:
            what = (
                f'says of itself "{field}": {_quoted(said)}, and the model of this run has '
                f"{_quoted(known)} (export/model.json)"
            )
            raise Foreign(f"{what}: it is of another run", file=path, fix=_AGAIN)
    took = document.get("inputs")
    took = took.get("inputs.npz") if isinstance(took, dict) else None
    given = _left(run, "export/inputs.npz")
    if isinstance(took, str) and given and took not in given:
        what = "was taken with other inputs than export/inputs.npz of this run"
        raise Foreign(what, file=path, fix=_AGAIN)


def _recorded(run: Run, path: Path, document: Mapping[str, Any] | None) -> None:
    """Foreign where the records of the run's steps prove it."""
    manifests = _manifests(run)
    name = path.relative_to(run.path).as_posix()
    of = [m for m in manifests.values() if name in (m.get("outputs") or {})]
    if any(unchanged(path, m["outputs"][name] or {}) for m in of):
        if not any(_of_this_engine(run, m) for m in of):
            what = "is of another engine than this run's (built again since, or of another run)"
            raise Foreign(what, file=path, fix=_OLD)
        return
    if (other := _copied(run, path, name)) is not None:
        raise Foreign(f"has the contents of {other}", file=path, fix=_AGAIN)
    if document is None:
        return
    for manifest in of:
        facts = manifest.get("facts") or {}
        for figure in _FIGURES:
            said, known = document.get(figure), facts.get(figure)
            if said is not None and known is not None and said != known:
                what = f"{_told(figure, said)}, and the step that left it recorded "
                what += f"{_told(figure, known)}: it is of another measurement"
                raise Foreign(f"has {what}", file=path, fix=_AGAIN)
    _context(run, path, document)


def _told(figure: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"a median of {value.get('median')} ns over {value.get('n')}"
    return f"{figure} {value}"


def _context(run: Run, path: Path, document: Mapping[str, Any]) -> None:
    """Foreign where an engine of TensorRT needs other memory than the run's own: that is a
    property of the engine on its GPU."""
    own, facts = CaptureName.parse(path), document.get("facts")
    if own is None or own.backend is None or not isinstance(facts, dict):
        return
    outputs = _manifests(run).get(f"profile/{own.precision}.{own.backend}.outputs") or {}
    recorded = (outputs.get("facts") or {}).get("facts")
    known = recorded if isinstance(recorded, dict) else {}
    said, other = facts.get("context_bytes"), known.get("context_bytes")
    if said is not None and other is not None and said != other and _card(facts) == _card(known):
        what = f"says of itself context_bytes {said}, and this run's engine has {other}"
        raise Foreign(f"{what}: it is of another engine", file=path, fix=_AGAIN)


def _card(facts: Mapping[str, Any]) -> Any:
    device = facts.get("device")
    return device.get("name") if isinstance(device, dict) else None


def _copied(run: Run, path: Path, name: str) -> str | None:
    """The other file of the run whose recorded contents this one has."""
    size, found = path.stat().st_size, None
    if not size or path.parent.name != "captures" or not name.endswith(_MEASURED):
        return None
    for manifest in _manifests(run).values():
        for other, entry in (manifest.get("outputs") or {}).items():
            like = other != name and Path(other).suffix == path.suffix
            if like and _side(other) != _side(name) and (entry or {}).get("size") == size:
                found = found or sha256(path)
                if entry.get("sha256") == found:
                    return str(other)
    return None


def _side(name: str) -> str | None:
    own = CaptureName.parse(name)
    return None if own is None else own.side


def _of_this_engine(run: Run, manifest: Mapping[str, Any]) -> bool:
    """Whether what a step took of an engine is what the engine's own step left; true where
    nothing tells."""
    for name, entry in (manifest.get("inputs") or {}).items():
        if Path(name).suffix in (".engine", ".onnx") and name.startswith("engines/"):
            left, took = _left(run, name), (entry or {}).get("sha256")
            if left and took is not None and took not in left:
                return False
    return True


def _left(run: Run, name: str) -> set[str]:
    """The contents that steps recorded of a file that they left."""
    entries = ((m.get("outputs") or {}).get(name) for m in _manifests(run).values())
    return {str(e["sha256"]) for e in entries if e and e.get("sha256")}


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
    found = _document(path, status.st_mtime_ns, status.st_size)
    return {} if _other_export(run, path, found) else found


@lru_cache(maxsize=4)
def _document(path: Path, changed: int, size: int) -> Mapping[str, Any]:
    try:
        found = read_json(path)
    except InputError:
        return {}  # who needs it says so
    return found if isinstance(found, dict) else {}


def _manifests(run: Run) -> Mapping[str, Mapping[str, Any]]:
    files = sorted(run.file("manifests").glob("*/*.json"))
    states = tuple((f, s.st_mtime_ns, s.st_size) for f in files if (s := f.stat()))
    return _parsed(run, states)


@lru_cache(maxsize=4)
def _parsed(run: Run, states: tuple[tuple[Path, int, int], ...]) -> Mapping[str, Any]:
    """By what the files were when they were read: there are many questions of one run."""
    return run.manifests() if states else {}


# What analysis reads. Engines, models and raw reports need not be copied with a run.
_READ = (".json", ".gz", ".sqlite", ".csv")

_FOLDERS = ("export/", "engines/", "captures/")

# How many files a report and a line on stderr name.
_NAMED, _SAID = 3, 12


def told(
    run: Run, already: Sequence[Mapping[str, Any]] = ()
) -> tuple[list[dict[str, str]], list[str]]:
    """What reports list of files that are gone or have other contents, without those that
    `already` lists; and the names of the latter."""
    recorded: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for manifest in run.manifests().values():
        for name, entry in (manifest.get("outputs") or {}).items():
            if name.startswith(_FOLDERS) and name.endswith(_READ):
                recorded[name].append(entry or {})
    known = " ".join(f"{s.get('what')} {s.get('why')}" for s in already)
    found = []
    gone = [n for n in sorted(recorded) if not _there(run, n) and n not in known]
    if gone:
        why = f"{_names(gone)}: left by a step of this run, and not there"
        fix = "copy the whole run, or run those steps again"
        found.append({"what": "what lost files held", "why": why, "fix": fix})
    other = [
        name
        for name, entries in sorted(recorded.items())
        if name not in known
        and run.file(name).exists()
        and not any(unchanged(run.file(name), e) for e in entries)
    ]
    if other:
        why = (
            f"{_names(other)}: not as a step of this run left it; scrubbed or changed since, or "
            "of another run"
        )
        fix = "unless you changed it, copy it again, or run that step again"
        found.append({"what": "whether files are this run's own", "why": why, "fix": fix})
    return found, other


def line(names: Sequence[str]) -> str:
    """What commands say of files with other contents, in one line."""
    more = len(names) - _SAID
    listed = ", ".join(names[:_SAID]) + (f" and {more} more" if more > 0 else "")
    return (
        f"not as a step of this run left {'it' if len(names) == 1 else 'them'}, and whether of "
        f"this run is unknown: {listed}; unless you scrubbed or changed the run, copy again"
    )


def _there(run: Run, name: str) -> bool:
    """Also where it was unpacked."""
    return run.file(name).exists() or run.file(name.removesuffix(".gz")).exists()


def _names(paths: Sequence[str]) -> str:
    more = len(paths) - _NAMED
    return ", ".join(paths[:_NAMED]) + (f" and {more} more" if more > 0 else "")
