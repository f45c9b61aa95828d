"""What is said of errors of libraries, and what of their noise is not."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from layerline.export.quiet import gist, quiet

torch = pytest.importorskip("torch")


def raised(error: BaseException, around: BaseException | None = None) -> BaseException:
    """An error as it is caught, below one that wraps it."""
    try:
        try:
            raise error
        except type(error) as e:
            if around is None:
                raise
            raise around from e
    except BaseException as e:  # noqa: BLE001
        return e


def test_of_a_command_that_failed_what_it_printed_is_told() -> None:
    """Kind: a C++ compiler that torch.compile calls, whose command line is pages long."""
    print_ = (
        "print('note: 3 files'); print('a.cpp:1: fatal error: Python.h: No such file'); exit(1)"
    )
    with pytest.raises(subprocess.CalledProcessError) as caught:
        subprocess.run(
            [sys.executable, "-c", print_, "x" * 1000], check=True, stdout=subprocess.PIPE
        )
    text = gist(raised(caught.value, RuntimeError("C++ compile error")))
    assert text == "CalledProcessError: a.cpp:1: fatal error: Python.h: No such file"


def test_what_a_compiler_raises_inside_torch_compile_is_told() -> None:
    error = torch._dynamo.exc.BackendCompilerFailed(print, LookupError("no compiler"), None)
    assert gist(raised(error)) == "LookupError: no compiler"


def test_a_quantised_model_is_said_to_be_what_cannot_be_captured() -> None:
    what = "__torch__.torch.classes.quantized.LinearPackedParamsBase (of Python compilation unit)"
    error = AttributeError(f"{what} does not have a field with name '__obj_flatten__'")
    assert "as torch.ao's quantised ones do" in gist(raised(error))


def test_a_warning_of_torchs_insides_is_not_printed(caplog: pytest.LogCaptureFixture) -> None:
    """Kind: "Unable to find user code corresponding to {u0}", before an error that says it."""
    log = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    with quiet():
        assert not log.isEnabledFor(logging.WARNING)
    assert log.isEnabledFor(logging.WARNING)
