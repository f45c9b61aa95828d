"""One decode step: a transformers cache of keys and values as plain tensors, in and out.

What runs is given ``cache`` (`NAMES`) as ``((keys, values), …)``, one pair a layer, each [batch,
heads, past, size], and gives the longer ones back in the same form. Hooks of the root module make
the library's cache of it, in the eager model and in the export alike. The decoder of an
encoder-decoder is given two pairs a layer, the second of what the encoder gave, which no step
changes: they are not given back.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ..core.errors import InputError
from .quiet import FAULTS, gist, quiet

if TYPE_CHECKING:
    from torch import nn

NAMES = ("cache", "past_key_values")  # of transformers, the newer first
Shapes = list[tuple[tuple[int, ...], ...]]


def name_in(names: Collection[str]) -> str | None:
    """What a cache is called among parameters, or outputs; None where there is none."""
    return next((n for n in NAMES if n in names), None)


def name_of(model: Any) -> str | None:
    """What the forward of a model, or of a class, calls its cache; None where it has none."""
    return name_in(inspect.signature(model.forward).parameters)


def shapes(model: nn.Module, before: dict[str, Any]) -> Shapes:
    """The shapes of each layer's keys and values behind the inputs `before`, of a model on the
    meta device: only shapes are computed. InputError for a model without such a cache."""
    import torch

    name = type(model).__name__
    try:
        with quiet(), torch.no_grad():
            output = model(**before, use_cache=True)
        caches = [_pairs(cache) for cache in _caches(output[name_in(output)])]
        return [
            tuple(tuple(t.shape) for pair in pairs for t in pair)
            for pairs in zip(*caches, strict=True)
        ]
    except FAULTS as e:
        raise InputError(
            f"{name} keeps no cache of keys and values that is known here ({gist(e)})",
            fix="export its prefill: leave --phase out",
        ) from e


def _caches(cache: Any) -> list[Any]:
    """The caches of keys and values that one holds: of what was decoded, and of an encoder's."""
    both = ("self_attention_cache", "cross_attention_cache")
    return [getattr(cache, name) for name in both] if hasattr(cache, both[0]) else [cache]


def _pairs(cache: Any) -> list[tuple[Any, Any]]:
    return [(layer.keys, layer.values) for layer in cache.layers]


def attach(model: Any, past: int) -> None:
    """Let a model take and give its cache as plain tensors."""
    model.register_forward_pre_hook(_Taken(model.config, past), with_kwargs=True)
    model.register_forward_hook(_given)


class _Taken:
    """Makes a cache of pairs of tensors; copied with the model. An empty one is made beforehand:
    layers of a sliding window make tensors, which are no work of the model's."""

    def __init__(self, config: Any, past: int) -> None:
        from transformers import DynamicCache

        self.empty, self.past = DynamicCache(config=config), past

    def __call__(self, _model: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        from transformers import EncoderDecoderCache

        name = name_in(kwargs)
        assert name is not None, "the inputs of a decode step have a cache"
        held = kwargs[name]
        caches = [
            self._filled([layer[i : i + 2] for layer in held]) for i in range(0, len(held[0]), 2)
        ]
        cache = caches[0] if len(caches) == 1 else EncoderDecoderCache(*caches)
        return args, {**kwargs, name: cache, "use_cache": True}

    def _filled(self, pairs: list[Any]) -> Any:
        cache = copy.copy(self.empty)
        cache.layers = [copy.copy(layer) for layer in self.empty.layers]
        if not cache.layers:
            cache.layers = [cache.layer_class_to_replicate() for _ in pairs]
        for layer, (keys, values) in zip(cache.layers, pairs, strict=True):
            # As `update` would, without joining them to an empty tensor.
            layer.keys, layer.values = keys, values
            layer.dtype, layer.device, layer.is_initialized = keys.dtype, keys.device, True
            if hasattr(layer, "cumulative_length"):
                layer.cumulative_length = self.past
        return cache


def _given(_model: Any, _args: Any, output: Any) -> Any:
    name = name_in(output)
    output[name] = tuple(_pairs(_caches(output[name])[0]))
    return output
