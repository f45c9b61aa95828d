"""TensorRT 8.6 to 11 and TensorRT-RTX under one set of names: what differs is asked of the library.

Nothing here goes by version number: a feature is used when the installed library has it. Runs on
Python 3.10 with TensorRT, numpy and polygraphy only.

What differs, and how it is told apart:

- Typing. `BuilderFlag.FP16` exists up to TensorRT 10: precision is a flag. In 11 and in RTX it is
  gone: precision comes from the types in the ONNX file (`strongly_typed`).
- `NetworkDefinitionCreationFlag.EXPLICIT_BATCH` is needed by 8.x and absent from 11.
- `set_compute_capability` (RTX): builds for a named architecture on a machine without a GPU.
- Timing caches: RTX has none (kernels are compiled when the engine is loaded).
"""

from __future__ import annotations

import collections
import importlib
import os
import re
from collections.abc import Callable
from typing import Any

import tensorrt_log_layers as log_layers


def load(backend: str) -> Any:
    """Import the library of `backend`, and make polygraphy use the same one. ImportError as is."""
    if backend == "tensorrt-rtx":
        os.environ["POLYGRAPHY_USE_TENSORRT_RTX"] = "1"  # read when polygraphy is imported
    return importlib.import_module(backend.replace("-", "_"))


def strongly_typed(trt: Any) -> bool:
    """Whether precision comes from the types in the ONNX file, because there is no flag for it."""
    return not hasattr(trt.BuilderFlag, "FP16")


def facts(trt: Any) -> dict[str, Any]:
    """The library's version, and whether the ONNX file decides precision."""
    return {"tensorrt": trt.__version__, "strongly_typed": strongly_typed(trt)}


def message_kind(text: str) -> str:
    """A log message without what varies: numbers, names in quotes, file positions."""
    text = re.sub(r"\[[^\]]*::[^\]]*\]|^\S+\.cpp:\d+: ", "", text)
    text = re.sub(r"'[^']*'|\"[^\"]*\"|\{[^}]*\}", "…", text)
    return re.sub(r"\d+(\.\d+)?", "N", text).strip()[:160]


def make_logger(trt: Any) -> Any:
    """A logger that counts warnings and errors by kind and keeps the errors' text.

    `.counts`: {"warning": Counter, "error": Counter}; `.errors`: list of texts, oldest first;
    `.layers`: the verbose message that lists the engine's layers, where one came.
    """

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.counts: dict[str, collections.Counter[str]] = {
                "warning": collections.Counter(),
                "error": collections.Counter(),
            }
            self.errors: list[str] = []
            self.layers: str | None = None

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                self.counts["error"][message_kind(message)] += 1
                self.errors.append(message)
            elif severity == trt.ILogger.WARNING:
                self.counts["warning"][message_kind(message)] += 1
            elif message.startswith(log_layers.BEGIN):
                self.layers = message

        def counted(self) -> dict[str, dict[str, int]]:
            """The counts as dictionaries, most frequent first."""
            return {level: dict(c.most_common()) for level, c in self.counts.items()}

    return Logger()


def create(make: Callable[[Any], Any], logger: Any) -> Any:
    """A builder or a runtime; None where the library gives none, its reason in `logger.errors`."""
    try:
        return make(logger)
    except (TypeError, RuntimeError) as e:  # pybind11's ways to say so
        logger.errors[:] = logger.errors or [str(e)]
        return None
