"""However much a gate has to say, it says it on one screen, and in 25 lines of a pull request."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from layerline.analysis.model.verdict import Changed, Finding, Judged, Status, Verdict
from layerline.analysis.report.gate import ci, text

EVIL = "h.0.<script>|`@team`\x1b[31m::error::\n%0A"


def judged(i: int, status: Status) -> Judged:
    return Judged(
        side=f"engine/fp16.{i % 7}/inference",
        what=("latency", "kind", "module")[i % 3],
        name=EVIL if i % 5 == 0 else f"h.{i}.attn",
        unit="ns",
        before=1e6,
        after=1.1e6,
        change=0.1,
        low=0.09,
        high=0.11,
        limit=0.03,
        visible=0.04,
        status=status,
        decides=i % 2 == 0,
        units=(5, 5),
        why="it grew; by more than the limit or not is not sure",
        fix=f"do this, {i}",
    )


def verdict(n: int) -> Verdict:
    statuses = [*Status]
    return Verdict(
        before="ci/cost.json",
        after="runs/new",
        judged=[judged(i, statuses[i % len(statuses)]) for i in range(3 * n)],
        findings=[Finding(f"side {i}", Status.WORSE, EVIL * 20, "fix") for i in range(n)],
        changed=[Changed(f"fact {i}", "one" * 30, "other" * 30) for i in range(n)],
        remarks=["a remark " * 60] * n,
        trend=[(f"side {i}", list(range(1, 60))) for i in range(n)],
    )


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 9, 40])
def test_no_verdict_is_longer_than_a_screen(n: int) -> None:
    shown, markdown = text.terminal(verdict(n)), text.markdown(verdict(n))
    assert len(shown.splitlines()) <= text.LINES
    assert len(markdown.rstrip("\n").split("\n")) <= text.MARKDOWN_LINES
    for made in (shown, markdown):
        assert "\x1b" not in made
    assert "<script>" not in markdown and "@team" not in markdown
    if n > 3:
        assert " more" in shown  # what is left out is counted


@pytest.mark.parametrize("n", [0, 1, 40])
def test_no_name_breaks_a_machines_form(n: int) -> None:
    root = ET.fromstring(ci.junit(verdict(n)))
    assert int(root.get("tests", -1)) == len(root.findall(".//testcase")) == 4 * n
    assert int(root.get("failures", -1)) == len(root.findall(".//failure"))
    for line in ci.annotations(verdict(n)).splitlines():
        assert line.startswith(("::notice ", "::warning", "::error "))
    assert len(ci.annotations(verdict(n)).splitlines()) <= 20
