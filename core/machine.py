"""What this machine is and how busy it is: facts for the manifest, without any GPU library."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

LIBRARIES = (
    "layerline",
    "torch",
    "transformers",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "onnxruntime-gpu",
    "tensorrt",
    "tensorrt-rtx",
    "polygraphy",
    "pandas",
    "numpy",
    "pyarrow",
    "ncu-report",
)


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that are installed; nothing is imported."""
    installed = {"python": platform.python_version()}
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed


def _first_line(path: str) -> str | None:
    try:
        return Path(path).read_text().split("\n", 1)[0].strip() or None
    except OSError:
        return None


def field(path: str, key: str) -> str | None:
    """The value of the first ``key: value`` in a file of Linux; None without one."""
    with contextlib.suppress(OSError):
        for line in Path(path).read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    return None


def usable_cpus() -> int:
    """CPUs that this process may use (affinity, not the machine's total)."""
    return len(os.sched_getaffinity(0))


def _kib(key: str) -> int | None:
    value = field("/proc/meminfo", key)
    return None if value is None else int(value.split()[0]) * 1024


def state() -> dict[str, Any]:
    """The machine now: CPU model, governor, frequency, load, memory in bytes. Unknown is None."""
    frequency = field("/proc/cpuinfo", "cpu MHz")
    return {
        "cpu": field("/proc/cpuinfo", "model name") or platform.processor() or None,
        "cpus_usable": usable_cpus(),
        "cpus": os.cpu_count(),
        "governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "mhz": None if frequency is None else float(frequency),
        "load_1min": os.getloadavg()[0],
        "memory_bytes": _kib("MemTotal"),
        "memory_available_bytes": _kib("MemAvailable"),
        "kernel": platform.release(),
        "system": platform.system(),
    }
