"""A program that dies in the middle once and goes on from its checkpoint: ``FOLDER``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def main(folder: str) -> None:
    checkpoint = Path(folder, "checkpoint")
    first = int(checkpoint.read_text()) if checkpoint.exists() else 0
    sys.stdout.write(f"begins at step {first}\n")
    for step in range(first, 4):
        if step == 2 and first == 0:
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        checkpoint.write_text(str(step + 1))
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
