"""torch.compile's compiler as a backend: an engine is a package of AOTInductor.

The package (``.pt2``) is loaded and run by a process that has torch and neither the model nor its
library. It is compiled from the model, not from an ONNX file, so `source` is model.json. Beside it:
a package of the same kernels with ranges for torch.profiler, the generated code, the provenance,
and the captured graph. The compilation is `inductor_build`, a process of its own.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from ..core import documents, machine, nodes
from ..core.cli.progress import log
from ..core.errors import InputError
from ..core.files import read_json, workspace, write_json
from ..core.run import Run
from ..export.inference import Unavailable, no_torch
from . import inductor_provenance, layers
from .backend import (
    Backend,
    BuildOptions,
    Worker,
    check_options,
    gpu_models,
    inputs_path,
    require_to_build,
)
from .launch import WORKERS, call, job, shell_line

# Default in a CUDA graph, which no package keeps: the worker records it.
GRAPHED = "reduce-overhead"
MODES = ("default", "max-autotune", GRAPHED)
# What lies beside the package: the same with ranges, the captured graph, what inductor recorded,
# the code that it generated.
_FILES = {
    "profiled": "profiled.pt2",
    "nodes": "nodes.json",
    "provenance": "provenance.json",
    "code": "code.cpp",
}
_QUIET = {"KINETO_LOG_LEVEL": "4"}
_COMPILER = Worker((sys.executable, "-P", "-m", "layerline.engines.inductor_build"), _QUIET)


class InductorBackend(Backend):
    """AOTInductor, for the GPU that torch sees, else for this CPU."""

    name = "inductor"
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "tf32", "fp16", "bf16")
    suffix = ".pt2"
    from_onnx = False
    tells_launches = True
    threaded = True

    def options(self, asked: BuildOptions) -> dict[str, Any]:
        check_options(self, asked)
        mode = asked.optimization_level or "default"
        if mode not in MODES:
            raise InputError(
                f"{self.name} has no optimisation level {mode!r}",
                fix=f"choose {', '.join(MODES)}",
            )
        if mode == GRAPHED and not gpu_models():
            raise InputError(f"{mode} is CUDA graphs, and no GPU is here", fix="use default")
        version = None
        with suppress(importlib.metadata.PackageNotFoundError):
            version = f"torch {importlib.metadata.version('torch')}"
        return {
            "optimization_level": mode,
            "threads": asked.threads or machine.usable_cpus(),
            "version": version,
            "cpu": machine.state()["cpu"],  # code is generated for this processor
            "gpus": gpu_models(),
        }

    @property
    def traceable(self) -> bool:
        return bool(gpu_models())

    def cannot_run(self) -> Unavailable | None:
        return no_torch()  # a package needs no compiler any more

    def not_worth(self, precision: str) -> Unavailable | None:
        if precision == "fp16" and not gpu_models():
            reason = "PyTorch's CPU kernels for fp16 are about a hundred times slower than for fp32"
            return Unavailable(reason, "use bf16, or ask for it with --backend inductor")
        return None

    def source(self, run: Run, precision: str) -> Path:
        return run.file("export", "model.json")

    def inputs(self, run: Run, precision: str) -> list[Path]:
        return [self.source(run, precision), inputs_path(run)]

    def outputs(self, run: Run, precision: str) -> list[Path]:
        more = [self._beside(run, precision, name) for name in _FILES]
        return [*super().outputs(run, precision), *more]

    def _beside(self, run: Run, precision: str, name: str) -> Path:
        """One of `_FILES`."""
        return run.file("engines", f"{precision}.{self.name}.{_FILES[name]}")

    def worker(self) -> Worker:
        return Worker((sys.executable, str(WORKERS / "inductor_worker.py")), _QUIET)

    def job_options(self, run: Run, precision: str) -> dict[str, Any]:
        built = documents.read(self.build_record(run, precision), documents.Build)
        return {
            "profiled": str(self._beside(run, precision, "profiled")),
            "device": built.runs_on,
            "cuda_graph": built.options.optimization_level == GRAPHED,
            "inputs": built.inputs,
            "outputs": built.outputs,
        }

    def build(self, run: Run, precision: str, options: Mapping[str, Any]) -> dict[str, Any]:
        require_to_build(self)
        if precision == "tf32" and not gpu_models():
            raise InputError("TF32 is a mode of NVIDIA GPUs", fix="use fp32")
        engine = self.engine(run, precision)
        record, listing = self.build_record(run, precision), self.layers(run, precision)
        with workspace(engine) as folder:
            new = {name: folder / self._beside(run, precision, name).name for name in _FILES}
            answer = call(_COMPILER, self._job(run, precision, options, folder))
            facts: dict[str, Any] = answer["facts"]
            listed = self._listed(new, run, precision, answer["kernels"])
            self._load(folder / engine.name, run, precision, facts | dict(options))
            for name, path in new.items():
                path.replace(self._beside(run, precision, name))
            (folder / engine.name).replace(engine)
        facts["kernels"] = len(listed["layers"])
        facts["unresolved"] = [x["name"] for x in listed["layers"] if not x["modules"]]
        self._say(precision, facts)
        write_json(listing, listed)
        write_json(record, self._record(run, precision, options) | facts)
        return facts

    def plan(self, run: Run, precision: str, options: Mapping[str, Any]) -> list[str]:
        folder = self.engine(run, precision).parent
        return [shell_line(_COMPILER.command, self._job(run, precision, options, folder))]

    def _job(
        self, run: Run, precision: str, options: Mapping[str, Any], folder: Path
    ) -> dict[str, Any]:
        """What the compiling process is given; its files go to `folder`."""
        files = {n: str(folder / self._beside(run, precision, n).name) for n in _FILES}
        wanted = {
            "model": str(self.source(run, precision)),
            "mode": options["optimization_level"],
            "folder": str(folder / "trace"),
            # Built again (`rebuild`): what was timed for the first build may not decide the second.
            "cache": str(folder / "cache") if "timing_cache" in options else None,
            **files,
        }
        engine, threads = folder / self.engine(run, precision).name, options["threads"]
        inputs = inputs_path(run)
        return job("build", engine, inputs, precision, threads=threads, options=wanted)

    def _load(self, engine: Path, run: Run, precision: str, built: Mapping[str, Any]) -> None:
        """Load the package where nothing of the model is, as whatever measures it does."""
        options = {"device": built["runs_on"], "inputs": built["inputs"]}
        threads, inputs = built["threads"], inputs_path(run)
        call(
            self.worker(), job("load", engine, inputs, precision, threads=threads, options=options)
        )

    def _listed(
        self, new: Mapping[str, Path], run: Run, precision: str, kernels: list[str]
    ) -> dict[str, Any]:
        """layers.json of the `kernels` that the code runs."""
        written = read_json(new["nodes"])
        graph = inductor_provenance.Graph(
            nodes.parse(written, new["nodes"]), written["torch_names"], written["given"]
        )
        mappings = read_json(new["provenance"])
        found, resolutions = inductor_provenance.listed(mappings, graph, kernels)
        return layers.resolved(
            self.engine(run, precision).name,
            self.name,
            precision,
            found,
            graph.nodes,
            resolutions,
            inductor_provenance.statuses(resolutions, graph.nodes),
        )

    def _record(self, run: Run, precision: str, options: Mapping[str, Any]) -> dict[str, Any]:
        engine = self.engine(run, precision)
        return {
            "schema_version": 1,
            "engine": engine.name,
            "backend": self.name,
            "precision": precision,
            "source": self.source(run, precision).relative_to(run.path).as_posix(),
            "options": dict(options),
            "machine": machine.state(),
            "engine_bytes": engine.stat().st_size,
        }

    def _say(self, precision: str, facts: Mapping[str, Any]) -> None:
        """What torch.compile would do otherwise than the package."""
        for found in facts["graph_breaks"]:
            log(
                f"{precision} {self.name}: torch.compile breaks the graph at {found['place']} "
                f"({found['why']}); the package does not"
            )
        if facts["ranged"]:
            log(
                f"{precision} {self.name}: a second compilation chose other kernels; the engine is "
                "the package with ranges, which cost the host time around each kernel"
            )
        if facts["recompiles"]:
            log(
                f"{precision} {self.name}: torch.compile compiles again for the same inputs "
                f"({facts['recompiles']} times in 2 calls): what changed between them is a "
                "constant in the package"
            )
