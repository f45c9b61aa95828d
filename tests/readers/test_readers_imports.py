"""Files are read without the packages that made them, and without what only a report needs."""

from __future__ import annotations

import json
import subprocess
import sys

PROBE = """
import importlib, json, sys
from pathlib import Path
import layerline.analysis.readers as readers
names = []
for root in map(Path, readers.__path__):
    for file in root.rglob("*.py"):
        parts = file.relative_to(root).with_suffix("").parts
        names.append(".".join((readers.__name__, *parts)))
        importlib.import_module(names[-1])
print(json.dumps([names, sorted(sys.modules)]))
"""
UNNEEDED = {"torch", "onnx", "pandas", "matplotlib", "onnxruntime", "tensorrt", "transformers"}


def test_importing_every_reader_needs_no_framework():
    command = [sys.executable, "-c", PROBE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    names, modules = json.loads(done.stdout)
    assert "layerline.analysis.readers.torch.trace" in names and len(names) > 25
    assert not UNNEEDED & set(modules)
