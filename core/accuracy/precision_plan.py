"""Which nodes a precision plan keeps in fp32: modules that half precision would make wrong.

A plan is a JSON file: ``{"schema_version": 1, "precision": "fp16", "backend": "tensorrt",
"modules_fp32": [{"module": "model.layers.0.input_layernorm", "why": "..."}]}``. What else it says
(the latency and error before and after) is for its readers.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct

from .. import documents
from ..errors import InputError
from ..module_paths import ancestors, inside
from ..nodes import Node, NodeGraph

SCHEMA_VERSION = 1
PLANNED = ("fp16", "bf16")  # engines of these can keep modules in fp32
FLOATS = ("float64", "float32", "float16", "bfloat16")


class KeptModule(Struct, kw_only=True):
    """A module to keep in fp32; `why` is for readers."""

    module: str
    why: str = ""


class PrecisionPlan(documents.Document, kw_only=True):
    """The modules to keep in fp32 in an engine of `precision` by `backend`."""

    FIX: ClassVar[str] = "layerline accuracy --plan makes one"

    schema_version: int
    precision: str
    backend: str
    modules_fp32: list[KeptModule]


def load(path: Path) -> PrecisionPlan:
    """Read a plan. InputError for a missing, broken or empty file, or one of another version."""
    plan = documents.read(path, PrecisionPlan)
    if plan.schema_version != SCHEMA_VERSION:
        raise InputError(
            f"precision plan of schema version {plan.schema_version}, this layerline reads "
            f"{SCHEMA_VERSION}",
            file=path,
            fix=PrecisionPlan.FIX,
        )
    if plan.precision not in PLANNED:
        raise InputError(
            f"is a plan for {plan.precision}; only fp16 and bf16 engines keep modules in fp32",
            file=path,
        )
    if not plan.modules_fp32:
        raise InputError("names no module in modules_fp32", file=path, fix="leave the plan out")
    return plan


def check_modules(graph: NodeGraph, modules: Iterable[str], file: Path | None = None) -> None:
    """InputError where no node belongs to a module or to one below it, naming the nearest."""
    known = {a: None for n in graph.nodes if n.module is not None for a in ancestors(n.module)}
    for module in modules:
        if module not in known:
            near = difflib.get_close_matches(module, [k for k in known if k], n=1, cutoff=0.0)
            raise InputError(
                f"modules_fp32 names {module}, of which the model has no node",
                file=file,
                fix=f"the nearest is {near[0]}" if near else "nodes.json names no module",
            )


def kept_nodes(graph: NodeGraph, tensors: Mapping[str, Any], modules: Iterable[str]) -> list[str]:
    """The nodes of these modules, and those that make their masks, in graph order.

    A mask is made outside of the module that adds it (once for all layers), and its least number is
    infinite in half precision before the module gets it. So a node that feeds a kept one is kept
    too where no activation and no weight goes into it: its floating inputs are single constants or
    come from such nodes. `tensors`: types and shapes, of nodes.json; where they are unknown, a
    node is not taken for one of these.
    """
    chosen = tuple(modules)
    kept = {
        n.name
        for n in graph.nodes
        if n.module is not None and any(inside(n.module, m) for m in chosen)
    }
    made_of_constants: set[str] = set()
    for node in graph.nodes:
        if _of_constants(node, graph, tensors, made_of_constants):
            made_of_constants.add(node.name)
    pending = [graph.by_name[name] for name in kept]
    while pending:
        for tensor in pending.pop().inputs:
            maker = graph.producer.get(tensor)
            if (
                maker is not None
                and maker.name in made_of_constants
                and maker.name not in kept
                and _is_float(tensors.get(tensor))
            ):
                kept.add(maker.name)
                pending.append(maker)
    return [n.name for n in graph.nodes if n.name in kept]


def _of_constants(
    node: Node, graph: NodeGraph, tensors: Mapping[str, Any], found: set[str]
) -> bool:
    for tensor in filter(None, node.inputs):
        described = tensors.get(tensor)
        if not described or not described.get("dtype"):
            return False
        if not _is_float(described):
            continue
        maker = graph.producer.get(tensor)
        if maker is not None:
            if maker.name not in found:
                return False
        elif tensor in graph.inputs or any(d != 1 for d in described.get("shape") or ()):
            return False
    return True


def _is_float(described: Mapping[str, Any] | None) -> bool:
    return (described or {}).get("dtype") in FLOATS
