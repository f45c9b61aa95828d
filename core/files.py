"""Files that are whole or not there: atomic writes, hashes, the lock for measuring."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from .errors import InputError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it onto `path` when the block succeeds.

    The suffix is kept, so that writers which look at it behave. On any failure, a full disk
    included, the temporary file goes and `path` is what it was before. InputError names `path`
    where it is a folder or a device, or cannot be written.
    """
    writable(path)
    folder(path.parent)
    temporary = path.with_name(f".{os.getpid()}.partial.{path.name}")
    try:
        with written(path, temporary):
            yield temporary
            temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def workspace(path: Path) -> Iterator[Path]:
    """A folder beside `path` for files that are not valid yet; it goes with all that is left in it,
    and with other leftovers should this process die."""
    place = path.with_name(f".{os.getpid()}.partial.{path.name}")
    place.mkdir(parents=True)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


_LITTLE = 100_000  # bytes; what failed for want of room has not left more
# A full disk, quota or limit: only writing meets these.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def written(path: Path, temporary: Path, fix: str = "name another place") -> Iterator[None]:
    """InputError, about `path`, for what goes wrong in writing `temporary`, a file or a folder that
    is to become it. Other errors pass."""
    try:
        yield
    except OSError as e:
        # Of the file itself, or of writing to what is open (a full disk names no file).
        if e.filename is None:
            ours = e.errno in (*NO_ROOM, errno.EIO)
        else:
            ours = Path(os.fsdecode(e.filename)).is_relative_to(temporary)
        if not ours:
            raise
        why = e.strerror if e.errno is None else os.strerror(e.errno)
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            fix = f"free space, or {fix}"
        raise InputError(f"cannot be written ({why})", file=path, fix=fix) from None


def full(*folders: Path) -> InputError | None:
    """What to say where the disk of one of these folders has no room left; None where all have."""
    for place in folders:
        if shutil.disk_usage(place).free < _LITTLE:
            fix = "free space, or name another place (TMPDIR is that of temporary files)"
            return InputError("there is no space left on its disk", file=place, fix=fix)
    return None


def writable(path: Path) -> None:
    """InputError where `path` cannot be a file of ours: a folder, or a device, pipe or socket,
    which a rename would replace."""
    if path.is_dir():
        raise InputError("is a folder, not a file to write", file=path, fix="name a file in it")
    special = path.exists() and not path.is_file()
    if special or path.absolute().parent == Path("/dev") or path.absolute().is_relative_to("/proc"):
        raise InputError("is no regular file", file=path, fix="name a file to write")


def folder(path: Path) -> Path:
    """Make a folder and those above it. InputError where a file is in the way or it may not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        taken = next((p for p in (path, *path.parents) if p.exists() and not p.is_dir()), path)
        raise InputError(
            "is a file where a folder is needed", file=taken, fix="name another place, or move it"
        ) from None
    except OSError as e:
        raise InputError(
            f"this folder cannot be made ({e.strerror})", file=path, fix="name another place"
        ) from None
    return path


def apart(output: Path | None, *inputs: Path | None) -> None:
    """InputError where `output` is one of the files that are read: it would be lost."""
    for path in inputs:
        if output and path and path.exists() and output.exists() and path.samefile(output):
            raise InputError("is to be read and written", file=output, fix="name another output")


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file; a pipe, socket, device or directory is refused without waiting."""
    try:
        # Without O_NONBLOCK opening a pipe that nobody writes to would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InputError("no such file", file=path) from None
    except (OSError, ValueError) as e:
        why = e.strerror if isinstance(e, OSError) else str(e)
        if isinstance(e, OSError) and _is_socket(path):
            why = "it is a socket"
        raise InputError(f"cannot be read ({why})", file=path) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise InputError("is a directory", file=path, fix="name a file")
    what = "a pipe" if stat.S_ISFIFO(mode) else "a device"
    raise InputError(f"is {what}, not a file", file=path, fix="save it to a file first")


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def listing(path: Path) -> list[Path]:
    """What a folder holds, by name; nothing where there is none. InputError where it cannot be
    read, or is no folder."""
    if not path.exists() and not path.is_symlink():
        return []
    try:
        return sorted(path.iterdir())
    except OSError as e:
        raise InputError(
            f"this folder cannot be read ({e.strerror})",
            file=path,
            fix="copy it again, or change its permissions",
        ) from None


def is_text(path: Path) -> bool:
    """Whether a path's name can be written down: a name of Linux is any bytes."""
    try:
        path.name.encode()
    except UnicodeEncodeError:
        return False
    return True


def at_most(file: IO[bytes], most: int) -> bytes | None:
    """A whole regular file; None where it has more than `most` bytes, of which none is read. Nor is
    more memory asked for than the file needs, as `read(most)` would."""
    size = os.fstat(file.fileno()).st_size
    return None if size > most else file.read(size + 1)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, whole or not at all. NaN and infinity are refused (ValueError)."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


MOST_JSON = 512 << 20  # bytes of a file that is read whole


def read_json(path: Path, *, finite: bool = True, fix: str = "make it again") -> Any:
    """Read JSON; InputError says which file is missing, not text, or not JSON, and to `fix` it.

    `finite`: NaN and Infinity, which are no JSON but which Python writes, are refused.
    """
    try:
        with open_regular(path) as file:
            data = at_most(file, MOST_JSON)
        if data is None:
            what = f"is JSON of more than {MOST_JSON >> 20} MiB"
            raise InputError(what, file=path, fix="is it another file?")
        text = _text(data, path)
        return _parsed(text) if finite else json.loads(text)
    except OSError as e:
        raise InputError(f"cannot be read ({e.strerror})", file=path) from None
    except (ValueError, RecursionError) as e:  # also of a number with thousands of digits
        why = e if data else "it is empty"
        raise InputError(f"is not JSON ({why})", file=path, fix=fix) from None


# RFC 1952, and the formats' own documentation.
_COMPRESSED = ((b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ\x00", "xz"),
               (b"\x28\xb5\x2f\xfd", "zstd"))  # fmt: skip


def _text(data: bytes, path: Path) -> str:
    kind = next((name for magic, name in _COMPRESSED if data.startswith(magic)), None)
    if kind is not None:
        raise InputError(f"is compressed ({kind})", file=path, fix="decompress it")
    return data.decode("utf-8")


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        # Python's own parser says better what is wrong. It also takes control characters in
        # strings: TensorRT's inspector writes the separators of a layer's metadata as they are.
        value = json.loads(text, parse_constant=_no_number, strict=False)
    try:
        return msgspec.json.decode(json.dumps(value, ensure_ascii=False))
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise ValueError("half of a Unicode character, or a number that is too large") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} in it is no number")


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def sha256_of(value: Any) -> str:
    """Hexadecimal SHA-256 of a JSON value, independent of key order."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


_holding: list[str] = []
LOCK_PATH = Path(tempfile.gettempdir()) / "layerline-machine.lock"
WAITED_S = (30.0, 600.0)  # how long is waited is said after this, then after twice that, at most


@contextlib.contextmanager
def machine_lock(why: str) -> Iterator[None]:
    """Hold the machine's one lock: nothing is built or measured beside a measurement.

    `why` is written into the lock file, so that a waiting process can say what it waits for.
    The lock is the kernel's (flock): it goes when the process dies, also by kill -9. Who holds it
    may take it again.
    """
    if _holding:
        yield
        return
    descriptor = os.open(LOCK_PATH, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, 0o666)  # other users of this machine share it
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with _waiting(descriptor):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{why}, process {os.getpid()}\n".encode(), 0)
        _holding.append(why)
        yield
    finally:
        _holding.clear()
        os.close(descriptor)


@contextlib.contextmanager
def _waiting(descriptor: int) -> Iterator[None]:
    """Says for whom the block waits, and, from time to time, for how long already."""
    from .cli.progress import log

    def whom() -> str:
        return os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "in use"

    def again() -> None:
        pause, most = WAITED_S
        while not over.wait(pause):
            seconds = time.monotonic() - began
            so_far = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
            log(f"still waiting for this machine ({whom()}), for {so_far} now")
            pause = min(2 * pause, most)

    began, over = time.monotonic(), threading.Event()
    log(f"waiting for this machine ({whom()})")
    thread = threading.Thread(target=again, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
