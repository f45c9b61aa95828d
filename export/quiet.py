"""Third-party noise, silenced narrowly: what is known to mean nothing, and only around the call."""

from __future__ import annotations

import contextlib
import logging
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from subprocess import CalledProcessError
from traceback import walk_tb
from unittest import mock

# Category, text: warnings of the libraries about their own insides, nothing a user could act on.
KNOWN_WARNINGS: tuple[tuple[type[Warning], str], ...] = (
    # torch.export unpickles tree specs of its own making (torch 2.13).
    (FutureWarning, r"`isinstance\(treespec, LeafSpec\)` is deprecated"),
    # torch.onnx and torch.export on their own transitional APIs.
    (DeprecationWarning, r".*torch\.(jit|ao|onnx|export|utils).*deprecated"),
    (UserWarning, r"# The axis name: .* will not be used"),
    # onnxscript folds a mask's -1e9 into fp16, where it is -inf; parity tells where that matters.
    (RuntimeWarning, "overflow encountered in cast"),
    # torch.export on the flat weights of torch's own recurrent modules.
    # torch.compile's tracer, which the exporter tries as well, on `tracing`.
    (UserWarning, r"Dynamo does not know how to trace the builtin"),
    (UserWarning, r"The tensor attributes? .* (was|were) assigned during export"),
)
# Loggers that report missing torchvision operators, constant folding that was not possible, or in
# pages of tracebacks what is raised then, too.
NOISY_LOGGERS = (
    "torch.onnx", "torch.export", "torch._subclasses", "torch.fx.experimental.symbolic_shapes",
    "onnxscript", "onnx_ir",
)  # fmt: skip


@contextlib.contextmanager
def quiet(verbose: bool = False) -> Iterator[None]:
    """Silence the known noise of torch, transformers and the exporter; not when `verbose`."""
    if verbose:
        yield
        return
    loggers = [logging.getLogger(name) for name in (*NOISY_LOGGERS, "transformers")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        for category, text in KNOWN_WARNINGS:
            warnings.filterwarnings("ignore", message=text, category=category)
        for logger in loggers:
            noisy = logger.name in NOISY_LOGGERS
            logger.setLevel(logging.CRITICAL if noisy else logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


@contextlib.contextmanager
def no_graph_dumps(verbose: bool = False) -> Iterator[None]:
    """torch.export prints the graph up to an error, hundreds of lines, on stderr; not when
    `verbose`."""
    from torch.export import _trace as trace

    if verbose:
        yield
        return
    with mock.patch.object(trace, "print", lambda *_, **__: None, create=True):
        yield


# What the code of a model, or of a library because of it, raises. Running out of memory is not
# among it, nor are our own errors.
FAULTS = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError,
          RuntimeError, TypeError, ValueError)  # fmt: skip
LONGEST = 240
# torch says of it that an object of its own has no field of this name.
_HELD_BY_CPP = (
    "a module keeps weights in an object of C++, as torch.ao's quantised ones do, which "
    "torch.export cannot capture"
)
_PRINTED_ERROR = re.compile(r"^.*\berror\b", re.MULTILINE | re.IGNORECASE)
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def gist(error: BaseException) -> str:
    """The cause at the root of a library's error, in at most `LONGEST` characters of one line.

    The exporter wraps errors in pages of advice; what went wrong is in the innermost cause.
    """
    error = _root(error)
    lines = _ESCAPES.sub("", _text(error)).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0].strip() if lines else 'no message'}"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _text(error: BaseException) -> str:
    """What an error says; of a command that failed what that printed, from its first error on."""
    if not isinstance(error, CalledProcessError) or not error.output:
        return _HELD_BY_CPP if "__obj_flatten__" in str(error) else str(error)
    printed = error.output
    text = printed.decode(errors="replace") if isinstance(printed, bytes) else str(printed)
    first = _PRINTED_ERROR.search(text)
    return text[first.start() :] if first else text


def where(error: BaseException) -> str:
    """``, at FILE:LINE`` of the model's code at the root of a library's error; empty where none is
    known."""
    frames = [
        (Path(frame.f_code.co_filename), line)
        for frame, line in walk_tb(_root(error).__traceback__)
    ]
    of_model = [(path, line) for path, line in frames if not _of_tools(path)]
    return f", at {of_model[-1][0].name}:{of_model[-1][1]}" if of_model else ""


_STANDARD = Path(sysconfig.get_paths()["stdlib"])
_OURS = Path(__file__).parents[1]
_TOOLS = {"torch", "onnxscript", "onnx_ir", "onnx", "numpy"}


def _of_tools(path: Path) -> bool:
    """Whether code is of Python, of an exporter, or ours."""
    parts = path.parts
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1] in _TOOLS
    if not path.is_absolute() or path.is_relative_to(_STANDARD):
        return True
    return path.is_relative_to(_OURS) and "tests" not in parts


def _root(error: BaseException) -> BaseException:
    # What a compiler raises inside torch.compile is an attribute of the error that wraps it.
    while (inner := error.__cause__ or getattr(error, "inner_exception", None)) is not None:
        error = inner
    return error
