"""What a version of TensorRT makes of an ONNX file that the file does not mean.

Its parser reads operators by the opsets that it knows, and what a newer one added it may leave out
and say nothing. Each rule is from the parser's source (onnx/onnx-tensorrt at the release's branch);
docs/engines/opsets.md has the table with its sources. The worker holds the parsed network against
nodes.json as well: a fault of the same shape is found only here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.errors import InputError
from ..export import opsets

Version = tuple[int, int]


@dataclass(frozen=True)
class Rule:
    """A construct that versions from `since` to before `until` compute wrongly, or refuse.

    `here` takes a node of nodes.json and its attributes. `lower`: opset 17 has another way to say
    the same, which is computed rightly.
    """

    ops: frozenset[str]
    here: Callable[[Mapping[str, Any], Mapping[str, Any]], bool]
    until: Version
    what: str
    lower: bool
    since: Version = (0, 0)


def _second_input(node: Mapping[str, Any], _attributes: Mapping[str, Any]) -> bool:
    return len(node["inputs"]) > 1 and bool(node["inputs"][1])


def _fourth_input(node: Mapping[str, Any], _attributes: Mapping[str, Any]) -> bool:
    return len(node["inputs"]) > 3 and bool(node["inputs"][3])


def _reduces(_node: Mapping[str, Any], attributes: Mapping[str, Any]) -> bool:
    return bool(attributes.get("reduction", "none") != "none")


def _antialias(_node: Mapping[str, Any], attributes: Mapping[str, Any]) -> bool:
    return bool(attributes.get("antialias"))


def _always(_node: Mapping[str, Any], _attributes: Mapping[str, Any]) -> bool:
    return True


# ReduceSum and ReduceLogSum read their axes input since opset 13.
_AXES = {"L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare"}
RULES = (
    Rule(
        frozenset(f"Reduce{name}" for name in _AXES),
        _second_input,
        (10, 0),
        "its axes, an input since opset 18, are left out: it reduces over everything",
        lower=True,
    ),
    Rule(
        frozenset({"ReduceLogSumExp"}),
        _second_input,
        (10, 2),
        "its axes, an input since opset 18, are left out: it reduces over everything",
        lower=True,
        since=(10, 0),
    ),
    Rule(
        frozenset({"ScatterElements", "ScatterND"}),
        _reduces,
        (10, 0),
        "its reduction is left out: it overwrites instead",
        lower=False,
    ),
    Rule(
        frozenset({"Resize"}),
        _antialias,
        (10, 0),
        "its antialias, new in opset 18, is left out",
        lower=False,
    ),
    Rule(
        frozenset({"Pad"}),
        _fourth_input,
        (10, 0),
        "its axes, an input since opset 18, are refused",
        lower=True,
    ),
    Rule(frozenset({"Gelu"}), _always, (10, 0), "an operator that it does not have", lower=True),
)


def faults(
    document: Mapping[str, Any], backend: str, version: str
) -> Iterator[tuple[Mapping[str, Any], Rule]]:
    """The nodes of a nodes.json that this version computes wrongly or refuses, in its order."""
    if backend != "tensorrt":
        return
    numbers = (opsets.major(version), opsets.major(version.partition(".")[2]))
    rules = [rule for rule in RULES if rule.since <= numbers < rule.until]
    attributes = document.get("attributes") or {}
    for node in document["nodes"]:
        for rule in rules:
            if node["op"] in rule.ops and rule.here(node, attributes.get(node["name"]) or {}):
                yield node, rule


def require_none(document: Mapping[str, Any], backend: str, version: str) -> None:
    """InputError naming the first node that this version computes wrongly or refuses."""
    found = list(faults(document, backend, version))
    if not found:
        return
    node, rule = found[0]
    more = f" (and {len(found) - 1} nodes after it)" if len(found) > 1 else ""
    elsewhere = "build it with --backend onnxruntime-cuda, or with TensorRT 10 or newer"
    raise InputError(
        f"{backend} {version} does not compute {node['name']} of module "
        f"{node['module'] or '(the model itself)'} as the ONNX file means it: {rule.what}{more}",
        fix="export again with --opset 17" if rule.lower else elsewhere,
    )


def remedy(document: Mapping[str, Any], backend: str, version: str) -> str:
    """What to do where the network that was parsed is not the file's."""
    own = document.get("opset")
    others = [n for n in opsets.computed_by(backend, version) if n != own]
    elsewhere = "build it with --backend onnxruntime-cuda"
    return f"export again with --opset {others[0]}, or {elsewhere}" if others else elsewhere
