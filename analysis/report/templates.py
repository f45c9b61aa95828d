"""The templates of the report, and what they may call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .. import formatting
from . import cells

FOLDER = Path(__file__).parent / "layout"


def environment(**options: Any) -> Environment:
    """Jinja2 for one kind of file. Whatever a template writes is escaped, but for Markup."""
    env = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,  # a template is used once: folding its constants takes longer
        **options,
    )
    env.filters |= {
        "time": formatting.time,
        "exact": formatting.exact,
        "interval": cells.interval,
        "pc": formatting.percent,
        "num": formatting.number,
        "ratio": formatting.ratio,
        "cost": cells.cost,
        "cost_exact": cells.cost_exact,
        "cost_interval": cells.cost_interval,
        "words": formatting.words,
        "vis": formatting.visible,
        "short": formatting.short,
        "when": formatting.when,
    }
    env.tests["known"] = formatting.known
    return env
