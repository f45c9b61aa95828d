"""Counters as a part of `layerline profile`: taken where ncu may and can, else said why not."""

from __future__ import annotations

from ...core.cli.progress import log
from ...core.errors import LayerlineError, ToolMissing
from .. import steps
from ..eager.process import cuda_usable
from ..engine.measure import Subject
from . import capture, command, tool
from . import target as target_

OPTIONS = tool.Options(sections=(tool.DEFAULT_SECTION,), roofline=True)
TIMEOUT = 1800.0
INSTALL = "install Nsight Compute, or name it with NCU=…"


def why_not() -> tuple[str, str] | None:
    """Why no counters are read here, with what to do; None where it can be tried."""
    try:
        tool.command()
    except ToolMissing as e:
        return e.what, e.fix or INSTALL
    if not cuda_usable():
        return "ncu reads the counters of NVIDIA GPUs, and there is none", "use a GPU"
    return None


def _no_nsys_capture(of: Subject) -> tuple[str, str] | None:
    """Why this engine's launches are not told apart, or None."""
    if of.capture(".sqlite").exists():
        return None
    return "no nsys capture tells its launches", "profile it where nsys is installed"


def counters(
    of: Subject, *, by_name: bool, refused: tuple[str, str] | None
) -> tuple[str, str] | None:
    """Capture an engine's counters at the fraction; gives why they were refused, or None.

    A capture that is there and valid with whatever options stays. What is missing is left as a
    fact and the rest goes on, unless the user asked for counters `by_name`: LayerlineError then.
    `refused`: why they were refused for an engine before; it is not tried again, nor said.
    """
    target = target_.engine_target(of)
    if _kept(target):
        return refused
    name = f"profile/{target.stem}.ncu"
    everywhere = refused or why_not()
    why = everywhere or _no_nsys_capture(of)
    if why is not None:
        if by_name:
            raise ToolMissing(why[0], fix=why[1])
        if refused is None:
            log(f"{name}: {why[0]}; {why[1]}")
        _skip(of, name, why)
        return everywhere
    try:
        command.measure_one(target, OPTIONS, every=False, timeout=TIMEOUT)
    except LayerlineError as e:
        if by_name:
            raise
        log(f"{name}: {e.line()}")
        why = (e.what, e.fix or "run `layerline ncu`")
        _skip(of, name, why)
        return why if isinstance(e, ToolMissing) else None
    return None


def command_lines(of: Subject) -> str:
    """The command, or why there is none, for ``--dry-run``."""
    why = why_not()
    if why is not None:
        return f"# counters are not read: {why[0]}"
    line = command.command_line(target_.engine_target(of), OPTIONS, every=False)
    if _no_nsys_capture(of) is None:
        return line
    return "# of equal launches one or two, by --kernel-id from the nsys capture:\n" + line


def _kept(target: target_.Target) -> bool:
    suffixes = list(capture.SUFFIXES)
    last = command.step_of(target, {}, suffixes).manifest() or {}
    options = last.get("options") or {}
    return "skipped" not in options and command.step_of(target, options, suffixes).valid()


def _skip(of: Subject, name: str, why: tuple[str, str]) -> None:
    steps.skip(of.run, name, f"counters of {of.precision} {of.backend.name}", *why)
