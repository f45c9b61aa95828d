"""The values of module outputs: of eager, of the export, of the engine, of a module alone.

The engine's are read from what is nearest to it: of an ONNX Runtime engine, itself an ONNX file,
from the same file with more outputs; else from a second engine of the same options in which these
tensors are outputs. That can hide a fault, for a kernel that writes a tensor is not fused across
it: the second engine's outputs have to be as wrong as the first's, or it is no evidence.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import LayerlineError
from ...core.files import read_json
from ...core.run import Run
from ...engines import launch
from ...engines.backend import inputs_path, nodes_path, with_external_data
from ..eager import process
from ..engine.measure import SPARE_SECONDS, Subject, arrays
from . import graphs
from .tensors import Eager, Placed

Arrays = dict[str, Any]
_QUICK = "1"  # the level that builds in seconds instead of minutes; the same arithmetic


class Reference:
    """The modules of a run's eager model, run once, when they are first asked for. `worker`: one
    that has the model already, of `process.WORKER`."""

    def __init__(self, run: Run, worker: launch.Serving | None = None) -> None:
        self._run, self._worker = run, worker

    @cached_property
    def modules(self) -> list[Eager]:
        """As of `eager`."""
        with tempfile.TemporaryDirectory(prefix="layerline-eager-") as name:
            return eager(self._run, Path(name), self._worker)


def eager(run: Run, folder: Path, worker: launch.Serving | None = None) -> list[Eager]:
    """Every module of the eager model, in the order in which they ended."""
    values, index = folder / "eager.npz", folder / "eager.json"
    process.module_outputs(run, values, index, worker)
    kept = arrays(values)
    return [
        Eager(
            m["path"],
            m["class"],
            [kept[k] for k in m["inputs"]],
            None if m["output"] is None else kept[m["output"]],
        )
        for m in read_json(index)["modules"]
    ]


@dataclass(frozen=True)
class OnnxSource:
    """The tensors of an ONNX file: a `tensors.Source`. `types`: of nodes.json."""

    of: Subject
    placed: Sequence[Placed]
    ends: Sequence[str]
    types: Mapping[str, Any]
    folder: Path
    parts: bool = True

    def same_engine(self, names: Iterable[str]) -> Arrays:
        """See `same_engine`."""
        return same_engine(self.of, names, self.folder)

    def second_engine(self, names: Iterable[str]) -> Arrays:
        """See `second_engine`."""
        return second_engine(self.of, names, self.types, self.folder)

    def before(self, names: Iterable[str]) -> Arrays:
        """See `export`."""
        return export(self.of, names, self.folder)

    def alone(self, tensor: str, given: Mapping[str, Any]) -> Arrays:
        """See `alone`."""
        return alone(self.of, tensor, given, self.types, self.folder)


def export(of: Subject, names: Iterable[str], folder: Path) -> Arrays:
    """Tensors of the ONNX file that the engine was built from, in ONNX Runtime on the CPU with its
    optimisations off; empty where its kernels do not cover the file."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    from ...export.parity import run_file

    source = of.backend.source(of.run, of.precision)
    file = folder / "marked.export.onnx"
    graphs.with_outputs(source, file, names)
    onnxruntime.set_default_logger_severity(4)
    try:
        return run_file(file, arrays(inputs_path(of.run)))
    except (state.NotImplemented, state.Fail, state.InvalidGraph):
        return {}


def same_engine(of: Subject, names: Iterable[str], folder: Path) -> Arrays:
    """Tensors of an engine that is an ONNX file: those that its optimiser left."""
    if of.backend.suffix != ".onnx":
        return {}
    file = folder / "marked.engine.onnx"
    graphs.with_outputs(of.engine, file, names)
    return _outputs(of, file, folder / "engine.npz")


def second_engine(
    of: Subject, names: Iterable[str], types: Mapping[str, Any], folder: Path
) -> Arrays:
    """Tensors of an engine built again with these as outputs."""
    source = of.backend.source(of.run, of.precision)

    def write(file: Path) -> set[str]:
        return graphs.with_outputs(source, file, names, types)

    return _built(of, write, arrays(inputs_path(of.run)), folder / "second")


def alone(
    of: Subject, tensor: str, given: Mapping[str, Any], types: Mapping[str, Any], folder: Path
) -> Arrays:
    """A tensor of an engine of the part that makes it from `given`, eager's values of others."""
    source = of.backend.source(of.run, of.precision)
    inputs = arrays(inputs_path(of.run))
    typed = {k: v.astype(types[k]["dtype"]) for k, v in given.items() if _numpy(types.get(k))}

    def write(file: Path) -> set[str]:
        return graphs.part(source, file, typed, tensor, types)

    return _built(of, write, {**inputs, **typed}, folder / "alone")


def _numpy(described: Any) -> bool:
    return bool(described) and described.get("dtype") in ("float32", "float16")


def _built(
    of: Subject, write: Callable[[Path], set[str]], inputs: Mapping[str, Any], folder: Path
) -> Arrays:
    """The outputs of an engine that is built, in `folder`, of the file that `write` makes of the
    source; `write` gives the names of its inputs."""
    shutil.rmtree(folder, ignore_errors=True)
    second = Run(folder)
    target = second.file("export") / of.backend.source(of.run, of.precision).name
    target.parent.mkdir(parents=True)
    needed = write(target)
    nodes = nodes_path(of.run, of.precision)
    (target.parent / nodes.name).symlink_to(nodes.resolve())
    np.savez(inputs_path(second), **{k: v for k, v in inputs.items() if k in needed})
    options = {**of.record.get("options", {}), "timing_cache": None}
    quick = {} if of.backend.suffix == ".onnx" else {"optimization_level": _QUICK}
    try:
        of.backend.build(second, of.precision, options | quick)
    except LayerlineError:
        if not quick:
            raise
        # The engine's own level may have a kernel for what this level has none for.
        of.backend.build(second, of.precision, options)
    engine = of.backend.engine(second, of.precision)
    return _outputs(of, engine, folder / "outputs.npz", second)


def _outputs(of: Subject, engine: Path, raw: Path, run: Run | None = None) -> Arrays:
    job = of.job("outputs", raw, engine=engine)
    if run is not None:
        job["inputs"] = str(inputs_path(run))
    launch.call(of.backend.worker(), job, timeout=SPARE_SECONDS)
    return arrays(raw)


def reads(of: Subject) -> Sequence[Path]:
    """The files that all of this is made from."""
    source = of.backend.source(of.run, of.precision)
    if not of.backend.from_onnx:
        return [source]
    return [*with_external_data(source), nodes_path(of.run, of.precision)]
