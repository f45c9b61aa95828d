"""The files of a run's captures: the small ones read once, the raw ones checked to be its own.

`EngineFiles` and `EagerFiles` are what the other modules of this folder take instead of a run.
None is a file that is not there, or that cannot be used and is a problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...core import documents, nodes
from ...core.documents import Document
from ...core.errors import InputError
from ...core.files import read_json
from ...core.nodes import NodeGraph
from ...core.resolve import Network, load_network
from ...core.run import Run
from ...engines.layers import load as load_layers
from ..roofline.aten import in_words_of_onnx
from ..roofline.floor import shapes_of
from ..roofline.flop import Shapes
from ..rundir import provenance
from ..rundir.files import describing, document, needed, optional
from ..rundir.problems import Problems, keep

ORT_CUDA = "onnxruntime-cuda"
INDUCTOR = "inductor"


@dataclass(frozen=True)
class Exported:
    """A nodes.json: its graph, and the shapes of its tensors (None in an older one)."""

    graph: NodeGraph
    shapes: Shapes | None


@dataclass(frozen=True)
class EngineFiles:
    """What a run has of one engine.

    `raw`: the capture with its operations, under nsys where `trace` describes it, else the
    backend's own profile, which `profile` describes. `node_profile`: ONNX Runtime's profile of the
    run under nsys. `layers` and `nodes`: the lists of its layers.json. `exported`: the nodes of the
    file that it was built from.
    """

    precision: str
    backend: str
    raw: Path
    node_profile: Path
    under_nsys: bool
    layers: Sequence[Mapping[str, Any]]
    nodes: Sequence[Mapping[str, Any]]
    trace: documents.Trace | None
    profile: documents.Measured | None
    latency: documents.Measured | None
    build: documents.Build | None
    accuracy: documents.Accuracy | None
    rebuild: documents.Rebuild | None
    exported: Exported | None
    network: Network | None
    model: documents.Model | None

    @property
    def name(self) -> str:
        """``fp16.tensorrt``"""
        return f"{self.precision}.{self.backend}"

    @property
    def command(self) -> Sequence[str]:
        """The command that made the capture under nsys."""
        return () if self.trace is None else self.trace.command


@dataclass(frozen=True)
class EagerFiles:
    """What a run has of the model in PyTorch, in one precision.

    `trace`: the profiler's file, which `meta` describes. `sqlite`: the capture by nsys, None for
    none, which `nsys` describes; `foreign` where one of these two is not this run's.
    `synchronising`: lines of Python that make the host wait.
    """

    task: str
    precision: str
    trace: Path
    meta: documents.Eager | None
    latency: documents.Measured | None
    sqlite: Path | None
    nsys: documents.Eager | None
    foreign: InputError | None
    synchronising: documents.Synchronising | None
    model: documents.Model | None


def model(run: Run, problems: Problems) -> documents.Model | None:
    """What was exported."""
    return optional(run.file("export", "model.json"), documents.Model, problems)


def of_engine(
    run: Run,
    precision: str,
    backend: str,
    model: documents.Model | None,
    problems: Problems,
) -> EngineFiles:
    """The files of one engine. InputError where one that its numbers need cannot be used."""
    captures, engines, name = run.file("captures"), run.file("engines"), f"{precision}.{backend}"
    listed = captures / f"{name}.trace.meta.json"
    under_nsys, trace, profile = listed.exists(), None, None
    layers = _layers(engines / f"{name}.layers.json")
    if under_nsys:
        trace = describing(listed, documents.Trace, problems)
        source = (trace and trace.source) or f"{name}.sqlite"
    else:
        profile = needed(captures / f"{name}.profile.meta.json", profile_form(backend))
        source = (profile and profile.profile) or f"{name}.profile.json"
    raw, node_profile = captures / Path(source).name, captures / f"{name}.trace.profile.json"
    provenance.check_raw(raw)
    if under_nsys and backend == ORT_CUDA:
        provenance.check_raw(node_profile)
    build = optional(engines / f"{name}.build.json", documents.Build, problems)
    # Its layers are found by the graph.
    by_kernel = under_nsys and backend not in (ORT_CUDA, INDUCTOR)
    path = nodes_file(run, build, precision)
    found = None if by_kernel else exported(path, problems)
    if backend == INDUCTOR:  # its nodes are those that torch captured
        found = exported(engines / f"{name}.nodes.json", problems)
        if found is not None:
            found = replace(found, graph=in_words_of_onnx(found.graph))
    return EngineFiles(
        precision=precision,
        backend=backend,
        raw=raw,
        node_profile=node_profile,
        under_nsys=under_nsys,
        layers=layers["layers"],
        nodes=layers.get("nodes") or (),
        trace=trace,
        profile=profile,
        latency=optional(captures / f"{name}.latency.json", documents.Measured, problems),
        build=build,
        accuracy=optional(captures / f"{name}.accuracy.json", documents.Accuracy, problems),
        rebuild=optional(captures / f"{name}.rebuild.json", documents.Rebuild, problems),
        exported=_parsed(read_json(path), path) if by_kernel else found,
        network=network(run, name, problems) if by_kernel else None,
        model=model,
    )


def of_eager(
    run: Run, task: str, precision: str, model: documents.Model | None, problems: Problems
) -> EagerFiles:
    """The files of the model in PyTorch. InputError where one that its numbers need cannot be
    used."""
    captures, name = run.file("captures"), f"{task}.{precision}"
    meta = describing(captures / f"{name}.meta.json", documents.Eager, problems)
    trace = captures / ((meta and meta.trace) or f"{name}.trace.json.gz")
    if not (meta and meta.trace) and not trace.exists():
        trace = trace.with_suffix("")  # one that was unpacked
    provenance.check_raw(trace)
    sqlite, nsys, foreign = captures / f"{name}.sqlite", None, None
    if sqlite.exists():
        try:
            nsys = describing(captures / f"{name}.nsys.meta.json", documents.Eager, problems)
            provenance.check_raw(sqlite)
        except InputError as e:
            foreign = e
    return EagerFiles(
        task=task,
        precision=precision,
        trace=trace,
        meta=meta,
        latency=optional(captures / f"{name}.latency.json", documents.Measured, problems),
        sqlite=sqlite if sqlite.exists() else None,
        nsys=nsys,
        foreign=foreign,
        synchronising=optional(captures / f"{name}.waits.json", documents.Synchronising, problems),
        model=model,
    )


def profile_form(backend: str | None) -> type[documents.Measured]:
    """What the meta file of a backend's own profile has to be."""
    by_runs = backend in ("onnxruntime", ORT_CUDA)
    return documents.OnnxRuntimeProfile if by_runs else documents.Measured


def _layers(path: Path) -> dict[str, Any]:
    layers = load_layers(path)
    provenance.check(path, layers)
    return layers


def nodes_file(run: Run, build: documents.Build | None, precision: str) -> Path:
    """nodes.json of the ONNX file that an engine was built from (TensorRT 8 builds fp16 from
    fp32.onnx). InputError for one of another model than the run's."""
    source = None if build is None else build.source
    own = run.file("export", f"{precision if source is None else Path(source).stem}.nodes.json")
    path = own if own.exists() else run.file("export", "nodes.json")
    provenance.check_export(path)
    return path


def exported(path: Path, problems: Problems | None) -> Exported | None:
    """The nodes of an export with their shapes; None where there are none, or no shapes."""
    written = document(path, Document, problems)
    return _parsed(written, path) if isinstance(written.get("tensors"), dict) else None


def _parsed(written: Any, path: Path) -> Exported:
    return Exported(nodes.parse(written, path), shapes_of(written))


def network(run: Run, name: str, problems: Problems | None) -> Network | None:
    """An engine's network.json; None where its backend leaves none, or it was built elsewhere."""
    path = run.file("engines", f"{name}.network.json")
    try:
        layers = load_network(path) if path.exists() else None
    except InputError as e:
        keep(e, problems)
        return None
    return layers if layers is not None and layers.layers else None
