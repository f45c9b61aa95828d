"""Captures of many ranks to partials, one task a file: here, in processes, or on Dask.

A partial is a folder of one rank's tables (`model.ranks.PARTIAL`) as Arrow files and its identity;
whoever joins the ranks reads from it what it needs. So memory goes with one capture, wherever tasks
run. A folder of partials must be seen by all workers: on a cluster, a shared file system.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa

from ...core.errors import InputError, LayerlineError, ToolMissing
from ..model.ranks import PARTIAL, Identity, RankCapture
from ..ranks.identity import Contradiction

_IDENTITY = "identity.json"
# Below it, starting processes takes longer than they save.
SMALL_BYTES = 40 << 20


class Failure(msgspec.Struct, frozen=True):
    """Why a file could not be read: what an error says, which no process can send whole.
    `contradiction`: not the file, but what it says of itself is wrong."""

    what: str
    file: str | None
    fix: str | None
    contradiction: bool = False

    def error(self) -> InputError:
        """It as an error again."""
        return InputError(self.what, file=self.file, fix=self.fix)


def captures(path: Path) -> list[RankCapture]:
    """The captures in a file: one, or those of all processes under one nsys."""
    from ..readers import registry
    from . import rank

    kind = registry.identify(path).KIND
    if kind == "torch-trace":
        return [rank.read(path)]
    if kind == "nsys-sqlite":
        from . import rank_nsys

        return rank_nsys.read(path)
    raise InputError(
        f"is a file of another kind ({kind})",
        file=path,
        fix="give traces of torch.profiler, or nsys reports exported to SQLite",
    )


def make(folder: Path, numbered: tuple[int, Path]) -> list[Path] | Failure:
    """The task: the partials of one file, numbered so that no two files meet."""
    number, path = numbered
    try:
        written = []
        for part, capture in enumerate(captures(path)):
            place = folder / f"{number:05d}.{part:03d}"
            place.mkdir(parents=True, exist_ok=True)
            write(capture, place)
            written.append(place)
        return written
    except LayerlineError as e:
        return Failure(e.what, e.file or str(path), e.fix, isinstance(e, Contradiction))
    except MemoryError:
        return Failure("does not fit in memory", str(path), "capture fewer steps")


def write(capture: RankCapture, place: Path) -> None:
    """Write a partial."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    for name, schema in PARTIAL.items():
        with pa.ipc.new_file(str(place / f"{name}.arrow"), schema, options=options) as file:
            file.write_table(getattr(capture, name))
    (place / _IDENTITY).write_bytes(msgspec.json.encode(capture.identity))


def identity(place: Path) -> Identity:
    """Whose a partial is."""
    return msgspec.json.decode((place / _IDENTITY).read_bytes(), type=Identity)


def table(place: Path, name: str) -> pa.Table:
    """One table of a partial."""
    with pa.ipc.open_file(str(place / f"{name}.arrow")) as file:
        return file.read_all()


def load(place: Path) -> RankCapture:
    """The capture that a partial holds, without its operations."""
    tables = {name: table(place, name) for name in PARTIAL if name != "operations"}
    return RankCapture(identity(place), **tables, operations=PARTIAL["operations"].empty_table())


def make_all(
    paths: Sequence[Path], folder: Path, workers: int | None = None, scheduler: str | None = None
) -> Iterator[list[Path] | Failure]:
    """The partials of each file, in the order given; processes begin at once.

    `workers`: processes, 1 for none; None: as many as there are CPUs, where it is worth it.
    `scheduler`: the address of a Dask scheduler, whose workers do it instead."""
    task = partial(make, folder)
    numbered = list(enumerate(paths))
    if scheduler is not None:
        return _on_dask(task, numbered, scheduler)
    if workers is None:
        size = sum(p.stat().st_size for p in paths if p.exists())
        workers = 1 if size < SMALL_BYTES else len(os.sched_getaffinity(0))
    workers = min(workers, len(paths))
    if workers <= 1:
        return map(task, numbered)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # others keep 20 MB a process
    # No limit of tasks for a process: Python 3.11's pool waits for ever when it replaces one.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _without_pandas)
    return _in_processes(pool, pool.map(task, numbered))


def _without_pandas() -> None:
    """Let pyarrow do without pandas, which it imports with its first array, to know pandas' own:
    that takes a fifth of a second and 40 MB."""
    path, sys.path = sys.path, []
    pa.array([])
    sys.path = path


def _in_processes(
    pool: ProcessPoolExecutor, made: Iterator[list[Path] | Failure]
) -> Iterator[list[Path] | Failure]:
    with pool:
        try:
            yield from made
        except BrokenProcessPool:
            raise InputError(
                "a process that read captures was killed, as it is when memory runs out",
                fix="take fewer with --workers",
            ) from None


def _on_dask(
    task: partial[list[Path] | Failure], numbered: Sequence[tuple[int, Path]], scheduler: str
) -> Iterator[list[Path] | Failure]:
    try:
        from distributed import Client
    except ImportError:
        raise ToolMissing(
            "dask is not installed", fix="pip install 'layerline[cluster]', here and on the workers"
        ) from None
    try:
        client = Client(scheduler, timeout=20)
    except (OSError, ValueError, TimeoutError) as e:
        raise ToolMissing(
            f"no Dask scheduler answers at {scheduler} ({e})", fix="start one: dask scheduler"
        ) from None
    with client:
        futures = client.map(task, [(n, p.resolve()) for n, p in numbered], pure=False)
        for (_, path), future in zip(numbered, futures, strict=True):
            error = future.exception()
            if error is not None:
                yield Failure(f"could not be read by a worker ({error})", str(path), None)
            else:
                yield future.result()
            future.release()
