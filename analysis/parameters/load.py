"""Runs of parameter changes from files of any kind: tables, logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...core import documents
from ...core.errors import InputError
from ..readers.base import read_head
from ..readers.parameters import log
from . import history
from .history import History


def of_files(
    paths: Sequence[Path], index: Path | None = None, *, resumed: bool = False
) -> list[History]:
    """One history for each run in these files, ranks of a run together. InputError where a file is
    of another kind, or the runs are of different models."""
    given = None if index is None else documents.read(index, documents.Parameters)
    runs: list[History] = []
    for path in paths:
        head = read_head(path)
        if head.data[:4] == b"PAR1":
            runs += history.of_table(path)
        elif log.sniff(head):
            beside = history.index_beside(path) if given is None else None
            known = given if beside is None else documents.read(beside, documents.Parameters)
            runs.append(history.of_log(path, known, resumed=resumed))
        else:
            raise InputError(
                "holds no changes of parameters",
                file=path,
                fix="name a run directory, a .parameters.parquet or a log of parameter changes",
            )
    history.one_model(runs)
    return runs
