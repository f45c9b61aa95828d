"""torch.compile with a record of what it compiled: of each graph its kernels, by module.

`Recorder.compiled` compiles the model again, by inductor, with its provenance
(``trace.provenance_tracking_level``) and with a range in torch.profiler around each kernel of a CPU
(``cpp.enable_kernel_profile``, which costs time in each): for captures, not for latencies. Python's
call of a graph is an operator of the trace, named by the graph's number here (`CALL`).

A graph that AOTAutograd hands to inductor is of forward or of backward. Its nodes have the modules
that called them (``nn_module_stack``); those of backward, the modules of the nodes of forward whose
gradients they are (``fwd_nn_module_stack``), by autograd's sequence numbers. Sums of gradients that
meet (``is_gradient_acc``) are no module's. Source: torch/_functorch/_aot_autograd/utils.py.

Inductor's patterns put nodes in the place of others, in the graph of forward and backward in one
(a product that is padded) and in each of the two (``addmm`` as a product and a sum). Of those
nodes torch keeps what they replaced (``from_node``), and of a node of backward not the modules.

Modules are paths from the objects of the frame that was compiled (``L['self'].h.0``). After a graph
break that is the forward of any module: where the model has several of one class, one graph may
serve them all. Its kernels are written as the first one's, and each call tells which it is of.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import CodeType
from typing import Any, TypeVar

import torch

from ...core.nodes import Node, NodeGraph
from ...engines import inductor_provenance
from ...engines.inductor_build import PLACE, graph_break, left_to_python
from ...engines.inductor_provenance import is_passive
from ...export.naming import ModuleTree
from ...export.quiet import gist

SUMS = "gradient sums"
_CONFIG = {
    "trace.provenance_tracking_level": 1,
    "cpp.enable_kernel_profile": True,
    # A graph that is taken from a cache has no nodes.
    "force_disable_caches": True,
}
_REPLACED = "layerline_replaced"  # of a node: what `_Joint` noted of those whose place it took
_NOTED = ("fwd_nn_module_stack", "nn_module_stack", "seq_nr", "is_gradient_acc")
_SCOPE = re.compile(r"L\['(\w+)'\](?:\[(\d+)\])?(?:\.|$)")


class Recorder:
    """Compiles a model, and has what it compiled: `graphs` and `breaks` as in a meta file
    (`core.documents.CompiledGraph`, `core.documents.Break`)."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model, self._tree = model, ModuleTree.of(model)
        self.graphs: list[dict[str, Any]] = []
        self.breaks: list[dict[str, str]] = []
        self._inside: set[str] | None = set()  # modules in graphs; None: not known

    def compiled(self) -> Callable[..., Any]:
        """The model, compiled when it is called."""
        function: Callable[..., Any] = torch.compile(self._model, backend=self._compile)
        return function

    def facts(self) -> dict[str, Any]:
        """For a meta file."""
        return {
            "compiled_graphs": self.graphs,
            "graph_breaks": list({b["place"]: b for b in self.breaks + left_to_python()}.values()),
            "recompiles": self.recompiles(),
            "modules": self._tree.classes,
        }

    def left_out(self) -> list[str]:
        """The modules whose forwards Python calls: those in no graph, and those of which a graph
        may be any. Empty where that is not known."""
        if self._inside is None:
            return []
        called = {path for g in self.graphs for path in g["any_of"]}
        return [p for p in self._tree.classes if p in called or p not in self._inside]

    def recompiles(self) -> list[dict[str, str | None]]:
        """Every graph that was compiled because an earlier one of the same code did not fit, with
        the guard that failed, where torch tells it."""
        from torch._dynamo.utils import get_compilation_metrics

        told = [m for m in get_compilation_metrics() if m.recompile_reason]
        why = {str(m.compile_id): _failed(m.recompile_reason) for m in told}
        codes: dict[str, list[str]] = {}
        for region in dict.fromkeys(g["region"] for g in self.graphs):
            codes.setdefault(region.partition("/")[0], []).append(region)
        again = [region for _, *later in codes.values() for region in later]
        return [{"graph": region, "why": why.get(region)} for region in again]

    def _compile(self, module: torch.fx.GraphModule, inputs: Any) -> Any:
        """What torch.compile calls with each graph of Python code."""
        from torch._inductor import debug
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner

        reason = getattr(module, "compile_subgraph_reason", None)
        if reason is not None and reason.graph_break:
            self.breaks.append(graph_break(reason))
        # Of a backward graph inductor writes no mapping, for it has no graph of before the
        # gradients; inside this it takes any.
        own_mapping = getattr(debug, "reset_provenance_globals", contextlib.nullcontext)
        frame = _tried(lambda: _Frame(self._model, self._tree))
        joint = _Joint()
        passes = {"joint_custom_pre_pass": joint.before, "joint_custom_post_pass": joint.after}
        # Passes that somebody else set are part of what is measured, and stay.
        free = {k: v for k, v in passes.items() if not getattr(torch._inductor.config, k, True)}

        def inner(graph: torch.fx.GraphModule, arrays: Any, **options: Any) -> Any:
            before = frame if isinstance(frame, str) else _tried(lambda: _Before(graph, frame))
            with own_mapping():
                made = compile_fx_inner(graph, arrays, **options)
            self._keep(before, graph, made, bool(options.get("is_backward")))
            return made

        return compile_fx(module, inputs, inner_compile=inner, config_patches=_CONFIG | free)

    def _keep(self, before: _Before | str, graph: Any, made: Any, backward: bool) -> None:
        if isinstance(before, str) or self._inside is None:
            self._inside = None
        else:
            self._inside |= before.inside()
        number = str(len(self.graphs))
        why, kernels = None, _told(before, graph, made)
        if isinstance(kernels, str):
            why, kernels = f"torch {torch.__version__}: {kernels}", []
        elif not isinstance(before, str) and any(k.keys() == {"name"} for k in kernels):
            why = before.frame.why
        made._fx_graph_cache_key = number  # what `CALL` names; without a cache it has none
        self.graphs.append(
            {
                "key": number,
                "region": str(torch._guards.CompileContext.current_compile_id()),
                "phase": "backward" if backward else "forward",
                "why": why,
                "any_of": [] if isinstance(before, str) else before.frame.any_of,
                "kernels": kernels,
            }
        )


T = TypeVar("T")


def _told(before: _Before | str, graph: Any, made: Any) -> list[dict[str, Any]] | str:
    return before if isinstance(before, str) else _tried(lambda: before.kernels(graph, made))


def _tried(work: Callable[[], T]) -> T | str:
    """What the work gives, or why it cannot: other versions of torch have other insides, and the
    training goes on without them."""
    try:
        return work()
    except Exception as e:  # noqa: BLE001
        return gist(e)


def _failed(reason: str) -> str:
    """The guard in torch's text: ``self.calls == 0`` of ``0/0: self.calls == 0  # its code``."""
    guard = reason.split("\n", 1)[0].partition(": ")[2] or reason
    return " ".join(guard.split("  #", 1)[0].split())


class _Frame:
    """The Python code that a graph is of: whose forward, and which objects it names.

    `own`: the path of its module; the first of `any_of`, where it may be the forward of several of
    one class; None where it is of no one module, or names others of which there are several. `why`
    then says why."""

    def __init__(self, model: torch.nn.Module, tree: ModuleTree) -> None:
        from torch._dynamo.symbolic_convert import InstructionTranslator

        frame = InstructionTranslator.current_tx().output.root_tx
        self._tree, self._locals = tree, frame.f_locals
        self._paths: dict[int, str] = {}
        self._classes: dict[type, list[str]] = {}
        for path, module in model.named_modules():
            self._paths[id(module)] = path
            self._classes.setdefault(type(module), []).append(path)
        self.why: str | None = None
        self.any_of: list[str] = []
        self._subject = self._itself(model, frame.f_code)
        self.own = self._module(self._subject)

    def _itself(self, model: torch.nn.Module, code: Any) -> Any:
        """The module whose forward this is: its first argument, or, where a break was in it, the
        only one that has this code."""
        first = self._locals.get(code.co_varnames[0]) if code.co_varnames else None
        if isinstance(first, tuple):  # (*args, **kwargs), of what wraps a forward
            first = first[0] if first else None
        if id(first) in self._paths:
            return first
        those = [m for m in model.modules() if _is_of(code, inspect.unwrap(type(m).forward))]
        if len({type(m) for m in those}) == 1:
            local = self._locals.get("self")
            return local if any(local is m for m in those) else those[0]
        self.why = f"of which module {code.co_name} is, torch does not say"
        return None

    def _module(self, module: Any) -> str | None:
        path = self._paths.get(id(module))
        if path is None:
            return None
        others = self._classes[type(module)]
        if len(others) > 1 and module is self._subject:
            self.any_of = others
            return others[0]
        if len(others) > 1:
            self.why = f"the graph may be of any {type(module).__name__}: {', '.join(others)}"
            return None
        return path

    def of(self, stack: Mapping[Any, Any]) -> str | None:
        """The innermost module of an ``nn_module_stack``."""
        return self._tree.module_of(self.scopes(stack))

    def scopes(self, stack: Mapping[Any, Any]) -> list[str]:
        """The modules of an ``nn_module_stack`` that are known."""
        scopes = [self._scope(str(path)) for path, *_ in stack.values()]
        return [s for s in scopes if s is not None]

    def held(self) -> set[str]:
        """The modules that this may be of, with all that they hold."""
        within = tuple(f"{path}." for path in self.any_of)
        return {p for p in self._tree.classes if p in self.any_of or p.startswith(within)}

    def _scope(self, text: str) -> str | None:
        found = _SCOPE.match(text)
        if found is None:
            return None
        thing = self._locals.get(found[1])
        if found[2] is not None and isinstance(thing, tuple):
            thing = thing[int(found[2])] if int(found[2]) < len(thing) else None
        base, rest = self._module(thing), text[found.end() :]
        return None if base is None else f"{base}.{rest}" if base and rest else base or rest


def _is_of(code: CodeType, function: Any) -> bool:
    """Whether code is a function's, or the rest of it after a break."""
    own = getattr(function, "__code__", None)
    if own is None or code.co_filename != own.co_filename:
        return False
    lines = [line for *_, line in own.co_lines() if line is not None]
    return code.co_firstlineno in range(min(lines), max(lines) + 1)


class _Joint:
    """Forward and backward in one graph, before and after inductor's patterns replace nodes of it:
    every node that took the place of others is given what is noted of them."""

    def __init__(self) -> None:
        self._noted: dict[str, dict[str, Any]] = {}

    def before(self, graph: torch.fx.Graph) -> None:
        self._noted = {n.name: {k: n.meta[k] for k in _NOTED if k in n.meta} for n in graph.nodes}

    def after(self, graph: torch.fx.Graph) -> None:
        _tried(lambda: self._give(graph))

    def _give(self, graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            replaced = [] if node.name in self._noted else _replaced(node, graph, self._noted)
            if replaced:
                node.meta[_REPLACED] = [self._noted[name] for name in replaced]


def _replaced(node: Any, graph: torch.fx.Graph, known: Container[str]) -> list[str]:
    """The nodes of a graph whose place a new one took, as inductor's pattern matcher notes it:
    often only of the node that it was copied from."""
    found: dict[str, None] = {}
    coming = list(node.meta.get("from_node") or ())
    while coming:
        source = coming.pop(0)
        if source.graph_id == id(graph) and source.name in known:
            found[source.name] = None
        else:
            coming += source.from_node
    return list(found)


class _Before:
    """A graph before inductor changes it: its nodes with their modules."""

    def __init__(self, graph: torch.fx.GraphModule, frame: _Frame) -> None:
        self.frame = frame
        calls = [n for n in graph.graph.nodes if n.op == "call_function"]
        self._nodes = {
            n.name: Node(
                n.name,
                str(n.target),
                None if _writes_back(n) else self._module(n.meta),
                tuple(i.name for i in n.all_input_nodes),
                (n.name,),
            )
            for n in calls
        }
        self._stacks = [n.meta.get("nn_module_stack") or {} for n in calls]
        self._sums = {n.name for n in calls if all(m.get("is_gradient_acc") for m in _of(n.meta))}

    def inside(self) -> set[str]:
        """The modules whose forwards, or parts of them, are in the graph."""
        own = () if self.frame.own is None else (self.frame.own,)
        return self.frame.held().union(own, *map(self.frame.scopes, self._stacks))

    def _module(self, meta: Mapping[str, Any]) -> str | None:
        """A node's module; None where it took the place of nodes of several."""
        modules = {self._noted(m) for m in _of(meta)}
        return modules.pop() if len(modules) == 1 else None

    def _noted(self, meta: Mapping[str, Any]) -> str | None:
        if meta.get("is_gradient_acc"):
            return None
        stack = meta.get("fwd_nn_module_stack") or meta.get("nn_module_stack")
        if stack:
            return self.frame.of(stack)
        # What forward computes by itself has no stack, but autograd's number.
        return self.frame.own if "seq_nr" in meta else None

    def kernels(self, graph: torch.fx.GraphModule, made: Any) -> list[dict[str, Any]]:
        """The kernels and extern calls of the graph as they run; each with its modules, or with
        the row that it is of, or with neither."""
        posts = json.loads(made.inductor_provenance_mapping_str)["cppCodeToPost"]
        after = {n.name: n for n in graph.graph.nodes}
        pre = self._sources({post for of in posts.values() for post in of}, after)
        nodes = NodeGraph(tuple(self._nodes.values()))
        given = {n.name: n.name for n in after.values() if n.op == "placeholder"}
        known = inductor_provenance.Graph(nodes, {n: n for n in self._nodes}, given)
        names = PLACE.findall(made.source_code)
        mappings = {"cppCodeToPost": posts, "postToPre": pre}
        _, resolutions = inductor_provenance.listed(mappings, known, names)
        kernels = []
        for r in resolutions:
            kernel: dict[str, Any] = {"name": r.name}
            working = [
                n for x in posts.get(r.name, ()) for n in pre.get(x, ()) if not is_passive(n)
            ]
            modules = r.modules or nodes.modules_of(self._drawing(working))
            if modules:
                kernel["modules"] = list(modules)
            elif working and self._sums.issuperset(working):
                kernel["row"] = SUMS
            kernels.append(kernel)
        return kernels

    def _drawing(self, nodes: Sequence[str]) -> list[str]:
        """The nodes that draw random numbers, where these nodes make the seeds of all of them."""
        if not nodes or any("inductor_seeds" not in self._nodes[n].op for n in nodes):
            return []
        return [n.name for n in self._nodes.values() if set(n.inputs) & set(nodes)]

    def _sources(self, posts: Iterable[str], after: Mapping[str, Any]) -> dict[str, list[str]]:
        """The nodes that each node of the changed graph stands for: itself; or the one whose place
        it took, with those that are gone since and that this was computed from."""
        found = {post: [post] for post in posts if post in self._nodes}
        new = {
            name: _replaced(node, node.graph, self._nodes)
            for name, node in after.items()
            if name not in self._nodes
        }
        taken = {name for names in new.values() for name in names}
        for post, coming in new.items():
            found[post] = []
            while coming:
                name = coming.pop()
                found[post].append(name)
                gone = [i for i in self._nodes[name].inputs if i in self._nodes and i not in after]
                coming += [i for i in gone if i not in taken and i not in found[post]]
        return found


def _writes_back(node: Any) -> bool:
    """Whether a node is AOTAutograd's, which writes what a module made of a buffer back into it at
    the end of forward, and knows no module."""
    return str(node.target) == "aten.copy_.default" and node.args[0].op == "placeholder"


def _of(meta: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What is known of a node: of those whose place it took, else of itself."""
    return meta.get(_REPLACED) or [meta]
