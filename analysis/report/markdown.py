"""report/report.md: the same report as text, for a terminal, a pull request or an archive.

GitHub's Markdown, laid out by report.md.j2. Names stand in code spans; whatever could end a span,
a table cell or a line, or start markup, is escaped. Long tables are cut at a stated length, and
the line below says what was left out and where it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from .. import formatting
from ..model.comparison import Comparison, ModuleRow
from . import contents, ledger, manifest
from .headline import Sentence
from .screen import screens
from .templates import environment

MODULES_SHOWN = 150
LAYERS_SHOWN = 40
UNRESOLVED_SHOWN = 60
PADDED = 60
_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")  # not within a word
_MARKS = {"good": "✓ ", "bad": "✗ ", "none": "? ", "unsure": "? ", "wrong": "✗ "}
# What a comment on a pull request may have at most, less room for a word beside it; so many
# modules and layers are shown as fit.
FITS = 65_000
_SHOWN = ((MODULES_SHOWN, LAYERS_SHOWN), (80, 25), (40, 15), (20, 10), (8, 5))
_MARKUP = str.maketrans({c: f"&#{ord(c)};" for c in "\\`*[]<>&|~#!"})


def render(comparison: Comparison, headline: Sequence[Sentence]) -> str:
    """The report as Markdown. Unknown is "–"; every string of `comparison` is escaped."""
    variables = {
        **contents.of(comparison, headline),
        "screens": screens.of(comparison),
        "ledger_notes": {g.title: g.note for g in ledger.groups(comparison.sides) if g.note},
        "floors": any(r.floor for r in comparison.layers),
        "unresolved": sorted(comparison.unresolved, key=lambda u: -(u.ns or 0)),
        "unresolved_shown": UNRESOLVED_SHOWN,
        "manifest": manifest.short(comparison.manifest) if comparison.manifest else None,
    }
    written = ""
    for modules, layers in _SHOWN:
        some = {"modules": _modules(comparison.modules, modules), "layers_shown": layers}
        written = _written("report.md.j2", {**variables, **some})
        if len(written) <= FITS:
            break
    return written


def summary(comparison: Comparison, headline: Sequence[Sentence]) -> str:
    """The first screen as Markdown, at most 25 lines of it: for a comment on a pull request."""
    title = comparison.title or "Report"
    shown = screens.of(comparison)
    variables = {"comparison": comparison, "headline": headline, "screens": shown}
    rest = _written("summary.md.j2", variables)
    others = len(comparison.ratios) - 1
    more = f"{others} more in report.md.\n" if others > 0 else ""
    return f"### {escaped(text(title))}\n\n{rest}" + (
        f"\nOther comparisons: {more}" if more else ""
    )


def _written(template: str, variables: dict[str, Any]) -> str:
    written = _environment().get_template(template).render(**variables)
    return re.sub(r"\n{3,}", "\n\n", written).strip("\n") + "\n"


@cache
def _environment() -> Environment:
    env = environment(finalize=escaped)
    env.filters |= {"text": text, "code": code, "aligned": aligned}
    env.globals["marks"] = _MARKS
    return env


def text(value: Any, limit: int = 400) -> str:
    """A text on one line, "–" where it is unknown."""
    return formatting.UNKNOWN if value is None or value == "" else formatting.short(value, limit)


def escaped(value: Any) -> Markup:
    """A value on one line, its markup escaped; Markup as it is."""
    if isinstance(value, Markup):
        return value
    return Markup(_UNDERSCORE.sub("&#95;", formatting.visible(value).translate(_MARKUP)))


def code(value: Any, limit: int = 100) -> Markup:
    """A name as a code span that a table cell can hold.

    A backtick or backslash would need a span that not every reader agrees on: such a name is
    written as escaped text.
    """
    if value is None or value == "":
        return Markup(formatting.UNKNOWN)
    shown = formatting.short(value, limit)
    if "`" in shown or "\\" in shown:
        return Markup("".join(c if c.isalnum() or c in " ." else f"&#{ord(c)};" for c in shown))
    return Markup(f"`{shown}`".replace("|", "\\|"))


def aligned(table: str) -> Markup:
    """The columns of a table padded for a terminal, up to PADDED characters a cell."""
    lines = [
        [cell[1:-1] for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in str(table).strip("\n").split("\n")
    ]
    right = [cell.endswith(":") for cell in lines[1]]
    widths = [min(max(map(len, column)), PADDED) for column in zip(*lines, strict=True)]
    lines[1] = [f"{'-' * (w - 1)}{':' if r else '-'}" for w, r in zip(widths, right, strict=True)]
    return Markup("\n".join(_padded(line, widths, right) for line in lines) + "\n")


def _padded(line: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = zip(line, widths, right, strict=True)
    return f"| {' | '.join(c.rjust(w) if r else c.ljust(w) for c, w, r in cells)} |"


def _modules(rows: Sequence[ModuleRow], most: int) -> Sequence[ModuleRow]:
    """The rows down to the deepest level at which they still fit."""
    deepest = max((m.depth for m in rows), default=0)
    for depth in range(deepest, 0, -1):
        shown = [m for m in rows if m.depth <= depth]
        if len(shown) <= most:
            return shown
    return [m for m in rows if m.depth <= 1][:most]
