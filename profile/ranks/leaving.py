"""How a rank leaves a job before its end: with its captures, and a word on where it was."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
from pathlib import Path
from typing import Any

from ...core.files import replacing
from .diagnosis import RECORDED


def exit_when_told() -> None:
    """Make SIGTERM end the program as `sys.exit` does, after its stack is printed; unless it has a
    handler of its own."""

    def leave(number: int, _frame: Any) -> None:
        faulthandler.dump_traceback()  # which tells whoever reads the log where this rank was
        raise SystemExit(128 + number)

    here = threading.current_thread() is threading.main_thread()
    if here and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, leave)


def leave_group() -> None:
    """Be no member of the job's process group any longer, without which NCCL warns."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def dump_collectives(folder: Path) -> None:
    """Leave the Flight Recorder's dump of this rank; nothing where PyTorch has none. NCCL's is
    written by its own watchdog."""
    from torch._C import _distributed_c10d

    dump = getattr(_distributed_c10d, "_dump_fr_trace", None)
    path = folder / f"{RECORDED}{os.environ.get('RANK', '0')}"
    if dump is None or path.exists():
        return
    data = dump(True, True, False)  # collectives, with stack traces, those that are done too
    with contextlib.suppress(OSError), replacing(path) as temporary:
        temporary.write_bytes(data)
