"""report/index.html: one file that opens offline and sends nothing anywhere.

The answer, the ledger and the first modules are in the HTML itself and need no JavaScript; the
tree, its layers and nodes are drawn from embedded JSON as they are opened. The page's policy
(Content-Security-Policy) allows no request at all and no script but the one whose hash it names,
so a name from a file that looked like a script would not run even if an escape were forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from .. import formatting
from ..model.comparison import Comparison, Cost
from . import cells, contents, payload, roofline_plot
from .gate.trend import Trend
from .headline import Sentence
from .screen import believe, screens
from .templates import css, environment, with_script

# The parts of the page's script.
SCRIPTS = (
    *(f"page/{part}" for part in ("data", "time", "text", "elements", "panels", "tables", "rows")),
    *(f"screen/{part}" for part in ("choice", "icicle")),
    *(f"page/{part}" for part in ("tree", "layers", "start")),
)
LAYERS_WITHOUT_SCRIPT = 25
# After a dot, slash, plus or underscore, but not within a number; page/elements.js has the same.
_BREAK = re.compile(r"(?<=[./+_])(?=[^./+_\d])|(?<=[/+_])(?=\d)|(?<=\D\.)(?=\d)")


def render(
    comparison: Comparison,
    headline: Sequence[Sentence],
    timeline: str | None = None,
    past: Trend | None = None,
) -> str:
    """The report as one HTML document. Every string of `comparison` is escaped, none is trusted."""
    shown = screens.of(comparison)
    data = payload.build(comparison, shown)
    variables = contents.of(comparison, headline)
    checks, left = believe.checks(comparison, variables["panels"], variables["sentences"])
    pair = next(([s.over, s.under] for s in shown if s.over and not s.wrong), None)
    rows = [comparison.modules[i] for i in payload.visible_rows(data)]
    template = _environment().get_template("page.html.j2")
    return template.render(
        **variables,
        timeline=timeline,
        machine=_machine(comparison.manifest.get("facts")),
        trend=past,
        screens=shown,
        believe=checks,
        other_remarks=left,
        rows=rows,
        pair=pair,
        first_panel=data["first"],
        layers_shown=LAYERS_WITHOUT_SCRIPT,
        rules=payload.RULES,
        plots=[roofline_plot.drawing(s) for s in comparison.counters.sides]
        if comparison.counters
        else [],
        counted=payload.counted_rows(comparison),
        manifest=formatting.flatten(formatting.clean(comparison.manifest))
        if comparison.manifest
        else [],
        css=css("page.css", "screen/screen.css"),
        **with_script(SCRIPTS, data),
    )


@cache
def _environment() -> Environment:
    env = environment()
    env.filters |= {"breaks": _breaks, "tie": _tie}
    env.globals |= {
        "meter": _meter,
        "module_name": _module_name,
        "whole": cells.whole,
        "change": cells.change,
    }
    return env


def _machine(facts: Any) -> str:
    """What the run was measured on: the GPU, else the CPU; empty where that is not recorded."""
    named = [facts.get(k) for k in ("gpu", "cpu")] if isinstance(facts, Mapping) else []
    return next((n for n in named if isinstance(n, str) and n not in ("", "none")), "")


def _meter(c: Cost | None) -> tuple[float, float]:
    """Widths in percent of the side's whole: own, shared."""
    whole = cells.whole(c)
    if c is None or not whole or not formatting.known(c.share):
        return 0.0, 0.0
    width = min(100.0, 100 * (c.share or 0))
    own = width * (c.own.median or 0) / whole
    return round(own, 2), round(width - own, 2)


def _tie(text: str) -> str:
    """Keep a number and its unit on one line."""
    return re.sub(r"(?<=\d) (?=(?:%|ns|µs|ms|s)(?!\w))", "\N{NO-BREAK SPACE}", text)


def _breaks(text: str) -> Markup:
    """Let a long name break after ``. / + _``; what is copied has no break in it."""
    return Markup("<wbr>").join(_BREAK.split(text))


def _module_name(name: str) -> str:
    return formatting.short(name, 80) if name else "(model)"
