"""A whole run: every text artefact scrubbed by one scrubber, so that names stay equal across
files. Models, engines, tensors and reports in NVIDIA's own formats are left out, each named."""

from __future__ import annotations

import os
from pathlib import Path

from ...core.cli.progress import log
from ...core.errors import InputError
from ..readers.base import read_head
from ..readers.nsys import parquet
from . import arrow
from .kinds import learn_from_name, of_file
from .scrubber import Scrubber

_LEFT_OUT = {
    ".onnx": "a model",
    ".data": "a model's weights",
    ".safetensors": "a model's weights",
    ".pt": "a model",
    ".pth": "a model",
    ".bin": "a model's weights",
    ".engine": "an engine, which holds the model's weights",
    ".plan": "an engine, which holds the model's weights",
    ".npz": "tensors",
    ".npy": "tensors",
    ".nsys-rep": "cannot be scrubbed; its .sqlite is",
    ".ncu-rep": "cannot be scrubbed; write its table with `layerline read`",
}
_MOST_FILES = 100_000


def rewrite(path: Path, out: Path | None, scrubber: Scrubber) -> None:
    """Learn from every file (`out` null), or write the copy.

    What is left out is noted in `scrubber.left_out`, and logged with the reason, once, when the
    copy is written.
    """
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
    suffix = file.suffix.lower()
    why = "a link" if file.is_symlink() else _LEFT_OUT.get(suffix)
    if why is None and ".partial." in file.name:
        why = "a half file of another process"
    if why is None and (not file.is_file() or file.stat().st_size == 0):
        why = "empty, or no file"
    rewriter = None
    if why is None:
        try:
            rewriter = of_file(read_head(file))
        except InputError as e:
            why = e.what
        if rewriter is None and why is None:
            why = "binary data of no known kind"
    if why is not None or rewriter is None:
        _left_out(file, root, why or "", target, scrubber)
        return
    learn_from_name(file, scrubber)
    name = file.name if scrubber.learning else scrubber.cell(file.name, "file names")
    rewriter(file, None if target is None else target / name, scrubber)


def _left_out(file: Path, root: Path, why: str, out: Path | None, scrubber: Scrubber) -> None:
    scrubber.left_out.add(file)
    if out is not None:
        log(f"left out {file.relative_to(root)}: {why}")
