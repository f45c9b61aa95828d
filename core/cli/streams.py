"""What is printed where a terminal, or the file behind a pipe, cannot hold every character."""

from __future__ import annotations

import codecs
import io
import sys

_PLAIN = {"µ": "u", "μ": "u", "…": "...", "−": "-", "–": "-", "—": "-", "×": "x", "→": "->",
          "±": "+-", "·": ".", "≥": ">=", "≤": "<=", "Δ": "d"}  # fmt: skip


def _plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c, "?") for c in text), error.end


codecs.register_error("layerline_plain", _plainly)


def tolerant() -> None:
    """Let stdout and stderr print something like a character that their encoding lacks, and ``?``
    for a byte of a name that is no text."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="layerline_plain")
