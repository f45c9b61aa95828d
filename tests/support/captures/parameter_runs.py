"""Tables of parameter changes that are written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from layerline.core import documents, tables
from layerline.core.files import write_json
from layerline.profile.eager.parameters import log as parameter_log

# Path, class of the module, shape, what else its rows say.
Parameter = tuple[str, str, Sequence[int], Mapping[str, Any]]

MODEL: list[Parameter] = [
    ("wte.weight", "Embedding", (10, 4), {"rows": 10, "rows_changed": 10, "rows_with_gradient": 3}),
    ("h.0.ln.weight", "LayerNorm", (4,), {}),
    ("h.0.mlp.weight", "Conv1D", (4, 5), {}),
    ("h.1.ln.weight", "LayerNorm", (4,), {}),
    ("h.1.mlp.weight", "Conv1D", (4, 5), {}),
    ("head.weight", "Linear", (4, 2), {"trainable": False}),
]


def elements(shape: Sequence[int]) -> int:
    size = 1
    for side in shape:
        size *= side
    return size


def table(
    path: Path,
    changed: Sequence[Sequence[int]],
    model: Sequence[Parameter] = MODEL,
    **more: Any,
) -> Path:
    """The elements that each step changed, of each parameter. `more`: columns that are the same
    everywhere."""
    rows = []
    for step, counts in enumerate(changed):
        for index, ((name, module_class, shape, own), count) in enumerate(
            zip(model, counts, strict=True)
        ):
            module, _, parameter = name.rpartition(".")
            rows.append(
                {
                    "source": path.name, "rank": 0, "step": step, "index": index,
                    "module": module, "module_class": module_class, "parameter": parameter,
                    "dtype": "float32", "shape": list(shape), "elements": elements(shape),
                    "sharded": False, "trainable": True, "stepped": True, "changed": count,
                    "update_norm": 0.5, "gradient_norm": 1.0, "parameter_norm": 2.0,
                    **own, **more,
                }
            )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    tables.write_parquet(path, tables.table("parameters", rows))
    return path


def index(path: Path, model: Sequence[Parameter] = MODEL) -> Path:
    parameters = [
        {
            "index": at, "module": name.rpartition(".")[0], "parameter": name.rpartition(".")[2],
            "module_class": module_class, "shape": list(shape), "elements": elements(shape),
            "trainable": own.get("trainable", True),
        }
        for at, (name, module_class, shape, own) in enumerate(model)
    ]  # fmt: skip
    write_json(path, {"schema_version": 1, "parameters": parameters})
    documents.read(path, documents.Parameters)
    return path


def log(path: Path, changed: Sequence[Sequence[int]], first: int = 0) -> Path:
    lines = [parameter_log.line(1.7e9 + n, first + n, counts) for n, counts in enumerate(changed)]
    path.write_text("".join(lines))
    return path
