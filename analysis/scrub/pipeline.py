"""From a capture to its scrubbed copy: learn, replace, check the result, and only then keep it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ...core.errors import CheckFailed, InputError
from ...core.files import folder, replacing, written
from . import kinds, rescan
from .learned import Numbers
from .scrubber import Scrubber

Found = Counter[tuple[str, str]]


def scrub(
    path: Path,
    output: Path | None,
    *,
    in_place: bool = False,
    into: Path | None = None,
    numbers: Numbers | None = None,
) -> tuple[Path, Found]:
    """Write the scrubbed copy of `path`; gives where it is and what was found, by place and kind.

    `output` None: `into` that folder, under its name; without one beside the input, as
    NAME.scrubbed.EXT. A user or host in the name is replaced. `numbers`: of the captures that are
    scrubbed together, whose hosts stay apart. CheckFailed, and no output, where something is still
    found in what was written; InputError for what cannot be scrubbed. Unless all of it succeeded a
    capture that was to be replaced (`in_place`) is what it was.
    """
    rewrite = kinds.rewriter(path)
    if in_place or path.name in ("", ".."):
        path = path.resolve()  # the capture itself, not a link to it; the folder one is in by name
    # Before a long capture is read.
    _may_be_written(path if in_place else output or (into or path.parent) / path.name)
    scrubber = _learned(rewrite, path, numbers)
    if in_place and path.is_file() and scrubber.cell(path.name, "file names") != path.name:
        raise InputError(
            "has a host or user in its name, which would stay",
            file=path,
            fix="write a copy: -o FOLDER",
        )
    target = path if in_place else output or default_output(path, scrubber, into)
    if not in_place and target.exists() and target.samefile(path):
        raise InputError(
            "is to be read and written", file=target, fix="name another, or --in-place"
        )
    if path.is_dir() and not in_place and target.resolve().is_relative_to(path.resolve()):
        raise InputError(
            f"lies in {path}, which is to be copied", file=target, fix="name a place outside of it"
        )
    with _directory(target, in_place) if path.is_dir() else replacing(target) as temporary:
        _write(rewrite, path, temporary, scrubber)
    return target, scrubber.found


def check(path: Path) -> tuple[Found, int]:
    """What a file or directory holds that scrubbing would remove, by place and kind, and how many
    files were not searched, because no scrubbed copy of the run would hold them."""
    rewrite = kinds.rewriter(path)
    scrubber = _learned(rewrite, path)
    with tempfile.TemporaryDirectory(prefix="layerline-scrub-") as name:
        scratch = Path(name)
        with written(scratch.parent, scratch, "name a larger folder with TMPDIR"):
            rewrite(path, scratch / "copy", scrubber)
    counts = scrubber.found
    if not counts:
        left = rescan.scan(path, skipped=scrubber.left_out)
        counts.update({("anywhere in the file", kind): count for kind, count in left.items()})
    return counts, len(scrubber.left_out)


def _learned(rewrite: kinds.Rewrite, path: Path, numbers: Numbers | None = None) -> Scrubber:
    scrubber = Scrubber(numbers)
    kinds.learn_from_name(path, scrubber)
    rewrite(path, None, scrubber)
    scrubber.start_replacing()
    return scrubber


def default_output(path: Path, scrubber: Scrubber, into: Path | None) -> Path:
    """The file's name in a folder, or NAME.scrubbed.EXT beside the input; a user or host in the
    name is replaced."""
    name = scrubber.cell(path.name, "file names")
    if into is not None:
        target = into / name
        if name != path.name and target.exists():
            raise InputError(
                f"is there already, and may be of another host than {path.name}",
                file=target,
                fix="scrub the run as one, or into two folders",
            )
        return target
    if path.is_dir():
        return path.with_name(f"{name}.scrubbed")
    parts = name.split(".")
    at = max(1, len(parts) - (2 if parts[-1] in ("gz", "bz2", "xz", "zst") else 1))
    return path.with_name(".".join([*parts[:at], "scrubbed", *parts[at:]]))


def _may_be_written(target: Path) -> None:
    """InputError where the folder of `target` cannot be written to. Where no other place is named
    that is the capture's own, which may be somebody else's."""
    above = next(p for p in target.absolute().parents if p.exists())
    if above.is_dir() and not os.access(above, os.W_OK | os.X_OK):
        raise InputError(
            "this folder cannot be written to", file=above, fix="name another place with -o"
        )


def _write(rewrite: kinds.Rewrite, path: Path, out: Path, scrubber: Scrubber) -> None:
    rewrite(path, out, scrubber)
    left = rescan.scan(out, scrubber.learned.literals)
    if left:
        what = ", ".join(f"{kind} ({count})" for kind, count in sorted(left.items()))
        raise CheckFailed(
            f"the scrubbed copy still holds {what} and was not kept",
            file=path,
            fix="report this file's kind; share nothing of it until then",
        )


@contextlib.contextmanager
def _directory(target: Path, in_place: bool) -> Iterator[Path]:
    """As `replacing`, of a folder."""
    if target.exists() and not in_place:
        raise InputError("exists already", file=target, fix="name another, or remove it")
    folder(target.parent)
    temporary = target.with_name(f".{os.getpid()}.partial.{target.name}")
    try:
        with written(target, temporary):
            yield temporary
            if in_place:
                _replace(target, temporary)
            else:
                temporary.rename(target)
    finally:
        if temporary.exists():
            shutil.rmtree(temporary)


def _replace(target: Path, new: Path) -> None:
    """Put the folder `new` in the place of the folder `target`, which stays what and where it was
    if that fails: until it has succeeded nothing of it is removed.

    No file of a process that was killed is named as the original is meanwhile: those are removed.
    """
    old = target.with_name(f"{target.name}.{os.getpid()}.unscrubbed")
    try:
        target.rename(old)
        try:
            new.rename(target)
        except BaseException:  # an interrupt too
            _put_back(old, target)
            raise
    except OSError as e:
        raise InputError(
            f"cannot be replaced ({_why(e)}) and is as it was",
            file=target,
            fix="name another place with -o",
        ) from None
    try:
        shutil.rmtree(old)
    except OSError as e:
        raise InputError(
            f"is what {target.name} was before it was scrubbed, and could not be removed "
            f"({_why(e)})",
            file=old,
            fix=f"remove it; {target.name} is scrubbed",
        ) from None


def _put_back(old: Path, target: Path) -> None:
    try:
        old.rename(target)
    except OSError as e:
        raise InputError(
            f"could not be replaced, nor put back ({_why(e)}); it is {old}, as it was",
            file=target,
            fix="rename that",
        ) from None


def _why(error: OSError) -> str:
    return error.strerror or str(error)
