"""The user's own model: ``own.py:build`` or ``package.module:function``, code that is executed.

The function returns the module and its example inputs, ``(module, inputs)``; with a loss its
training is measured too: ``(module, inputs, loss)`` or ``(module, inputs, loss, targets)``.
Inputs are a tensor, a tuple (positional arguments) or a dict (keyword arguments), which may hold
tuples, lists and dicts. The loss is called with what the module returned, and with the targets
where there are some. Parameters of the function named batch and seq are given ``--batch`` and
``--seq``, or keep their defaults; ``--set key=value`` gives any other that has a default.

It runs in several processes, under the same seed, and has to make the same weights in each.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import tokenize
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.cli.progress import log
from ..core.errors import InputError, LayerlineError
from . import nested
from .overrides import arguments
from .quiet import FAULTS, gist

if TYPE_CHECKING:
    import torch
    from torch import nn

FUNCTION = "build"  # of a file that is named alone
_FILE = re.compile(r"(?P<file>.+\.py)(?::(?P<function>[^\W\d]\w*))?")
_MODULE = re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<function>[^\W\d]\w*)")
_SHAPES = ("batch", "seq")
_MEND = "mend it and run this again"
LOSS = "return (module, inputs, loss) from the function"
_RETURNS = "return (module, inputs), (module, inputs, loss) or (module, inputs, loss, targets)"


@dataclass(frozen=True)
class Own:
    """What model.json says of such a model. `folder` is where its code is imported from, `files`
    the user's files that ran, `takes` which of batch and seq the function takes, `digest` the
    SHA-256 of weights and inputs."""

    folder: str
    files: tuple[str, ...]
    takes: tuple[str, ...]
    loss: bool
    digest: str


@dataclass(frozen=True)
class Target:
    """A function and where it is: `file` (absolute) or `module`, imported from `folder`."""

    file: Path | None
    module: str
    function: str
    folder: Path

    def __str__(self) -> str:
        return f"{self.file or self.module}:{self.function}"


@dataclass
class Made:
    """What the function made, on the CPU. `inputs` are keyword arguments, in numpy."""

    model: nn.Module
    inputs: dict[str, Any]
    loss: Callable[..., torch.Tensor] | None = None
    targets: Any = None
    own: Own = field(init=False)


def target(text: str, folder: str | Path | None = None) -> Target | None:
    """The function that a ``--model`` means; None where it means no code. InputError for a file
    with something else than the name of a function behind it."""
    root = Path(folder or ".").resolve()
    if match := _FILE.fullmatch(text):
        file = Path(match["file"]).expanduser().resolve()
        return Target(file, file.stem, match["function"] or FUNCTION, file.parent)
    if match := _MODULE.fullmatch(text):
        return Target(None, match["module"], match["function"], root)
    if ".py:" in text:
        fix = f"write own.py:{FUNCTION}, the file and the name of its function"
        raise InputError(f"--model {text}: names no function", fix=fix)
    return None


def look(of: Target, settings: Mapping[str, str]) -> None:
    """InputError for what is wrong and can be seen in the file, of which nothing is executed: it is
    not there, is no Python, has no such function, or that has no such parameter."""
    if of.file is None:  # to find a module, its packages are executed
        return
    text, functions = _parsed(of, _there(of.file))
    # What is bound in another way has its name somewhere. A file without functions may be one that
    # cannot be executed, which says more.
    if functions and not re.search(rf"\b{of.function}\b|import \*", text):
        raise _no_function(of, [n.name for n in functions])
    defaults = _defaults(of, functions)
    if defaults is not None:
        free = {n: v for n, v in defaults.items() if n not in _SHAPES}
        arguments(settings, f"{of.function}()", free)


def usual(of: Target) -> dict[str, int]:
    """The function's own batch and seq, as far as they are defaults written as numbers in its file;
    nothing is executed."""
    parts = of.folder.joinpath(*of.module.split("."))
    files = [of.file] if of.file else [parts.with_suffix(".py"), parts / "__init__.py"]
    for file in files:
        if file.is_file():
            with contextlib.suppress(InputError):  # `look` tells it
                defaults = _defaults(of, _parsed(of, file)[1]) or {}
                own = {n: defaults.get(n) for n in _SHAPES}
                return {n: v for n, v in own.items() if type(v) is int and v > 0}
    return {}


def _parsed(of: Target, file: Path) -> tuple[str, list[ast.FunctionDef]]:
    """A file's text and the functions that it defines."""
    text: str = _called(of, lambda: _read(file))
    tree = _called(of, lambda: ast.parse(text, file.name))
    return text, [n for n in tree.body if isinstance(n, ast.FunctionDef)]


def _defaults(of: Target, functions: list[ast.FunctionDef]) -> dict[str, Any] | None:
    """The function's parameters that have a default; one that is not written out is None, which
    says nothing about a type. None where it is not plainly one of these functions."""
    same = [n for n in functions if n.name == of.function]
    if len(same) != 1 or same[0].decorator_list:
        return None
    takes = same[0].args
    names = [*takes.posonlyargs, *takes.args]
    values = [None] * (len(names) - len(takes.defaults)) + takes.defaults + takes.kw_defaults
    found: dict[str, Any] = {}
    for name, value in zip([*names, *takes.kwonlyargs], values, strict=True):
        if value is not None:
            found[name.arg] = None
            with contextlib.suppress(ValueError):
                found[name.arg] = ast.literal_eval(value)
    return found


def _no_function(of: Target, names: list[str]) -> InputError:
    public = [n for n in names if n[0] != "_"][:5]
    return InputError(
        f"{of}: there is no function {of.function}",
        fix=f"name one of {', '.join(public)}" if public else "write one",
    )


def present(location: str) -> bool:
    """Whether the file is still there that a location, as `Target` is written, names, if any."""
    file, _, _function = location.rpartition(":")
    return not file.endswith(".py") or Path(file).is_file()


def _there(file: Path) -> Path:
    if not file.is_file():
        raise InputError("no such file", file=file, fix=f"layerline init {file.name} writes one")
    return file


def _read(file: Path) -> str:
    """In the encoding that it names."""
    with tokenize.open(file) as opened:
        return opened.read()


_last: list[tuple[Any, Made]] = []


def made(
    of: Target, settings: Mapping[str, str], shapes: Mapping[str, int], seed: int, *, anew: bool
) -> Made:
    """Run the function. Not `anew`: what it made the last time in this process for the same
    arguments will do, of which the model may have been changed since.

    InputError for everything that goes wrong in it, and for a result of another form.
    """
    key = (of, dict(settings), dict(shapes), seed)
    if _last and _last[0][0] == key and not anew:
        return _last[0][1]
    with _importable(of.folder):
        function = _function(of)
        given, takes = _arguments(of, function, settings, shapes)
        with _seeded(seed):
            made = _checked(of, _called(of, lambda: function(**given)))
            _settled(of, made)
    files = _files(of.folder, [of.file] if of.file else [])
    made.own = Own(str(of.folder), files, takes, made.loss is not None, digest(made))
    _last[:] = [(key, made)]
    return made


def _files(folder: Path, first: list[Path]) -> tuple[str, ...]:
    """The files of what was imported that lie under a folder, without installed packages."""
    names = sorted(n for n in sys.modules if n.partition(".")[0] != "layerline")
    found = (getattr(sys.modules[n], "__file__", None) for n in names)
    paths = [*first, *(Path(f).resolve() for f in found if f)]
    inside = [
        p
        for p in paths
        if p.is_relative_to(folder) and p.is_file() and "site-packages" not in p.parts
    ]
    return tuple(dict.fromkeys(map(str, inside)))


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Import from a folder first, as a script in it would; later, what the model imports when it
    runs, last: a `profile.py` there must not stand in for the standard library's."""
    path = str(folder)
    sys.path.insert(0, path)
    try:
        yield
    finally:
        sys.path.remove(path)
        if path not in sys.path:
            sys.path.append(path)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the generators of torch, numpy and Python, and leave them as they were."""
    import random

    import numpy as np
    import torch

    python, array = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(array)


def _function(of: Target) -> Callable[..., Any]:
    if of.file is not None:
        _there(of.file)
    module = _called(of, lambda: _module(of))
    function = getattr(module, of.function, None)
    if not callable(function):
        raise _no_function(of, [n for n, v in vars(module).items() if inspect.isfunction(v)])
    return function  # type: ignore[no-any-return]


def _module(of: Target) -> Any:
    if of.file is None:
        return importlib.import_module(of.module)
    # Pickles and dataclasses look a module up by its name.
    name = of.module if of.module not in sys.modules else f"own_{of.module}"
    spec = importlib.util.spec_from_file_location(name, of.file)
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _called(of: Target, call: Callable[[], Any]) -> Any:
    """Run the user's code; what it raises is one line with the place."""
    try:
        return call()
    except MemoryError:
        raise
    except (Exception, SystemExit) as e:
        raise InputError(f"{of}: {gist(e)}{_place(of.folder, e)}", fix=_MEND) from e


def _place(folder: Path, error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if os.path.realpath(f.filename).startswith(f"{folder}{os.sep}")]
    return f", line {inside[-1].lineno} of {Path(inside[-1].filename).name}" if inside else ""


def _arguments(
    of: Target,
    function: Callable[..., Any],
    settings: Mapping[str, str],
    shapes: Mapping[str, int],
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arguments of the function, and which of batch and seq it takes."""
    parameters = inspect.signature(function).parameters
    takes = tuple(n for n in _SHAPES if n in parameters)
    free = {
        n: p.default for n, p in parameters.items() if n not in _SHAPES and p.default is not p.empty
    }
    needed = [
        n
        for n, p in parameters.items()
        if p.default is p.empty
        and n not in takes
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed:
        raise InputError(
            f"{of}: takes {', '.join(needed)}, which nothing gives",
            fix="give it a default; only batch and seq are given",
        )
    given = arguments(settings, f"{of.function}()", free)
    return {**given, **{n: shapes[n] for n in takes}}, takes


def _checked(of: Target, result: Any) -> Made:
    import torch
    from torch import nn

    if not isinstance(result, tuple | list) or not 2 <= len(result) <= 4:
        what = type(result).__name__ if not isinstance(result, tuple) else f"{len(result)} values"
        raise InputError(f"{of}: returned {what}", fix=_RETURNS)
    model, inputs, loss, targets = (*result, None, None)[:4]
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    if not isinstance(model, nn.Module):
        raise InputError(f"{of}: {type(model).__name__} is no nn.Module", fix=_RETURNS)
    if loss is not None and not callable(loss):
        raise InputError(f"{of}: the loss is {type(loss).__name__}, no function", fix=_RETURNS)
    keywords = nested.mapped(_keywords(of, model, inputs), lambda t: t)
    if not nested.named(keywords):
        raise InputError(f"{of}: there is no tensor in the inputs", fix=_RETURNS)
    if any(not isinstance(v, torch.Tensor) for v in nested.named(keywords).values()):
        keywords = nested.mapped(keywords, torch.as_tensor)
    return Made(model.cpu(), nested.mapped(keywords, _array), loss, targets)


def _array(tensor: torch.Tensor) -> Any:
    """In numpy; floating ones in fp32, as the weights are."""
    value = tensor.detach().cpu()
    return (value.float() if value.is_floating_point() else value).numpy()


def _keywords(of: Target, model: nn.Module, inputs: Any) -> dict[str, Any]:
    """The inputs as keyword arguments of the module's forward."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    values = inputs if isinstance(inputs, tuple | list) else (inputs,)
    try:
        bound = inspect.signature(model.forward).bind(*values)
    except TypeError as e:
        what = f"{len(values)} inputs do not fit {type(model).__name__}.forward ({e})"
        raise InputError(f"{of}: {what}", fix="return a tuple or a dict of its arguments") from None
    kinds = inspect.signature(model.forward).parameters
    for name in bound.arguments:
        if kinds[name].kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.POSITIONAL_ONLY,
        ):
            raise InputError(
                f"{of}: {type(model).__name__}.forward takes inputs without names (*{name})",
                fix="give it named parameters, as in forward(self, x)",
            )
    return dict(bound.arguments)


def _settled(of: Target, made: Made) -> None:
    """Give lazy modules their shapes, and bring all weights to fp32."""
    import torch
    from torch.nn.parameter import is_lazy

    model = made.model
    if any(is_lazy(v) for v in (*model.parameters(), *model.buffers())):
        with torch.no_grad():
            _called(of, lambda: model(**nested.mapped(made.inputs, torch.tensor)))
    if any(p.is_floating_point() and p.dtype != torch.float32 for p in model.parameters()):
        log(f"{of}: weights are made fp32; --precision says in what they are measured")
        model.float()


@contextlib.contextmanager
def explained(location: str, what: str) -> Iterator[None]:
    """What the user's code, or torch because of it, raises inside the block is one line."""
    try:
        yield
    except LayerlineError:
        raise
    except FAULTS as e:
        if isinstance(e, RuntimeError) and "memory" in str(e):
            raise
        file = location.rpartition(":")[0]
        place = _place(Path(file).parent, e) if file.endswith(".py") else ""
        raise InputError(f"{location}: {what} fails, {gist(e)}{place}", fix=_MEND) from e


def digest(made: Made) -> str:
    """SHA-256 of the weights and inputs."""
    import torch

    found = hashlib.sha256()
    values = {**made.model.state_dict(), **nested.named(made.inputs)}
    for name, value in values.items():
        if nested.is_array(value):
            found.update(name.encode())
            data = torch.as_tensor(value).detach().cpu().contiguous()
            found.update(data.reshape(-1).view(torch.uint8).numpy().data if data.numel() else b"")
    return found.hexdigest()


def loss_of(made: Made, device: torch.device) -> Callable[[Any], torch.Tensor] | None:
    """The loss on a device, of what the module returned; None where the function gave none."""
    import torch

    if made.loss is None:
        return None
    loss = made.loss
    if isinstance(loss, torch.nn.Module):
        loss = copy.deepcopy(loss).to(device)
    if made.targets is None:
        return loss
    on_device = nested.mapped(made.targets, lambda t: torch.as_tensor(t, device=device))
    return lambda output: loss(output, on_device)
