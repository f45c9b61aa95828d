"""What nsys itself says about a capture: its warnings and errors, in `DIAGNOSTIC_EVENT`.

Columns (exports of nsys 2025.3): timestamp, timestampType, source, severity, text, globalPid;
severity by ENUM_DIAGNOSTIC_SEVERITY_LEVEL: 0 unknown, 1 information, 2 warning, 3 error, 4 verbose.
Older exports have no such table. Most warnings stand in every capture and say little: that a kind
of event "might" be incomplete when a capture range ends, or did not occur.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from . import schema
from .source import Filter, Query, Source

WARNING, ERROR = 2, 3
MOST = 20  # that are listed; of more their number
_LENGTH = 300  # characters of one that are kept

# Words for recorded events that are gone, not only for more that there may have been.
_LOST = re.compile(r"\b(?:buffers?|drop(?:s|ped)?|lost|los[se]s|overflow\w*|incomplete)\b", re.I)
# Words for a library that is not traced, the clearest first.
_REFUSED = tuple(
    re.compile(words, re.I)
    for words in ("not supported", r"no \S+ trace will be", "failed to|unable to|could not|cannot")
)
# An absolute path, quoted (then with spaces in it) or not; what is kept of it is its last part.
_QUOTED = re.compile(r"(['\"])(?:[A-Za-z]:)?[\\/](?:[^'\"\\/]+[\\/])*([^'\"\\/]+)[\\/]?\1")
_PLAIN = re.compile(r"(?<![\w.\-/\\:])(?:[A-Za-z]:)?[\\/](?:[^\s'\"\\/]+[\\/])+([^\s'\"\\/]+)")
# nsys puts no space between some sentences.
_SENTENCE = re.compile(r"(?<=[a-z)'\"])[.?!](?=\s|[A-Z]|$)")


@dataclass(frozen=True)
class Diagnostic:
    """One warning or error, on one line, its paths cut to the names of their files."""

    severity: int
    text: str

    @property
    def lossy(self) -> bool:
        """Whether it is an error, or a warning that something recorded is gone."""
        return self.severity == ERROR or _LOST.search(self.text) is not None

    def sentence(self) -> str:
        """As a sentence without its full stop."""
        verb = "reported an error" if self.severity == ERROR else "warned"
        text = self.text if len(self.text) <= _LENGTH else self.text[: _LENGTH - 1] + "…"
        return f"nsys {verb}: {text.rstrip('. ')}"


def read(source: Source) -> tuple[Diagnostic, ...]:
    """The warnings and errors of an export in file order, equal ones once."""
    table = source.find(schema.DIAGNOSTICS, ("severity", "text"))
    if table is None or not source.has_text(table, "text"):
        return ()
    where = Filter("severity", (WARNING, ERROR))
    raw = source.read(Query(table, ("severity",), text="text", where=where))
    texts = [shortened(t) for t in raw.values["text"]]
    rows = zip(raw["severity"].tolist(), raw["text"].tolist(), strict=True)
    listed = (Diagnostic(severity, texts[code]) for severity, code in rows if code >= 0)
    return tuple(dict.fromkeys(d for d in listed if d.text))


def shortened(text: str) -> str:
    """`text` on one line; of each absolute path the name of the file."""
    text = _QUOTED.sub(r"\1\2\1", " ".join(text.split()))
    return _PLAIN.sub(r"\1", text)


def sentences(diagnostics: Sequence[Diagnostic]) -> list[str]:
    """Each as a sentence without its full stop, at most `MOST` and how many more there are."""
    more = len(diagnostics) - MOST
    rest = [f"nsys said {more} more such things"] if more > 0 else []
    return [*(d.sentence() for d in diagnostics[:MOST]), *rest]


def refusal(library: str, diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, str] | None:
    """The diagnostic that nsys could not trace `library`, and its text up to the sentence that says
    so, without the last full stop; None without one."""
    for pattern in _REFUSED:
        for diagnostic in diagnostics:
            at = pattern.search(diagnostic.text)
            if at is None:
                continue
            end = _SENTENCE.search(diagnostic.text, at.end())
            text = diagnostic.text[: end.start()] if end else diagnostic.text.rstrip(". ")
            if re.search(rf"\b{re.escape(library)}", text, re.I):
                return diagnostic, text
    return None
