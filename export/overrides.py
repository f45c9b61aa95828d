"""`--set key=value`: changes to a model's configuration, typed by the values it has."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from ..core.errors import InputError

# Not in a configuration file, but chosen when a transformers model is made.
ATTENTION_KEY = "attn_implementation"
EXPERTS_KEY = "experts_implementation"
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def split(pairs: tuple[str, ...] | list[str]) -> dict[str, str]:
    """``key=value`` texts as a dict. Raises InputError for one without ``=``, or a key twice."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InputError(f"--set {pair}: not key=value", fix="e.g. --set n_layer=6")
        if key in values and values[key] != value.strip():
            raise InputError(f"--set {key}: given twice, {values[key]} and {value.strip()}")
        values[key] = value.strip()
    return values


def typed(
    texts: Mapping[str, str], known: Mapping[str, Any], synonyms: Mapping[str, str]
) -> dict[str, Any]:
    """Each text as a value of the type that the configuration `known` has for its key.

    `synonyms` maps general names to the configuration's own (``hidden_size`` to ``n_embd``).
    Raises InputError for an unknown key, naming close ones, and for a value of another type.
    """
    result: dict[str, Any] = {}
    for key, text in texts.items():
        name = synonyms.get(key, key)
        if name in (ATTENTION_KEY, EXPERTS_KEY):
            continue
        if name not in known:
            candidates = sorted({*known, *synonyms, ATTENTION_KEY, EXPERTS_KEY})
            close = difflib.get_close_matches(key, candidates, n=3)
            raise InputError(
                f"--set {key}: the configuration has no such key",
                fix=f"did you mean {', '.join(close)}?" if close else "see the model's config.json",
            )
        result[name] = _value(key, text, known[name], "the configuration")
    return result


def arguments(
    texts: Mapping[str, str], function: str, defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Each text as a value of the type of the default of a function's parameter.

    Raises InputError for another parameter, naming those there are, and for another type.
    """
    for key in texts:
        if key not in defaults:
            close = difflib.get_close_matches(key, defaults, n=3)
            others = f"it has {', '.join(defaults)}" if defaults else "leave it out: it has none"
            raise InputError(
                f"--set {key}: {function} has no such parameter with a default",
                fix=f"did you mean {', '.join(close)}?" if close else others,
            )
    return {key: _value(key, text, defaults[key], function) for key, text in texts.items()}


def _value(key: str, text: str, old: Any, where: str) -> Any:
    try:
        return _convert(text, old)
    except ValueError:
        raise InputError(
            f"--set {key}={text}: not {_kind(old)}",
            fix=f"{where} has {json.dumps(old, default=str)}",
        ) from None


def _convert(text: str, old: Any) -> Any:
    if isinstance(old, bool):
        if text.lower() not in _TRUE + _FALSE:
            raise ValueError(text)
        return text.lower() in _TRUE
    if isinstance(old, int):
        return int(text)
    if isinstance(old, float):
        return float(text)
    if isinstance(old, str):
        return text
    if isinstance(old, list | tuple | dict):
        value = json.loads(text)
        if not isinstance(value, dict if isinstance(old, dict) else list):
            raise ValueError(text)
        return value
    # None says nothing about the type: JSON where it is JSON, otherwise the text itself
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _kind(old: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", dict: "a JSON object"}
    return names.get(type(old), "a JSON list")
