"""JSON that nobody vouches for: bounded by size, number of values and depth."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ...core.errors import InputError
from .bounded import MIB, decode

MAX_JSON_BYTES = 512 * MIB
MAX_JSON_VALUES = 4_000_000  # a parsed value takes up to about 100 bytes


def parse_json(data: bytes, path: Path, *, values: int = MAX_JSON_VALUES) -> Any:
    """Parse one JSON document; InputError where it is not one, too deep or too wide.

    The number of values is bounded beforehand by counting separators, so memory stays bounded.
    """
    documents = parse_json_documents(data, path, values=values)
    if len(documents) != 1:
        raise InputError(
            f"holds {len(documents)} JSON documents one after the other", file=path, fix="split it"
        )
    return documents[0]


def parse_json_documents(
    data: bytes, path: Path, *, values: int = MAX_JSON_VALUES, unique_keys: bool = False
) -> list[Any]:
    """Parse JSON documents that follow one another, with white space or commas between them.

    TensorRT tools append to files that exist; a crashed writer leaves such files too. With
    `unique_keys` an object that has a key twice is an error, not silently the last value. Lone
    surrogates become U+FFFD, so that every string can be written again.
    """
    if len(data) > MAX_JSON_BYTES:
        raise InputError(f"is JSON of more than {MAX_JSON_BYTES // MIB} MiB", file=path)
    most = sum(data.count(c) for c in (b",", b"[", b"{")) + 1
    if most > values:
        raise InputError(f"is JSON of up to {most:,} values, {values:,} are read", file=path)
    text = _without_lone_surrogates(decode(data))
    decoder = json.JSONDecoder(object_pairs_hook=_unique if unique_keys else None)
    documents = []
    at = _skip(text, 0)
    try:
        while at < len(text):
            document, at = decoder.raw_decode(text, at)
            documents.append(document)
            at = _skip(text, at)
    except RecursionError:
        raise InputError("is JSON nested too deeply for any known kind", file=path) from None
    except json.JSONDecodeError as e:
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
    return _ESCAPE.sub(
        lambda m: "\\ufffd" if len(m[0]) == 6 else m[0],
        text,
    )


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,\x00\ufeff":
        at += 1
    return at
