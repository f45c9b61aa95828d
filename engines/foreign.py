"""An engine that was built elsewhere, taken into a run as its engine of one precision.

It is the user's own (``trtexec --saveEngine``, another program), built from the run's ONNX file:
its layers are then resolved as those of an engine of ours. What its build was is not known, so
there is no noise of rebuilding, and network.json is empty: layers that TensorRT left unnamed go by
their order.
"""

from __future__ import annotations

from pathlib import Path

from ..core.cli.progress import log, progress
from ..core.errors import InputError
from ..core.files import machine_lock
from ..core.run import Run, Step
from .backend import Backend, BuildOptions, check_precision, nodes_path, require


def take(run: Run, precision: str, backend: Backend, file: Path) -> None:
    """Copy the engine into the run, list its layers and record where it is from.

    InputError where the file, the run's export or the backend does not allow it; ToolMissing where
    nothing here can load it.
    """
    if not backend.takes_engines:
        raise InputError(
            f"{backend.name} takes no engine that was built elsewhere", fix="use --backend tensorrt"
        )
    check_precision(backend, precision)
    if not file.is_file():
        raise InputError("no such engine file", file=file)
    nodes = nodes_path(run, backend.source(run, precision).stem)
    if not nodes.exists():
        raise InputError("no such file", file=nodes, fix="run the export stage")
    options = {"built_elsewhere": True, "backend": backend.options(BuildOptions())}
    outputs = backend.outputs(run, precision)
    inputs = [file.absolute(), nodes]
    step = Step(run, f"engines/{precision}.{backend.name}", options, inputs, outputs)
    if step.valid():
        log(f"{step.name}: up to date")
        return
    require(backend)
    what = f"taking {file.name} as {step.name}"
    with machine_lock(what), progress(what), step.recording() as facts:
        facts.update(backend.take(run, precision, file))
