"""The templates of the report, what they may call, and the files that stand inside a page."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

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


def css(*names: str) -> Markup:
    """Style sheets of the package, one after the other."""
    return Markup("".join(map(asset, names)))  # our own files


def with_script(parts: Sequence[str], data: Any) -> dict[str, Any]:
    """What a page with a script of these parts needs: `script`, its `digest` for the page's policy,
    which lets no other run, and the `data` that it draws. Each part uses those before it."""
    script = _script(tuple(parts))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # The package's own script, and JSON that `embedded` left no markup in.
    return {"script": Markup(script), "digest": digest, "data": Markup(embedded(data))}


@cache
def _script(parts: tuple[str, ...]) -> str:
    """The parts in one function, so that no name of theirs is global."""
    whole = "\n".join(asset(f"{part}.js") for part in parts)
    return f'"use strict";\n(() => {{\n{whole}}})();\n'


def embedded(value: Any) -> str:
    """JSON that is safe inside ``<script>``: ASCII, and no ``<``, ``>`` or ``&`` in it."""
    written = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
    try:
        text = written.encode(value)
    except ValueError:  # NaN or infinity: a page's data rarely has one, and is large
        text = written.encode(formatting.clean(value))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def asset(name: str) -> str:
    """A file of the package that stands inside a page."""
    return (FOLDER / name).read_text(encoding="utf-8")
