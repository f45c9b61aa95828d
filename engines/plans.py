"""`engines --precision-plan`: a plan file as an option of a build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core import nodes
from ..core.accuracy import precision_plan
from ..core.errors import InputError
from ..core.run import Run
from .backend import (
    Backend,
    BuildOptions,
    check_options,
    nodes_path,
    planned_modules,
    with_external_data,
)


def asked(
    run: Run, file: Path, wanted: Sequence[str], backend: Backend
) -> dict[str, dict[str, Any]]:
    """What the plan adds to `BuildOptions.build`, by precision: for its own only.

    InputError where it is for another backend, for none of these precisions, or names a module that
    the model does not have.
    """
    plan = precision_plan.load(file)
    if plan.backend != backend.name:
        raise InputError(
            f"is a plan for {plan.backend}, not {backend.name}",
            file=file,
            fix=f"make one with layerline accuracy --plan --backend {backend.name}",
        )
    if plan.precision not in wanted:
        raise InputError(
            f"is a plan for {plan.precision}, which is not asked for",
            file=file,
            fix=f"add --precision {plan.precision}",
        )
    modules = list(dict.fromkeys(m.module for m in plan.modules_fp32))
    source = backend.source(run, plan.precision)
    precision_plan.check_modules(nodes.load(nodes_path(run, source.stem)), modules, file)
    option = {"precision_plan": {"file": file.name, "modules_fp32": modules}}
    check_options(backend, BuildOptions(build=option))
    return {plan.precision: option}


def more_inputs(
    run: Run, precision: str, backend: Backend, options: Mapping[str, Any]
) -> list[Path]:
    """The fp32 file, of which a typed file of half precision gets its weights in fp32."""
    full = run.file("export", "fp32.onnx")
    if not planned_modules(options) or backend.source(run, precision) == full or not full.exists():
        return []
    return with_external_data(full)
