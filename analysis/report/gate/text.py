"""A verdict in a terminal, on one screen, and as Markdown for a pull request."""

from __future__ import annotations

from ... import formatting
from ...model.verdict import Judged, Verdict
from . import words

LINES = 24
MARKDOWN_LINES = 25
_HEAD = ("| what | before | after | change | limit | answer |", "|---|--:|--:|--:|--:|---|")


def terminal(verdict: Verdict) -> str:
    """At most `LINES` lines: the answer first, then what is wrong, then what was judged."""
    head = [words.headline(verdict), f"{verdict.before} → {verdict.after}"]
    tail = [f"to do: {fix}" for fix in words.cut(words.fixes(verdict), 3, "")]
    if verdict.changed:
        tail.append(f"changed, too: {words.changed(verdict.changed)}")
    tail += [formatting.words(f"note: {r}", 200) for r in verdict.remarks[:3]]
    tail += [f"trend {t}" for t in words.trends(verdict)[:2]]
    findings = words.cut(map(words.finding, words.others(verdict)), 6, "")
    room = LINES - len(head) - len(tail) - len(findings)
    rows, side = [], None
    for judged in words.shown(verdict):
        if judged.side != side:
            rows.append(formatting.visible(judged.side))
            side = judged.side
        rows.append(f"  {words.line(judged)}")
    return "\n".join([*head, *findings, *words.cut(rows, room, "  "), *tail])


def markdown(verdict: Verdict) -> str:
    """At most `MARKDOWN_LINES` lines."""
    head = [f"### {_escaped(words.headline(verdict))}", ""]
    findings = [f"- {_escaped(words.finding(f))}" for f in words.others(verdict)]
    findings = words.cut(findings, 5, "- ")
    tail = [f"- {_escaped(fix)}" for fix in words.cut(words.fixes(verdict), 3, "")]
    if verdict.changed:
        tail.append(f"- changed, too: {_escaped(words.changed(verdict.changed))}")
    tail += [f"- {_escaped(formatting.words(r, 200))}" for r in verdict.remarks[:3]]
    tail += [f"- trend of {_escaped(t)}" for t in words.trends(verdict)[:2]]
    shown = words.shown(verdict)
    # Two of the table's head, and two empty lines around it.
    room = MARKDOWN_LINES - len(head) - len(findings) - len(tail) - 4
    rows = [_row(j) for j in shown]
    if len(rows) > room:
        left = len(rows) - room + 1
        rows = [*rows[: room - 1], f"| and {left} more | | | | | |"]
    table = [*_HEAD, *rows] if rows else []
    blocks = ["\n".join(block) for block in (findings, table, tail) if block]
    return "\n".join(head) + "\n" + "\n\n".join(blocks) + "\n"


def _row(of: Judged) -> str:
    cells = (
        f"{of.side} {words.name(of)}",
        words.amount(of, of.before),
        words.amount(of, of.after),
        words.change(of),
        words.allowed(of),
        words.status(of),
    )
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """Names from files are text: no markup, no mention, no cell's end."""
    for sign in "\\`*_[]<>|~#":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("@", "@\u200b")
