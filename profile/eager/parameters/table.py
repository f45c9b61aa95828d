"""The table `parameters` of some steps, from the figures of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ....core import documents, tables


@dataclass(frozen=True)
class Step:
    """One step; `slot`: where its figures are, None where the optimizer did not step."""

    number: int
    unix_time: float
    slot: int | None
    trainable: list[bool]


def rows(
    about: Sequence[documents.Parameter],
    steps: Sequence[Step],
    figures: Any,
    origin: dict[str, Any],
) -> Any:
    """The table `parameters` of some steps; figures (steps, parameters, `FIGURES`), `origin` the
    columns that are the same in every row."""
    n, m = len(steps), len(about)
    schema = tables.SCHEMAS["parameters"]
    every = pa.array(np.tile(np.arange(m), n))
    names = ("index", "module", "module_class", "parameter", "dtype", "shape", "elements",
             "sharded", "rows")  # fmt: skip
    columns: dict[str, Any] = {
        name: pa.array([getattr(p, name) for p in about], schema.field(name).type).take(every)
        for name in names
    }
    columns |= {
        name: pa.repeat(pa.scalar(value, schema.field(name).type), n * m)
        for name, value in origin.items()
    }
    of_step: dict[str, list[Any]] = {
        "step": [s.number for s in steps],
        "unix_time": [s.unix_time for s in steps],
        "stepped": [s.slot is not None for s in steps],
    }
    columns |= {name: pa.array(np.repeat(np.array(values), m)) for name, values in of_step.items()}
    columns["trainable"] = [trainable for s in steps for trainable in s.trainable]
    for at, name in enumerate(_COLUMNS):
        values = figures[:, :, at].reshape(-1)
        unknown = values < 0  # NaN is not: it says that the training broke
        values = np.where(unknown, 0, values)
        if name.endswith("norm"):
            values = np.sqrt(values)
        elif not unknown.all():
            values = values.astype(np.int64)
        columns[name] = pa.array(values, mask=unknown)
    return tables.table("parameters", columns)


# Of `FIGURES`, in their order; norms are squares there.
_COLUMNS = (
    "changed", "update_norm", "gradient_norm", "parameter_norm", "rows_changed",
    "rows_with_gradient",
)  # fmt: skip
