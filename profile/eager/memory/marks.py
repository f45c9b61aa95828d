"""What of a training step an allocation belongs to: hooks that say where the program is.

A *mark* is a moment from which a step, a phase and a module are the current ones. Marks are
numbered; an allocation belongs to the last mark before it. Forward hooks tell the module of a
forward, and of one that checkpointing runs again inside backward. In backward a hook on every node
of the graph tells it: a node belongs to the module in whose forward it got its sequence number
(`torch.autograd._get_sequence_nr`, one counter for each thread).
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

NO_MODULE = -1


class Marks:
    """The marks so far, as parallel lists. `tell` is given the number of each new mark."""

    def __init__(self, paths: list[str], tell: Callable[[int], None] | None = None) -> None:
        self.paths = paths
        self.time_ns: list[int] = []
        self.step: list[int] = []
        self.phase: list[str] = []
        self.module: list[int] = []
        self._tell = tell

    def set(self, step: int, phase: str, module: int) -> None:
        """From now on this step, phase and module, unless they are the current ones already."""
        if self.step and (self.step[-1], self.phase[-1], self.module[-1]) == (step, phase, module):
            return
        self.step.append(step)
        self.phase.append(phase)
        self.module.append(module)
        if self._tell is not None:
            self._tell(len(self.step) - 1)
        self.time_ns.append(time.time_ns())

    def __len__(self) -> int:
        return len(self.step)

    def document(self) -> dict[str, Any]:
        """As it is written."""
        columns = ("time_ns", "step", "phase", "module")
        return {name: getattr(self, name) for name in columns}


class Where:
    """Keeps the marks: the loop tells step and phase, hooks tell the module."""

    def __init__(self, model: torch.nn.Module, marks: Marks) -> None:
        self.marks = marks
        self._step, self._phase = 0, "other"
        self._modules: list[int] = []  # those whose forward is running, outermost first
        self._node = NO_MODULE  # of the node of the graph that is running
        # Sequence numbers from which a module is the current one in the forward of this step.
        self._sequence: list[int] = []
        self._of_sequence: list[int] = []
        self._handles: list[Any] = []
        index = {path: i for i, path in enumerate(marks.paths)}
        for path, module in model.named_modules():
            if path in index:
                self._watch(module, index[path], module is model)

    def enter_step(self, number: int) -> None:
        """A step begins."""
        self._step = number
        self.enter_phase("other")

    def enter_phase(self, name: str) -> str:
        """A phase begins, or goes on, or what is between phases ("other"); gives the one before."""
        outer, self._phase = self._phase, name
        if "recompute" not in (outer, name):  # that is inside a node of backward
            self._node = NO_MODULE
        if name == "forward":
            self._sequence, self._of_sequence = [], []
        self._mark()
        return outer

    def remove(self) -> None:
        """Take the hooks off the modules; those on nodes go with the graph."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _mark(self) -> None:
        phase = self._phase
        if self._modules and phase == "backward":
            phase = "recompute"
        module = self._modules[-1] if self._modules else self._node
        self.marks.set(self._step, phase, module)

    def _watch(self, module: torch.nn.Module, number: int, root: bool) -> None:
        def before(_module: Any, _args: Any) -> None:
            self._modules.append(number)
            self._sequence_from(number)
            self._mark()

        def after(_module: Any, _args: Any, output: Any) -> None:
            if self._modules:  # empty where a pre-hook of the user's raised
                self._modules.pop()
            self._sequence_from(self._modules[-1] if self._modules else NO_MODULE)
            if root and self._phase == "forward":
                self._watch_nodes(output)
            self._mark()

        self._handles.append(module.register_forward_pre_hook(before))
        self._handles.append(module.register_forward_hook(after, prepend=True, always_call=True))

    def _sequence_from(self, module: int) -> None:
        if self._phase == "forward":
            self._sequence.append(torch.autograd._get_sequence_nr())
            self._of_sequence.append(module)

    def _watch_nodes(self, output: Any) -> None:
        """A hook before each node of the graph that this output came from."""
        waiting = [t.grad_fn for t in tensors(output) if t.grad_fn is not None]
        seen = set(waiting)
        while waiting:
            node = waiting.pop()
            at = bisect.bisect_right(self._sequence, node._sequence_nr()) - 1
            if hasattr(node, "register_prehook") and not hasattr(node, "variable"):
                module = self._of_sequence[at] if at >= 0 else NO_MODULE
                node.register_prehook(self._entering(module))
            for inner, _ in node.next_functions:
                if inner is not None and inner not in seen:
                    seen.add(inner)
                    waiting.append(inner)

    def _entering(self, module: int) -> Callable[[Any], None]:
        def enter(_gradients: Any) -> None:
            if self._phase in ("backward", "recompute"):
                self._node = module
                self._mark()

        return enter


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in an output or in arguments: in containers, dataclasses and model outputs."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from tensors(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from tensors(inner)


def storage(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Address and bytes of a tensor's storage; None where it has none of its own (meta, sparse).
    Of a distributed tensor, the part that is here."""
    local = getattr(tensor, "_local_tensor", tensor)
    try:
        held = local.untyped_storage()
        address = held.data_ptr()
    except (RuntimeError, NotImplementedError):
        return None
    return (address, held.nbytes()) if address and held.nbytes() else None


class Tensors:
    """Which storages are parameters, buffers, gradients, optimizer state, inputs, outputs, and from
    which mark on. A storage that is where it was is written once."""

    def __init__(self, training: Any, marks: Marks) -> None:
        self._training, self._marks = training, marks
        self.rows: list[dict[str, Any]] = []
        self._last: dict[tuple[str, str], tuple[int, int]] = {}
        self._names = {p: name for name, p in training.model.named_parameters()}
        self._handles: list[Any] = []
        for name, parameter in training.model.named_parameters():
            self._note("parameter", name, parameter)
            if parameter.requires_grad:
                self._handles.append(self._on_gradient(parameter, name))
            if parameter.grad is not None:
                self._note("gradient", name, parameter.grad)
        for name, buffer in training.model.named_buffers():
            self._note("buffer", name, buffer)
        self.optimizer_state()
        if marks.paths:
            self._watch_outputs()

    def optimizer_state(self) -> None:
        """Note the optimizer's tensors as they are now."""
        for parameter, state in self._training.optimizer.state.items():
            if isinstance(parameter, torch.Tensor) and isinstance(state, dict):
                for key, value in state.items():
                    if isinstance(value, torch.Tensor):
                        name = self._names.get(parameter, "?")
                        self._note("optimizer state", f"{name}:{key}", value)

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()

    def _on_gradient(self, parameter: torch.Tensor, name: str) -> Any:
        def accumulated(p: torch.Tensor) -> None:
            if p.grad is not None:
                self._note("gradient", name, p.grad, again=True)

        return parameter.register_post_accumulate_grad_hook(accumulated)

    def _watch_outputs(self) -> None:
        model = self._training.model

        def given(_module: Any, args: Any, kwargs: Any) -> None:
            for number, tensor in enumerate(tensors([args, kwargs])):
                self._note("input", str(number), tensor, again=True)

        self._handles.append(model.register_forward_pre_hook(given, with_kwargs=True))
        for path, module in model.named_modules():

            def gave(_module: Any, _args: Any, output: Any, path: str = path) -> None:
                for tensor in tensors(output):
                    self._note("output", path, tensor, again=True)

            self._handles.append(module.register_forward_hook(gave))

    def _note(self, kind: str, name: str, tensor: torch.Tensor, again: bool = False) -> None:
        held = storage(tensor)
        if held is None or (self._last.get((kind, name)) == held and not again):
            return
        self._last[kind, name] = held
        local = getattr(tensor, "_local_tensor", tensor)
        self.rows.append(
            {
                "kind": kind,
                "name": name,
                "device": str(local.device),
                "address": held[0],
                "bytes": local.numel() * local.element_size(),
                "mark": max(0, len(self._marks) - 1),
            }
        )
