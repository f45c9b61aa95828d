"""Inputs and outputs of a model: arrays or tensors, alone or in tuples, lists and dicts, by name.

The names are those of the ONNX file. Caches of transformers are read as what they hold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def is_array(value: Any) -> bool:
    """Whether a value is an array or a tensor."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _parts(value: Any) -> list[tuple[str, Any]]:
    """What a value holds, by key; nothing for what holds nothing."""
    if isinstance(value, Mapping):
        return [(str(k), v) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return [(str(i), v) for i, v in enumerate(value)]
    layers = getattr(value, "layers", None)
    if isinstance(layers, list):  # a transformers.Cache
        both = [("key", "keys"), ("value", "values")]
        return [
            (f"{i}.{name}", getattr(layer, of))
            for name, of in both
            for i, layer in enumerate(layers)
        ]
    if dataclasses.is_dataclass(value):
        return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    return []


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if is_array(value):
        yield name, value
        return
    for key, part in _parts(value):
        yield from _leaves(part, f"{name}.{key}" if name else key)


def named(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of keyword arguments: ``x``, ``pair.0``, ``options.scale``. What is no array is a
    constant of the call and left out."""
    return dict(_leaves(inputs, ""))


def outputs(value: Any, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The arrays of what a model returned: ``output``, of a tuple ``output``, ``output_1``, of
    anything with names those names. One that is the name of one of the `inputs`, too, gets
    ``.out`` behind it: a graph has one tensor of a name."""
    if is_array(value):
        value = {"output": value}
    elif isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        value = {f"output_{i}" if i else "output": v for i, v in enumerate(value)}
    taken = named(inputs or {})
    return {f"{k}.out" if k in taken else k: v for k, v in _leaves(value, "")}


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same value with every array changed."""
    if is_array(value):
        return change(value)
    if isinstance(value, Mapping):
        return {k: mapped(v, change) for k, v in value.items()}
    if isinstance(value, list | tuple):
        changed = [mapped(v, change) for v in value]
        if hasattr(value, "_fields"):
            return type(value)(*changed)
        return tuple(changed) if isinstance(value, tuple) else changed
    return value
