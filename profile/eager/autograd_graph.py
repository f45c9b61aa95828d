"""What autograd recorded of one forward, as a graph of nodes with the module of each.

autograd numbers its nodes as they are made, on each thread of its own; what was made between the
begin and the end of a module's forward is that module's. The graph is walked from the outputs over
``next_functions`` and written in the form of nodes.json, so that whoever reads the one reads the
other: names are ``module.path/Operator[_n]``, parameters are initializers. Operators that need no
gradient (tokens, masks) are not in it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...core.errors import InputError
from ...core.files import write_json
from ...core.nodes import SCHEMA_VERSION
from ...core.own_ranges import MODULE
from ...export.naming import ModuleTree, unique_names
from ...workloads.plugin import NOTHING, Plugin
from . import hooks

if TYPE_CHECKING:
    from ...workloads.training import Training

# A node that adds to a parameter's gradient; it is no operator of the forward.
_ACCUMULATE = "AccumulateGrad"
_BACKWARD = re.compile(r"Backward\d*$")
_NUMBER = torch.autograd._get_sequence_nr


@contextlib.contextmanager
def recorded(model: torch.nn.Module, name: str) -> Iterator[dict[str, Any]]:
    """The graph of the first forward of `model` in the block; `name`: of the model.

    The dictionary is filled when that forward ends, and stays empty without one.
    """
    made: list[tuple[int, int, str]] = []  # first number, the one after the last, path
    document: dict[str, Any] = {}

    @contextlib.contextmanager
    def range_of(range_name: str) -> Iterator[None]:
        begin = _NUMBER()
        try:
            yield
        finally:
            if not document:
                made.append((begin, _NUMBER(), range_name.removeprefix(MODULE)))

    def finished(_module: Any, _args: Any, output: Any) -> None:
        if not document and torch.is_grad_enabled():
            document.update(_document(model, name, made, tensors(output)))

    with hooks.module_ranges(model, range_of):
        handle = model.register_forward_hook(finished)
        try:
            yield document
        finally:
            handle.remove()


def tensors(output: Any, name: str = "output") -> dict[str, torch.Tensor]:
    """Every tensor in what a model returned, by its name or place."""
    if isinstance(output, torch.Tensor):
        return {name: output}
    named: Iterable[tuple[Any, Any]] = ()
    if hasattr(output, "items"):
        named = output.items()
    elif isinstance(output, (list, tuple)):
        named = ((f"{name}_{i}", v) for i, v in enumerate(output))
    return {k: t for key, value in named for k, t in tensors(value, str(key)).items()}


def _document(
    model: torch.nn.Module,
    name: str,
    made: list[tuple[int, int, str]],
    outputs: dict[str, torch.Tensor],
) -> dict[str, Any]:
    """In the form of nodes.json. InputError where no output has a gradient."""
    ends = {k: t for k, t in outputs.items() if t.grad_fn is not None}
    if not ends:
        raise InputError(
            f"{name}: no output of the model has a gradient",
            fix="record a forward with gradients, of a model whose parameters need them",
        )
    tree = ModuleTree.of(model)
    order = list(_upwards([t.grad_fn for t in ends.values()]))
    owner = _owners(made)
    modules = [owner.get(_number(f)) for f in order]
    ops = [_BACKWARD.sub("", type(f).__name__) or "Function" for f in order]
    names = unique_names(zip((m or "" for m in modules), ops, strict=True))
    of = dict(zip(order, names, strict=True))
    parameters = {p: n for n, p in model.named_parameters()}
    used: dict[str, None] = {}
    produced: dict[str, dict[str, None]] = {n: {} for n in names}

    def tensor(function: Any, number: int) -> str | None:
        if type(function).__name__ == _ACCUMULATE:
            parameter = parameters.get(function.variable)
            if parameter is not None:
                used[parameter] = None
            return parameter
        made_by = of[function]
        result = results.get((function, number), f"{made_by}:{number}")
        produced[made_by][result] = None
        return result

    results = {(t.grad_fn, t.output_nr): k for k, t in ends.items()}
    reads = [[tensor(f, n) for f, n in o.next_functions if f is not None] for o in order]
    outputs_ = [tensor(t.grad_fn, t.output_nr) for t in ends.values()]
    return {
        "schema_version": SCHEMA_VERSION,
        "model": name,
        "inputs": [],
        "outputs": outputs_,
        "initializers": list(used),
        "aliases": {k: list(v) for k, v in tree.aliases.items()},
        "tensors": {
            k: {"dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape)}
            for k, t in ends.items()
        },
        "nodes": [
            {
                "name": node,
                "op": op,
                "module": module,
                "module_class": None if module is None else tree.classes.get(module),
                "inputs": [t for t in read if t is not None],
                "outputs": list(produced[node]),
                "source": None,
            }
            for node, op, module, read in zip(names, ops, modules, reads, strict=True)
        ],
    }


def _upwards(ends: Iterable[Any]) -> Iterator[Any]:
    """Every node above the ends, each after those that it reads; without those of parameters."""
    seen: set[Any] = set()
    for end in ends:
        todo = [(end, False)]
        while todo:
            function, done = todo.pop()
            if done:
                yield function
            elif function not in seen and type(function).__name__ != _ACCUMULATE:
                seen.add(function)
                todo.append((function, True))
                above = [f for f, _ in function.next_functions if f is not None]
                todo += [(f, False) for f in reversed(above)]


def _owners(made: Iterable[tuple[int, int, str]]) -> dict[int, str]:
    """The module of each number: the innermost, which of two has fewer."""
    owner: dict[int, str] = {}
    for begin, end, path in sorted(made, key=lambda m: m[0] - m[1]):
        owner.update(dict.fromkeys(range(begin, end), path))
    return owner


def _number(function: Any) -> int:
    """The number of a node; -1 for one that has none."""
    number = getattr(function, "_sequence_nr", None)
    return -1 if number is None else int(number())


def of_model(path: Path) -> dict[str, Any]:
    """The graph of a training forward of the model that the export describes (model.json)."""
    from ...export.models import load_spec, tensors

    spec = load_spec(path)
    model = spec.build(training=True)
    with recorded(model, spec.model) as document:
        model(**tensors(spec.inputs()))
    return document


class AutogradGraph(Plugin):
    """Record the graph of the first forward of a training run, and write it to `path`."""

    own_steps = 1

    def __init__(self, path: Path, name: str = "") -> None:
        self._path, self._name = path, name
        self._model: torch.nn.Module | None = None
        self._written = False

    def open(self, training: Training) -> None:
        """Take the model."""
        self._model = training.model

    def step(self, number: int) -> AbstractContextManager[None]:
        """Around the first step, with hooks; around the others, nothing."""
        return NOTHING if self._written else self._record()

    @contextlib.contextmanager
    def _record(self) -> Iterator[None]:
        assert self._model is not None, "a plug-in is opened before its first step"
        with recorded(self._model, self._name or type(self._model).__name__) as document:
            yield
        if document:
            write_json(self._path, document)
            self._written = True


def plugin(context: Any) -> AutogradGraph:
    """The plug-in of a capture: `context.path` gives the place of its file."""
    return AutogradGraph(context.path(".graph.json"))
