"""Files that are whole or not there: atomic writes, hashes, the lock for measuring."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import InputError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it onto `path` when the block succeeds.

    The suffix is kept, so that writers which look at it behave. On any failure, a full disk
    included, the temporary file goes and `path` is what it was before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}.partial.{path.name}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, whole or not at all. NaN and infinity are refused (ValueError)."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON; InputError says which file is missing, not text, or not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("no such file", file=path) from None
    except OSError as e:
        raise InputError(f"cannot be read ({e.strerror})", file=path) from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as e:
        raise InputError(f"is not JSON ({e})", file=path, fix="make it again") from None


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def sha256_of(value: Any) -> str:
    """Hexadecimal SHA-256 of a JSON value, independent of key order."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


LOCK_PATH = Path(tempfile.gettempdir()) / "layerline-machine.lock"


@contextlib.contextmanager
def machine_lock(why: str) -> Iterator[None]:
    """Hold the machine's one lock: nothing is built or measured beside a measurement.

    `why` is written into the lock file, so that a waiting process can say what it waits for.
    The lock is the kernel's (flock): it goes when the process dies, also by kill -9.
    """
    from .progress import log

    descriptor = os.open(LOCK_PATH, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, 0o666)  # other users of this machine share it
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            log(f"waiting for this machine ({holder or 'in use'})")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{why}, process {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
