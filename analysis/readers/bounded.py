"""Reading untrusted files: bytes, text and JSON of regular files, within bounds.

Decompression is bounded by size and by ratio, JSON by size, number of values and depth. Every
failure is one `InputError` line.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import os
import re
import zlib
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from ...core.errors import InputError
from ...core.files import open_regular

MIB = 1 << 20
MAX_BYTES = 4096 * MIB  # of any file, decompressed
MAX_RATIO = 200  # decompressed over compressed; real traces reach about 40
RATIO_FLOOR = 64 * MIB  # below this size no ratio is suspicious
MAX_JSON_BYTES = 256 * MIB  # read whole: as text of any script it takes four times as much
MAX_BEFORE_JSON = 64 * 1024  # characters
MAX_JSON_VALUES = 4_000_000  # a parsed value takes up to about 100 bytes

_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bz2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)


class _Bounded(io.RawIOBase):
    """A stream that stops with InputError beyond `limit` bytes or on damaged compression."""

    def __init__(self, inner: Any, raw: IO[bytes], path: Path, limit: int, ratio: bool) -> None:
        self._inner, self._raw, self._path = inner, raw, path
        self._limit, self._seen = limit, 0
        if ratio:
            size = os.fstat(raw.fileno()).st_size
            self._ratio_limit = max(RATIO_FLOOR, size * MAX_RATIO)
        else:
            self._ratio_limit = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._inner.read(len(buffer))
        except EOFError:
            raise InputError(
                "the compressed data ends early", file=self._path, fix="copy the file again"
            ) from None
        except (OSError, zlib.error, lzma.LZMAError, pa.ArrowException) as e:
            what = " ".join(str(e).split())
            raise InputError(f"cannot be read ({what})", file=self._path) from None
        self._seen += len(data)
        if self._seen > self._limit:
            raise InputError(
                f"holds more than {self._limit // MIB:,} MiB, too much to read whole",
                file=self._path,
                fix="capture fewer iterations",
            )
        if self._seen > self._ratio_limit:
            raise InputError(
                f"expands to more than {MAX_RATIO} times its size, which no capture does",
                file=self._path,
                fix="decompress it yourself if you trust it",
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
            self._raw.close()
        super().close()


def compression_of(data: bytes) -> str | None:
    """gzip, bz2, xz or zstd by the first bytes; None where it is none of them."""
    return next((name for magic, name in _MAGIC if data.startswith(magic)), None)


def _decompressor(raw: IO[bytes], compression: str | None) -> Any:
    if compression == "gzip":
        return gzip.GzipFile(fileobj=raw)
    if compression == "bz2":
        return bz2.BZ2File(raw)
    if compression == "xz":
        return lzma.LZMAFile(raw)
    if compression == "zstd":
        return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
    return raw


def open_bytes(path: Path, limit: int = MAX_BYTES) -> IO[bytes]:
    """Open a regular file for reading, decompressed by its content (gzip, bz2, xz, zstd).

    Reading beyond `limit` decompressed bytes, or beyond `MAX_RATIO` times the compressed size,
    raises InputError, as do damaged compression, pipes, devices, sockets and directories.
    """
    raw = open_regular(path)
    try:
        compression = compression_of(raw.read(8))
        raw.seek(0)
        inner = _decompressor(raw, compression)
        return io.BufferedReader(_Bounded(inner, raw, path, limit, compression is not None), MIB)
    except OSError as e:
        raw.close()
        raise InputError(f"cannot be read ({e.strerror or e})", file=path) from None
    except BaseException:
        raw.close()
        raise


def open_text(path: Path, limit: int = MAX_BYTES) -> IO[str]:
    """Open a file as text: decompressed, decoded as `decode` does, line ends as they are."""
    stream = open_bytes(path, limit)
    try:
        encoding = encoding_of(cast(io.BufferedReader, stream).peek(4096)[:4096])
    except BaseException:
        stream.close()
        raise
    errors = "replace" if encoding.startswith("utf-16") else _LATIN1
    return io.TextIOWrapper(stream, encoding=encoding, errors=errors, newline="")


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The whole file, decompressed; bounded as `open_bytes` is."""
    with open_bytes(path, limit) as stream:
        return stream.read()


# --- text: UTF-8, UTF-16, single Latin-1 bytes ----------------------------------------------------


def _bytes_as_latin1(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("layerline_latin1", _bytes_as_latin1)
_LATIN1 = "layerline_latin1"


def encoding_of(data: bytes) -> str:
    """The encoding of text that begins with `data`: a byte order mark, or UTF-16 by its zeros.

    UTF-8 otherwise; bytes that are not UTF-8 are then taken as Latin-1 one by one (the error
    handler of `decode`), so that a lone Latin-1 micro sign does not spoil a UTF-8 file.
    """
    if data.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = data[:512]
    if len(sample) >= 4:
        even, odd = sample[0::2].count(0), sample[1::2].count(0)
        if odd > len(sample) * 0.4 and even == 0:
            return "utf-16-le"
        if even > len(sample) * 0.4 and odd == 0:
            return "utf-16-be"
    return "utf-8"


def decode(data: bytes) -> str:
    """`data` as text: UTF-8 with or without mark, UTF-16, Latin-1 bytes kept; never fails."""
    encoding = encoding_of(data)
    if encoding.startswith("utf-16"):
        return data.decode(encoding, errors="replace")
    return data.decode(encoding, errors=_LATIN1)


_LINE_END = re.compile(r"\r\n?|\n")


def lines(text: str) -> list[str]:
    """The lines of a text. `str.splitlines` also cuts at U+001E and its like, with which tools join
    names."""
    return _LINE_END.split(text)


def shown(value: Any) -> str:
    """A value of a file as an error quotes it: JSON, at most 40 characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = str(value)
    text = valid_text(text)
    return text if len(text) <= 40 else f"{text[:39]}…"


def valid_text(text: str) -> str:
    """`text` with lone surrogates replaced, so that any table and file can hold it."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


# --- JSON ---------------------------------------------------------------------------------------

# A line of a log: [I] …, [05/08/2024-14:05:14] [I] …, [TRT] …
LOG_LINE = re.compile(r"\[(?:\d\d/\d\d/\d{4}-|\d{4}-\d\d-\d\d|[A-Za-z][\w ]*\] )|&&&& ")
_JSON_LINE = re.compile(r'^[ \t]*(?=\{\s*["}]|\[\s*[\[{"\]]|"\s*[\[{])', re.MULTILINE)


def json_start(text: str) -> int:
    """Where the first JSON document begins: lines may stand before it (a prompt, a command, a log).
    Where none begins, the first character that is not white space."""
    at = _skip(text, 0)
    if text[at : at + 1] in ("{", "[", '"') and not LOG_LINE.match(text, at):
        return at
    if "\x00" in text[:MAX_BEFORE_JSON]:
        return at
    begins = _JSON_LINE.search(text, at, MAX_BEFORE_JSON)
    return begins.end() if begins else at


MAX_AFTER_JSON = 4 * 1024  # characters
_NO_JSON_LINE = re.compile(r'\s*\[[^\[\]{}"]*\][$#%>]\s*|[^\[\]{}"]*')


def after_json(text: str) -> bool:
    """Whether what follows a document is a prompt or a few lines of a log, and no piece of JSON."""
    return len(text) <= MAX_AFTER_JSON and all(
        LOG_LINE.match(line) or _NO_JSON_LINE.fullmatch(line) for line in lines(text)
    )


def parse_json(data: bytes, path: Path) -> Any:
    """Parse one JSON document; InputError where it is not one, too deep or too wide.

    The number of values is bounded beforehand by counting separators, so memory stays bounded.
    """
    documents = parse_json_documents(data, path)
    if len(documents) != 1:
        raise InputError(
            f"holds {len(documents)} JSON documents one after the other", file=path, fix="split it"
        )
    return documents[0]


def parse_json_documents(data: bytes, path: Path, *, unique_keys: bool = False) -> list[Any]:
    """Parse JSON documents that follow one another, with white space or commas between them.

    TensorRT tools append to files that exist; a crashed writer leaves such files too. With
    `unique_keys` an object that has a key twice is an error, not silently the last value. Lone
    surrogates become U+FFFD, so that every string can be written again.
    """
    if len(data) > MAX_JSON_BYTES:
        raise InputError(f"is JSON of more than {MAX_JSON_BYTES // MIB} MiB", file=path)
    most = sum(data.count(c) for c in (b",", b"[", b"{")) + 1
    if most > MAX_JSON_VALUES:
        what = f"is JSON of up to {most:,} values, {MAX_JSON_VALUES:,} are read"
        raise InputError(what, file=path)
    text = _without_lone_surrogates(decode(data))
    decoder = json.JSONDecoder(object_pairs_hook=_unique if unique_keys else None)
    documents = []
    at = json_start(text)
    try:
        while at < len(text):
            document, at = decoder.raw_decode(text, at)
            documents.append(document)
            at = _skip(text, at)
    except RecursionError:
        raise InputError("is JSON nested too deeply for any known kind", file=path) from None
    except json.JSONDecodeError as e:
        if documents and after_json(text[at:]):
            return documents
        where = f"line {e.lineno} column {e.colno}"
        whole = "" if not documents else f" after {len(documents)} whole documents"
        raise InputError(
            f"is not valid JSON: {e.msg} at {where}{whole}", file=path, fix="is it cut short?"
        ) from None
    except ValueError as e:  # an integer of more than 4300 digits
        raise InputError(f"is not usable JSON ({e})", file=path) from None
    if not documents:
        raise InputError("holds no JSON document", file=path)
    return documents


class _DuplicateKeyError(ValueError):
    """An object has a key twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _DuplicateKeyError(f"the key {twice!r} comes twice in one object")
    return members


_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\."
)


def _without_lone_surrogates(text: str) -> str:
    if "\\ud" not in text and "\\uD" not in text:
        return text
    return _ESCAPE.sub(lambda m: "\\ufffd" if len(m[0]) == 6 else m[0], text)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,\x00\ufeff":
        at += 1
    return at
