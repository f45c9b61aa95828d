"""For programs that are not ours, two lines::

    from layerline.profile.ranks.watch import steps
    for batch in steps(loader):
        ...

Under `layerline train --profile … -- python own.py` each step is then a range
(``layerline/iteration/N``); the steps of the window that was asked for are recorded by
torch.profiler, and are what nsys and ncu capture between cudaProfilerStart and Stop; and where
the program fails, PyTorch's Flight Recorder is asked in which collective it was. Started in
any other way, `steps` gives the items and does nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...core.files import replacing
from ..eager import hooks
from .leaving import dump_collectives, exit_when_told
from .plan import WATCH

T = TypeVar("T")


class Watch(msgspec.Struct, frozen=True):
    """Steps `first` to `last` are captured, by torch.profiler where `torch`; `stem` is the place of
    this rank's captures, `folder` the job's."""

    stem: str
    folder: str
    first: int = 1
    last: int = 3
    torch: bool = False


def steps(items: Iterable[T]) -> Iterator[T]:
    """The items, each a step that is watched until the next is asked for: the step begins when its
    item is asked for, so that a data loader's time belongs to it."""
    text = os.environ.get(WATCH)
    if text is None:
        yield from items
        return
    window = _Window(msgspec.json.decode(text, type=Watch))
    # An error in the loop's body ends this generator late or never; the process's end is certain.
    atexit.register(window.abandon)
    exit_when_told()
    iterator = iter(items)
    for number in itertools.count():
        with window.step(number):
            try:
                item = next(iterator)
            except StopIteration:
                break
            yield item
    window.finish()


class _Window:
    """What captures the steps of the window."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._profiler: Any = None
        self._open = self._done = False

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        import torch

        if number == self._watch.first:
            self._start(torch)
        with contextlib.ExitStack() as ranges:
            if self._open and self._watch.torch:
                ranges.enter_context(hooks.iteration(number))
            elif self._open and torch.cuda.is_available():
                ranges.enter_context(hooks.iteration(number, hooks.nvtx))
            yield
        if number == self._watch.last:
            self.close()

    def _start(self, torch: Any) -> None:
        self._open = True
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStart()
        if self._watch.torch:
            profiler = torch.profiler.profile(record_shapes=True)
            profiler.start()
            self._profiler = profiler  # only now is there something to stop

    def close(self) -> None:
        """Stop, and leave the trace, also of a window that was cut short."""
        if not self._open:
            return
        self._open = False
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStop()
        if self._profiler is not None:
            self._profiler.stop()
            with replacing(Path(f"{self._watch.stem}.trace.json.gz")) as temporary:
                self._profiler.export_chrome_trace(str(temporary))
            self._profiler = None

    def finish(self) -> None:
        """All steps are done."""
        self.close()
        self._done = True

    def abandon(self) -> None:
        """The process ends, perhaps in the middle of its steps."""
        if not self._done:
            dump_collectives(Path(self._watch.folder))
            self.close()
