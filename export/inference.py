"""Which inference libraries are here, and in which version. Imports none of them.

The names of backends are here (`BACKENDS`): the export needs to know what the engine will be built
with, and imports no engines. The class that builds with one is in `engines.backend`.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..core.cpp_compiler import compiler
from ..core.errors import InputError
from ..core.tool_commands import words

CUDA_PROVIDER = "libonnxruntime_providers_cuda.so"
_ONE_WHEEL = 'pip uninstall onnxruntime, then pip install "layerline[gpu]"'


@dataclass(frozen=True)
class Unavailable:
    """Why a backend does not run here, and what to do about it."""

    reason: str
    remedy: str


def no_gpu() -> Unavailable | None:
    """None where a driver shows an NVIDIA GPU (Linux, WSL); needs no library and no process."""
    if Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists():
        return None
    return Unavailable("no NVIDIA GPU here", "run this stage on a machine with a GPU")


def tensorrt_python() -> list[str]:
    """The interpreter that has TensorRT, as a command: TRT_PYTHON, else this one."""
    return words("TRT_PYTHON") or [sys.executable]


def no_tensorrt_python() -> Unavailable | None:
    """None where `tensorrt_python` is there."""
    python = tensorrt_python()[0]
    if shutil.which(python) is None:
        return Unavailable(f"TRT_PYTHON={python} is not there", "name an interpreter that is")
    return None


@cache
def distribution_version(python: tuple[str, ...], distribution: str) -> str | None:
    """The version that an interpreter has of a package; None where it has none."""
    code = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    done = subprocess.run([*python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None if done.returncode == 0 else None


def _tensorrt() -> Unavailable | None:
    return _no_tensorrt("tensorrt") or no_gpu()


def _tensorrt_rtx() -> Unavailable | None:
    return _no_tensorrt("tensorrt-rtx")  # it builds here for another machine's GPU


def _no_tensorrt(distribution: str) -> Unavailable | None:
    module = distribution.replace("-", "_")
    if not words("TRT_PYTHON") and importlib.util.find_spec(module) is None:
        return Unavailable(
            f"{module} is not installed",
            f"pip install {distribution}, or TRT_PYTHON=an interpreter that has it",
        )
    return no_tensorrt_python()


def _onnxruntime() -> Unavailable | None:
    if importlib.util.find_spec("onnxruntime") is None:
        return Unavailable("onnxruntime is not installed", 'pip install "layerline[cpu]"')
    if importlib.util.find_spec("onnx") is None:
        return Unavailable("onnx is not installed", 'pip install "layerline[model]"')
    return None


def _onnxruntime_cuda() -> Unavailable | None:
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None:
        return Unavailable("onnxruntime-gpu is not installed", 'pip install "layerline[gpu]"')
    folders = spec.submodule_search_locations or ()
    if not any(Path(folder, "capi", CUDA_PROVIDER).exists() for folder in folders):
        return Unavailable("the onnxruntime that is installed has no CUDA provider", _ONE_WHEEL)
    return _onnxruntime() or no_gpu()


def no_torch() -> Unavailable | None:
    """None where torch is installed."""
    if importlib.util.find_spec("torch") is None:
        return Unavailable("torch is not installed", 'pip install "layerline[model]"')
    return None


def _inductor() -> Unavailable | None:
    if (missing := no_torch()) is not None or compiler() is not None:
        return missing
    return Unavailable("no C++ compiler here", "install g++, or name a compiler with CXX=…")


# The order is that of preference.
_LIBRARIES: dict[str, Callable[[], Unavailable | None]] = {
    "tensorrt": _tensorrt,
    "onnxruntime-cuda": _onnxruntime_cuda,
    "onnxruntime": _onnxruntime,
    "inductor": _inductor,
    "tensorrt-rtx": _tensorrt_rtx,
}
BACKENDS = tuple(_LIBRARIES)


def known(name: str) -> str:
    """The name of a backend; InputError for one that there is not."""
    if name not in _LIBRARIES:
        raise InputError(f"no backend {name!r}", fix=f"known are {', '.join(BACKENDS)}")
    return name


def unavailable(name: str) -> Unavailable | None:
    """None where this backend runs here; cheap, starts no process."""
    return _LIBRARIES[name]()


def tensorrt_version(name: str) -> str | None:
    """The version of TensorRT or TensorRT-RTX that `tensorrt_python` has; None: none, or another
    backend."""
    if not name.startswith("tensorrt") or no_tensorrt_python():
        return None
    return distribution_version(tuple(tensorrt_python()), name)
