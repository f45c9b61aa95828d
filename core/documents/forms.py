"""Whether a JSON document is of a form, and what is wrong with it in words."""

from __future__ import annotations

import re
import reprlib
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from ..errors import InputError

T = TypeVar("T")

# What Arrow, numpy and the formats of tools hold.
LARGEST = 2**63 - 1
# Of times, bytes or nanoseconds.
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Number = (
    Annotated[int, Meta(ge=-LARGEST, le=LARGEST)] | Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
)
Amount = Annotated[int, Meta(ge=0, le=LARGEST)] | Annotated[float, Meta(ge=0, le=LARGEST)]
Share = Annotated[int, Meta(ge=0, le=1)] | Annotated[float, Meta(ge=0, le=1)]


def check(document: Any, form: type[T], file: str | Path | None, fix: str, what: str = "") -> T:
    """The document as a `form`. InputError, naming the file and the place in it, where it is not;
    `what`: what it is not then."""
    try:
        return msgspec.convert(document, form)
    except msgspec.ValidationError as e:
        wrong = _words(str(e), document)
        wrong = f"{what} ({wrong})" if what else wrong
        raise InputError(wrong, file=file, fix=fix) from None


_PLACE = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.S)
_EXPECTED = re.compile(r"Expected `(.*?)(?: \| null)?`(.*?)(?:, got .*)?", re.S)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.S)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.S)
_TYPES = {"str": "text", "bool": "true or false", "array": "a list", "object": "an object",
          "int": "a whole number", "float": "a number", "int | float": "a number"}  # fmt: skip


def _words(error: str, document: Any) -> str:
    """What msgspec finds wrong, with the place and what stands there: ``facts.threads is -1, not a
    whole number >= 0``. An error of our own begins with the name of its field."""
    parts = _PLACE.fullmatch(error)
    text, place = (error, "") if parts is None else (parts[1], parts[2] or "")
    if missing := _MISSING.fullmatch(text):
        return f"{place}.{missing[1]}".lstrip(".") + " is missing"
    if unknown := _UNKNOWN.fullmatch(text):
        return f"{place}.{unknown[1]}".lstrip(".") + " is unknown"
    if not (expected := _EXPECTED.fullmatch(text)):
        return f"{place}{'.' if text[:1].islower() else ': '}{text}" if place else text
    wanted = _TYPES.get(expected[1], expected[1]) + expected[2]
    outer, any_key, rest = place.partition("[...]")
    value = document
    for key, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", outer):
        value = value[int(index)] if index else value[key]
    if any_key:  # msgspec does not say which key
        wrong = [k for k, v in value.items() if not isinstance(v, str)]
        if rest or expected[1] != "str" or not wrong:
            return f"{place} is not {wanted}"
        place, value = f"{outer}.{wrong[0]}", value[wrong[0]]
    return f"{place or 'it'} is {reprlib.repr(value)}, not {wanted}"
