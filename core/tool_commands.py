"""Commands that an environment variable replaces or prefixes, e.g. ``NCU='sudo env X=1 ncu'``."""

from __future__ import annotations

import os
import shlex

from .errors import InputError


def words(variable: str, default: str = "") -> list[str]:
    """The words of the command in an environment variable, of `default` where it is unset or
    blank. InputError where a shell could not split it either."""
    text = os.environ.get(variable) or ""
    try:
        return shlex.split(text) or shlex.split(default)
    except ValueError as e:
        raise InputError(
            f"{variable}={text} is no command ({str(e).lower()})", fix="close its quotes"
        ) from None
