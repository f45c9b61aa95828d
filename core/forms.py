"""The form of a JSON file: what may stand where, said in a few words and checked in one place.

A form is a function that is given a value and its path in the file, and raises `Misfit` where the
value is of another form. Unknown is null in every file of ours, and older files lack newer keys:
an `entry` may be absent or null, and keys that nobody reads are not looked at. Elements of a list
are never null, save with `maybe`: a missing sample is no sample.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

from .errors import InputError

Form = Callable[[Any, str], None]
# What Arrow, numpy and the formats of tools hold.
LARGEST = 2**63 - 1


class Misfit(ValueError):
    """A value is of another form; says where, and what was to be there."""


def misfit(where: str, found: Any, wanted: str) -> Misfit:
    """What is at a place, shortened, and what was to be there."""
    return Misfit(f"{where or 'it'} is {reprlib.repr(found)}, not {wanted}")


def text(value: Any, where: str) -> None:
    """A string that is valid Unicode (half a surrogate pair cannot be written again)."""
    if not isinstance(value, str) or (not value.isascii() and not _encodable(value)):
        raise misfit(where, value, "text")


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def flag(value: Any, where: str) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise misfit(where, value, "true or false")


def count(value: Any, where: str) -> None:
    """A whole number from 0 (of times, bytes or nanoseconds)."""
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise misfit(where, value, "a whole number from 0 that 64 bits hold")


def number(value: Any, where: str) -> None:
    """Any finite number."""
    if type(value) not in (int, float) or not -LARGEST <= value <= LARGEST:
        raise misfit(where, value, "a number")


def amount(value: Any, where: str) -> None:
    """A finite number from 0."""
    if type(value) not in (int, float) or not 0 <= value <= LARGEST:
        raise misfit(where, value, "a number from 0")


def share(value: Any, where: str) -> None:
    """A number from 0 to 1."""
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise misfit(where, value, "a number from 0 to 1")


def anything(_value: Any, _where: str) -> None:
    """Whatever it is, nothing is computed from it."""


def maybe(form: Form) -> Form:
    """`form`, or null."""

    def check(value: Any, where: str) -> None:
        if value is not None:
            form(value, where)

    return check


def each(form: Form) -> Form:
    """A list of `form`."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, list):
            raise misfit(where, value, "a list")
        for i, one in enumerate(value):
            form(one, f"{where}[{i}]")

    return check


def named(form: Form) -> Form:
    """An object with any keys, each of `form` or null."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, Mapping):
            raise misfit(where, value, "an object")
        for name, one in value.items():
            text(name, f"a key in {where}")
            if one is not None:
                form(one, f"{where}.{name}")

    return check


def entries(known: Mapping[str, Form], needed: tuple[str, ...] = ()) -> Form:
    """An object whose `known` keys, where they are there and not null, are of their forms; the
    `needed` ones must be."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, Mapping):
            raise misfit(where, value, "an object")
        for name in needed:
            if value.get(name) is None:
                raise Misfit(f"{f'{where}.{name}'.lstrip('.')} is missing")
        for name, form in known.items():
            if value.get(name) is not None:
                form(value[name], f"{where}.{name}".lstrip("."))

    return check


def check(value: Any, form: Form, file: str | PathLike[str], fix: str) -> None:
    """InputError, naming the file and the place in it, where `value` is not of `form`."""
    try:
        form(value, "")
    except Misfit as e:
        raise InputError(str(e), file=file, fix=fix) from None
