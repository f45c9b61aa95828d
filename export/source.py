"""From what the user asked for to a `ModelSpec`: configurations, folders, the hub, overrides."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ..core.cli.progress import log
from ..core.errors import InputError
from ..core.files import read_json
from . import overrides
from .models import ModelSpec, looks_like_path, positions
from .quiet import gist, quiet

_CONFIGS = Path(__file__).resolve().parent / "configs"
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_ATTENTION = ("eager", "sdpa")
# What the export decides itself, or what is no part of the model.
_NOT_SETTABLE = {
    "use_cache": "a cache is not exported",
    "dtype": "use --precision",
    "torch_dtype": "use --precision",
    "return_dict": "the export needs it",
    "model_type": "use another --model",
    "transformers_version": "it is the installed one's",
    "output_attentions": "only the model's main outputs are exported",
    "output_hidden_states": "only the model's main outputs are exported",
}


@dataclass(frozen=True)
class Request:
    """What the user asked for. `settings` are the texts of ``--set``."""

    model: str = "gpt2"
    batch: int = 1
    seq: int = 128
    seed: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    revision: str | None = None
    dynamic: tuple[str, ...] = ()


# What a built-in model is also called.
_ALIASES = {"gpt2-tiny": "tiny"}


@cache
def builtin_names() -> tuple[str, ...]:
    """The models whose configurations ship with layerline."""
    return tuple(sorted(p.stem for p in _CONFIGS.glob("*.json")))


def resolve(request: Request) -> ModelSpec:
    """Find the model and settle its configuration. Raises InputError for what cannot be used.

    A built-in name wins over a folder or hub id of the same name (write ``./gpt2`` for the
    folder, ``openai-community/gpt2`` for the hub). A folder that has a config.json only gets
    random weights.
    """
    name = _ALIASES.get(request.model, request.model)
    if name in builtin_names():
        source, location, raw = "builtin", None, read_json(_CONFIGS / f"{name}.json")
        weights = "random"
    elif looks_like_path(name):
        source, folder = "folder", Path(name).expanduser().resolve()
        raw, weights = _folder(folder)
        location = str(folder)
    else:
        source, location, weights = "hub", name, "loaded"
        raw = _hub(name, request.revision)
    if request.revision is not None and source != "hub":
        raise InputError("--revision is for models from the hub", fix="leave it out")
    config, changed, attention = _configure(name, raw, dict(request.settings))
    model_class, task = choose_class(config)
    spec = ModelSpec(
        model=request.model,
        source=source,
        location=location,
        revision=raw.get("_commit_hash") or request.revision,
        weights=weights,
        task=task,
        model_class=model_class,
        config=_portable(config),
        overrides=changed,
        attn_implementation=attention,
        seed=request.seed,
        batch=request.batch,
        seq=request.seq,
        dynamic=request.dynamic,
    )
    _check_shape(spec, config)
    return spec


def _check_shape(spec: ModelSpec, config: Any) -> None:
    if not isinstance(spec.config.get("vocab_size"), int):
        raise InputError(
            f"{spec.model}: the configuration has no vocab_size; layerline exports models that "
            "read tokens",
            fix="choose a text model",
        )
    limit = positions(spec.config, dict(config.attribute_map))
    if limit is not None and spec.seq > limit:
        raise InputError(
            f"{spec.model}: a sequence of {spec.seq} tokens, the model has {limit} positions",
            fix=f"use --seq {limit} or less",
        )


def _folder(folder: Path) -> tuple[dict[str, Any], str]:
    if not folder.is_dir():
        raise InputError(
            "no such model folder",
            file=folder,
            fix=f"give a folder with a config.json, a hub id, or {', '.join(builtin_names())}",
        )
    raw = read_json(folder / "config.json", finite=False)  # some say Infinity
    if not isinstance(raw, dict):
        raise InputError("is not a model configuration", file=folder / "config.json")
    has_weights = any(next(folder.glob(pattern), None) for pattern in _WEIGHTS)
    if not has_weights:
        log(f"{folder}: has no weights, random ones are used (by seed)")
    return raw, "loaded" if has_weights else "random"


def _hub(name: str, revision: str | None) -> dict[str, Any]:
    """A hub model's raw configuration, from the local cache first, then from the network."""
    from transformers import PretrainedConfig

    close = [n for n in builtin_names() if n in name or name in n]
    advice = (
        f"give a folder or a built-in model ({', '.join(close or builtin_names())}), "
        "or run once where the hub can be reached"
    )
    arguments = {"revision": revision or "main"}
    with quiet():
        with contextlib.suppress(OSError):
            return _config_dict(PretrainedConfig, name, local_files_only=True, **arguments)
        if not _reachable():
            raise InputError(
                f"{name}: not a folder, not built in, not in the hub's cache, and the hub "
                "cannot be reached",
                fix=advice,
            )
        try:
            return _config_dict(PretrainedConfig, name, **arguments)
        except (OSError, ValueError) as e:
            raise InputError(f"{name}: not found on the hub ({gist(e)})", fix=advice) from e


def _config_dict(base: Any, name: str, **arguments: Any) -> dict[str, Any]:
    raw, _unused = base.get_config_dict(name, **arguments)
    if not raw.get("model_type"):
        raise OSError(f"{name} has no config.json with a model_type")
    return dict(raw)


def _reachable() -> bool:
    """Whether the hub's host has an address (a look-up, not minutes of retries)."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    if any(os.environ.get(k) for k in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")):
        return True
    with contextlib.suppress(OSError):
        return bool(socket.getaddrinfo(urlparse(constants.ENDPOINT).hostname, 443))
    return False


def _configure(
    name: str, raw: dict[str, Any], texts: dict[str, str]
) -> tuple[Any, dict[str, Any], str | None]:
    """The configuration object, the typed overrides, and the attention implementation."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model_type = raw.get("model_type")
    if model_type not in CONFIG_MAPPING:
        raise InputError(
            f"{name}: model_type {model_type!r} is not one of the installed transformers",
            fix="code from the hub is never run; update transformers or choose another model",
        )
    for key, why in _NOT_SETTABLE.items():
        if key in texts:
            raise InputError(f"--set {key}: cannot be set, {why}", fix="leave it out")
    config_class = CONFIG_MAPPING[model_type]
    raw = {k: v for k, v in raw.items() if k not in ("dtype", "torch_dtype", "_commit_hash")}
    with quiet():
        try:
            before = config_class.from_dict(dict(raw))
            synonyms = dict(config_class.attribute_map)
            if "architectures" in texts and not texts["architectures"].startswith("["):
                texts["architectures"] = f'["{texts["architectures"]}"]'
            changed = overrides.typed(texts, before.to_dict(), synonyms)
            config = config_class.from_dict({**raw, **changed})
        except (ValueError, TypeError, KeyError, StrictDataclassError) as e:
            raise InputError(
                f"{name}: the configuration is refused ({gist(e)})", fix="check --set"
            ) from e
    attention = texts.get(overrides.ATTENTION_KEY)
    if attention is not None and attention not in _ATTENTION:
        raise InputError(
            f"--set {overrides.ATTENTION_KEY}={attention}: cannot be exported",
            fix=f"choose from {', '.join(_ATTENTION)}",
        )
    if attention is None and getattr(config, "reorder_and_upcast_attn", False):
        attention = "eager"  # no other implementation of transformers reads that setting
    return config, changed, attention


def choose_class(config: Any) -> tuple[str, str]:
    """The transformers class for a configuration, and its task.

    The first of `architectures` that transformers has; otherwise masked-lm for a model that is
    no decoder, causal-lm, or the bare model, whichever exists first. Of an encoder-decoder the
    encoder is exported.
    """
    import transformers
    from transformers.models.auto import modeling_auto as auto

    causal: dict[str, Any] = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    masked: dict[str, Any] = auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    bare: dict[str, Any] = auto.MODEL_MAPPING_NAMES
    kind = config.model_type
    chosen = next((a for a in config.architectures or () if hasattr(transformers, a)), None)
    if getattr(config, "is_encoder_decoder", False):
        stem = re.sub(r"(For[A-Z]\w*|(Encoder)?Model)$", "", chosen or bare.get(kind, ""))
        if not hasattr(transformers, f"{stem}EncoderModel"):
            raise InputError(
                f"{kind} is an encoder-decoder model without an encoder class of its own",
                fix="export a decoder or an encoder",
            )
        return f"{stem}EncoderModel", "encoder"
    if chosen is None:
        decoder = getattr(config, "is_decoder", False)
        order = (causal, masked, bare) if decoder else (masked, causal, bare)
        chosen = next((names[kind] for names in order if kind in names), None)
    if not isinstance(chosen, str) or not hasattr(transformers, chosen):
        raise InputError(f"transformers has no model class for {kind}", fix="choose another model")
    if chosen in causal.values():
        return chosen, "causal-lm"
    return chosen, "masked-lm" if chosen in masked.values() else "encoder"


def _portable(config: Any) -> dict[str, Any]:
    """The configuration as JSON values, without what the installation decides."""
    values = json.loads(config.to_json_string(use_diff=False))
    for key in ("transformers_version", "dtype", "torch_dtype", "_name_or_path"):
        values.pop(key, None)
    return dict(values)
