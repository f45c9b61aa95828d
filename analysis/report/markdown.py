"""report/report.md: the same report as text, for a terminal, a pull request or an archive.

GitHub's Markdown. Names stand in code spans; whatever could end a span, a table cell or a line,
or start markup, is escaped. Long tables are cut at a stated length, and the line below says what
was left out and where it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .. import formatting
from ..comparison import lead
from ..model.comparison import Comparison, Cost, ModuleRow, Side
from ..model.layer import Floor
from . import answer, counted, ledger, manifest, panels, sentences, sweep
from . import cells as cells_
from .headline import Sentence

MODULES_SHOWN = 150
LAYERS_SHOWN = 40
UNRESOLVED_SHOWN = 60
PADDED = 60
FLOOR = (
    "Floor: the measured time over the least that the layer's FLOP, or its bytes from memory, need "
    "at the device's peaks. Below 1: its tensors came from the cache. – : not known."
)
INTERVALS = (
    "The 95 % intervals are in `summary.json` (`modules`, `kinds`): `own_low_ns` to `own_high_ns`, "
    "with shared layers `upper_low_ns` to `upper_high_ns`; on the page where the pointer is, and "
    "in a row that is open or has the focus."
)
_MARKUP = "\\`*[]<>&|~#!"


def render(view: Comparison, headline: Sequence[Sentence]) -> str:
    """The report as Markdown. Unknown is "–"; every string of `view` is escaped."""
    parts = [
        f"# {text(view.title or 'Report')}",
        f"Made by Layerline, {text(formatting.when(view.generated))}.",
        _answer(view, headline),
        _ledger(view),
        _modules(view),
        _kinds(view),
        _layers(view),
        _counters(view),
        _sweep(view),
        _unresolved(view),
        _comparability(view),
        _skipped(view),
        _manifest(view),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def text(value: Any, limit: int = 400) -> str:
    """A sentence from the view on one line, its markup escaped."""
    return _escaped(formatting.short("–" if value is None or value == "" else value, limit))


def sentence(value: Any) -> str:
    """The report's own words: as `text`, but ended at a word."""
    return _escaped(formatting.words(value, SENTENCE))


def _escaped(shown: str) -> str:
    escaped = "".join(f"&#{ord(c)};" if c in _MARKUP else c for c in shown)
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", "&#95;", escaped)


def name(value: Any, limit: int = 100) -> str:
    """A name as a code span that a table cell can hold.

    A backtick or backslash would need a span that not every reader agrees on: such a name is
    written as escaped text.
    """
    if value is None or value == "":
        return formatting.UNKNOWN
    shown = formatting.short(value, limit)
    if "`" in shown or "\\" in shown:
        return "".join(c if c.isalnum() or c in " ." else f"&#{ord(c)};" for c in shown)
    return f"`{shown}`".replace("|", "\\|")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table whose columns line up in a terminal too, up to PADDED characters a cell."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [min(max(3, *map(len, column)), PADDED) for column in zip(*lines, strict=True)]
    rule = [f"{'-' * (w - 1)}:" if i in right else "-" * w for i, w in enumerate(widths)]
    lines.insert(1, rule)
    padded = (
        [
            c.rjust(w) if i in right else c.ljust(w)
            for i, (c, w) in enumerate(zip(line, widths, strict=True))
        ]
        for line in lines
    )
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def _section(title: str, *parts: str) -> str:
    return "\n\n".join([f"## {title}", *(p for p in parts if p)])


def _labels(sides: Sequence[Side]) -> list[str]:
    return [text(s.label, 60) for s in sides]


def _doubted(sides: Sequence[Side]) -> list[str]:
    """Labels for the head of a table of medians, those of sides that have not settled marked."""
    labels = zip(_labels(sides), sides, strict=True)
    return [f"? {label}" if lead.doubts(s) else label for label, s in labels]


def _panels(view: Comparison, section: str, table: Callable[[Sequence[Side]], str]) -> str:
    """A table, or one under a heading for each precision."""
    parts = []
    for p in panels.panels(view):
        if p["title"]:
            parts.append(f"### {section}, {text(p['title'], 40)}")
        parts += [table(p["sides"]), text(p["note"]) if p["note"] else ""]
    return "\n\n".join(p for p in parts if p)


def _label(view: Comparison, key: str) -> str:
    return text(next((s.label for s in view.sides if s.key == key), key), 60)


_TONES = {"good": "✓ ", "bad": "✗ ", "unsure": "? "}
SENTENCE = 1000  # characters of a headline's sentence; the report's own words and names of modules


def _answer(view: Comparison, headline: Sequence[Sentence]) -> str:
    if not headline:
        nothing = "Nothing was compared." if view.sides else "Nothing was measured."
        lines = [f"**{nothing}**"]
    else:
        first, *others = headline
        lines = [f"**{_TONES.get(first.tone, '')}{sentence(first.text)}**"]
        if others:
            lines.append("\n".join(f"- {_TONES.get(h.tone, '')}{sentence(h.text)}" for h in others))
    rows = answer.comparisons(view)
    if rows:
        head = answer.head(rows)
        lines.append(_table(head, [[text(c) for c in answer.cells(r, head)] for r in rows]))
    return "\n\n".join(lines)


def _ledger(view: Comparison) -> str:
    if not view.sides:
        return _section("Ledger", "No side was measured.")
    said = sentences.of(view)
    lines = [
        f"- {_MARK[s['tone']]}{text(s['sides'])}, {text(s['check'], 30)}: {sentence(s['text'])}"
        for s in said
        if not s["tabled"]
    ]
    checks = [c for s in view.sides for c in s.checks if c.name != ledger.PRECISION]
    good = sum(c.ok is True for c in checks)
    if good:
        lines.append(f"- ✓ {good} checks add up: their rows are below.")
    notes = {g["title"]: g["note"] for g in ledger.groups(view.sides) if g["note"]}
    how = [f"- **{text(title)}**: {text(note)}." for title, note in notes.items()]
    return _section(
        "Ledger",
        "\n".join(lines),
        "How the rows are made:",
        "\n".join(how),
        _panels(view, "Ledger", _ledger_table),
    )


def _ledger_table(sides: Sequence[Side]) -> str:
    rows = []
    for g in ledger.groups(sides):
        rows.append([f"**{text(g['title'])}**", *[""] * len(sides)])
        for row in g["rows"]:
            cells = [
                text(_MARK.get(c["tone"], "") + c["text"] + (f" ({c['sub']})" if c["sub"] else ""))
                for c in row["cells"]
            ]
            rows.append([text(row["label"]), *cells])
    return _table(["", *_labels(sides)], rows, range(1, 1 + len(sides)))


_MARK = {"good": "✓ ", "bad": "✗ ", "none": "? ", "": ""}


def _costs(sides: Sequence[Side], costs: Mapping[str, Cost]) -> list[str]:
    cells = []
    for s in sides:
        c = costs.get(s.key)
        share = f" ({formatting.percent(c.share)})" if c and formatting.known(c.share) else ""
        cells.append(f"{cells_.cost(c)}{share}")
    return cells


def _seen(sides: Sequence[Side], costs: Mapping[str, Cost]) -> bool:
    """Whether a row tells something of these sides; one that nothing ran for stands everywhere."""
    return not costs or any(s.key in costs for s in sides)


def _depth(rows: Sequence[ModuleRow]) -> int:
    """The deepest level at which the rows still fit."""
    deepest = max((m.depth for m in rows), default=0)
    for depth in range(deepest, 0, -1):
        if sum(m.depth <= depth for m in rows) <= MODULES_SHOWN:
            return depth
    return 1


def _modules(view: Comparison) -> str:
    rows = view.modules
    if not rows:
        return _section("Modules", "No module's time is known.")
    depth = _depth(rows)
    shown = [m for m in rows if m.depth <= depth][:MODULES_SHOWN]

    def table(sides: Sequence[Side]) -> str:
        lines = [
            [_module(m), name(m.module_class, 40), *_costs(sides, m.costs)]
            for m in shown
            if _seen(sides, m.costs)
        ]
        return _table(["module", "class", *_doubted(sides)], lines, range(2, 2 + len(sides)))

    left = len(rows) - len(shown)
    loose = any(lead.doubts(s) for s in view.sides)
    notes = [
        formatting.SHARES,
        formatting.MEDIANS,
        formatting.COLUMNS,
        formatting.NOTHING,
        INTERVALS,
    ]
    notes += [formatting.LOOSE] if loose else []
    return _section(
        "Modules",
        "A range is [own, own + shared]: the time of layers wholly inside, and with those partly "
        "inside; it is no interval.",
        "\n".join(f"- {note}" for note in notes),
        _panels(view, "Modules", table),
        f"{left:,} deeper rows are in index.html." if left else "",
    )


def _module(m: ModuleRow) -> str:
    indent = "· " * min(m.depth, 20)
    label = name(m.name, 60) if m.name else "(model)"
    if m.kind == "block" and len(m.members) > 1:
        label += f" (block of {len(m.members)})"
    elif m.kind == "row":
        label += " (no module)"
    return f"{indent}{label}"


def _kinds(view: Comparison) -> str:
    if not view.kinds:
        return ""

    def table(sides: Sequence[Side]) -> str:
        rows = [
            [
                name(k.name) if k.name else "(model)",
                name(k.module_class, 40),
                f"{k.count:,}",
                *_costs(sides, k.costs),
            ]
            for k in view.kinds
            if _seen(sides, k.costs)
        ]
        return _table(["kind", "class", "count", *_doubted(sides)], rows, range(2, 3 + len(sides)))

    return _section(
        "Kinds",
        "Modules of one kind, added up within each iteration; then the median is taken. "
        "Ranges, percentages, – and ? are as in the modules.",
        _panels(view, "Kinds", table),
    )


def _layers(view: Comparison) -> str:
    if not view.layers:
        return _section("Layers", "No engine layers were measured.")
    ordered = sorted(view.layers, key=lambda r: -(r.time.median or 0))
    rows = [
        [
            name(r.layer),
            _label(view, r.side),
            name(r.kind, 40),
            name(r.rule, 40),
            f"{formatting.number(r.calls)}",
            formatting.number(r.kernels),
            formatting.time(r.time.median),
            cells_.interval(r.time),
            formatting.percent(r.share),
            _floor(r.floor),
            f"{name(r.precision_in, 20)} → {name(r.precision_out, 20)}",
            name(r.compute_precision, 20),
            name(r.tactic, 40),
        ]
        for r in ordered[:LAYERS_SHOWN]
    ]
    head = ["layer", "side", "kind", "rule", "calls", "kernels", "time", "95 %", "share", "floor"]
    head += ["in → out", "compute", "tactic"]
    left = len(ordered) - len(rows)
    return _section(
        "Layers",
        FLOOR if any(r.floor for r in ordered) else "",
        _table(head, rows, (4, 5, 6, 7, 8, 9)),
        f"The costliest {len(rows)}; {left:,} more are in layers.csv." if left else "",
    )


def _floor(found: Floor | None) -> str:
    return formatting.ratio(found.times if found else None)


def _counters(view: Comparison) -> str:
    found = counted.shown(view)
    if found is None:
        return ""
    parts = [found["lead"]]
    for side in found["sides"]:
        lines = [f"- {name(n)} ({share}): {text(said)}" for n, share, said in side["sentences"]]
        rows = [
            [name(row["cells"][0], 60), *(text(c) for c in row["cells"][1:])]
            for row in side["rows"]
        ]
        right = [i for i in range(len(found["head"])) if i not in found["text_columns"]]
        parts += [
            f"### {text(side['label'], 60)}",
            "\n".join(lines),
            _table(found["head"], rows, right) if rows else "No module is known.",
            f"{side['left']:,} more modules are in counters.csv." if side["left"] else "",
            "\n".join(f"- {text(f)}" for f in side["facts"]),
        ]
    return _section(found["title"], *parts, *(text(u["text"], 600) for u in found["uncounted"]))


def _sweep(view: Comparison) -> str:
    found = sweep.shown(view)
    if found is None:
        return ""
    rows = [
        [
            f"**{text(c)}**" if row["best"] and i == 1 else text(c)
            for i, c in enumerate(row["cells"])
        ]
        for row in found["rows"]
    ]
    right = [i for i in range(len(found["head"])) if i not in found["text_columns"]]
    return _section(
        found["title"],
        found["lead"],
        "\n".join(f"- {text(s)}" for s in found["sentences"]),
        _table(found["head"], rows, right) if rows else "No point was measured.",
        "\n\n".join(text(n) for n in found["notes"]),
    )


def _unresolved(view: Comparison) -> str:
    if not view.unresolved:
        return _section("Unresolved", "Nothing is unresolved." if view.sides else "")
    ordered = sorted(view.unresolved, key=lambda u: -(u.ns or 0))
    rows = [
        [
            name(u.name),
            _label(view, u.side),
            formatting.time(u.ns),
            formatting.percent(u.share),
            text(u.why, 240),
        ]
        for u in ordered[:UNRESOLVED_SHOWN]
    ]
    left = len(ordered) - len(rows)
    return _section(
        "Unresolved",
        _table(["name", "side", "time", "share", "why"], rows, (2, 3)),
        f"{left:,} more are in index.html." if left else "",
    )


def _comparability(view: Comparison) -> str:
    title = "What bends the comparison"
    if not view.comparability:
        return _section(title, "No difference between the sides is known.")
    rows = [
        [
            *(text(word, 240) for word in (c.what, c.engine, c.eager, c.effect)),
            text(panels.told(view, c.sides)),
        ]
        for c in view.comparability
    ]
    return _section(title, _table(["what", "engine", "eager", "effect", "sides"], rows))


def _skipped(view: Comparison) -> str:
    if not view.skipped:
        return ""
    lines = []
    for s in view.skipped:
        fix = f" To have it: {text(s.fix, 240)}." if s.fix else ""
        lines.append(f"- {text(s.what, 120)}: {text(s.why, 240)}.{fix}")
    return _section("Skipped", "\n".join(lines))


def _manifest(view: Comparison) -> str:
    if not view.manifest:
        return ""
    found = manifest.short(view)
    rows = [[name(key, 120), name(value, 200)] for key, value in found["facts"]]
    rows += [[name(f"versions.{key}", 120), name(v, 200)] for key, v in found["versions"]]
    files = [[name(path, 200), f"`{digest}`"] for path, digest in found["files"]]
    left = f" {found['left']:,} facts more, and all" if found["left"] else " All"
    return _section(
        "Manifest",
        f"In short.{left} {found['total']:,} facts, with every step's options and whole hashes, "
        f"are in `{manifest.LONG}`, in the directory of the run.",
        _table(["fact", "value"], rows) if rows else "",
        "Commands, in the order in which they ran:" if found["commands"] else "",
        "\n".join(f"- {name(c, 400)}" for c in found["commands"]),
        f"Files, with the first {manifest.PREFIX} digits of their SHA-256:" if files else "",
        _table(["file", "sha256"], files) if files else "",
    )
