"""Compiling the run's model with AOTInductor: a process of its own, which alone imports torch.

``python -m layerline.engines.inductor_build JOB``, with the tasks of a worker (`workers.common`):
`build`. It writes two packages of one compilation: the engine, and one whose kernels have ranges in
torch.profiler (``cpp.enable_kernel_profile``), which costs time in every kernel. Both are compiled
with provenance, which only adds comments to the code.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from ..core import cpp_compiler
from ..core.errors import LayerlineError
from ..core.files import full, write_json
from ..export import nested
from ..export.models import ModelSpec, load_spec, tensors
from ..export.naming import ModuleTree, unique_names
from ..export.quiet import gist, quiet, where
from ..export.stage import traced
from .workers import common
from .workers.common import Job, WorkerError

MAPPINGS = "inductor_provenance_tracking_node_mappings.json"
PLACE = re.compile(r"\[Provenance debug handles\] (\S+:\d+)")
# How often a compiled model is called to see whether it is compiled again.
_CALLS = 3


class Flat(torch.nn.Module):  # type: ignore[misc]
    """A model of arrays in a row, whose outputs are a tuple: what a package takes and gives without
    the types of the model's library."""

    def __init__(
        self, model: torch.nn.Module, inputs: Mapping[str, Any], told: Callable[[list[str]], None]
    ) -> None:
        """`told`: is given the names of the outputs when they are known. Not an attribute: those
        that change while the model is captured are put back."""
        super().__init__()
        self.model, self.inputs, self.told = model, dict(inputs), told

    def forward(self, *arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
        each = iter(arrays)
        output = self.model(**nested.mapped(self.inputs, lambda _: next(each)))
        found = nested.outputs(output, self.inputs)
        given = {k: v for k, v in found.items() if isinstance(v, torch.Tensor)}
        self.told(list(given))
        return tuple(given.values())


def build(job: Job) -> dict[str, Any]:
    """Compile the model of options.model to `engine`, and to options.profiled with ranges; leave
    options.nodes, options.provenance and options.code. options.cache: an own folder for what
    inductor keeps, launches that it timed too; else the user's."""
    wanted = job["options"]
    if wanted.get("cache"):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = wanted["cache"]
    compiler = cpp_compiler.compiler()
    if compiler and (why := cpp_compiler.unfit(compiler)):
        raise WorkerError(why, cpp_compiler.REMEDY)
    torch.set_num_threads(job["threads"])
    spec, device = load_spec(Path(wanted["model"])), device_of(job["precision"])
    model = spec.build(job["precision"]).requires_grad_(False).to(device)
    started = time.perf_counter()
    given, axes = inputs_of(spec, job["precision"], device)
    outputs: list[str] = []
    program = captured(spec.model, Flat(model, given, outputs.extend), given, axes)
    exported = time.perf_counter() - started
    nodes = graph(program, ModuleTree.of(model), spec.model)
    engine = compiled(program, wanted, Path(job["engine"]))
    code = engine.code
    shutil.copyfile(code, wanted["code"])
    shutil.copyfile(code.with_name(MAPPINGS), wanted["provenance"])
    write_json(Path(wanted["nodes"]), nodes)
    facts = {
        "torch": torch.__version__,
        "runs_on": device.type,
        "inputs": list(nested.named(given)),
        "outputs": list(dict.fromkeys(outputs)),
        "export_seconds": round(exported, 3),
        "build_seconds": engine.seconds,
        "profiled_build_seconds": engine.profiled_seconds,
        "ranged": engine.ranged,
        **breaks(model, given),
    }
    return {"facts": facts, "kernels": engine.kernels}


@dataclass(frozen=True)
class Compiled:
    """The generated code of an engine, the places of its kernels, the seconds of both compilations.
    `ranged`: the engine is the package with ranges."""

    code: Path
    kernels: list[str]
    seconds: float
    profiled_seconds: float
    ranged: bool


def compiled(program: Any, wanted: Mapping[str, Any], engine: Path) -> Compiled:
    """Compile the package with ranges, then the engine.

    max-autotune chooses fusions by their times, too, which inductor does not keep, so the second
    compilation may have other kernels. What is profiled has to be what is measured: the engine is
    then a copy of the first."""
    folder, mode, profiled = Path(wanted["folder"]), wanted["mode"], Path(wanted["profiled"])
    begun = time.perf_counter()
    first = packaged(program, profiled, folder / "profiled", mode, True)
    between = time.perf_counter()
    second = packaged(program, engine, folder / "engine", mode, False)
    ended = time.perf_counter()
    kernels = [PLACE.findall(code.read_text(encoding="utf-8")) for code in (first, second)]
    ranged = kernels[0] != kernels[1]
    if ranged and mode != "max-autotune":
        unlike = next(p for p in zip_longest(*kernels, fillvalue="nothing") if p[0] != p[1])
        raise WorkerError(
            "two compilations of one model have other kernels, so that what is profiled is not the "
            f"engine (first {unlike[0]} in one and {unlike[1]} in the other)",
            "build it again",
        )
    if ranged:
        shutil.copyfile(profiled, engine)
    return Compiled(
        first if ranged else second,
        kernels[0],
        round(ended - between, 3),
        round(between - begun, 3),
        ranged,
    )


def device_of(precision: str) -> torch.device:
    """The GPU that torch sees, with its switches for the precision, else the CPU."""
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
        torch.backends.cudnn.allow_tf32 = precision != "fp32"
        return torch.device("cuda")
    return torch.device("cpu")


def inputs_of(
    spec: ModelSpec, precision: str, device: torch.device
) -> tuple[dict[str, Any], Mapping[str, Mapping[int, str]] | None]:
    """The inputs to capture with, and of each array the axes that stay open."""
    inputs, axes = traced(spec)
    return tensors(dict(inputs), precision, device), axes


def captured(
    name: str,
    flat: Any,
    given: Mapping[str, Any],
    axes: Mapping[str, Mapping[int, str]] | None,
) -> Any:
    """The captured graph of a model of arrays (`Flat`). WorkerError where torch cannot capture the
    whole of it: the package would have to go back to Python."""
    arrays = nested.named(given)
    dynamic = None
    if axes:
        open_ = torch.export.Dim.DYNAMIC
        dynamic = {"arrays": tuple(dict.fromkeys(axes[array], open_) for array in arrays)}
    with quiet(), torch.no_grad():
        try:
            return torch.export.export(
                flat, tuple(arrays.values()), dynamic_shapes=dynamic, strict=False
            )
        except Exception as e:
            raise WorkerError(
                f"{name}: torch.export cannot capture it whole ({_where(flat.model, given, e)})",
                "change the model there; other backends run it where layerline export makes a file",
            ) from e


def _where(model: torch.nn.Module, given: Mapping[str, Any], error: Exception) -> str:
    """The graph break, with its line of Python, or else what the capture said."""
    with contextlib.suppress(Exception):
        found = breaks(model, given)["graph_breaks"]
        if found:
            return "graph break at {place}: {why}".format(**found[0])
    return f"{gist(error)}{where(error)}"


def breaks(model: torch.nn.Module, given: Mapping[str, Any]) -> dict[str, Any]:
    """What torch.compile would do with the model: its graph breaks, each with its line of Python,
    and how often it compiles again for inputs that are the same. An own way in, without a code
    generator."""
    import torch._dynamo as dynamo

    compiled: list[int] = []

    def counting(module: Any, _inputs: Any) -> Any:
        compiled.append(len(module.graph.nodes))
        return module.forward

    dynamo.reset()
    dynamo.utils.clear_compilation_metrics()
    counts: list[int] = []
    found: list[dict[str, str]] = []
    try:
        with quiet(), torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
            explained = dynamo.explain(model)(**given)
            found = [graph_break(r) for r in explained.break_reasons] + left_to_python()
            dynamo.reset()
            again = torch.compile(model, backend=counting, dynamic=False)
            for _ in range(_CALLS):
                again(**given)
                counts.append(len(compiled))
    except Exception as e:  # noqa: BLE001 (that torch.compile fails is a fact of the model)
        return {"graph_breaks": found, "recompiles": None, "dynamo": gist(e)}
    finally:
        dynamo.reset()
    return {"graph_breaks": found, "recompiles": counts[-1] - counts[0]}


def graph_break(reason: Any) -> dict[str, str]:
    """One graph break: why, and the innermost line of Python that made it."""
    why = " ".join(str(reason.reason).split("\n")[0].split())
    stack = list(reason.user_stack)
    frame = stack[-1] if stack else None
    place = f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" if frame else "unknown"
    return {"place": place, "why": why}


def left_to_python() -> list[dict[str, str]]:
    """The Python frames that torch.compile did not compile at all, as graph breaks: those are told
    only of frames of which it compiled a part."""
    from torch._dynamo.utils import get_compilation_metrics

    return [
        {
            "place": f"{Path(m.fail_user_frame_filename).name}:{m.fail_user_frame_lineno} "
            f"in {m.co_name}",
            "why": " ".join(m.fail_reason.split("\n")[0].split()),
        }
        for m in get_compilation_metrics()
        if m.fail_reason and m.fail_user_frame_filename
    ]


def packaged(program: Any, package: Path, folder: Path, mode: str, profiled: bool) -> Path:
    """Compile and package; gives the generated code, which lies beside the provenance."""
    from torch._inductor import aoti_compile_and_package

    configs: dict[str, Any] = {
        "trace.enabled": True,
        "trace.debug_dir": str(folder),
        "trace.provenance_tracking_level": 1,
        "cpp.enable_kernel_profile": profiled,
        "max_autotune": mode == "max-autotune",
    }
    with quiet(), contextlib.redirect_stdout(sys.stderr):
        try:
            aoti_compile_and_package(program, package_path=str(package), inductor_configs=configs)
        except Exception as e:
            if no_room := full(package.parent.parent, Path(tempfile.gettempdir())):
                raise no_room from e
            what = f"inductor cannot compile it ({gist(e)})"
            fix = "use another --backend; where its compiler is to blame, layerline doctor says so"
            raise WorkerError(what, fix) from e
    found = sorted(folder.rglob(MAPPINGS))
    codes = [p.with_name("output_code.cpp") for p in found]
    if len(codes) != 1 or not codes[0].exists():
        raise WorkerError(
            f"torch {torch.__version__} wrote no provenance of its kernels",
            "use 2.11 to 2.13",
        )
    return codes[0]


def graph(program: Any, tree: ModuleTree, model: str) -> dict[str, Any]:
    """nodes.json of the captured graph, with torch's own names (`torch_names`), and of each
    parameter and buffer its tensor, by the name that inductor gives it (`given`)."""
    calls = [n for n in program.graph.nodes if n.op == "call_function"]
    calls = [n for n in calls if not n.name.startswith("_assert")]
    modules = [_module(n, tree) for n in calls]
    ops = [_operator(n) for n in calls]
    names = unique_names(
        (m or "", op.partition(".")[2]) for m, op in zip(modules, ops, strict=True)
    )
    ours = {n.name: name for n, name in zip(calls, names, strict=True)}
    written = {n.name: t for n in program.graph.nodes if (t := _tensor(n)) is not None}
    signature = program.graph_signature
    targets = signature.inputs_to_parameters | signature.inputs_to_buffers
    return {
        "schema_version": 1,
        "model": model,
        "inputs": list(program.graph_signature.user_inputs),
        "outputs": [o for o in program.graph_signature.user_outputs if isinstance(o, str)],
        "initializers": [n.name for n in program.graph.nodes if n.op == "placeholder"],
        "aliases": {k: list(v) for k, v in tree.aliases.items()},
        "tensors": written,
        "torch_names": ours,
        "given": {path.replace(".", "_"): name for name, path in targets.items()},
        "nodes": [
            {
                "name": name,
                "op": op,
                "module": module,
                "module_class": tree.classes.get(module) if module is not None else None,
                "inputs": [i.name for i in n.all_input_nodes],
                "outputs": [n.name],
                "source": None,
            }
            for n, name, module, op in zip(calls, names, modules, ops, strict=True)
        ],
    }


def _operator(node: Any) -> str:
    """``aten.add`` of aten.add.Tensor; of a function of Python its name."""
    packet = getattr(node.target, "overloadpacket", None)
    return str(packet) if packet is not None else f"python.{node.target.__name__}"


def _module(node: Any, tree: ModuleTree) -> str | None:
    """The innermost module whose forward made the node; None where torch does not say."""
    stack = node.meta.get("nn_module_stack") or {}
    scopes = [str(path) for path, *_ in stack.values()]
    inside = [s.removeprefix("model").lstrip(".") for s in scopes if _inside(s)]
    return tree.module_of(inside) if inside else None


def _inside(scope: str) -> bool:
    return re.match(r"model(@\d+)?(\.|$)", scope) is not None


def _tensor(node: Any) -> dict[str, Any] | None:
    """Type and shape of what a node writes, the first of several; an open dimension is None. None
    where it writes no tensor."""
    first = next(_tensors(node.meta.get("val")), None)
    if first is None:
        return None
    shape = [d if isinstance(d, int) else None for d in first.shape]
    return {"dtype": str(first.dtype).removeprefix("torch."), "shape": shape}


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def reported(task: Callable[[Job], dict[str, Any]]) -> Callable[[Job], dict[str, Any]]:
    """A task with the errors of the model, which are the project's, as a worker's."""

    def work(job: Job) -> dict[str, Any]:
        try:
            return task(job)
        except LayerlineError as e:
            what = f"{e.file}: {e.what}" if e.file else e.what
            raise WorkerError(what, e.fix, e.exit_code) from e

    return work


if __name__ == "__main__":
    sys.exit(common.main({"build": reported(build)}, sys.argv[1:]))
