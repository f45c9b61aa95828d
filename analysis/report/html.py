"""report/index.html: one file that opens offline and sends nothing anywhere.

The answer, the ledger and the first modules are in the HTML itself and need no JavaScript; the
tree, its layers and nodes are drawn from embedded JSON as they are opened. The page's policy
(Content-Security-Policy) allows no request at all and no script but the one whose hash it names,
so a name from a file that looked like a script would not run even if an escape were forgotten.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from . import bars, counted, ledger, payload, roofline_plot, show, sweep
from .view import Cost, Side, View

_HERE = Path(__file__).parent
RATIOS_SHOWN = 4
LAYERS_WITHOUT_SCRIPT = 25
SMALL = 0.03
POOR_COVERAGE = 0.9


def render(view: View) -> str:
    """The report as one HTML document. Every string of `view` is escaped, none is trusted."""
    script = _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    data = payload.build(view)
    shown = bars.sides(view)
    drawn, small = _bars(view, shown)
    rows = [view["modules"][i] for i in payload.visible_rows(data)]
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            view=view,
            labels={s["key"]: s["label"] for s in view["sides"]},
            figures=_figures(view),
            groups=ledger.groups(view),
            sentences=_sentences(view),
            bar_sides=shown,
            colours=bars.colours(shown),
            bars=drawn,
            small=small,
            smallest=SMALL,
            rows=rows,
            layers=sorted(view["layers"], key=lambda r: -(r["time"]["median"] or 0))[
                :LAYERS_WITHOUT_SCRIPT
            ],
            rules=payload.RULES,
            sweep=sweep.shown(view),
            why=_why(view),
            counted=payload.counted_rows(view),
            manifest=show.flatten(show.clean(view["manifest"])) if view["manifest"] else [],
            # The package's own files, and JSON that `embedded` left no markup in.
            css=Markup(_asset("page.css")),
            script=Markup(script),
            digest=digest,
            data=Markup(embedded(data)),
        )
    )


def embedded(value: Any) -> str:
    """JSON that is safe inside ``<script>``: ASCII, and no ``<``, ``>`` or ``&`` in it."""
    text = json.dumps(show.clean(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "time": show.time,
        "exact": show.exact,
        "interval": show.interval,
        "pc": show.percent,
        "num": show.number,
        "ratio": show.ratio,
        "cost": show.cost,
        "cost_exact": show.cost_exact,
        "vis": show.visible,
        "short": show.short,
        "when": show.when,
        "breaks": _breaks,
        "tie": _tie,
    }
    env.globals |= {"meter": _meter, "module_name": _module_name, "whole": _whole}
    return env


def _figures(view: View) -> list[dict[str, str]]:
    """The few numbers to see first."""
    labels = {s["key"]: s["label"] for s in view["sides"]}
    result = []
    for r in view["ratios"][:RATIOS_SHOWN]:
        low, high = r.get("low"), r.get("high")
        sure = "interval unknown"
        if low is not None and high is not None and show.known(low) and show.known(high):
            sure = f"95 %: {show.ratio(low)} – {show.ratio(high)}"
            if low <= 1 <= high:
                sure += ", no difference shown"
        result.append(
            {
                "value": show.ratio(r.get("ratio")),
                "unit": "as fast",
                "what": labels.get(r["under"], r["under"]),
                "against": f"as {labels.get(r['over'], r['over'])}",
                "sure": sure,
                "tone": "",
            }
        )
    checks = [c for s in view["sides"] for c in s["closure"] if c["check"] != ledger.PRECISION]
    verdicts = [c["ok"] for c in checks]
    if verdicts:
        bad, unknown = verdicts.count(False), verdicts.count(None)
        left = [f"{bad} does not add up" if bad == 1 else f"{bad} do not add up"] if bad else []
        left += [f"{unknown} not checked"] if unknown else []
        result.append(
            {
                "value": f"{verdicts.count(True)} of {len(verdicts)}",
                "unit": "",
                "what": "checks add up",
                "against": "",
                "sure": ", ".join(left) or "none left unchecked",
                "tone": "bad" if bad else "",
            }
        )
    covered = [s for s in view["sides"] if show.known(s["coverage"])]
    if covered:
        least = min(covered, key=lambda s: s["coverage"] or 0)
        result.append(
            {
                "value": show.percent(least["coverage"]),
                "unit": "",
                "what": "of the time has a module",
                "against": "",
                "sure": f"the least: {least['label']}",
                "tone": "bad" if (least["coverage"] or 0) < POOR_COVERAGE else "",
            }
        )
    return result


def _sentences(view: View) -> list[dict[str, Any]]:
    """What the checks say, those that failed first."""
    found = [
        {"side": s["label"], "check": c["check"], "text": c["text"], "tone": ledger.TONES[c["ok"]]}
        for s in view["sides"]
        for c in s["closure"]
        if c["text"]
    ]
    for s in view["sides"]:
        host = s.get("host")
        if host:
            tone = "bad" if host["confirmed"] is False else "none"
            found.append({"side": s["label"], "check": "host", "text": host["text"], "tone": tone})
    order = {"bad": 0, "none": 1, "good": 2}
    return sorted(found, key=lambda f: order[f["tone"]])


def _why(view: View) -> dict[str, Any] | None:
    """The counters as text, with a drawing for each side."""
    found, shown = view.get("counters"), counted.shown(view)
    if found is None or shown is None:
        return None
    drawn = [roofline_plot.drawing(s) for s in found["sides"]]
    sides = [{**s, "plot": d} for s, d in zip(shown["sides"], drawn, strict=True)]
    return {**shown, "sides": sides}


def _bars(view: View, sides: list[Side]) -> tuple[list[dict[str, Any]], list[str]]:
    """Bars with their widths in percent of the longest; the names of those too small to draw."""
    found = bars.entries(view)
    longest = max((_whole(e["costs"].get(s["key"])) or 0 for e in found for s in sides), default=0)
    result, small = [], []
    for e in found:
        if all((_whole(e["costs"].get(s["key"])) or 0) < SMALL * longest for s in sides):
            small.append(e["name"])
            continue
        lines = []
        for s in sides:
            c = e["costs"].get(s["key"])
            own = (c["own"] or 0) if c else 0
            whole = _whole(c) or 0
            lines.append(
                {
                    "side": s,
                    "cost": c,
                    "own": 100 * own / longest if longest else 0,
                    "shared": 100 * (whole - own) / longest if longest else 0,
                }
            )
        result.append({"name": e["name"] or "(model)", "count": e["count"], "lines": lines})
    return result, small


def _whole(c: Cost | None) -> int | None:
    """own + shared, null where own is unknown."""
    if c is None or c["own"] is None:
        return None
    return c["own"] + (c["shared"] or 0)


def _meter(c: Cost | None) -> tuple[float, float]:
    """Widths in percent of the side's whole: own, shared."""
    whole = _whole(c)
    if c is None or not whole or not show.known(c["share"]):
        return 0.0, 0.0
    width = min(100.0, 100 * (c["share"] or 0))
    own = width * (c["own"] or 0) / whole
    return round(own, 2), round(width - own, 2)


def _tie(text: str) -> str:
    """Keep a number and its unit on one line."""
    return re.sub(r"(?<=\d) (?=(?:%|ns|µs|ms|s)(?!\w))", "\N{NO-BREAK SPACE}", text)


def _breaks(text: str) -> Markup:
    """Let a long name break after a dot, slash or plus; what is copied has no break in it."""
    return Markup("<wbr>").join(re.split(r"(?<=[./+])(?=[^./+])", text))


def _module_name(name: str) -> str:
    return show.short(name, 80) if name else "(model)"
