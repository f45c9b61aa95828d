"""nsys around a worker: what it says where it may not trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from serving_fakes import install, worker

from layerline.core.errors import ToolMissing
from layerline.engines.backend import Worker
from layerline.profile import nsys

RUNS_THE_WORKER = """#!/usr/bin/env python3
import json, os, sys
for path in iter(open(sys.argv[-1]).readline, "\\n"):
    job = json.load(open(path.strip()))
    with open(job["result"] + ".new", "w") as f:
        json.dump({"protocol": 1, "ok": True}, f)
    os.rename(job["result"] + ".new", job["result"])
print(SAID)
"""


@pytest.mark.parametrize(
    ("said", "what", "fix"),
    [
        ("perf_event_paranoid is 4\\nno report", "may not trace here: no report", "to 2 or less"),
        ("disk full", "wrote 0 of 1 reports: disk full", "nsys status"),
    ],
)
def test_why_there_is_no_report_is_what_nsys_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, what: str, fix: str
) -> None:
    tool = tmp_path / "nsys"
    tool.write_text(RUNS_THE_WORKER.replace("SAID", f'"{said}"'))
    tool.chmod(0o755)
    monkeypatch.setenv("NSYS", str(tool))
    with nsys.Captures(Worker(("w",))) as captures:
        captures.call({}, "it", 60)
        with pytest.raises(ToolMissing) as caught:
            captures.reports(60)
    assert what in caught.value.line() and fix in caught.value.line()


def test_reports_of_one_nsys_come_in_the_order_of_their_captures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By nsys's number, ten after nine."""
    install(tmp_path, monkeypatch)
    with nsys.Captures(worker(), 11) as captures:
        for number in range(11):
            captures.call({"task": "eager", "mark": f"mark{number}"}, "it", 60)
        assert [r.read_text() for r in captures.reports(60)] == [f"mark{n}" for n in range(11)]
