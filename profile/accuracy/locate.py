"""Where an engine goes wrong: error by module, and the first module with one of its own.

Leaves ``captures/{precision}.{backend}.accuracy.modules.json`` (`core.documents.ModuleErrors`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from ...core import nodes
from ...core.accuracy import by_module
from ...core.accuracy.limits import Limits
from ...core.documents import ModuleError, ModuleErrors
from ...core.errors import LayerlineError
from ...core.files import read_json, write_json
from ...engines.backend import nodes_path
from ..engine.measure import SCHEMA_VERSION, Subject, arrays, identity, model
from . import errors, packages, tensors, values
from .errors import Error
from .tensors import Placed, Source

SUFFIX = ".accuracy.modules.json"
# Of modules that make an error of their own, so many are built alone.
SUSPECTS = 4
# Engines of fewer and fewer tensors are tried until so many could not be built.
MOST_FAILURES = 3
# Another engine's outputs are as wrong as these where their errors differ by no more than this.
ALIKE = 4.0


def locate(
    of: Subject, limits: Limits, reference: values.Reference | None = None, *, whole: bool = True
) -> ModuleErrors:
    """Measure it and write the file. Without `whole` the ONNX file is left out where no module of
    the engine makes an error of its own. LayerlineError where eager or the engine cannot be run."""
    eager = (reference or values.Reference(of.run)).modules
    with tempfile.TemporaryDirectory(prefix="layerline-accuracy-") as name:
        source = source_of(of, eager, Path(name))
        found = _measured(of, source, limits, whole)
    document = to_builtins(found)
    identified = {"schema_version": SCHEMA_VERSION, **identity(of)}
    write_json(of.capture(SUFFIX), {**identified, **document})
    return found


def source_of(of: Subject, eager: Sequence[tensors.Eager], folder: Path) -> Source:
    """Where the values of an engine's tensors come from."""
    if not of.backend.from_onnx:
        return packages.measured(of, eager, folder)
    path = nodes_path(of.run, of.precision)
    graph, types = nodes.load(path), read_json(path).get("tensors") or {}
    return values.OnnxSource(of, tensors.place(graph, types, eager), graph.outputs, types, folder)


def _measured(of: Subject, source: Source, limits: Limits, whole: bool) -> ModuleErrors:
    placed = source.placed
    references = tensors.references(placed)
    least = _least(of, limits)
    engine, how, remarks = _engine(of, source, references)
    blind = not any(engine.values())
    whole = whole or blind or bool(_suspects(placed, engine, {}, least))
    file = source.before(references) if whole else {}
    exported = errors.of_tensors(file, references, references)
    suspects = _suspects(placed, engine, exported, least)
    alone: dict[str, Error | None] = {}
    for p in suspects if source.parts else ():
        given = {t: v for t, v in references.items() if t in p.reads}
        try:
            made = source.alone(p.output or "", given)
        except LayerlineError as e:
            remarks.append(f"{p.module.path} cannot be built alone: {e.what}")
            continue
        alone[p.module.path] = errors.of_tensors(made, references, [p.output or ""])[p.output or ""]
    first = errors.first(placed, engine, least)
    if blind:
        first = errors.first(placed, exported, least)
        how = dict.fromkeys(exported, "not known of the engine, but of what it was built from")
    rows = [_row(p, engine, exported, alone, how, first) for p in placed]
    if first is None:
        remarks.append("no module makes an error of its own above the limit by what is known")
    return ModuleErrors(
        precision=of.precision,
        backend=of.backend.name,
        limit=least,
        whole=whole,
        modules=rows,
        remarks=remarks,
    )


def _engine(
    of: Subject, source: Source, references: Mapping[str, Any]
) -> tuple[dict[str, Error | None], dict[str, str], list[str]]:
    """The errors of the engine's tensors, how each was read, and remarks."""
    remarks: list[str] = []
    got = source.same_engine(references)
    how = dict.fromkeys(got, "the engine's own tensor")
    missing = [t for t in references if t not in got]
    for second in _second_engines(source, missing, remarks):
        if hidden := _hidden(of, second, source.ends, references):
            remarks.append(hidden)
            continue
        new = {t: second[t] for t in missing if t in second}
        got = {**new, **got}
        how |= dict.fromkeys(new, "an output of a second engine, as wrong")
    return errors.of_tensors(got, references, references), how, remarks


def _second_engines(
    source: Source, names: Sequence[str], remarks: list[str]
) -> Iterator[Mapping[str, Any]]:
    """The tensors of engines in which they are outputs: of one, or of each half where there is no
    implementation of the whole. What cannot be built is remarked."""
    waiting, failures = [list(names)] if names else [], 0
    while waiting:
        part = waiting.pop(0)
        try:
            second = source.second_engine(part)
        except LayerlineError as e:
            failures += 1
            middle = len(part) // 2
            if failures in (1, MOST_FAILURES) or not middle:
                of = f"{part[0]} as an output" if not middle else f"{len(part)} tensors as outputs"
                remarks.append(f"an engine with {of} cannot be built: {e.what}")
            if failures == MOST_FAILURES:
                return
            waiting += [part[:middle], part[middle:]] if middle else []
        else:
            yield second


def _hidden(
    of: Subject, second: Mapping[str, Any], ends: Sequence[str], references: Mapping[str, Any]
) -> str:
    """That a second engine's outputs are not as wrong as the engine's; empty where they are."""
    first = arrays(of.capture(".outputs.npz"))
    for name in ends:
        if name not in first or name not in second or name not in references:
            continue
        mine = errors.error(first[name], references[name])
        other = errors.error(second[name], references[name])
        if mine is None or other is None:
            continue
        if bool(mine.nonfinite) != bool(other.nonfinite):
            return _HIDDEN
        low, high = sorted((mine.size, other.size))
        if high > ALIKE * low and not mine.nonfinite and high > 1e-3:
            return _HIDDEN
    return ""


_HIDDEN = (
    "an engine with these tensors as outputs is not as wrong as this one: marking them hides the "
    "fault, and its tensors are no evidence"
)


def _suspects(
    placed: Sequence[Placed],
    engine: Mapping[str, Error | None],
    exported: Mapping[str, Error | None],
    least: float,
) -> list[Placed]:
    """Modules that make an error of their own in the engine or in its ONNX file, or that are wrong
    and whose inputs are not known; the first ones."""
    found = []
    for p in placed:
        if p.output is None:
            continue
        for side in (engine, exported):
            given, got = errors.error_in(p, side), side.get(p.output)
            unknown = given is None and got is not None and got.size > least
            if errors.jumps(given, got, least) or unknown:
                found.append(p)
                break
    return found[:SUSPECTS]


def _row(
    p: Placed,
    engine: Mapping[str, Error | None],
    exported: Mapping[str, Error | None],
    alone: Mapping[str, Error | None],
    how: Mapping[str, str],
    first: Placed | None,
) -> ModuleError:
    got = None if p.output is None else engine.get(p.output)
    given = errors.error_in(p, engine)
    file = None if p.output is None else exported.get(p.output)
    part = alone.get(p.module.path)
    said = [p.why] if p.why else [how[p.output]] if p.output in how and p.output else []
    unknown = [t for t in p.reads if engine.get(t) is None]
    if given is not None and unknown:
        said.append(f"of {len(unknown)} of {len(p.reads)} inputs the error is unknown")
    if given is not None and given.nonfinite:
        said.append("its input is not finite")
    return ModuleError(
        module=p.module.path,
        module_class=p.module.name,
        tensor=p.output,
        error_in=given.relative if given else None,
        error_out=got.relative if got else None,
        nonfinite=got.nonfinite if got else None,
        export=file.relative if file else None,
        export_nonfinite=file.nonfinite if file else None,
        alone=part.relative if part else None,
        alone_nonfinite=part.nonfinite if part else None,
        first_wrong=p is first,
        how="; ".join(said),
    )


def of_engine(of: Subject, source: Source, limits: Limits) -> list[ModuleError]:
    """The errors by module of an engine alone, whose outputs were measured."""
    engine, how, _ = _engine(of, source, tensors.references(source.placed))
    first = errors.first(source.placed, engine, _least(of, limits))
    return [_row(p, engine, {}, {}, how, first) for p in source.placed]


def _least(of: Subject, limits: Limits) -> float:
    """The error above which a module is wrong."""
    random = bool(model(of.run).random_weights)
    return by_module.module_limit(limits, of.precision, random=random)
