"""TensorRT and TensorRT-RTX as backends. The library is touched by their worker only.

The worker may run in another interpreter than this one (NGC containers, a system TensorRT):
TRT_PYTHON names it. What the versions differ in is asked of the library by the worker; the one
thing to know here is where precision comes from, which decides the ONNX file that is built.
"""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ..core import nodes
from ..core.errors import InputError, ToolMissing
from ..core.files import read_json, replacing, workspace, write_json
from ..core.machine import state
from ..core.resolve import Network, RawLayer, load_network
from ..core.run import Run
from ..core.tensor_types import joined, precision_of
from ..export import inference, opsets
from . import kept_fp32, layers, opset_faults
from .backend import (
    Backend,
    BuildOptions,
    Worker,
    check_options,
    gpu_models,
    inputs_path,
    nodes_path,
    planned_modules,
)
from .launch import WORKERS, call, job, shell_line
from .layers import EngineLayer


class TensorRTBackend(Backend):
    """TensorRT 8.6 to 11 on the GPU it builds for."""

    name = "tensorrt"
    precisions = ("fp32", "tf32", "fp16", "bf16")
    suffix = ".engine"
    traceable = True
    tells_launches = True
    takes_engines = True
    builder: ClassVar[tuple[str, ...]] = ("workspace_mib", "timing_cache", "precision_plan")

    def options(self, asked: BuildOptions) -> dict[str, Any]:
        check_options(self, asked)
        level = asked.optimization_level
        if level is not None and level not in {str(n) for n in range(6)}:
            raise InputError(
                f"{self.name} has no optimisation level {level!r}", fix="choose 0 to 5"
            )
        return {
            "version": self._version(),
            "gpus": gpu_models(),
            "optimization_level": None if level is None else int(level),
            **dict(asked.build),
        }

    def _version(self) -> str:
        if missing := inference.no_tensorrt_python():
            raise ToolMissing(missing.reason, fix=missing.remedy)
        version = inference.tensorrt_version(self.name)
        if version is None:
            raise ToolMissing(
                f"{shlex.join(inference.tensorrt_python())} has no {self.name}",
                fix=f"pip install {self.name}, or TRT_PYTHON=an interpreter that has it",
            )
        return version

    def strongly_typed(self) -> bool:
        """Whether engines get their precision from the types in the ONNX file."""
        return opsets.typed_by_file(self.name, self._version())

    def source(self, run: Run, precision: str) -> Path:
        typed = precision if self.strongly_typed() and precision != "tf32" else "fp32"
        return run.file("export", f"{typed}.onnx")

    def worker(self) -> Worker:
        return Worker((*inference.tensorrt_python(), str(WORKERS / "tensorrt_worker.py")))

    def job_options(self, run: Run, precision: str) -> dict[str, Any]:
        return {"backend": self.name}

    def network(self, run: Run, precision: str) -> Path:
        """network.json: TensorRT's layers as parsed, with their ONNX nodes."""
        return run.file("engines", f"{precision}.{self.name}.network.json")

    def inspector(self, run: Run, precision: str) -> Path:
        """The engine inspector's JSON, untouched."""
        return run.file("engines", f"{precision}.{self.name}.inspector.json")

    def nodes(self, run: Run, precision: str) -> Path:
        """The nodes of the ONNX file that is built."""
        return nodes_path(run, self.source(run, precision).stem)

    def outputs(self, run: Run, precision: str) -> list[Path]:
        return [*super().outputs(run, precision), self.network(run, precision),
                self.inspector(run, precision)]  # fmt: skip

    def plan(self, run: Run, precision: str, options: Mapping[str, Any]) -> list[str]:
        engine, inspector = self.engine(run, precision), self.inspector(run, precision)
        given = self._build_options(run, precision, options, self.network(run, precision))
        jobs = [self._job("build", run, precision, engine, given)]
        if not options.get("compute_capability"):
            jobs.append(self._job("inspect", run, precision, engine, given, inspector))
        lines = [shell_line(self.worker().command, j) for j in jobs]
        if given.get("fp32_nodes") and self.strongly_typed():
            count = len(given["fp32_nodes"])
            lines.insert(0, f"# from a copy of the ONNX file, with casts around {count} nodes")
        return lines

    def _build_options(
        self, run: Run, precision: str, options: Mapping[str, Any], network: Path
    ) -> dict[str, Any]:
        """The worker's options for a build."""
        nodes_file = self.nodes(run, precision)
        document = read_json(nodes_file) if nodes_file.exists() else {}
        given = {
            **options,
            **self.job_options(run, precision),
            "onnx": str(self.source(run, precision)),
            "nodes": str(self.nodes(run, precision)),
            "network": str(network),
            "remedy": opset_faults.remedy(document, self.name, str(options["version"])),
        }
        if modules := planned_modules(options):
            given["fp32_nodes"] = kept_fp32.kept(self.nodes(run, precision), modules)
        return given

    def _job(
        self,
        task: str,
        run: Run,
        precision: str,
        engine: Path,
        options: Mapping[str, Any],
        raw: Path | None = None,
    ) -> dict[str, Any]:
        return job(task, engine, inputs_path(run), precision, threads=1, options=options, raw=raw)

    def build(self, run: Run, precision: str, options: Mapping[str, Any]) -> dict[str, Any]:
        engine, network = self.engine(run, precision), self.network(run, precision)
        inspector = self.inspector(run, precision)
        document = read_json(self.nodes(run, precision))
        opset_faults.require_none(document, self.name, str(options["version"]))
        with (
            replacing(engine) as new_engine,
            replacing(network) as new_network,
            replacing(inspector) as inspected,
            workspace(engine.with_suffix(".planned")) as folder,
        ):
            given = self._build_options(run, precision, options, new_network)
            if given.get("fp32_nodes") and self.strongly_typed():
                planned = folder / "planned.onnx"
                kept_fp32.write(self.source(run, precision), given["fp32_nodes"], planned)
                given["onnx"] = str(planned)
            elsewhere = options.get("compute_capability") is not None
            if elsewhere:
                # Built for a GPU that is not here: nothing can load it, so nothing can inspect it.
                # The build's log may list its layers.
                write_json(inspected, {"Layers": []})
                given["logged_layers"] = str(inspected)
            building = self._job("build", run, precision, new_engine, given)
            facts: dict[str, Any] = call(self.worker(), building)["facts"]
            if not elsewhere:
                inspecting = self._job("inspect", run, precision, new_engine, given, inspected)
                call(self.worker(), inspecting)
            listed = self._listed(run, precision, inspected, load_network(new_network))
        write_json(self.layers(run, precision), listed)
        self._record(run, precision, {"options": dict(options), **facts})
        return facts

    def take(self, run: Run, precision: str, file: Path) -> dict[str, Any]:
        engine, inspector = self.engine(run, precision), self.inspector(run, precision)
        with replacing(engine) as copied, replacing(inspector) as inspected:
            shutil.copyfile(file, copied)
            given = self.job_options(run, precision)
            inspecting = self._job("inspect", run, precision, copied, given, inspected)
            facts = {
                **call(self.worker(), inspecting)["facts"],
                "built_elsewhere": True,
                "file": file.name,
                "engine_bytes": file.stat().st_size,
            }
            listed = self._listed(run, precision, inspected)
        write_json(self.network(run, precision), {"schema_version": 1, "layers": []})
        write_json(self.layers(run, precision), listed)
        self._record(run, precision, {"options": {}, **facts})
        return facts

    def _listed(
        self, run: Run, precision: str, inspector: Path, network: Network | None = None
    ) -> dict[str, Any]:
        """The layers.json of an engine that was inspected."""
        return layers.document(
            self.engine(run, precision).name,
            self.name,
            precision,
            engine_layers(read_json(inspector)),
            nodes.load(self.nodes(run, precision)),
            network,
        )

    def _record(self, run: Run, precision: str, about: Mapping[str, Any]) -> None:
        """Write build.json."""
        write_json(
            self.build_record(run, precision),
            {
                "schema_version": 1,
                "engine": self.engine(run, precision).name,
                "backend": self.name,
                "precision": precision,
                "source": self.source(run, precision).relative_to(run.path).as_posix(),
                "machine": state(),
                **about,
            },
        )


class TensorRTRTXBackend(TensorRTBackend):
    """TensorRT-RTX: always strongly typed; builds for a named GPU on a machine without one.

    With ``compute_capability`` in the build options (e.g. 89) the engine is built here and run
    elsewhere; without it, for the GPU of this machine.
    """

    name = "tensorrt-rtx"
    builder = (*TensorRTBackend.builder, "compute_capability")

    def strongly_typed(self) -> bool:
        return True


def engine_layers(inspector: Mapping[str, Any]) -> list[EngineLayer]:
    """The engine inspector's JSON as layers for the resolver, in execution order.

    Format: TensorRT developer guide, "Engine Inspector". Detailed layers carry Inputs, Outputs and
    Metadata (the ONNX nodes; empty for a ForeignNode of TensorRT 8). An engine that was not built
    with detailed verbosity lists plain names. No entry has the compute precision: None.
    """
    seen: Counter[str] = Counter()
    layers = []
    for entry in inspector.get("Layers") or []:
        layer = {"Name": entry} if isinstance(entry, str) else entry
        name = str(layer.get("Name", ""))
        inputs, outputs = _tensors(layer, "Inputs"), _tensors(layer, "Outputs")
        detailed = "Inputs" in layer
        raw = RawLayer(
            name=name,
            op=layer.get("LayerType"),
            inputs=tuple(str(t.get("Name")) for t in inputs) if detailed else None,
            outputs=tuple(str(t.get("Name")) for t in outputs) if detailed else None,
            metadata=layer.get("Metadata") or None,
            occurrence=seen[name],
        )
        seen[name] += 1
        layers.append(
            EngineLayer(
                raw,
                precision_in=_precision(inputs),
                precision_out=_precision(outputs),
                tactic=layer.get("TacticName") or layer.get("TacticValue"),
            )
        )
    return layers


def _tensors(layer: Mapping[str, Any], side: str) -> list[Mapping[str, Any]]:
    return [t for t in layer.get(side) or [] if isinstance(t, Mapping)]


def _precision(tensors: list[Mapping[str, Any]]) -> str | None:
    return joined(precision_of(t.get("Format/Datatype") or t.get("Format")) for t in tensors)
