"""nsys around a worker: what it says where it may not trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerline.core.errors import ToolMissing
from layerline.engines.backend import Worker
from layerline.profile import nsys

RUNS_THE_WORKER = """#!/usr/bin/env python3
import json, sys
job = json.load(open(sys.argv[-1]))
json.dump({"protocol": 1, "ok": True}, open(job["result"], "w"))
print(SAID)
"""


@pytest.mark.parametrize(
    ("said", "what", "fix"),
    [
        ("perf_event_paranoid is 4\\nno report", "may not trace here: no report", "to 2 or less"),
        ("disk full", "wrote no report: disk full", "nsys status"),
    ],
)
def test_why_there_is_no_report_is_what_nsys_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, what: str, fix: str
) -> None:
    tool = tmp_path / "nsys"
    tool.write_text(RUNS_THE_WORKER.replace("SAID", f'"{said}"'))
    tool.chmod(0o755)
    monkeypatch.setenv("NSYS", str(tool))
    report = tmp_path / "a.nsys-rep"
    with pytest.raises(ToolMissing) as caught:
        nsys.capture(Worker(("w",)), {}, report, tmp_path / "a.sqlite", what="it", timeout=60)
    assert what in caught.value.line() and fix in caught.value.line()
    assert not report.exists()
