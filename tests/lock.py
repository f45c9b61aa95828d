"""Resolve requirements.lock and requirements-cuda.lock for Python 3.11 to 3.13 on Linux.

torch from PyPI brings CUDA libraries, its CPU build none. Which of the two an index serves is not
ours to say, so the CUDA libraries stand in a constraints file of their own: pinned where torch
asks for them, not installed where it does not.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CUDA = re.compile(r"^(nvidia-|cuda-|triton==)")
TORCH = "torch==2.13.0"


def main() -> None:
    """Run uv and split its answer."""
    command = [
        *(Path(sys.executable).parent / "uv", "pip", "compile", "pyproject.toml"),
        *("--extra", "model", "--extra", "cpu", "--extra", "ncu", "--extra", "plots"),
        *("--extra", "graph", "--extra", "tensorboard", "--extra", "cluster", "--extra", "dev"),
        *(
            "--universal",
            "--python-version",
            "3.11",
            "--no-annotate",
            "--no-header",
            "--quiet",
            "--upgrade",
        ),
        *("--constraint", "-"),
    ]
    answer = subprocess.run(
        command, cwd=ROOT, input=TORCH, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name, wanted in (("requirements.lock", False), ("requirements-cuda.lock", True)):
        lines = [line for line in answer if bool(CUDA.match(line)) == wanted]
        head = "# Exact versions; written by `make lock`.\n"
        (ROOT / name).write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
