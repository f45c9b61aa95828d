"""Which function scrubs a capture, by its content; what cannot be scrubbed, with the remedy.

Every text artefact of a run is scrubbed by one scrubber, so that names stay equal across files.
Models, engines, tensors and reports in NVIDIA's own formats are left out, each named.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from ...core.cli.progress import log
from ...core.errors import InputError
from ...core.files import is_text
from ..readers import registry
from ..readers.base import Head, read_head
from ..readers.ncu import report
from ..readers.nsys import parquet
from . import arrow, json_text, nsys_sqlite, pickles, text
from .scrubber import Scrubber

Rewrite = Callable[[Path, Path | None, Scrubber], None]

# torch's tensorboard handler names its files after the host.
_TORCH_NAME = re.compile(r"(.{1,200}?)_\d+\.\d{10,}\.pt\.trace\.json")
_LEFT_OUT = {
    suffix: why
    for why, suffixes in {
        "a model": ".onnx .pt .pt2 .pth",
        "a model's weights": ".data .safetensors .bin",
        "an engine, which holds the model's weights": ".engine .plan",
        "tensors": ".npz .npy",
        "cannot be scrubbed; its .sqlite is": ".nsys-rep",
        "cannot be scrubbed; write its table with `layerline read`": ".ncu-rep",
    }.items()
    for suffix in suffixes.split()
}
_MOST_FILES = 100_000


def rewriter(path: Path) -> Rewrite:
    """The function that rewrites a capture; InputError says why there is none and what to do."""
    head = read_head(path)
    if head.is_dir:
        if parquet.sniff(head):
            return arrow.rewrite_directory
        if "run.json" in head.entries or "manifests" in head.entries:
            return _rewrite_run
        raise InputError("is a directory of no known kind", file=path, fix="name a file in it")
    if is_environment(path):
        raise InputError(f"is {_ENVIRONMENT}", file=path, fix="leave it out")
    if rewrite := of_file(head):
        return rewrite
    registry.identify_head(head)  # raises, and names what it is
    raise InputError("cannot be scrubbed", file=path, fix="name a capture")


def of_file(head: Head) -> Rewrite | None:
    """The function for a file; None for binary data of other kinds. InputError for reports."""
    data = head.data
    if data.startswith(b"SQLite format 3\0") and head.compression is None:
        return nsys_sqlite.rewrite
    _refuse_reports(head)
    if data[:1] == b"\x80" and data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return pickles.rewrite
    if data.startswith((b"PAR1", b"ARROW1")) and head.compression is None:
        return arrow.rewrite
    start = head.stripped.lstrip("\ufeff")
    sample = start[:4096]
    odd = sum(1 for c in sample if not c.isprintable() and c not in "\r\n\t\f\b\x1b")
    if not start or "\0" in head.text or odd > len(sample) // 100:
        return None
    return json_text.rewrite if start.startswith(("{", "[")) else text.rewrite


def _refuse_reports(head: Head) -> None:
    """InputError for reports in NVIDIA's own formats, which cannot be rewritten."""
    name = head.path.name.lower()
    if head.data.startswith(b"NVIDIA Tegra Profiler Report") or name.endswith(
        (".nsys-rep", ".qdrep", ".qdstrm")
    ):
        raise InputError(
            "is an Nsight Systems report, which cannot be scrubbed",
            file=head.path,
            fix=f"export to sqlite first: nsys export --type sqlite {head.path.name}",
        )
    if report.sniff(head) or name.endswith(".ncu-rep"):
        raise InputError(
            "is an Nsight Compute report, which cannot be scrubbed",
            file=head.path,
            fix=f"write its table instead: ncu --import {head.path.name} --csv --page raw > "
            f"FILE.csv, or layerline read {head.path.name} -o FILE.csv",
        )


def learn_from_name(path: Path, scrubber: Scrubber) -> None:
    """The host that a file is named after, by Layerline or by torch's tensorboard handler."""
    scrubber.learned.from_text(path.name)
    match = _TORCH_NAME.match(path.name)
    if match is not None:
        scrubber.learned.learn("host", match[1])


def _rewrite_run(path: Path, out: Path | None, scrubber: Scrubber) -> None:
    """Learn from every file (`out` None), or write the copy. What is left out is noted in
    `scrubber.left_out`, and logged with the reason when the copy is written."""
    for seen, (folder, folders, files) in enumerate(os.walk(path, followlinks=False)):
        if seen > _MOST_FILES:
            raise InputError("has too many directories for a run", file=path)
        here = Path(folder)
        target = None if out is None else out / here.relative_to(path)
        if target is not None:
            target.mkdir(parents=True, exist_ok=True)
        for name in sorted(folders):
            inner = here / name
            if inner.is_symlink():
                folders.remove(name)
                _left_out(inner, path, "a link", out, scrubber)
            elif parquet.sniff(read_head(inner)):
                folders.remove(name)
                arrow.rewrite_directory(inner, None if target is None else target / name, scrubber)
        folders.sort()
        for name in sorted(files):
            _file(here / name, path, target, scrubber)


def _file(file: Path, root: Path, target: Path | None, scrubber: Scrubber) -> None:
    rewriter = _of_file_in_run(file)
    if isinstance(rewriter, str):
        _left_out(file, root, rewriter, target, scrubber)
        return
    learn_from_name(file, scrubber)
    name = file.name if scrubber.learning else scrubber.cell(file.name, "file names")
    rewriter(file, None if target is None else target / name, scrubber)


def _of_file_in_run(file: Path) -> Rewrite | str:
    """The function for a file of a run, or why there is none."""
    if file.is_symlink():
        return "a link"
    if not is_text(file):
        return "a name that is not UTF-8"
    if is_environment(file):
        return _ENVIRONMENT
    if why := _LEFT_OUT.get(file.suffix.lower()):
        return why
    if ".partial." in file.name:
        return "a half file of another process"
    if not file.is_file() or file.stat().st_size == 0:
        return "empty, or no file"
    try:
        return of_file(read_head(file)) or "binary data of no known kind"
    except InputError as e:
        return e.what


_ENVIRONMENT = "an environment, of which nothing is a result"


def is_environment(file: Path) -> bool:
    """Whether a file holds variables of an environment, as tools and people name it."""
    return file.name == ".env" or file.name.startswith(".env.") or file.suffix == ".env"


def _left_out(file: Path, root: Path, why: str, out: Path | None, scrubber: Scrubber) -> None:
    scrubber.left_out.add(file)
    if out is not None:
        log(f"left out {file.relative_to(root)}: {why}")
