"""ONNX Runtime as a backend: an engine is the optimised graph, saved and loaded as it is."""

from __future__ import annotations

import importlib.metadata
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..core import machine, nodes
from ..core.errors import CheckFailed, InputError
from ..core.files import workspace, write_json
from ..core.run import Run
from . import kept_fp32, layers, onnxruntime_graph
from .backend import (
    Backend,
    BuildOptions,
    Worker,
    check_options,
    inputs_path,
    nodes_path,
    planned_modules,
    with_external_data,
)
from .launch import WORKERS, call, job

LEVELS = ("disable", "basic", "extended", "all")


class OnnxRuntimeBackend(Backend):
    """ONNX Runtime on the CPU."""

    name = "onnxruntime"
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "fp16")
    suffix = ".onnx"
    threaded = True
    builder: ClassVar[tuple[str, ...]] = ("precision_plan",)
    distributions: ClassVar[tuple[str, ...]] = ("onnxruntime", "onnxruntime-gpu")
    providers: ClassVar[tuple[str, ...]] = (onnxruntime_graph.CPU,)

    def options(self, asked: BuildOptions) -> dict[str, Any]:
        check_options(self, asked)
        level = asked.optimization_level or "all"
        if level not in LEVELS:
            raise InputError(
                f"{self.name} has no optimisation level {level!r}",
                fix=f"choose {', '.join(LEVELS)}",
            )
        threads = asked.threads or machine.usable_cpus()
        return {
            "optimization_level": level,
            "threads": threads,
            "providers": list(self.providers),
            "version": self._version(),
            # Kernels and layouts are chosen for this processor when the graph is optimised.
            "cpu": machine.state()["cpu"],
            **asked.build,
        }

    def _version(self) -> str | None:
        for name in self.distributions:
            with suppress(importlib.metadata.PackageNotFoundError):
                return f"{name} {importlib.metadata.version(name)}"
        return None

    def source(self, run: Run, precision: str) -> Path:
        return run.file("export", f"{precision}.onnx")

    def worker(self) -> Worker:
        return Worker((sys.executable, str(WORKERS / "onnxruntime_worker.py")))

    def job_options(self, run: Run, precision: str) -> dict[str, Any]:
        return {"providers": list(self.providers)}

    def outputs(self, run: Run, precision: str) -> list[Path]:
        engine, *others = super().outputs(run, precision)
        external = self._external(run, precision)
        return [engine, *others] if external is None else [engine, external, *others]

    def _external(self, run: Run, precision: str) -> Path | None:
        """The file for weights beside the engine, for models that a single file may not hold."""
        source = self.source(run, precision)
        size = sum(p.stat().st_size for p in with_external_data(source) if p.exists())
        if size * (1 if precision == "fp32" else 2) <= onnxruntime_graph.EXTERNAL_ABOVE_BYTES:
            return None
        engine = self.engine(run, precision)
        return engine.with_name(engine.name + ".data")

    def build(self, run: Run, precision: str, options: Mapping[str, Any]) -> dict[str, Any]:
        source = self.source(run, precision)
        onnxruntime_graph.read_model(source)  # a broken file is one line, before anything starts
        graph = nodes.load(nodes_path(run, precision))
        engine, external = self.engine(run, precision), self._external(run, precision)
        with workspace(engine) as folder:
            planned, more = source, {}
            if modules := planned_modules(options):
                kept = kept_fp32.kept(nodes_path(run, precision), modules)
                planned = folder / "planned.onnx"
                kept_fp32.write(source, kept, planned)
                more = {"nodes_fp32": len(kept)}
            new = folder / engine.name
            reference, reloaded = folder / "reference.npz", folder / "reloaded.npz"
            built = self._call("build", run, precision, options, new, {
                "source": str(planned),
                "external": None if external is None else external.name,
                "outputs": str(reference),
            })  # fmt: skip
            model = onnxruntime_graph.read_model(new)
            renamed = onnxruntime_graph.name_uniquely(model)
            if renamed:
                new.write_bytes(model.SerializeToString())  # external weights stay where they are
            probed = self._call("probe", run, precision, options, new, {"outputs": str(reloaded)})
            difference = _same_outputs(reference, reloaded, source)
            listed = layers.document(
                engine.name,
                self.name,
                precision,
                self._layers(model, probed["nodes"], graph, precision),
                graph,
            )
            domains = Counter(n.domain for n in onnxruntime_graph.all_nodes(model.graph))
            providers = Counter(str(record.get("provider")) for record in probed["nodes"].values())
            facts = {
                **built["facts"],
                "nodes": len(listed["layers"]),
                "domains": domains,
                "providers_of_nodes": providers,
                "nodes_renamed": renamed,
                "hardware_specific": onnxruntime_graph.NCHWC_DOMAIN in domains,
                "reload_max_abs": difference,
                **more,
                **self._facts(probed["nodes"], precision),
            }
            if external is not None:
                _move(folder / external.name, external)
            _move(new, engine)
        write_json(self.layers(run, precision), listed)
        write_json(self.build_record(run, precision), self._record(run, precision, options) | facts)
        return facts

    def _call(
        self,
        task: str,
        run: Run,
        precision: str,
        options: Mapping[str, Any],
        new: Path,
        more: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Let a worker build `new`, or run it once; `more`: options of this task alone."""
        common = {**self.job_options(run, precision), "level": options["optimization_level"]}
        task_job = job(
            task,
            new,
            inputs_path(run),
            precision,
            threads=options["threads"],
            raw=new.with_name("probe") if task == "probe" else None,
            options={**common, **more},
        )
        return call(self.worker(), task_job)

    def _record(self, run: Run, precision: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """What was built of what, and where."""
        source, engine = self.source(run, precision), self.engine(run, precision)
        return {
            "schema_version": 1,
            "engine": engine.name,
            "backend": self.name,
            "precision": precision,
            "source": source.relative_to(run.path).as_posix(),
            "options": dict(options),
            "machine": machine.state(),
            "cpu_flags": _cpu_flags(),
            "engine_bytes": sum(p.stat().st_size for p in with_external_data(engine)),
            "source_bytes": sum(p.stat().st_size for p in with_external_data(source)),
        }

    def _layers(
        self, model: Any, probed: Mapping[str, Any], graph: nodes.NodeGraph, precision: str
    ) -> list[layers.EngineLayer]:
        """The engine's layers; `probed` is the worker's record of one run by node name."""
        return onnxruntime_graph.engine_layers(model, probed, graph)

    def _facts(self, probed: Mapping[str, Any], precision: str) -> dict[str, Any]:
        """What else build.json says."""
        return {}


def _move(new: Path, place: Path) -> None:
    if not new.exists():
        raise InputError("ONNX Runtime did not write it", file=place)
    new.replace(place)


def _same_outputs(reference: Path, reloaded: Path, source: Path) -> float:
    """The largest difference between the optimised session and the saved graph; 0 is usual."""
    largest = 0.0
    with np.load(reference) as a, np.load(reloaded) as b:
        if a.files != b.files:
            raise CheckFailed(f"the saved graph has outputs {b.files}, not {a.files}", file=source)
        for name in a.files:
            if a[name].dtype.kind != "f":
                if not np.array_equal(a[name], b[name]):
                    raise CheckFailed(f"the saved graph's {name} differs", file=source)
                continue
            x, y = a[name].astype(np.float64), b[name].astype(np.float64)
            if not np.array_equal(np.isnan(x), np.isnan(y)):
                raise CheckFailed(f"the saved graph's {name} differs in NaN", file=source)
            if x.size:
                with np.errstate(invalid="ignore"):
                    largest = max(largest, float(np.nanmax(np.abs(x - y), initial=0.0)))
                scale = float(np.nanmax(np.abs(x), initial=0.0))
                if largest > 0.01 * max(scale, 1.0):
                    raise CheckFailed(
                        f"the saved graph's {name} differs by {largest:.3g}",
                        file=source,
                        fix="choose a lower --optimization-level",
                    )
    return largest


def _cpu_flags() -> list[str] | None:
    """The instruction sets that kernels are chosen by; None where Linux does not list them."""
    cpu = "/proc/cpuinfo"
    flags = machine.field(cpu, "flags") or machine.field(cpu, "Features")
    wanted = ("avx", "fma", "f16c", "amx", "sve", "asimd", "bf16", "i8mm", "fphp", "sse4")
    return None if flags is None else sorted(f for f in flags.split() if f.startswith(wanted))
