"""What parameters did over the steps of one run: arrays of (steps, parameters)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core import documents
from ...core.errors import InputError
from ...core.tables import read_parquet
from ..readers.parameters import log

Reals = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_PER_STEP = (
    "changed", "update_norm", "gradient_norm", "parameter_norm", "rows_changed",
    "rows_with_gradient",
)  # fmt: skip


@dataclass(frozen=True)
class History:
    """One run, or one rank of it. `figures`: by name of a column of the table `parameters`, float64
    (steps, parameters), NaN where unknown. `stepped`: of each step, whether the optimizer ran.
    `named`: whether it is known which parameter an index is."""

    source: str
    parameters: tuple[documents.Parameter, ...]
    steps: Ints
    stepped: npt.NDArray[np.bool_]
    figures: dict[str, Reals]
    rank: int | None = None
    named: bool = True
    notes: tuple[str, ...] = ()

    @property
    def index(self) -> documents.Parameters:
        """Its parameters, to compare with those of others."""
        return documents.Parameters(parameters=list(self.parameters))


def of_table(path: Path) -> list[History]:
    """The runs and ranks of a table `parameters`. InputError for another file, and where a step
    lacks parameters or has one twice."""
    table = read_parquet(path, "parameters")
    if not len(table):
        raise InputError("has no step", file=path, fix="train for at least one step")
    keys = table.group_by(["source", "rank"], use_threads=False).aggregate([]).to_pylist()
    return [_of_rows(_only(table, key), path) for key in keys]


def _only(table: pa.Table, key: dict[str, object]) -> pa.Table:
    keep = pc.equal(table["source"], key["source"])
    rank = table["rank"]
    same = pc.is_null(rank) if key["rank"] is None else pc.equal(rank, key["rank"])
    return table.filter(pc.and_(keep, pc.fill_null(same, False)))


def _of_rows(table: pa.Table, path: Path) -> History:
    table = table.sort_by([("step", "ascending"), ("index", "ascending")])
    steps = np.unique(table["step"].to_numpy())
    count = len(table) // len(steps)
    expected = np.tile(np.arange(count), len(steps))
    if len(expected) != len(table) or (table["index"].to_numpy() != expected).any():
        raise InputError(
            "not every step has every parameter once",
            file=path,
            fix="is it of one run? train again with the plug-in that counts parameters",
        )
    last = table.slice(len(table) - count)
    trainable = _grid(table["trainable"], count) != 0
    about = tuple(
        documents.Parameter(
            index=row["index"],
            module=row["module"] or "",
            parameter=row["parameter"] or "",
            module_class=row["module_class"],
            dtype=row["dtype"],
            shape=row["shape"] or [],
            elements=row["elements"],
            rows=row["rows"],
            sharded=row["sharded"],
            # At any of the steps.
            trainable=None if row["trainable"] is None else bool(trainable[:, at].any()),
        )
        for at, row in enumerate(last.to_pylist())
    )
    stepped = _grid(table["stepped"], count)[:, 0] != 0
    figures = {name: _grid(table[name], count) for name in _PER_STEP}
    first = last.slice(0, 1).to_pylist()[0]
    notes = _not_finite(table, about)
    return History(first["source"], about, steps, stepped, figures, first["rank"], notes=notes)


def _not_finite(table: pa.Table, about: Sequence[documents.Parameter]) -> tuple[str, ...]:
    """That a step made parameters NaN or infinite; null is not known and says nothing."""
    norm = table["update_norm"]
    broken = table.filter(pc.and_(pc.is_valid(norm), pc.invert(pc.is_finite(norm))))
    if not len(broken):
        return ()
    step, at = (broken[c][0].as_py() for c in ("step", "index"))
    return (
        f"step {step} made {about[at].path} NaN or infinite: this training is broken, and what it "
        "changed afterwards says nothing",
    )


def _grid(column: pa.ChunkedArray, parameters: int) -> Reals:
    values = column.cast(pa.float64()) if pa.types.is_boolean(column.type) else column
    real: Reals = values.to_numpy(zero_copy_only=False).astype(np.float64)
    return real.reshape(-1, parameters)


INDEX = ".parameters.index.json"
MOST_PARAMETERS = 1_000_000  # that are known by number alone
_LOG = ".parameter_changes.log"


def index_beside(path: Path) -> Path | None:
    """The index of a log's parameters: the file of its own name, else the only one in its
    folder."""
    own = path.with_name(path.name.removesuffix(_LOG) + INDEX)
    if own.is_file():
        return own
    all_ = sorted(path.absolute().parent.glob("*parameters.index.json"))
    return all_[0] if len(all_) == 1 else None


def of_log(
    path: Path, index: documents.Parameters | None = None, *, resumed: bool = False
) -> History:
    """A log's run. InputError where its index is of another model, and where a number is no
    parameter's: each up to the highest takes a place in every step."""
    lines, notes = log.lines(path, resumed=resumed)
    highest = max((i for line in lines for i, _ in line.counts), default=-1)
    if index is None:
        if highest >= MOST_PARAMETERS or highest * len(lines) > log.MAX_COUNTS:
            what = f"names parameter {highest:,} in {len(lines):,} iterations"
            fix = "is the number right? name the index of this run with --index, or split the log"
            raise InputError(what, file=path, fix=fix)
        about = tuple(
            documents.Parameter(index=i, module="", parameter=f"#{i}") for i in range(highest + 1)
        )
        notes.append("no index of parameters: they are known by number, and their size is not")
    else:
        about = tuple(index.parameters)
        _fits(lines, about, path)
    changed = np.zeros((len(lines), len(about)))
    for at, line in enumerate(lines):
        for i, count in line.counts:
            changed[at, i] = count
    unknown = np.full_like(changed, np.nan)
    return History(
        path.name,
        about,
        np.array([line.step for line in lines], np.int64),
        np.ones(len(lines), bool),
        {**dict.fromkeys(_PER_STEP, unknown), "changed": changed},
        named=index is not None,
        notes=tuple(notes),
    )


def _fits(lines: Sequence[log.Line], about: Sequence[documents.Parameter], path: Path) -> None:
    for line in lines:
        for index, count in line.counts:
            if index >= len(about):
                raise InputError(
                    f"iteration {line.step} names parameter {index}, and its index ends at "
                    f"{len(about) - 1}: they are of different models",
                    file=path,
                    fix="name the index of this run with --index",
                )
            elements = about[index].elements
            if elements is not None and count > elements:
                raise InputError(
                    f"iteration {line.step} changes {count:,} elements of {about[index].path}, "
                    f"which has {elements:,}: they are of different models",
                    file=path,
                    fix="name the index of this run with --index",
                )


def one_model(histories: Sequence[History]) -> None:
    """InputError where runs that are to be seen together are of different models."""
    first = histories[0]
    for other in histories[1:]:
        if first.named and other.named:
            what = None if first.index.same_model(other.index) else _difference(first, other)
        elif first.named or other.named:
            what = None
        else:
            what = _unlike(first, other)
        if what is not None:
            known = "" if first.named else ", or name their index with --index if they are of one"
            raise InputError(
                f"is not of the model of {first.source}: {what}",
                file=other.source,
                fix=f"look at them one by one{known}",
            )


def _difference(a: History, b: History) -> str:
    for p, q in zip(a.parameters, b.parameters, strict=False):
        if p.path != q.path:
            return f"parameter {p.index} is {q.path}, not {p.path}"
        if p.shape != q.shape:
            return f"{p.path} is {_shape(q)}, not {_shape(p)}"
    return f"it has {len(b.parameters)} parameters, not {len(a.parameters)}"


def _shape(parameter: documents.Parameter) -> str:
    return "×".join(map(str, parameter.shape)) or "a number"


def _unlike(a: History, b: History) -> str | None:
    """Whether logs without an index cannot be of one model: most parameters that both name change
    in at most so many elements, and in another number in the other. A guess, so it takes much."""
    most_a, most_b = (h.figures["changed"].max(0) for h in (a, b))
    n = min(len(most_a), len(most_b))
    both = (most_a[:n] > 0) & (most_b[:n] > 0)
    low, high = (f(most_a[:n][both], most_b[:n][both]) for f in (np.minimum, np.maximum))
    apart = int((high > 2 * low).sum())
    named = max(len(most_a), len(most_b))
    missing = named - int(both.sum())
    if named and apart + missing > named / 2:
        return f"{apart + missing} of {named} parameters change in quite other numbers of elements"
    return None
