"""A verdict for systems that run it: JUnit XML, and annotations of GitHub's workflows."""

import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Sequence

from ...formatting import visible
from ...model.verdict import Finding, Judged, Status, Verdict
from . import words


def junit(verdict: Verdict) -> str:
    """A test case for each quantity and finding: a failure where it is worse, an error where it
    cannot be told and decides, skipped where it cannot and does not."""
    cases: dict[str, list[Judged | Finding]] = defaultdict(list)
    every: list[Judged | Finding] = [*verdict.findings, *verdict.judged]
    for one in every:
        cases[one.side or "run"].append(one)
    root = ET.Element("testsuites", name="layerline gate")
    totals = [0, 0, 0, 0]
    for side, each in cases.items():
        suite = ET.SubElement(root, "testsuite", name=visible(side))
        counts = [len(each), *(0 for _ in range(3))]
        for one in each:
            kind = _case(suite, side, one)
            if kind:
                counts[("failure", "error", "skipped").index(kind) + 1] += 1
        _count(suite, counts)
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
    _count(root, totals)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ET.Element, side: str, one: Judged | Finding) -> str | None:
    judged = isinstance(one, Judged)
    name = words.name(one) if isinstance(one, Judged) else "comparable"
    text = words.line(one) if isinstance(one, Judged) else words.finding(one)
    case = ET.SubElement(suite, "testcase", classname=visible(side), name=name)
    kind = None
    if one.status is Status.WORSE:
        kind = "failure"
    elif one.status is Status.UNTOLD:
        kind = "error" if not judged or (isinstance(one, Judged) and one.decides) else "skipped"
    if kind is not None:
        ET.SubElement(case, kind, message=visible(text))
    else:
        ET.SubElement(case, "system-out").text = visible(text)
    return kind


def _count(element: ET.Element, counts: Sequence[int]) -> None:
    for name, n in zip(("tests", "failures", "errors", "skipped"), counts, strict=True):
        element.set(name, str(n))


def annotations(verdict: Verdict) -> str:
    """Workflow commands: an error for what is worse, a warning for what cannot be told, and a
    notice of what this comparison could have seen."""
    lines = [_command("notice", "layerline gate", words.headline(verdict))]
    for finding in verdict.findings:
        kind = "error" if finding.status is Status.WORSE else "warning"
        lines.append(_command(kind, finding.side or "layerline gate", words.finding(finding)))
    for judged in words.shown(verdict):
        if judged.status is Status.WORSE:
            lines.append(_command("error", judged.side, words.line(judged)))
        elif judged.status is Status.UNTOLD:
            lines.append(_command("warning", judged.side, f"{words.line(judged)}; {judged.fix}"))
    return "\n".join(words.cut(lines, 20, "::warning::")) + "\n"


def _command(kind: str, title: str, text: str) -> str:
    """Its values are escaped as GitHub's own toolkit does it."""
    title, text = (visible(t).replace("%", "%25") for t in (title, text))
    for sign, code in ((":", "%3A"), (",", "%2C")):
        title = title.replace(sign, code)
    return f"::{kind} title={title}::{text}"
