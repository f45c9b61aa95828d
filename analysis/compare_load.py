"""What can be compared: a run directory, its summary.json, or a layers or modules table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..core.files import read_json
from ..core.forms import check
from ..core.run_forms import SUMMARY
from . import compare
from .summary import SCHEMA_VERSION

# Kinds of captures that `layerline layers` makes a table of.
_NAME_LAYERS = ("nsys-sqlite", "nsys-parquet", "trt-profile", "onnxruntime-profile")


@dataclass(frozen=True)
class Loaded:
    """Measures of one side, with the facts that must agree (null where the file has none)."""

    path: Path
    kind: str
    measures: list[compare.Measure]
    facts: Mapping[str, Any] | None


def load(path: Path) -> Loaded:
    """Read one side. InputError says what the file is instead."""
    if path.is_dir():
        summary = path / "report" / "summary.json"
        if not summary.exists():
            raise _capture(path) or InputError(
                "run directory without report/summary.json",
                file=path,
                fix=f"layerline report --run {path}",
            )
        return _summary(summary)
    if path.suffix == ".parquet":
        return _table(path)
    return _summary(path)


def _summary(path: Path) -> Loaded:
    try:
        document = read_json(path)
    except InputError as e:
        raise _capture(path) or e from None
    if not isinstance(document, dict) or "engines" not in document:
        raise _capture(path) or InputError(
            "is no summary of a run", file=path, fix="name a run directory or its summary.json"
        )
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError(
            f"summary of schema version {version!r}, this layerline reads {SCHEMA_VERSION}",
            file=path,
            fix="make the report again",
        )
    check(document, SUMMARY, path, "make the report again")
    try:
        measures = compare.from_summary(document)
    except (KeyError, TypeError, AttributeError) as e:
        raise InputError(f"summary lacks or misspells {e}", file=path) from None
    return Loaded(path, "summary", measures, document.get("facts"))


def _capture(path: Path) -> InputError | None:
    """The error for a capture: its kind, and how to make of it what is compared. Null for what is
    no capture."""
    from .readers import registry

    try:
        reader = registry.identify(path)
    except InputError:
        return None
    layers = reader.KIND in _NAME_LAYERS
    table = f"layerline layers {path} -o {path.stem}.parquet makes one"
    return InputError(
        f"is a capture ({reader.DESCRIPTION}, {reader.KIND}), and no table of layers or summary",
        file=path,
        fix=f"{table}, to be compared" if layers else "name a run directory or a table of layers",
    )


def _table(path: Path) -> Loaded:
    from ..core.tables import read_parquet

    columns = set(read_parquet(path).column_names)
    if {"layer", "median_ns"} <= columns:
        rows = read_parquet(path, "layers").to_pylist()
        return Loaded(path, "layers table", compare.from_layers(rows), None)
    if {"module", "own_ns"} <= columns:
        rows = read_parquet(path, "modules").to_pylist()
        return Loaded(path, "modules table", compare.from_modules(rows), None)
    raise InputError(
        "is neither a layers nor a modules table", file=path, fix="name one from RUN/tables"
    )
