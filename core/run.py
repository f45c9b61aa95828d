"""The run directory: its paths, its steps, and what of it is still valid.

``runs/NAME/{export,engines,captures,tables,report}`` hold results, ``manifests/STEP.json`` what
each step was given and left. A step is valid when its manifest was written with the same options,
the same code, and inputs and outputs that have the recorded contents. Files whose size and
modification time are as recorded are not hashed again. ``run.json`` is assembled last.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from . import documents
from .cli.progress import log
from .errors import InputError
from .files import folder as make_folder
from .files import sha256, sha256_of, write_json
from .machine import versions

SCHEMA_VERSION = 1
_PARTIAL = re.compile(r"^\.(\d+)\.partial\b")


@dataclass(frozen=True)
class Run:
    """A run directory. `open_run` makes or checks it."""

    path: Path

    def file(self, *parts: str) -> Path:
        """A path inside the run directory, e.g. ``run.file("export", "fp32.onnx")``."""
        return self.path.joinpath(*parts)

    def relative(self, path: Path) -> str:
        """A file by its path in the run directory; of one elsewhere its whole path."""
        inside = path.is_relative_to(self.path)
        return path.relative_to(self.path).as_posix() if inside else str(path)

    @property
    def marker(self) -> Path:
        """The file that says of which form the directory is."""
        return self.file("manifests", "version.json")

    def check_version(self) -> None:
        """InputError where the directory says that it is of another form, or cannot be asked."""
        if not self.marker.exists():
            return
        version = documents.read(self.marker, documents.Version).schema_version
        if version != SCHEMA_VERSION:
            raise InputError(
                f"run directory of schema version {version}, this layerline knows {SCHEMA_VERSION}",
                file=self.path,
                fix="use the layerline that made it, or choose another RUN",
            )

    def manifests(self) -> dict[str, dict[str, Any]]:
        """Every step's manifest by step name, broken ones left out (their steps run again)."""
        return self.read_manifests()[0]

    def read_manifests(self) -> tuple[dict[str, dict[str, Any]], list[InputError]]:
        """Every step's manifest by step name, and what is wrong with each that is broken."""
        found, broken = {}, []
        root = self.file("manifests")
        for path in sorted(root.rglob("*.json")):
            if path == self.marker:
                continue
            try:
                one = documents.checked(path, documents.Manifest)
                found[path.relative_to(root).with_suffix("").as_posix()] = one
            except InputError as e:
                broken.append(e)
        return found, broken

    def manifest_path(self, step: str) -> Path:
        """Where the manifest of a step lies."""
        return self.file("manifests", f"{step}.json")

    def manifest(self, step: str) -> dict[str, Any] | None:
        """The manifest of the last complete run of a step; null where there is none, or a broken
        one."""
        try:
            return documents.checked(self.manifest_path(step), documents.Manifest)
        except InputError:
            return None


_LOCKED = "LAYERLINE_RUN_LOCK"
_locks: dict[Path, int] = {}


def _lock(path: Path) -> None:
    """Let one process tree at a time write to a run directory, until it ends (flock).

    Children are told by the environment that their parent holds the lock.
    """
    path = path.resolve()
    if path in _locks or os.environ.get(_LOCKED) == str(path):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log(f"waiting for another process that works in {path}")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    _locks[path] = descriptor
    os.environ[_LOCKED] = str(path)


def open_run(path: Path, *, create: bool = False) -> Run:
    """Open a run directory for writing; leftovers of dead processes are removed.

    Waits while another process works in it.

    Raises InputError when it is missing (and not `create`), is no directory, or was written by
    another schema version.
    """
    if path.exists() and not path.is_dir():
        raise InputError("is not a directory", file=path, fix="choose another RUN")
    if not path.exists() and not create:
        fix = f"layerline export {path} makes one"
        raise InputError("no such run directory", file=path, fix=fix)
    path.mkdir(parents=True, exist_ok=True)
    _lock(path)
    run = Run(path)
    if run.marker.exists():
        run.check_version()
    elif any(path.iterdir()) and (path / "run.json").exists():
        raise InputError(
            "run directory without a schema version",
            file=run.marker,
            fix=documents.Version.FIX,
        )
    elif create:
        write_json(run.marker, {"schema_version": SCHEMA_VERSION})
    _sweep(path)
    return run


def _sweep(root: Path) -> None:
    """Remove half files left by processes that no longer live."""
    if not (root / "manifests").exists():  # no run was made here: it may be any folder, of any size
        return
    for path in root.rglob(".*.partial*"):
        match = _PARTIAL.match(path.name)
        if match and not Path(f"/proc/{match.group(1)}").exists():
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def now() -> str:
    """The time in UTC, to the second, as files of a run say it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@cache
def code_hash(stage: str) -> str:
    """Hash of the Python sources of core/ and of `stage`: changed code makes results stale."""
    root = Path(__file__).resolve().parent.parent
    parts = {}
    for folder in ("core", stage):
        for path in sorted((root / folder).rglob("*.py")):
            parts[path.relative_to(root).as_posix()] = sha256(path)
    return sha256_of(parts)


@dataclass
class Step:
    """One step of a stage, e.g. ``engines/fp16.onnxruntime``; its first part is the stage.

    `options` is any JSON value that changes the result; `inputs` and `outputs` are paths inside
    the run directory or outside (an absolute path of the user's). Use::

        step = Step(run, "engines/fp16.onnxruntime", options, inputs, outputs)
        if not step.valid():
            with step.recording() as facts:
                ...  # write the outputs (through core.files.replacing)
                facts["build_seconds"] = 1.5
    """

    run: Run
    name: str
    options: dict[str, Any]
    inputs: Sequence[Path]
    outputs: Sequence[Path]
    facts: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def manifest_path(self) -> Path:
        """Where the manifest lies."""
        return self.run.manifest_path(self.name)

    def _key(self) -> dict[str, Any]:
        stage = self.name.split("/", maxsplit=1)[0]
        return {"options": sha256_of(self.options), "code": code_hash(stage)}

    def manifest(self) -> dict[str, Any] | None:
        """The manifest of the last complete run of this step, or null."""
        return self.run.manifest(self.name)

    def valid(self) -> bool:
        """Whether the outputs on disk are what this code makes of these inputs and options."""
        last = self.manifest()
        if last is None or last.get("key") != self._key():
            return False
        recorded = {"inputs": self.inputs, "outputs": self.outputs}
        for side, paths in recorded.items():
            files = last.get(side) or {}
            if set(files) != {self.run.relative(p) for p in paths}:
                return False
            if not all(unchanged(p, files[self.run.relative(p)] or {}) for p in paths):
                return False
        return True

    @contextlib.contextmanager
    def recording(self) -> Iterator[dict[str, Any]]:
        """Run the step: the old manifest goes first, the new one is written last."""
        make_folder(self.manifest_path.parent)
        try:
            self.manifest_path.unlink(missing_ok=True)
        except OSError as e:
            raise InputError(
                f"this run cannot be written to ({e.strerror})",
                file=self.run.path,
                fix="copy it to a folder of yours, or change its permissions",
            ) from None
        log(f"{self.name}")
        started, clock = datetime.datetime.now(datetime.UTC), time.perf_counter()
        for path in self.inputs:
            if not path.is_file():
                raise InputError(
                    "no such file", file=path, fix="run the stage before, or copy the whole run"
                )
        inputs = {self.run.relative(p): _fingerprint(p) for p in self.inputs}
        self.facts = {}
        yield self.facts
        write_json(
            self.manifest_path,
            {
                "schema_version": SCHEMA_VERSION,
                "step": self.name,
                "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
                "started": started.isoformat(timespec="seconds"),
                "seconds": round(time.perf_counter() - clock, 3),
                "key": self._key(),
                "options": self.options,
                "versions": versions(),
                "facts": self.facts,
                "inputs": inputs,
                "outputs": {self.run.relative(p): _fingerprint(p) for p in self.outputs},
            },
        )


def _fingerprint(path: Path) -> dict[str, Any]:
    status = path.stat()
    return {"sha256": sha256(path), "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def unchanged(path: Path, recorded: dict[str, Any]) -> bool:
    """Whether a file is as a manifest has it; hashed only where its time of change is another."""
    try:
        status = path.stat()
    except OSError:
        return False
    if status.st_size != recorded.get("size"):
        return False
    if status.st_mtime_ns == recorded.get("mtime_ns"):
        return True
    return sha256(path) == recorded.get("sha256")
