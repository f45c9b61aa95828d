"""Around all ranks of a node: ``python -m layerline.profile.ranks.node COMMAND …``.

Whatever dies without a word, torchrun or a keeper, its descendants become children of this process,
which ends when the last of them has ended: keepers have `SECONDS` to end their ranks in good
order, anything else has none.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from .processes import adopt_orphans, children, dying_with_parent, end_children, end_with_parent

KEEPER = "layerline.profile.ranks.keeper"
SECONDS = 30.0  # more than a keeper takes


def main(command: list[str]) -> int:
    """Run the command; gives its exit status, 128 + N after signal N."""
    end_with_parent()
    adopt_orphans()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, preexec_fn=dying_with_parent(signal.SIGTERM)
    )

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, pass_on)
    code = process.wait()
    end = time.monotonic() + SECONDS
    while any(map(_is_keeper, children())) and time.monotonic() < end:
        time.sleep(0.05)
    end_children()
    return code if code >= 0 else 128 - code


def _is_keeper(process: int) -> bool:
    with contextlib.suppress(OSError):
        return KEEPER.encode() in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
