"""JSON documents with one thing wrong: a value of another type, a key that is gone, half a file."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

Place = tuple[str | int, ...]

GONE = object()
VALUES: dict[str, Any] = {
    "null": None,
    "fraction": 1.5,
    "text": "text",
    "lone surrogate": "\ud800",
    "list": [],
    "list of lists": [[1]],
    "object": {},
    "negative": -5,
    "huge": 10**30,
    "true": True,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "gone": GONE,
}
FEW = 12  # of an object with more keys, those at either end stand for all


def places(document: Any, here: Place = ()) -> Iterator[Place]:
    """Paths to every value; of lists the first and last element, of large objects some keys."""
    if here:
        yield here
    keys: list[Any] = []
    if isinstance(document, dict):
        keys = list(document)
        if len(keys) > 2 * FEW and len({type(v) for v in document.values()}) == 1:
            keys = [keys[0], keys[-1]]
    elif isinstance(document, list):
        keys = sorted({0, len(document) - 1}) if document else []
    for key in keys:
        yield from places(document[key], (*here, key))


def changed(document: Any, place: Place, value: Any) -> str:
    """The document with another value at a place, or without it, as text."""
    made = copy.deepcopy(document)
    at = made
    for key in place[:-1]:
        at = at[key]
    if value is GONE:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    return json.dumps(made)


def leaves(document: Any, here: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every value that is no object or list, with its path."""
    if isinstance(document, (dict, list)):
        items = document.items() if isinstance(document, dict) else enumerate(document)
        for key, value in items:
            yield from leaves(value, (*here, key))
    else:
        yield here, document


def other_numbers(before: Any, after: Any) -> dict[Place, tuple[Any, Any]]:
    """Numbers of `after` that are not those of `before` at the same path, with both.

    A number that became null or went is none: unknown is told. A list is compared only where it
    is as long as before.
    """
    known = dict(leaves(before))
    return {
        path: (known[path], value)
        for path, value in leaves(after)
        if isinstance(value, (int, float)) and path in known and known[path] != value
    }
