"""From what the user asked for to a `ModelSpec`: configurations, folders, the hub, overrides."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ..core.cli.progress import log
from ..core.errors import InputError
from ..core.files import read_json
from . import examples, overrides, own
from .models import ModelSpec, looks_like_path
from .quiet import gist, quiet

_CONFIGS = Path(__file__).resolve().parent / "configs"
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_ATTENTION = ("eager", "sdpa")
# The one implementation of experts that torch can export: the others' shapes depend on the routing.
_EXPERTS = ("batched_mm",)
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
    """What the user asked for. `settings` are the texts of ``--set``; for the others see
    `ModelSpec`."""

    model: str = "gpt2"
    batch: int = 1
    seq: int = 128
    seed: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    revision: str | None = None
    dynamic: tuple[str, ...] = ()
    part: str = "whole"
    padded: bool = False
    past: int | None = None


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
    random weights. A function of the user's is run.
    """
    code = own.target(request.model)
    if code is not None:
        return _own(request, code)
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
        experts_implementation=_experts(name, model_class, request.settings),
        part=request.part,
        padded=request.padded,
        past=request.past,
    )
    spec = _shaped(spec, config)
    if spec.past is not None:
        spec.cache_shapes()
    return spec


def _own(request: Request, code: own.Target) -> ModelSpec:
    """The spec of a model that the user's function makes; it is run."""
    for option, given in (("--revision", request.revision), ("--part", request.part != "whole"),
                          ("--padded", request.padded), ("--past", request.past)):  # fmt: skip
        if given:
            raise InputError(f"{option} is of no use for {code}", fix="leave it out")
    own.look(code, request.settings)
    log(f"{code}: this is your code, and it is executed")
    shapes = {"batch": request.batch, "seq": request.seq}
    made = own.made(code, request.settings, shapes, request.seed, anew=True)
    for name, usual in (("batch", Request.batch), ("seq", Request.seq)):
        if name not in made.own.takes and (shapes[name] != usual or name in request.dynamic):
            raise InputError(
                f"{code}: takes no {name}, so --{name} {shapes[name]} would change nothing",
                fix=f"give the function a parameter {name}, or leave the option out (a run that "
                "has an export keeps it until --model is named)",
            )
    return ModelSpec(
        model=request.model,
        source="own",
        location=str(code),
        revision=None,
        weights="own",
        task="own",
        model_class=type(made.model).__name__,
        config={},
        overrides=dict(request.settings),
        attn_implementation=None,
        seed=request.seed,
        batch=request.batch if "batch" in made.own.takes else None,
        seq=request.seq if "seq" in made.own.takes else None,
        dynamic=request.dynamic,
        own=made.own,
    )


def _experts(name: str, model_class: str, settings: Mapping[str, str]) -> str | None:
    """How experts are computed: what was asked for, else what can be exported; None where the
    class has none to choose."""
    import transformers

    asked = settings.get(overrides.EXPERTS_KEY)
    can = getattr(getattr(transformers, model_class), "_can_set_experts_implementation", None)
    if can is None or not can():
        if asked is not None:
            what = f"{model_class} has no choice of experts"
            raise InputError(f"--set {overrides.EXPERTS_KEY}={asked}: {what}", fix="leave it out")
        return None
    if asked is not None and asked not in _EXPERTS:
        raise InputError(
            f"--set {overrides.EXPERTS_KEY}={asked}: cannot be exported",
            fix=f"choose from {', '.join(_EXPERTS)}",
        )
    if asked is None:
        log(f"{name}: experts are computed with {_EXPERTS[0]} (weights of the chosen experts are "
            "copied for each token); transformers' own way cannot be exported")  # fmt: skip
    return _EXPERTS[0]


def _shaped(spec: ModelSpec, config: Any) -> ModelSpec:
    """The spec with a sequence only where it has one. InputError for shapes it cannot have."""
    import transformers

    kind = getattr(transformers, spec.model_class)
    names = examples.taken(kind, config, spec.part)
    parts = "decoder_input_ids" in examples.taken(kind, config)
    if spec.part != "whole" and not parts:
        raise InputError(
            f"--part {spec.part}: {spec.model_class} is not an encoder and a decoder",
            fix="leave it out",
        )
    tokens = {examples.TOKENS, "decoder_input_ids"} & {*names}
    if tokens and not isinstance(getattr(examples.text_of(config), "vocab_size", None), int):
        raise InputError(
            f"{spec.model}: {spec.model_class} reads tokens; the configuration has no vocab_size",
            fix="choose another model, or give it one with --set",
        )
    if spec.padded and spec.past is not None:
        raise InputError("--padded is of no use for --phase decode", fix="leave it out")
    if spec.padded and examples.TOKENS not in names:
        raise InputError(f"--padded: {spec.model_class} reads no tokens", fix="leave it out")
    if spec.past is not None and parts and spec.part == "whole":
        raise InputError(
            f"--phase decode: {spec.model_class} is an encoder and a decoder",
            fix="add --part decoder",
        )
    if spec.past is not None and spec.task != "causal-lm" and spec.part != "decoder":
        raise InputError(
            f"--phase decode: {spec.model_class} is no decoder with a cache",
            fix="choose a causal language model, or leave it out",
        )
    if not examples.has_sequence(names, config):
        if spec.seq != Request.seq or "seq" in spec.dynamic:
            raise InputError(
                f"{spec.model}: {spec.model_class} has no sequence, --seq would change nothing",
                fix="leave it out",
            )
        spec = replace(spec, seq=None)
    _check_positions(spec, config)
    return spec


def _check_positions(spec: ModelSpec, config: Any) -> None:
    text = examples.text_of(config)
    key = dict(text.attribute_map).get("max_position_embeddings", "max_position_embeddings")
    limit = getattr(text, key, getattr(text, "max_target_positions", None))
    longest = (spec.past or 0) + (spec.seq or 0)
    if isinstance(limit, int) and 0 < limit < longest:
        option = "--seq" if spec.past is None else "--past"
        most = limit if spec.past is None else limit - 1
        raise InputError(
            f"{spec.model}: a sequence of {longest} tokens, the model has {limit} positions",
            fix=f"use {option} {most} or less",
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

    The first of `architectures` that transformers has; otherwise the first that exists of: an
    encoder-decoder, masked-lm for a model that is no decoder, causal-lm, a classifier of images or
    speech, the bare model.
    """
    import transformers
    from transformers.models.auto import modeling_auto as auto

    tasks: dict[str, tuple[dict[str, Any], ...]] = {
        "encoder-decoder": (
            auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
            auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
        ),
        "masked-lm": (auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,),
        "causal-lm": (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,),
        "image-classification": (auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,),
        "speech": (auto.MODEL_FOR_CTC_MAPPING_NAMES,),
        "encoder": (auto.MODEL_MAPPING_NAMES,),
    }
    order = list(tasks)
    if getattr(config, "is_decoder", False):
        order.insert(0, order.pop(order.index("causal-lm")))
    kind = config.model_type
    known = [
        (names[kind], task)
        for task in order
        for names in tasks[task]
        if isinstance(names.get(kind), str) and hasattr(transformers, names[kind])
    ]
    for name in config.architectures or ():
        if hasattr(transformers, name):
            of = (t for t, all_ in tasks.items() if any(name in n.values() for n in all_))
            return name, next(of, "encoder")
    if not known:
        raise InputError(f"transformers has no model class for {kind}", fix="choose another model")
    return known[0]


def _portable(config: Any) -> dict[str, Any]:
    """The configuration as JSON values, without what the installation decides."""
    values = json.loads(config.to_json_string(use_diff=False))
    for key in ("transformers_version", "dtype", "torch_dtype", "_name_or_path"):
        values.pop(key, None)
    return dict(values)
