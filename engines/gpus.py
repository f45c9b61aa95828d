"""Whether this machine has an NVIDIA GPU, and which; without a library or a process."""

from __future__ import annotations

from pathlib import Path

from .backend import Unavailable


def missing() -> Unavailable | None:
    """Null where a driver shows a GPU (Linux, WSL)."""
    if Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists():
        return None
    return Unavailable("no NVIDIA GPU here", "run this stage on a machine with a GPU")


def models() -> list[str]:
    """Models of the GPUs here, as the driver tells in /proc; engines are built for one."""
    found = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        lines = path.read_text(errors="replace").splitlines()
        found += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return found
